"""Slices: limits, one complete pool of one generation, stable against what is stored, and the smallest patch."""

import copy
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from liken.model.api import Json
from liken.model.offers import DeviceNode, Offer, Rules, Taint
from liken.state.slices import Composer, NodeRef, device_body, json_patch, slice_name, slices
from liken.state.view import view
from tests.unit.fakes_state import SomeNames, inventory, name, node, pci, usb_key

NODE = NodeRef(name="node-a", uid="1234")
TAINT = Taint(key="liken.sh/unplugged", value="", effect="NoExecute")
GUIDE = Path(__file__).parents[1] / "fixtures" / "guide"


def offer(index: int, *, taint: bool = False, **attributes: str) -> Offer:
    return Offer(
        name=name(f"usb-1-{index:04}-1-0"),
        key=usb_key(f"1-{index}:1.0"),
        nodes=(DeviceNode(path=f"/dev/ttyUSB{index}", kind="tty"),),
        attributes={"bus": "usb", "address": f"1-{index}:1.0", **attributes},
        taints=(TAINT,) if taint else (),
    )


def offers(count: int, tainted: Iterable[int] = ()) -> list[Offer]:
    return [offer(index, taint=index in tainted) for index in range(count)]


def stored(items: Sequence[Json], version: int = 7) -> list[Json]:
    """The slices as a server returns them: with a version, with times in taints, without empty lists."""
    found = copy.deepcopy(list(items))
    for item in found:
        item["metadata"] |= {"resourceVersion": str(version), "uid": "u", "generation": 1}
        for device in item["spec"].get("devices", ()):
            for taint in device.get("taints", ()):
                taint.setdefault("timeAdded", "2026-01-01T00:00:00Z")
        if not item["spec"].get("devices"):
            item["spec"].pop("devices", None)
    return found


def applied(operations: Sequence[Json], document: Json) -> Json:
    """RFC 6902 for add, remove and replace."""
    result = copy.deepcopy(document)
    for operation in operations:
        *parents, last = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
        place: Any = result
        for part in parents:
            place = place[int(part)] if isinstance(place, list) else place[part]
        key: Any = int(last) if isinstance(place, list) else last
        if operation["op"] == "add" and isinstance(place, list):
            place.insert(key, operation["value"])
            continue
        if operation["op"] != "add":
            place[key]  # what is replaced or removed must be there
        if operation["op"] == "remove":
            del place[key]
        else:
            place[key] = operation["value"]
    return result


def names(item: Json) -> list[str]:
    return [device["name"] for device in item["spec"].get("devices", ())]


def pools(items: Sequence[Json]) -> set[tuple[int, int]]:
    return {(item["spec"]["pool"]["generation"], item["spec"]["pool"]["resourceSliceCount"]) for item in items}


def check(items: Sequence[Json], wanted: Sequence[Offer]) -> None:
    """One complete pool: every device once, the limits kept, one generation and the right count."""
    assert [item["metadata"]["name"] for item in items] == [slice_name("node-a", index) for index in range(len(items))]
    assert {count for _, count in pools(items)} == {len(items)}
    assert len(pools(items)) == 1
    found = [device for item in items for device in item["spec"].get("devices", ())]
    assert sorted(device["name"] for device in found) == sorted(device.name for device in wanted)
    for item in items:
        devices = item["spec"].get("devices", ())
        assert len(devices) <= (64 if any("taints" in device for device in devices) else 128)
        assert names(item) == sorted(names(item))


