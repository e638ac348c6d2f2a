"""What liken relies on an API server for: one suite for the in-memory one and the real one.

Refusals are compared by their words, not by the field path, which moves between versions.
"""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from liken.kube import paths
from liken.model.api import Conflict, Gone, Invalid, Json, Listed, NotFound, WatchEvent, WatchKind
from tests.contract.conftest import Server

pytestmark = pytest.mark.anyio

WATCH_S = 20.0


def device(name: str = "a", **more: Any) -> Json:
    return {"name": name, "attributes": {"bus": {"string": "usb"}}, **more}


def body(server: Server, *devices: Json, name: str = "", **pool: Any) -> Json:
    spec: Json = {
        "driver": "liken.sh",
        "nodeName": server.node,
        "pool": {"name": server.node, "generation": 1, "resourceSliceCount": 1} | pool,
        "devices": list(devices),
    }
    metadata = {"name": name or server.slice_name}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": metadata, "spec": spec}


async def created(server: Server, *devices: Json, name: str = "", **pool: Any) -> Json:
    return await server.kube.create(paths.slices(), body(server, *devices, name=name, **pool))


def guarded(item: Json, *ops: Json) -> list[Json]:
    guard = {"op": "replace", "path": "/metadata/resourceVersion", "value": item["metadata"]["resourceVersion"]}
    return [guard, *ops]


def bump(generation: int) -> Json:
    return {"op": "replace", "path": "/spec/pool/generation", "value": generation}


@contextlib.asynccontextmanager
async def watching(server: Server, version: str) -> AsyncIterator[AsyncIterator[WatchEvent]]:
    selector = f"spec.nodeName={server.node},spec.driver=liken.sh"
    events = server.kube.watch(paths.slices(), field_selector=selector, resource_version=version)
    async with contextlib.aclosing(events):
        with anyio.fail_after(WATCH_S):
            yield events


class TestObjects:
    """Creating, reading, changing, deleting."""

    async def test_what_was_created_is_read_back(self, server: Server) -> None:
        made = await created(server, device())
        assert made["metadata"]["uid"]
        assert made["metadata"]["generation"] == 1
        assert await server.kube.get(paths.slice(server.slice_name)) == made

    async def test_a_name_is_taken_once(self, server: Server) -> None:
        await created(server)
        with pytest.raises(Conflict, match="already exists") as caught:
            await created(server)
        assert (caught.value.status, caught.value.reason) == (409, "AlreadyExists")

    async def test_what_is_not_there_is_not_found(self, server: Server) -> None:
        with pytest.raises(NotFound, match="not found"):
            await server.kube.get(paths.slice(server.slice_name))
        with pytest.raises(NotFound, match="not found"):
            await server.kube.json_patch(paths.slice(server.slice_name), [bump(2)])
        with pytest.raises(NotFound, match="not found"):
            await server.kube.delete(paths.slice(server.slice_name))

    async def test_a_type_nobody_serves_is_not_found(self, server: Server) -> None:
        with pytest.raises(NotFound):
            await server.kube.list("/apis/nobody.example/v1/things")

    async def test_deleting_ends_it(self, server: Server) -> None:
        await created(server, device())
        await server.kube.delete(paths.slice(server.slice_name))
        with pytest.raises(NotFound):
            await server.kube.get(paths.slice(server.slice_name))

    async def test_a_generated_name_is_unique(self, server: Server) -> None:
        template = body(server)
        template["metadata"] = {"generateName": f"{server.node}-"}
        names = {(await server.kube.create(paths.slices(), template))["metadata"]["name"] for _ in range(3)}
        assert len(names) == 3
        assert all(name.startswith(f"{server.node}-") for name in names)

    async def test_a_dry_run_answers_and_stores_nothing(self, server: Server) -> None:
        answer = await server.kube.create(paths.slices(), body(server, device()), dry_run=True)
        assert answer["spec"]["devices"][0]["name"] == "a"
        with pytest.raises(NotFound):
            await server.kube.get(paths.slice(server.slice_name))
        with pytest.raises(Invalid):
            await server.kube.create(paths.slices(), body(server, device("USB")), dry_run=True)

    async def test_unknown_fields_are_dropped(self, server: Server) -> None:
        made = await created(server, device(colour="red"))
        assert "colour" not in made["spec"]["devices"][0]

    async def test_an_empty_slice_is_accepted(self, server: Server) -> None:
        made = await created(server)
        assert not made["spec"].get("devices")


