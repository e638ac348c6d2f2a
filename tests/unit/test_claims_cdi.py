import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from liken.claims import annotations, cdi, schema
from liken.claims.annotations import RecordError
from liken.claims.ledger import encoded
from liken.claims.options import NodeOptions
from liken.claims.prepared import PreparedClaim, PreparedDevice
from liken.claims.records import prepared_claims
from liken.model.hardware import DevNumber
from liken.model.offers import DeviceName, DeviceNode, Offer
from tests.unit.fakes_state import usb_key

TTY = DeviceNode(path="/dev/ttyUSB0", kind="tty", number=DevNumber(188, 0))
BUS_NODE = DeviceNode(path="/dev/bus/usb/001/007", kind="usb", number=DevNumber(189, 6))


def device(name: str = "usb-1-4-1-0", nodes: tuple[DeviceNode, ...] = (BUS_NODE, TTY), **more: Any) -> PreparedDevice:
    offer = Offer(
        name=DeviceName(name), key=usb_key("1-4:1.0"), nodes=nodes, attributes={"vendor": "10c4", "renderNode": True}
    )
    fields: dict[str, Any] = {
        "pool": "node-a",
        "request": "adapter",
        "offer": offer,
        "first": nodes,
        "nodes": nodes,
    } | more
    return PreparedDevice(name=DeviceName(name), **fields)


def claim(*devices: PreparedDevice, uid: str = "3d5a1f00") -> PreparedClaim:
    return PreparedClaim(uid=uid, namespace="home", name="zigbee", since=1.5, boot="b", devices=devices or (device(),))


def edits(*devices: PreparedDevice) -> list[Any]:
    return [made["containerEdits"] for made in cdi.document(claim(*devices))["devices"]]


def test_a_document_holds_paths_and_no_numbers() -> None:
    document = cdi.document(claim())
    assert document["cdiVersion"] == "0.6.0"
    assert document["kind"] == "liken.sh/device"
    assert document["devices"][0]["name"] == "3d5a1f00_adapter_usb-1-4-1-0"
    assert edits(device()) == [{"deviceNodes": [{"path": "/dev/bus/usb/001/007"}, {"path": "/dev/ttyUSB0"}]}]


def test_a_device_that_is_gone_is_one_path_that_cannot_exist_and_names_it() -> None:
    assert edits(device(nodes=())) == [{"deviceNodes": [{"path": "/dev/liken-gone-usb-1-4-1-0"}]}]


def test_a_program_s_bus_node_alone_is_nothing_when_the_bus_node_was_not_wanted() -> None:
    assert edits(device(nodes=(BUS_NODE,), options=NodeOptions(bus_node=False))) == [
        {"deviceNodes": [{"path": "/dev/liken-gone-usb-1-4-1-0"}]}
    ]


def test_nodes_of_one_kind_get_numbers_under_a_name_in_their_natural_order() -> None:
    several = tuple(DeviceNode(path=f"/dev/ttyUSB{n}", kind="tty") for n in (10, 2))
    pairs = cdi.delivery(several, NodeOptions(paths={"tty": "/dev/modem"}))
    assert pairs == (("/dev/modem0", "/dev/ttyUSB2"), ("/dev/modem1", "/dev/ttyUSB10"))


def test_group_and_mode_are_pinned_on_every_node() -> None:
    (made,) = edits(device(options=NodeOptions(group=20, mode=0o640, bus_node=False)))
    assert made == {"deviceNodes": [{"path": "/dev/ttyUSB0", "fileMode": 0o640, "gid": 20}]}


def test_supplemental_groups_pin_each_node_s_own_group_and_add_it() -> None:
    groups = {TTY.path: 20, BUS_NODE.path: 0}
    (made,) = edits(device(options=NodeOptions(supplemental_groups=True), groups=groups))
    assert made == {
        "deviceNodes": [{"path": BUS_NODE.path, "gid": 0}, {"path": TTY.path, "gid": 20}],
        "additionalGids": [20],
    }
    assert (
        cdi.document(claim(device(options=NodeOptions(supplemental_groups=True), groups=groups)))["cdiVersion"]
        == "0.7.0"
    )


@pytest.mark.parametrize(
    ("devices", "version"),
    [
        ([{"name": "usb-1", "containerEdits": {"deviceNodes": [{"path": "/dev/a"}]}}], "0.3.0"),
        ([{"name": "1usb", "containerEdits": {"deviceNodes": [{"path": "/dev/a"}]}}], "0.5.0"),
        ([{"name": "u", "containerEdits": {"deviceNodes": [{"path": "/dev/a", "hostPath": "/dev/b"}]}}], "0.5.0"),
        ([{"name": "u", "annotations": {"a": "b"}, "containerEdits": {}}], "0.6.0"),
        ([{"name": "u", "containerEdits": {"additionalGids": [20]}}], "0.7.0"),
    ],
)
def test_the_version_is_the_lowest_that_carries_the_content(devices: list[Any], version: str) -> None:
    assert cdi.lowest_version({"devices": devices}) == version


def test_the_inventory_without_kubernetes_is_readable_by_old_runtimes() -> None:
    document = cdi.inventory([device().offer, device("usb-9", nodes=()).offer])
    assert document == {
        "cdiVersion": "0.3.0",
        "kind": "liken.sh/device",
        "devices": [
            {
                "name": "usb-1-4-1-0",
                "containerEdits": {"deviceNodes": [{"path": "/dev/bus/usb/001/007"}, {"path": "/dev/ttyUSB0"}]},
            }
        ],
    }
    assert schema.problems(document) == ()
    assert cdi.inventory([]) is None