def test_the_guides_machine_comes_out_as_the_guide_shows_it_field_for_field() -> None:
    modalias = b"pci:v00008086d000046D2sv00008086sd00007270bc03sc00i00"
    nodes = [
        node("dri/renderD128", "drm"),
        node("dri/card0", "drm"),
        node("i2c-0", "i2c-dev"),
        node("i2c-2", "i2c-dev"),
        node("fb0", "graphics"),
    ]
    gpu = pci("0000:00:02.0", "i915", nodes, modalias=modalias + b"\n")
    found, _ = view(inventory(gpu), Rules(), SomeNames())
    (item,) = slices(found.values(), node=NODE)
    wanted = yaml.safe_load((GUIDE / "devices.yaml").read_text())
    for device in wanted:
        abbreviated = device["attributes"]["modalias"]["string"].removesuffix("...")
        assert modalias.decode().startswith(abbreviated)
        device["attributes"]["modalias"] = {"string": modalias.decode()}
    assert item["spec"]["devices"] == wanted
    assert [list(device) for device in item["spec"]["devices"]] == [list(device) for device in wanted]
    assert [list(device["attributes"]) for device in item["spec"]["devices"]] == [
        list(device["attributes"]) for device in wanted
    ]


def test_a_slice_is_owned_by_its_node_and_complete() -> None:
    (item,) = slices(offers(1), node=NODE)
    assert item == {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {
            "name": "node-a-liken.sh",
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Node", "name": "node-a", "uid": "1234", "controller": True}
            ],
        },
        "spec": {
            "driver": "liken.sh",
            "nodeName": "node-a",
            "pool": {"name": "node-a", "generation": 1, "resourceSliceCount": 1},
            "devices": [device_body(offer(0))],
        },
    }


def test_without_the_nodes_uid_there_is_no_owner() -> None:
    assert slices((), node=NodeRef(name="n"))[0]["metadata"] == {"name": "n-liken.sh"}


def test_nothing_to_offer_is_one_empty_slice() -> None:
    (item,) = slices((), node=NODE)
    assert item["spec"]["devices"] == []
    assert slices((), node=NODE, previous=(kept := stored([item]))) == tuple(kept)


def test_a_node_name_of_the_longest_kind_still_gives_distinct_object_names() -> None:
    found = {slice_name(f"{'n' * 250}{tail}", index) for tail in "ab" for index in (0, 1)}
    assert len(found) == 4
    assert max(map(len, found)) <= 253


@pytest.mark.parametrize(("count", "expected"), [(0, 1), (128, 1), (129, 2), (257, 3), (1000, 8)])
def test_as_many_slices_as_it_takes_and_no_device_dropped(count: int, expected: int) -> None:
    found = slices(offers(count), node=NODE)
    check(found, offers(count))
    assert len(found) == expected


def test_one_changed_device_of_257_writes_one_slice_and_keeps_the_generation() -> None:
    before = stored(slices(offers(257), node=NODE))
    changed = offers(257)
    changed[140] = offer(140, serial="X")
    after = slices(changed, node=NODE, previous=before)
    assert [old is new for old, new in zip(before, after, strict=True)] == [True, False, True]
    assert pools(after) == {(1, 3)}


def test_a_129th_device_moves_everything_to_a_new_generation_and_leaving_keeps_two_slices() -> None:
    first = stored(slices(offers(128), node=NODE))
    second = stored(slices(offers(129), node=NODE, previous=first))
    check(second, offers(129))
    assert pools(second) == {(2, 2)}
    third = slices(offers(128), node=NODE, previous=second)
    check(third, offers(128))
    assert pools(third) == {(2, 2)}
    assert third[0] is second[0]


def test_slices_are_given_up_when_half_of_them_would_do() -> None:
    before = stored(slices(offers(300), node=NODE))
    after = slices(offers(128), node=NODE, previous=before)
    check(after, offers(128))
    assert pools(after) == {(2, 1)}


def test_one_taint_among_65_devices_splits_them_and_only_the_tainted_one_moves() -> None:
    before = stored(slices(offers(65), node=NODE))
    after = stored(slices(offers(65, tainted=[3]), node=NODE, previous=before))
    check(after, offers(65))
    assert [len(names(item)) for item in after] == [64, 1]
    assert pools(after) == {(2, 2)}
    again = slices(offers(65), node=NODE, previous=after)
    check(again, offers(65))
    assert pools(again) == {(2, 2)}