class TestPatches:
    """RFC 6902, RFC 7386, PUT, and their guards."""

    async def test_a_json_patch_changes_what_it_says(self, server: Server) -> None:
        made = await created(server, device("a"), device("b"))
        ops = guarded(
            made,
            {"op": "remove", "path": "/spec/devices/0"},
            {"op": "add", "path": "/spec/devices/-", "value": device("c")},
            {"op": "replace", "path": "/spec/devices/0/attributes/bus/string", "value": "pci"},
        )
        after = await server.kube.json_patch(paths.slice(server.slice_name), ops)
        assert [found["name"] for found in after["spec"]["devices"]] == ["b", "c"]
        assert after["spec"]["devices"][0]["attributes"] == {"bus": {"string": "pci"}}
        assert after["metadata"]["generation"] == 2
        assert int(after["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])

    async def test_a_stale_guard_is_a_conflict_for_every_kind_of_write(self, server: Server) -> None:
        old = await created(server, device())
        path = paths.slice(server.slice_name)
        await server.kube.json_patch(path, [bump(2)])
        with pytest.raises(Conflict, match="the object has been modified") as caught:
            await server.kube.json_patch(path, guarded(old, bump(3)))
        assert (caught.value.status, caught.value.reason) == (409, "Conflict")
        with pytest.raises(Conflict, match="the object has been modified"):
            await server.kube.replace(path, old)
        stale = {"metadata": {"resourceVersion": old["metadata"]["resourceVersion"]}}
        with pytest.raises(Conflict, match="the object has been modified"):
            await server.kube.merge_patch(path, {**stale, "spec": {"pool": {"generation": 3}}})

    async def test_a_failed_test_operation_is_invalid_without_a_reason(self, server: Server) -> None:
        await created(server, device())
        test = {"op": "test", "path": "/metadata/resourceVersion", "value": "1"}
        with pytest.raises(Invalid, match="the server rejected our request due to an error in our request"):
            await server.kube.json_patch(paths.slice(server.slice_name), [test, bump(2)])

    async def test_a_path_that_is_not_there_is_invalid(self, server: Server) -> None:
        await created(server, device())
        with pytest.raises(Invalid):
            await server.kube.json_patch(paths.slice(server.slice_name), [{"op": "remove", "path": "/spec/devices/7"}])

    async def test_a_merge_patch_merges_and_removes(self, server: Server) -> None:
        await created(server, device())
        path = paths.slice(server.slice_name)
        await server.kube.merge_patch(path, {"metadata": {"labels": {"a": "1", "b": "2"}}})
        after = await server.kube.merge_patch(path, {"metadata": {"labels": {"a": None}}})
        assert after["metadata"]["labels"] == {"b": "2"}
        assert after["metadata"]["generation"] == 1

    async def test_writing_the_same_again_is_no_new_version(self, server: Server) -> None:
        made = await created(server, device())
        path = paths.slice(server.slice_name)
        same = await server.kube.json_patch(path, guarded(made, bump(1)))
        again = await server.kube.replace(path, made)
        versions = {item["metadata"]["resourceVersion"] for item in (made, same, again)}
        assert len(versions) == 1

    @pytest.mark.parametrize(
        ("field", "value"), [("driver", "other.sh"), ("nodeName", "elsewhere"), ("pool/name", "elsewhere")]
    )
    async def test_what_identifies_a_slice_never_changes(self, server: Server, field: str, value: str) -> None:
        await created(server, device())
        op = {"op": "replace", "path": f"/spec/{field}", "value": value}
        with pytest.raises(Invalid, match="field is immutable"):
            await server.kube.json_patch(paths.slice(server.slice_name), [op])

    async def test_the_generation_of_the_pool_may_go_down(self, server: Server) -> None:
        await created(server, device(), generation=7)
        after = await server.kube.json_patch(paths.slice(server.slice_name), [bump(2)])
        assert after["spec"]["pool"]["generation"] == 2


def attributes(count: int) -> Json:
    return {f"a{number}": {"string": "x"} for number in range(count)}


REFUSED = {
    "129 devices": ([device(f"d{n}") for n in range(129)], "must have at most 128 items"),
    "65 bytes": ([device(attributes={"s": {"string": "x" * 65}})], "may not be more than 64 bytes"),
    "33 two-byte characters": ([device(attributes={"s": {"string": "é" * 33}})], "may not be more than 64 bytes"),
    "a long version": ([device(attributes={"v": {"version": f"1.0.0-{'x' * 60}"}})], "may not be more than 64 bytes"),
    "no semver": (
        [device(attributes={"v": {"version": "550.127.08"}})],
        "must be a string compatible with semver.org spec 2.0.0",
    ),
    "33 attributes": (
        [device(attributes=attributes(33))],
        "the total number of attributes and capacities must not exceed 32",
    ),
    "no identifier": ([device(attributes={"usb-serial": {"string": "x"}})], "a valid C identifier must start with"),
    "a long key": ([device(attributes={"k" * 33: {"string": "x"}})], "may not be more than 32 bytes"),
    "a long domain": ([device(attributes={f"{'d' * 62}.x/k": {"string": "x"}})], "may not be more than 63 bytes"),
    "a name twice": ([device("a"), device("a")], 'Duplicate value: "a"'),
    "a long name": ([device("d" * 64)], "must be no more than 63 characters"),
    "an upper-case name": ([device("USB")], "a lowercase RFC 1123 label must consist of"),
    "no value": ([device(attributes={"x": {}})], r"must specify one of|exactly one value must be specified"),
    "two values": (
        [device(attributes={"x": {"string": "x", "bool": True}})],
        r"must specify exactly one of|exactly one value must be specified",
    ),
}

TAINT = {"key": "liken.sh/unplugged", "value": "x", "effect": "NoExecute"}

REFUSED_WITH_TAINTS = {
    "65 devices and a taint": (
        [device("d0", taints=[TAINT]), *(device(f"d{n}") for n in range(1, 65))],
        "Too many: 65: must have at most 64 items",
    ),
    "17 taints": (
        [device(taints=[{**TAINT, "key": f"liken.sh/t{n}"} for n in range(17)])],
        "Too many: 17: must have at most 16 items",
    ),
}


class TestLimits:
    """What makes the server refuse a whole slice, and what it takes although it should not."""

    @pytest.mark.parametrize("case", REFUSED)
    async def test_refuses(self, server: Server, case: str) -> None:
        devices, words = REFUSED[case]
        with pytest.raises(Invalid, match=words) as caught:
            await created(server, *devices)
        assert caught.value.status == 422
        assert f'"{server.slice_name}" is invalid' in str(caught.value)

    @pytest.mark.parametrize("case", REFUSED_WITH_TAINTS)
    async def test_refuses_too_many_where_taints_are_known(self, server: Server, case: str) -> None:
        devices, words = REFUSED_WITH_TAINTS[case]
        if server.drops:
            made = await created(server, *devices)
            assert "taints" not in made["spec"]["devices"][0]
            return
        with pytest.raises(Invalid, match=words):
            await created(server, *devices)

    async def test_refuses_a_long_driver_name_and_an_empty_pool_count(self, server: Server) -> None:
        item = body(server, device())
        item["spec"]["driver"] = f"{'d' * 32}.{'d' * 31}"
        with pytest.raises(Invalid, match="may not be more than 63 bytes"):
            await server.kube.create(paths.slices(), item)
        with pytest.raises(Invalid, match="Invalid value: 0: must be greater than zero"):
            await created(server, device(), resourceSliceCount=0)

    async def test_takes_the_most_there_may_be(self, server: Server) -> None:
        full = device(attributes=attributes(31) | {f"{'d' * 61}.x/{'k' * 32}": {"string": "é" * 32}})
        await created(server, full, *(device(f"d{n}") for n in range(127)))

    @pytest.mark.parametrize(
        "found",
        [{"s": {"string": "a\x01b\n"}}, {"x": {"string": "1"}, "liken.sh/x": {"string": "2"}}],
        ids=["control characters", "plain and qualified"],
    )
    async def test_takes_what_is_ours_to_keep_out(self, server: Server, found: Json) -> None:
        made = await created(server, device(attributes=found))
        assert made["spec"]["devices"][0]["attributes"] == found


class TestGates:
    """Fields whose feature gate is off by default before 1.36."""

    async def test_a_shareable_device(self, server: Server) -> None:
        made = await created(server, device(allowMultipleAllocations=True))
        assert made["spec"]["devices"][0].get("allowMultipleAllocations", False) is not server.drops

    async def test_a_dropped_field_makes_each_repetition_a_new_version(self, server: Server) -> None:
        made = await created(server, device(allowMultipleAllocations=True))
        op = {"op": "add", "path": "/spec/devices/0/allowMultipleAllocations", "value": True}
        again = await server.kube.json_patch(paths.slice(server.slice_name), [op])
        assert (again["metadata"]["resourceVersion"] != made["metadata"]["resourceVersion"]) is server.drops
        assert again["metadata"]["generation"] == (2 if server.drops else 1)

    async def test_a_dry_run_shows_what_is_dropped(self, server: Server) -> None:
        await created(server, device())
        op = {"op": "add", "path": "/spec/devices/0/allowMultipleAllocations", "value": True}
        tried = await server.kube.json_patch(paths.slice(server.slice_name), [op], dry_run=True)
        assert tried["spec"]["devices"][0].get("allowMultipleAllocations", False) is not server.drops

    async def test_a_taint_gets_a_time_and_keeps_it_when_it_is_sent_back(self, server: Server) -> None:
        made = await created(server, device(taints=[TAINT]))
        if server.drops:
            assert "taints" not in made["spec"]["devices"][0]
            return
        assert made["spec"]["devices"][0]["taints"][0]["timeAdded"]
        same = await server.kube.replace(paths.slice(server.slice_name), made)
        assert same["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


class TestListsAndWatches:
    """Selectors, events, bookmarks, 410."""

    async def test_field_selectors_choose_the_own_slices(self, server: Server) -> None:
        await created(server, device())
        selector = f"spec.nodeName={server.node},spec.driver=liken.sh"
        listing = await server.kube.list(paths.slices(), field_selector=selector)
        assert [item["metadata"]["name"] for item in listing["items"]] == [server.slice_name]
        others = await server.kube.list(paths.slices(), field_selector=f"spec.nodeName={server.node}x")
        assert others["items"] == []
        by_name = await server.kube.list(paths.slices(), field_selector=f"metadata.name={server.slice_name}")
        assert len(by_name["items"]) == 1

    async def test_label_selectors(self, server: Server) -> None:
        await created(server)
        await server.kube.merge_patch(paths.slice(server.slice_name), {"metadata": {"labels": {"node": server.node}}})
        for selector, found in (
            (f"node={server.node}", 1),
            (f"node in (x,{server.node})", 1),
            (f"node={server.node},node!={server.node}", 0),
            (f"node={server.node},!node", 0),
        ):
            listing = await server.kube.list(paths.slices(), label_selector=selector)
            assert len(listing["items"]) == found, selector

    async def test_a_field_without_a_selector_is_a_bad_request(self, server: Server) -> None:
        with pytest.raises(Invalid, match="field label not supported") as caught:
            await server.kube.list(paths.slices(), field_selector="spec.colour=red")
        assert caught.value.status == 400

    async def test_a_watch_shows_each_change_of_the_selected(self, server: Server) -> None:
        version = (await server.kube.list(paths.slices()))["metadata"]["resourceVersion"]
        async with watching(server, version) as events:
            await created(server, device())
            foreign = body(server, name=f"{server.node}-other")
            foreign["spec"]["driver"] = "other.sh"
            await server.kube.create(paths.slices(), foreign)
            await server.kube.json_patch(paths.slice(server.slice_name), [bump(2)])
            await server.kube.delete(paths.slice(server.slice_name))
            seen: list[WatchEvent] = []
            async for event in events:
                if event.kind is not WatchKind.BOOKMARK:
                    seen.append(event)
                if event.kind is WatchKind.DELETED:
                    break
        assert [event.kind for event in seen] == [WatchKind.ADDED, WatchKind.MODIFIED, WatchKind.DELETED]
        assert {event.item["metadata"]["name"] for event in seen} == {server.slice_name}
        versions = [int(event.item["metadata"]["resourceVersion"]) for event in seen]
        assert versions == sorted(versions)
        assert len(set(versions)) == 3

    async def test_a_watch_without_a_version_begins_with_what_is_there(self, server: Server) -> None:
        await created(server, device())
        async with watching(server, "") as events:
            async for event in events:
                assert (event.kind, event.item["metadata"]["name"]) == (WatchKind.ADDED, server.slice_name)
                break

    async def test_following_lists_and_then_shows_changes(self, server: Server) -> None:
        await created(server, device())
        following = server.kube.follow(paths.slices(), field_selector=f"spec.nodeName={server.node}")
        async with contextlib.aclosing(following):
            with anyio.fail_after(WATCH_S):
                first = await anext(following)
                assert isinstance(first, Listed)
                assert first.items[0]["kind"] == "ResourceSlice"
                await server.kube.json_patch(paths.slice(server.slice_name), [bump(2)])
                second = await anext(following)
                assert isinstance(second, WatchEvent)
                assert second.item["spec"]["pool"]["generation"] == 2


class TestOtherThings:
    """Nodes, Events, access reviews, version."""

    async def test_a_node_has_a_uid_and_a_status_of_its_own(self, server: Server) -> None:
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": server.node}}
        made = await server.kube.create("/api/v1/nodes", node)
        assert made["metadata"]["uid"]
        condition = {"type": "Ready", "status": "True", "reason": "Test", "message": ""}
        patch = {"status": {"conditions": [condition]}, "metadata": {"labels": {"x": "ignored"}}}
        after = await server.kube.merge_patch(f"{paths.node(server.node)}/status", patch)
        assert after["status"]["conditions"][0]["reason"] == "Test"
        kept = await server.kube.merge_patch(paths.node(server.node), {"status": {"conditions": None}})
        assert kept["status"]["conditions"][0]["reason"] == "Test"

    async def test_an_event_is_created_and_counted(self, server: Server) -> None:
        name = f"{server.node}.1"
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": "default"},
            "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": server.node},
            "reason": "Test",
            "message": "words",
            "type": "Warning",
            "count": 1,
        }
        await server.kube.create(paths.events("default"), event)
        after = await server.kube.merge_patch(paths.event("default", name), {"count": 2})
        assert after["count"] == 2
        found = await server.kube.list(
            paths.events("default"), field_selector=f"involvedObject.name={server.node},reason=Test"
        )
        assert len(found["items"]) == 1

    async def test_an_administrator_may(self, server: Server) -> None:
        assert await server.kube.can_i("create", "resource.k8s.io", "resourceslices")

    async def test_the_version_is_told(self, server: Server) -> None:
        assert (await server.kube.version())["gitVersion"].startswith("v1.")


def definition(group: str) -> Json:
    modules = {
        "type": "array",
        "maxItems": 2,
        "x-kubernetes-list-type": "set",
        "items": {"type": "string", "pattern": "^[a-z]+$"},
    }
    protocol = {"type": "string", "enum": ["one", "two"], "default": "one"}
    line = {"type": "object", "required": ["usb"], "properties": {"usb": {"type": "string"}, "protocol": protocol}}
    spec = {"type": "object", "properties": {"modules": modules, "line": line}}
    status = {"type": "object", "properties": {"seen": {"type": "string"}}}
    schema = {"type": "object", "properties": {"spec": spec, "status": status}}
    version = {"name": "v1", "served": True, "storage": True, "subresources": {"status": {}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"things.{group}"},
        "spec": {
            "group": group,
            "scope": "Cluster",
            "names": {"plural": "things", "kind": "Thing", "singular": "thing", "listKind": "ThingList"},
            "versions": [{**version, "schema": {"openAPIV3Schema": schema}}],
        },
    }


DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class Things:
    """A custom resource, served while its definition exists."""

    def __init__(self, server: Server) -> None:
        self.kube = server.kube
        self.group = f"{server.node}.example"
        self.path = f"/apis/{self.group}/v1/things"

    def thing(self, spec: Json, **more: Any) -> Json:
        return {
            "apiVersion": f"{self.group}/v1",
            "kind": "Thing",
            "metadata": {"name": "one"},
            "spec": spec,
        } | more


@pytest.fixture
async def things(server: Server) -> AsyncIterator[Things]:
    found = Things(server)
    with pytest.raises(NotFound):
        await server.kube.list(found.path)
    await _served(found)
    yield found
    await _forgotten(found)


async def _served(things: Things) -> None:
    """Define the type and wait until it is served."""
    made = await things.kube.create(DEFINITIONS, definition(things.group))
    with anyio.fail_after(WATCH_S):
        while not _established(made):
            await anyio.sleep(0.05)
            made = await things.kube.get(f"{DEFINITIONS}/things.{things.group}")
        while True:
            with contextlib.suppress(NotFound):
                await things.kube.create(things.path, things.thing({}, metadata={"generateName": "a-"}), dry_run=True)
                return
            await anyio.sleep(0.05)


async def _forgotten(things: Things) -> None:
    """Delete the definition and wait until the type is not served any more."""
    with contextlib.suppress(NotFound):
        await things.kube.delete(f"{DEFINITIONS}/things.{things.group}")
    with anyio.fail_after(WATCH_S), contextlib.suppress(NotFound):
        while True:
            await things.kube.list(things.path)
            await anyio.sleep(0.1)


def _established(item: Json) -> bool:
    conditions = (item.get("status") or {}).get("conditions") or []
    return any(found["type"] == "Established" and found["status"] == "True" for found in conditions)


class TestCustomResources:
    """Pruning, defaults, validation, status: what a Machine needs."""

    async def test_unknown_fields_are_pruned_and_defaults_filled_in(self, things: Things) -> None:
        made = await things.kube.create(things.path, things.thing({"line": {"usb": "x", "colour": "red"}}))
        assert made["spec"] == {"line": {"usb": "x", "protocol": "one"}}
        assert made["metadata"]["generation"] == 1

    @pytest.mark.parametrize(
        ("spec", "words"),
        [
            ({"modules": ["a", "b", "c"]}, "must have at most 2 items"),
            ({"modules": ["A"]}, r"should match '\^\[a-z\]\+\$'"),
            ({"modules": ["a", "a"]}, 'Duplicate value: "a"'),
            ({"modules": "a"}, "must be of type array"),
            ({"line": {"usb": "x", "protocol": "three"}}, 'supported values: "one", "two"'),
            ({"line": {}}, "Required value"),
        ],
    )
    async def test_what_the_schema_forbids_is_refused(self, things: Things, spec: Json, words: str) -> None:
        with pytest.raises(Invalid, match=words):
            await things.kube.create(things.path, things.thing(spec))

    async def test_spec_and_status_are_written_apart(self, things: Things) -> None:
        made = await things.kube.create(things.path, things.thing({"modules": ["a"]}, status={"seen": "never"}))
        assert "status" not in made
        path = f"{things.path}/one"
        shown = await things.kube.merge_patch(f"{path}/status", {"status": {"seen": "now"}, "spec": {"modules": []}})
        assert (shown["status"], shown["spec"]) == ({"seen": "now"}, {"modules": ["a"]})
        assert shown["metadata"]["generation"] == 1
        after = await things.kube.merge_patch(path, {"spec": {"modules": ["b"]}, "status": None})
        assert (after["status"], after["spec"]) == ({"seen": "now"}, {"modules": ["b"]})
        assert after["metadata"]["generation"] == 2

    async def test_a_watch_from_a_forgotten_version_is_gone(self, server: Server, things: Things) -> None:
        if server.memory is not None:
            server.memory.compact()  # the real server's memory of a type begins with the type
        events = server.kube.watch(things.path, resource_version="1")
        async with contextlib.aclosing(events):
            with anyio.fail_after(WATCH_S), pytest.raises(Gone, match="too old resource version"):
                await anext(events)

    async def test_an_update_needs_a_version(self, things: Things) -> None:
        await things.kube.create(things.path, things.thing({}))
        with pytest.raises(Invalid, match="must be specified for an update"):
            await things.kube.replace(f"{things.path}/one", things.thing({"modules": ["a"]}))

    async def test_apply_creates_owns_and_removes(self, things: Things) -> None:
        path = f"{things.path}/one"
        await things.kube.apply(path, things.thing({"modules": ["a"], "line": {"usb": "x"}}), manager="one")
        after = await things.kube.apply(path, things.thing({"line": {"usb": "x"}}), manager="one")
        assert "modules" not in after["spec"]
        with pytest.raises(Conflict, match="conflict with"):
            await things.kube.apply(path, things.thing({"line": {"usb": "y"}}), manager="two", force=False)
        taken = await things.kube.apply(path, things.thing({"line": {"usb": "y"}}), manager="two")
        assert taken["spec"]["line"]["usb"] == "y"

    async def test_objects_go_with_their_definition(self, things: Things) -> None:
        await things.kube.create(things.path, things.thing({"modules": ["a"]}))
        await _forgotten(things)
        with pytest.raises(NotFound):
            await things.kube.get(f"{things.path}/one")
        await _served(things)
        assert (await things.kube.list(things.path))["items"] == []