def test_two_shares_and_even_two_equal_results_have_names_of_their_own() -> None:
    shares = claim(device(share_id="s1"), device(share_id="s2"), device(), device(), device())
    assert len(set(cdi.names(shares))) == 5
    assert schema.problems(cdi.document(shares)) == ()


def test_no_two_claims_make_the_same_name() -> None:
    one = claim(device("c", request="a-b"), uid="u")
    other = claim(device("b-c", request="a"), uid="u")
    assert cdi.names(one) != cdi.names(other)


# --- property: what is written reads back, and every runtime accepts it -----------------------------------------------
labels = st.from_regex(r"[a-z]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)
node_strategy = st.builds(
    DeviceNode,
    path=st.sampled_from(["/dev/ttyUSB0", "/dev/ttyACM10", "/dev/bus/usb/001/002", "/dev/snd/controlC0"]),
    kind=st.sampled_from(["tty", "usb", "sound", None]),
    number=st.none() | st.builds(DevNumber, st.integers(0, 4095), st.integers(0, 2**20)),
)
options_strategy = st.builds(
    NodeOptions,
    paths=st.dictionaries(st.sampled_from(["tty", "sound"]), st.sampled_from(["/dev/a", "/dev/b/c"]), max_size=1),
    group=st.none() | st.integers(0, 2**32 - 2),
    mode=st.none() | st.integers(0, 0o777),
    supplemental_groups=st.booleans(),
    bus_node=st.booleans(),
)


@st.composite
def claims(draw: st.DrawFn) -> PreparedClaim:
    made = []
    for _ in range(draw(st.integers(1, 3))):
        nodes = tuple(draw(st.lists(node_strategy, min_size=1, max_size=4)))
        made.append(
            device(
                draw(labels),
                nodes,
                request=draw(labels),
                share_id=draw(st.none() | st.uuids().map(str)),
                admin=draw(st.booleans()),
                options=draw(options_strategy),
                groups={path: draw(st.integers(0, 2**32 - 2)) for path in draw(st.sets(st.just("/dev/ttyUSB0")))},
                enumeration=draw(st.sampled_from(["", "001/007"])),
                gone=draw(st.text(max_size=40)),
                moved=draw(st.text(max_size=40)),
            )
        )
    return claim(*made, uid=str(draw(st.uuids())))


@settings(max_examples=80, deadline=None)
@given(claims())
def test_what_is_written_reads_back_and_is_valid(made: PreparedClaim) -> None:
    document = json.loads(encoded(made))
    assert annotations.claim(document) == made
    assert schema.problems(document) == ()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner, max_size=3),
    max_leaves=10,
)


@settings(max_examples=100, deadline=None)
@given(json_values, st.sampled_from(["annotations", "devices", "kind", "cdiVersion", "containerEdits"]))
def test_no_foreign_document_is_taken_for_a_record_or_breaks_the_check(value: Any, field: str) -> None:
    for document in (value, cdi.document(claim()) | {field: value}):
        schema.problems(document)
        try:
            annotations.claim(document)
        except RecordError:
            continue
        assert field not in {"annotations", "devices"} or value == cdi.document(claim())[field]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cdiVersion": "9.9.9"}, "cdiVersion"),
        ({"cdiVersion": "0.5.0"}, "too low: the content needs 0.6.0"),
        ({"kind": "x.example/d"}, "kind"),
        ({"kind": "liken"}, "kind"),
        ({"vendor": "x"}, "unknown field 'vendor'"),
        ({"devices": []}, "at least one"),
        ({"annotations": {"a": 1}}, "not a text"),
        ({"annotations": {"a b": "1"}}, "no annotation's key"),
        ({"devices": [{"name": "a"}]}, "no edits"),
        ({"devices": [{"name": "-a", "containerEdits": {"deviceNodes": [{"path": "/dev/a"}]}}]}, "no device name"),
        ({"devices": [{"name": "a", "containerEdits": {"deviceNodes": [{"path": "dev/a"}]}}] * 2}, "occurs twice"),
        ({"devices": [{"name": "a", "containerEdits": {"deviceNodes": [{"hostPath": "/dev/a"}]}}]}, "no path"),
        ({"devices": [{"name": "a", "containerEdits": {"env": ["A=b"], "deviceNodes": []}}]}, "unknown field 'env'"),
        ({"devices": [{"name": "a", "containerEdits": {"deviceNodes": [{"path": "/dev/a", "gid": -1}]}}]}, "gid"),
        ({"devices": [{"name": "a", "containerEdits": {"additionalGids": ["x"]}}]}, "additionalGids"),
    ],
)
def test_each_fault_of_a_document_is_told(change: dict[str, Any], words: str) -> None:
    assert any(words in problem for problem in schema.problems(cdi.document(claim()) | change))


def test_people_read_the_claims_from_the_folder(tmp_path: Path) -> None:
    (tmp_path / "liken.sh-3d5a1f00.json").write_bytes(encoded(claim()))
    (tmp_path / "liken.sh-other.json").write_bytes(encoded(claim()))  # another's content under this name
    (tmp_path / "liken.sh-half.json").write_text('{"cdiVersion": "0.6')
    (tmp_path / "liken.sh.json").write_text("{}")
    (tmp_path / "nvidia.json").write_text("{}")
    (tmp_path / "liken.sh-link.json").symlink_to("/etc/hostname")
    assert prepared_claims(tmp_path / "missing") == ()
    (tmp_path / "liken.sh-link.json").unlink()
    (found,) = prepared_claims(tmp_path)
    assert (str(found), found.devices[0].health, found.devices[0].message) == ("home/zigbee", "Healthy", "")