def test_a_slice_full_of_taints_gives_the_last_of_them_away() -> None:
    before = stored(slices(offers(128), node=NODE))
    check(slices(offers(128, tainted=range(128)), node=NODE, previous=before), offers(128))


def test_a_device_named_before_all_others_still_goes_where_there_is_room() -> None:
    rest = offers(130)[1:]
    before = stored(slices(rest, node=NODE))
    after = slices(offers(130), node=NODE, previous=before)
    check(after, offers(130))
    assert after[0] is before[0]
    assert pools(after) == {(1, 2)}


def test_a_deleted_slice_comes_back_as_it_was_and_the_others_stay() -> None:
    before = stored(slices(offers(257), node=NODE))
    after = slices(offers(257), node=NODE, previous=[before[0], before[2]])
    assert (after[0] is before[0], after[2] is before[2]) == (True, True)
    assert not json_patch(before[1], after[1])


def test_the_last_slice_deleted_comes_back_with_its_generation() -> None:
    before = stored(slices(offers(257), node=NODE))
    after = slices(offers(257), node=NODE, previous=before[:2])
    check(after, offers(257))
    assert pools(after) == {(1, 3)}


def test_an_interrupted_change_of_generation_goes_on_with_the_same_one() -> None:
    before = stored(slices(offers(128), node=NODE))
    wanted = slices(offers(129), node=NODE, previous=before)
    half = [before[0], stored(wanted)[1]]
    found = slices(offers(129), node=NODE, previous=half)
    assert [json_patch(old, new) for old, new in zip(found, wanted, strict=True)] == [[], []]
    other_half = stored(wanted)[:1]
    assert json_patch(slices(offers(129), node=NODE, previous=other_half)[1], wanted[1]) == []


def test_an_interrupted_repack_goes_on_with_the_same_generation() -> None:
    before = stored(slices(offers(300), node=NODE))
    wanted = slices(offers(100), node=NODE, previous=before)
    half = [stored(wanted)[0], *before[1:]]
    assert json_patch(half[0], slices(offers(100), node=NODE, previous=half)[0]) == []


@pytest.mark.parametrize(
    "edit",
    [
        lambda items: items[0]["spec"]["pool"].update(generation=99),
        lambda items: items[1]["spec"]["pool"].update(resourceSliceCount=1_000_000_000),
        lambda items: items[0]["spec"]["devices"].reverse(),
        lambda items: items[0]["spec"]["devices"].append(items[1]["spec"]["devices"][0]),
        lambda items: items[0]["spec"]["devices"].insert(0, items[0]["spec"]["devices"][5]),
        lambda items: items[1]["spec"].pop("devices"),
        lambda items: items[1]["metadata"].update(name="node-a-liken.sh-007"),
        lambda items: items[1]["metadata"].update(name="node-a-liken.sh-9"),
        lambda items: items[1]["metadata"].update(name="node-a-liken.sh-x"),
        lambda items: items[1]["metadata"].update(name="somebody-elses"),
        lambda items: items[1]["metadata"].update(name="node-a-liken.sh-99999999999999"),
        lambda items: items[0]["metadata"].update(ownerReferences=[]),
    ],
)
def test_whatever_somebody_edits_the_pool_is_whole_again_and_then_stays(edit: Any) -> None:
    before = stored(slices(offers(200), node=NODE))
    edit(before)
    after = slices(offers(200), node=NODE, previous=before)
    check(after, offers(200))
    settled = stored(after)
    assert slices(offers(200), node=NODE, previous=settled) == tuple(settled)


