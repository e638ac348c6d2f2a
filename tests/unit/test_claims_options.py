from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from liken.claims import options
from liken.claims.options import API_VERSION, DEFAULTS, KIND, NodeOptions, OptionsError
from tests.unit.fakes_claims import opaque

FOREIGN = {"source": "FromClaim", "opaque": {"driver": "gpu.example.com", "parameters": {"kind": "Other"}}}


def test_without_a_configuration_a_device_is_delivered_as_it_is() -> None:
    assert options.options([], "gpu") == DEFAULTS
    assert options.options([FOREIGN], "gpu") == DEFAULTS


def test_a_claim_wins_over_its_class_field_by_field_in_any_order() -> None:
    config = [opaque("FromClaim", path="/dev/mine"), opaque("FromClass", path="/dev/class", busNode=False)]
    assert options.options(config, "gpu") == NodeOptions(path="/dev/mine", bus_node=False)


def test_a_path_by_kind_replaces_the_class_s_single_path() -> None:
    config = [opaque("FromClass", path="/dev/class"), opaque("FromClaim", paths={"tty": "/dev/mine"})]
    assert options.options(config, "gpu") == NodeOptions(paths={"tty": "/dev/mine"})


@pytest.mark.parametrize(
    ("requests", "request_", "concerned"),
    [
        ([], "gpu", True),
        (["gpu"], "gpu", True),
        (["gpu"], "gpu/best", True),
        (["gpu/best"], "gpu/best", True),
        (["gpu/other"], "gpu/best", False),
        (["sound"], "gpu", False),
    ],
)
def test_a_configuration_concerns_its_requests(requests: list[str], request_: str, *, concerned: bool) -> None:
    chosen = options.options([opaque(requests=requests, busNode=False)], request_)
    assert chosen.bus_node is not concerned


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"busnode": False}, "did you mean busNode"),
        ({"nonsense": 1}, "there are busNode, group, mode, path, paths, supplementalGroups"),
        ({"path": "/etc/x"}, "below /dev"),
        ({"path": "/dev/../etc/x"}, "below /dev"),
        ({"path": "/dev/"}, "below /dev"),
        ({"path": "/dev"}, "below /dev"),
        ({"path": "/dev//x"}, "below /dev"),
        ({"path": "/dev/a b"}, "below /dev"),
        ({"path": "/dev/x\n"}, "below /dev"),
        ({"path": "zigbee"}, "below /dev"),
        ({"path": "/dev/.."}, "below /dev"),
        ({"path": "/dev/" + "x" * 300}, "below /dev"),
        ({"path": 7}, "below /dev"),
        ({"path": "/dev/x", "paths": {"tty": "/dev/y"}}, "not both"),
        ({"paths": {}}, "like {tty: /dev/zigbee}"),
        ({"paths": "tty"}, "like {tty: /dev/zigbee}"),
        ({"paths": {"": "/dev/x"}}, "no kind of node"),
        ({"paths": {"tty": "/dev/x", "hidraw": "/dev/x"}}, "more than one kind"),
        ({"group": "dialout"}, "group's number"),
        ({"group": True}, "group's number"),
        ({"group": -1}, "group's number"),
        ({"group": 2**32 - 1}, "group's number"),
        ({"mode": 660}, 'like "0660"'),
        ({"mode": "0888"}, 'like "0660"'),
        ({"mode": "4755"}, 'like "0660"'),
        ({"supplementalGroups": "yes"}, "neither true nor false"),
        ({"busNode": 0}, "neither true nor false"),
    ],
)
def test_what_is_wrong_is_named_with_its_fix(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionsError) as caught:
        options.options([opaque(**fields)], "gpu")
    assert words in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "parameters",
    [None, [], "x", {}, {"apiVersion": API_VERSION}, {"apiVersion": "liken.sh/v1", "kind": KIND}, {"kind": KIND}],
)
def test_only_our_kind_and_version_are_read(parameters: Any) -> None:
    with pytest.raises(OptionsError):
        options.parsed(parameters)


def test_a_single_path_is_settled_on_the_node_that_is_not_the_bus_node() -> None:
    chosen = options.bound(NodeOptions(path="/dev/zigbee"), ["tty", "usb"], bus_kind="usb", device="d")
    assert chosen == NodeOptions(paths={"tty": "/dev/zigbee"})
    chosen = options.bound(NodeOptions(path="/dev/radio"), ["usb"], bus_kind="usb", device="d")
    assert chosen == NodeOptions(paths={"usb": "/dev/radio"})


def test_a_single_path_for_nodes_of_several_kinds_is_an_error_that_shows_paths() -> None:
    with pytest.raises(OptionsError, match=r"hidraw, input.*write paths, like \{hidraw: /dev/x\}"):
        options.bound(NodeOptions(path="/dev/x"), ["input", "hidraw", "usb"], bus_kind="usb", device="d")


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.sampled_from(options.FIELDS), st.none() | st.integers() | st.text(max_size=20)))
def test_a_stranger_s_values_are_read_or_refused_and_never_more(fields: dict[str, Any]) -> None:
    try:
        chosen = options.parsed({"apiVersion": API_VERSION, "kind": KIND} | fields)
    except OptionsError:
        return
    written = options.as_json(NodeOptions(**chosen))
    assert options.parsed({"apiVersion": API_VERSION, "kind": KIND} | written) | chosen == chosen