def test_the_time_of_a_taint_is_sent_back_as_the_server_stored_it() -> None:
    before = stored(slices(offers(3, tainted=[1]), node=NODE))
    assert slices(offers(3, tainted=[1]), node=NODE, previous=before)[0] is before[0]
    after = slices(offers(4, tainted=[1]), node=NODE, previous=before)
    assert after[0]["spec"]["devices"][1]["taints"] == [
        {"key": "liken.sh/unplugged", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}
    ]
    dated = replace(offer(1), taints=(replace(TAINT, value="v", time_added="2027-01-01T00:00:00Z"),))
    assert device_body(dated)["taints"] == [
        {"key": "liken.sh/unplugged", "value": "v", "effect": "NoExecute", "timeAdded": "2027-01-01T00:00:00Z"}
    ]


def test_a_device_without_attributes_has_none() -> None:
    assert device_body(replace(offer(0), attributes={})) == {"name": "usb-1-0000-1-0"}


def test_the_patch_for_one_device_in_a_full_slice_is_small() -> None:
    long = {f"attribute{index}": "x" * 64 for index in range(12)}
    full = [replace(each, attributes={**each.attributes, **long}) for each in offers(128)]
    (before,) = stored(slices(full[:64] + full[65:], node=NODE))
    (after,) = slices(full, node=NODE, previous=[before])
    patch = json_patch(before, after)
    assert [operation["path"] for operation in patch] == ["/metadata/resourceVersion", "/spec/devices/64"]
    assert patch[0] == {"op": "replace", "path": "/metadata/resourceVersion", "value": "7"}
    assert len(json.dumps(patch)) < 2048


def test_a_key_with_a_slash_is_escaped_in_a_patch() -> None:
    (before,) = stored(slices([offer(0)], node=NODE))
    (after,) = slices([replace(offer(0), attributes={"a/b~c": "1"})], node=NODE, previous=[before])
    assert "/spec/devices/0/attributes/a~1b~0c" in [operation["path"] for operation in json_patch(before, after)]


def test_nothing_to_write_is_an_empty_patch() -> None:
    (body,) = slices(offers(5), node=NODE)
    (kept,) = stored([body])
    assert json_patch(kept, body) == json_patch(kept, kept) == []


ATTRIBUTES = st.dictionaries(
    st.sampled_from(["serial", "name", "resource.kubernetes.io/pciBusID", "flag"]),
    st.sampled_from(["a", "b"]) | st.just(value=True),
    max_size=4,
)
SETS = st.dictionaries(st.integers(0, 30), st.tuples(ATTRIBUTES, st.booleans(), st.booleans()), max_size=31)


def made(found: dict[int, tuple[dict[str, str | bool], bool, bool]]) -> list[Offer]:
    return [
        replace(offer(index, taint=taint), attributes=attributes, shareable=shareable)
        for index, (attributes, taint, shareable) in found.items()
    ]


@settings(max_examples=100, deadline=None)
@given(SETS, SETS, st.randoms(use_true_random=False))
def test_a_patch_applied_to_the_stored_slice_gives_the_new_one(first: Any, second: Any, chance: Any) -> None:
    (before,) = stored(slices(made(first), node=NODE))
    if chance.random() < 0.2:
        chance.shuffle(before["spec"].get("devices", []))
    (after,) = slices(made(second), node=NODE, previous=[before])
    patch = json_patch(before, after)
    result = applied(patch, before)
    assert result["spec"].get("devices", []) == after["spec"].get("devices", [])
    assert result["spec"]["pool"] == after["spec"]["pool"]
    assert not json_patch(result, after)


COUNTS = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 300), st.booleans()), min_size=2, max_size=5)


@settings(max_examples=20, deadline=None)
@given(COUNTS, st.randoms(use_true_random=False))
def test_whatever_comes_and_goes_the_pool_is_complete_and_a_repetition_writes_nothing(
    counts: list[tuple[int, int, bool]], chance: Any
) -> None:
    composer = Composer(NODE)
    previous: list[Json] = []
    for start, count, tainted in counts:
        taints = set(chance.sample(range(start, start + count), count // 3)) if tainted else set()
        wanted = [offer(index, taint=index in taints) for index in range(start, start + count)]
        found = composer.slices(wanted, previous=previous)
        check(found, wanted)
        assert found == slices(wanted, node=NODE, previous=previous)
        previous = stored(found)
        chance.shuffle(previous)
        again = composer.slices(wanted, previous=previous)
        assert all(any(item is old for old in previous) for item in again)
        assert len(again) == len(previous)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 300), st.integers(0, 300), st.randoms(use_true_random=False))
def test_no_device_is_twice_in_the_newest_generation_at_any_moment_of_a_change(
    first: int, second: int, chance: Any
) -> None:
    """Readers use the highest generation only, and only when it is whole."""
    before = stored(slices(offers(first), node=NODE))
    after = slices(offers(second), node=NODE, previous=before)
    now = {item["metadata"]["name"]: item for item in before}
    steps = [item for item in after if not any(item is old for old in before)]
    chance.shuffle(steps)
    for step in steps:
        now[step["metadata"]["name"]] = step
        newest = max(item["spec"]["pool"]["generation"] for item in now.values())
        pool = [item for item in now.values() if item["spec"]["pool"]["generation"] == newest]
        found = [device for item in pool for device in names(item)]
        assert len(found) == len(set(found))


def test_one_change_among_thousands_of_devices_rebuilds_one_slice() -> None:
    composer = Composer(NODE)
    wanted = offers(3_000)
    previous = stored(composer.slices(wanted))
    assert composer.slices(wanted, previous=previous) == tuple(previous)
    wanted[1500] = offer(1500, serial="A")
    found = composer.slices(wanted, previous=previous)
    (place,) = [index for index, item in enumerate(found) if item is not previous[index]]
    assert device_body(wanted[1500]) in found[place]["spec"]["devices"]
    previous[place] = stored([found[place]])[0]
    again = composer.slices(list(wanted), previous=previous)
    assert all(item is old for item, old in zip(again, previous, strict=True))


def test_more_changes_at_once_than_are_amended_give_the_same_slices() -> None:
    composer = Composer(NODE)
    previous = stored(composer.slices(offers(200)))
    composer.slices(offers(200), previous=previous)
    wanted = [offer(index, serial="A") for index in range(200)]
    assert composer.slices(wanted, previous=previous) == slices(wanted, node=NODE, previous=previous)


@pytest.mark.parametrize("changed", [offer(3, taint=True), replace(offer(900), name=name("usb-9-9-9-9"))])
def test_a_taint_or_another_name_is_laid_out_anew(changed: Offer) -> None:
    composer = Composer(NODE)
    wanted = offers(100)
    previous = stored(composer.slices(wanted))
    composer.slices(wanted, previous=previous)
    wanted[3] = changed
    found = composer.slices(wanted, previous=previous)
    check(found, wanted)
    assert found == slices(wanted, node=NODE, previous=previous)


def test_the_last_device_leaves_and_the_first_comes_in_one_operation_each() -> None:
    (full,) = stored(slices(offers(100), node=NODE))
    (empty,) = slices((), node=NODE, previous=[full])
    assert json_patch(full, empty)[1:] == [{"op": "replace", "path": "/spec/devices", "value": []}]
    (bare,) = stored([empty])
    assert [operation["op"] for operation in json_patch(bare, full)[1:]] == ["add"]
    (listed,) = copy.deepcopy([empty])
    assert [operation["op"] for operation in json_patch(listed, full)] == ["replace"]


def test_what_vanished_from_the_server_is_made_again_without_its_old_metadata() -> None:
    composer = Composer(NODE)
    previous = stored(composer.slices(offers(5)))
    assert composer.slices(offers(5), previous=previous) == tuple(previous)
    (again,) = composer.slices(offers(5), previous=())
    assert again == slices(offers(5), node=NODE)[0]
    edited = copy.deepcopy(previous)
    edited[0]["spec"]["devices"].pop()
    (repaired,) = composer.slices(offers(5), previous=edited)
    assert "resourceVersion" not in repaired["metadata"]
    assert repaired["spec"] == previous[0]["spec"]
