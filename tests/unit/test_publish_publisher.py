"""Publishing in virtual time, against the in-memory server's objects without HTTP."""

import contextlib
import copy
import random
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from liken.metrics import Metrics
from liken.model.api import Json, Unavailable
from liken.model.offers import Offer, Taint
from liken.publish.publisher import Publisher
from tests.unit.fakes_publish import NODE, DirectApi, Heard, Shelf, offer

pytestmark = pytest.mark.anyio

NAME = f"{NODE}-liken.sh"


class Bench:
    """One publisher at work."""

    def __init__(self, api: DirectApi) -> None:
        self.api = api
        self.shelf = Shelf()
        self.heard = Heard()
        self.metrics = Metrics()
        self.publisher = self.fresh()

    def fresh(self) -> Publisher:
        return Publisher(
            api=self.api,
            store=self.shelf,
            node_name=NODE,
            metrics=self.metrics,
            recorder=self.heard,
            wall=lambda: 1_000_000.0,
            dice=random.Random(1),
        )

    def count(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(name, labels) or 0.0


@contextlib.asynccontextmanager
async def running(api: DirectApi | None = None, *offers: Offer) -> AsyncIterator[Bench]:
    bench = Bench(api or DirectApi())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(bench.publisher.run)
        if offers:
            bench.shelf.offer(*offers)
            await anyio.sleep(0.5)
        yield bench
        tasks.cancel_scope.cancel()


def usb(*numbers: int) -> list[Offer]:
    return [offer(f"usb-1-{number}-1-0") for number in numbers]


def generation(item: Json) -> int:
    return int(item["spec"]["pool"]["generation"])


async def test_the_first_complete_snapshot_becomes_one_slice_owned_by_the_node() -> None:
    async with running(None, *usb(1, 2)) as bench:
        item = bench.api.slices()[NAME]
        assert [device["name"] for device in item["spec"]["devices"]] == ["usb-1-1-1-0", "usb-1-2-1-0"]
        assert item["metadata"]["ownerReferences"][0]["kind"] == "Node"
        assert item["metadata"]["ownerReferences"][0]["uid"]
        assert item["spec"]["pool"] == {"name": NODE, "generation": 1, "resourceSliceCount": 1}
        assert bench.publisher.published
        assert bench.publisher.revision == bench.shelf.snapshot.revision


async def test_nothing_is_written_before_the_first_enumeration_is_complete() -> None:
    async with running() as bench:
        bench.shelf.offer(*usb(1), complete=False)
        await anyio.sleep(60)
        assert bench.api.writes == []
        assert not bench.publisher.published


async def test_a_node_without_devices_has_an_empty_slice() -> None:
    async with running() as bench:
        bench.shelf.offer()
        await anyio.sleep(1)
        assert bench.api.devices() == []
        assert list(bench.api.slices()) == [NAME]


async def test_one_device_more_is_one_patch_without_a_read() -> None:
    async with running(None, *usb(1, 2)) as bench:
        del bench.api.asked[:]
        bench.shelf.offer(*usb(1, 2, 3))
        await anyio.sleep(1)
        assert [asked.verb for asked in bench.api.asked] == ["patch"]
        assert bench.api.asked[0].ops[0]["path"] == "/metadata/resourceVersion"
        assert len(bench.api.devices()) == 3


async def test_nothing_is_written_or_read_while_nothing_changes() -> None:
    async with running(None, *usb(1, 2)) as bench:
        del bench.api.asked[:]
        bench.shelf.offer(*usb(1, 2))
        await anyio.sleep(600)
        assert bench.api.asked == []


async def test_the_delay_from_event_to_accepted_write_is_measured() -> None:
    api = DirectApi(latency_s=0.02)
    async with running(api, *usb(1)) as bench:
        bench.shelf.offer(*usb(1, 2), changed_at=anyio.current_time() - 0.05)
        await anyio.sleep(1)
        assert bench.count("liken_event_to_patch_seconds_count") == 1
        assert 0.07 <= bench.count("liken_event_to_patch_seconds_sum") < 0.2


async def test_a_deleted_slice_is_back_within_a_second() -> None:
    async with running(None, *usb(1)) as bench:
        bench.api.remove(NAME)
        await anyio.sleep(1)
        assert bench.api.devices() == ["usb-1-1-1-0"]
        assert bench.count("liken_slice_repairs_total") == 1


async def test_an_empty_slice_is_repaired_too() -> None:
    async with running() as bench:
        bench.shelf.offer()
        await anyio.sleep(10)
        bench.api.remove(NAME)
        await anyio.sleep(1)
        assert list(bench.api.slices()) == [NAME]
        assert len(bench.api.writes) == 2


async def test_a_foreign_edit_is_undone() -> None:
    async with running(None, *usb(1)) as bench:
        edited = bench.api.slices()[NAME]
        edited["spec"]["devices"][0]["attributes"]["bus"] = {"string": "pci"}
        bench.api.put(edited)
        await anyio.sleep(1)
        assert bench.api.slices()[NAME]["spec"]["devices"][0]["attributes"]["bus"] == {"string": "usb"}


async def test_a_fight_is_never_faster_than_the_write_limiter() -> None:
    async with running(None, *usb(1)) as bench:
        await anyio.sleep(20)
        del bench.api.asked[:]
        began = anyio.current_time()
        while anyio.current_time() < began + 60:
            with contextlib.suppress(Exception):
                bench.api.remove(NAME)
            await anyio.sleep(0.05)
        assert 20 <= len(bench.api.writes) <= 5 + 60 / 2 + 1


async def test_a_slice_deleted_while_the_watch_is_down_is_back_with_the_next_list() -> None:
    async with running(None, *usb(1)) as bench:
        bench.api.faults["list"] = [503, 503, 503]
        bench.api.break_watch()
        bench.api.remove(NAME)
        await anyio.sleep(2)
        assert bench.api.devices() == ["usb-1-1-1-0"]
        assert len(bench.api.writes) == 2


async def test_the_first_repair_may_meet_a_conflict() -> None:
    async with running(None, *usb(1)) as bench:
        await anyio.sleep(10)
        bench.api.faults["create"] = [409]
        bench.api.remove(NAME)
        await anyio.sleep(1)
        assert bench.api.devices() == ["usb-1-1-1-0"]
        assert bench.publisher.trouble == ""


async def test_after_the_slice_went_the_node_is_looked_up_again() -> None:
    async with running(None, *usb(1)) as bench:
        bench.api.remove_node()
        bench.api.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
        bench.api.remove(NAME)
        await anyio.sleep(1)
        node = await bench.api.get(f"/api/v1/nodes/{NODE}")
        owner = bench.api.slices()[NAME]["metadata"]["ownerReferences"][0]
        assert owner["uid"] == node["metadata"]["uid"]


async def test_without_its_node_nothing_is_written_until_there_is_one() -> None:
    api = DirectApi()
    api.remove_node()
    async with running(api, *usb(1)) as bench:
        await anyio.sleep(60)
        assert bench.api.writes == []
        assert "there is no Node 'node-a'" in bench.publisher.trouble
        api.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
        await anyio.sleep(31)
        assert bench.api.devices() == ["usb-1-1-1-0"]


async def test_a_conflicting_write_is_recomputed_from_what_is_there() -> None:
    async with running(None, *usb(1)) as bench:

        def meddle(name: str) -> None:
            bench.api.before_write = None
            edited = bench.api.slices()[name]
            edited["spec"]["devices"][0]["attributes"]["x"] = {"string": "y"}
            bench.api.put(edited)

        bench.api.before_write = meddle
        bench.shelf.offer(*usb(1, 2))
        await anyio.sleep(1)
        devices = bench.api.slices()[NAME]["spec"]["devices"]
        assert [device["attributes"] for device in devices] == [{"bus": {"string": "usb"}}] * 2
        assert bench.count("liken_slice_writes_total", verb="patch", result="conflict") == 1


async def test_conflicts_for_ever_are_answered_with_growing_pauses() -> None:
    async with running(None, *usb(1)) as bench:
        bench.api.faults["patch"] = [409] * 1000
        del bench.api.asked[:]
        bench.shelf.offer(*usb(1, 2))
        await anyio.sleep(60)
        assert len(bench.api.asked) < 30


async def test_a_slice_that_vanished_is_created_instead_of_patched() -> None:
    async with running(None, *usb(1)) as bench:
        bench.api.faults["patch"] = [404]
        bench.api.before_write = None
        bench.shelf.offer(*usb(1, 2))
        bench.api.remove(NAME)
        await anyio.sleep(1)
        assert len(bench.api.devices()) == 2


async def test_a_404_of_a_starting_server_is_no_reason_to_give_a_slice_up() -> None:
    async with running(None, *usb(1)) as bench:
        bench.api.faults["patch"] = [404, 404]
        bench.shelf.offer(*usb(1, 2))
        await anyio.sleep(10)
        assert len(bench.api.devices()) == 2
        assert bench.publisher.published


@pytest.mark.parametrize("status", [401, 403, 410, 429, 500, 502, 503, 504])
@pytest.mark.parametrize("verb", ["create", "patch"])
async def test_after_any_failed_write_the_newest_state_is_written(verb: str, status: int) -> None:
    async with running(None, *([] if verb == "create" else usb(1))) as bench:
        bench.api.faults[verb] = [status, status]
        bench.shelf.offer(*usb(1, 2))
        await anyio.sleep(0.05)
        bench.shelf.offer(*usb(1, 3))
        await anyio.sleep(30)
        assert sorted(bench.api.devices()) == ["usb-1-1-1-0", "usb-1-3-1-0"]
        assert bench.publisher.published


@pytest.mark.parametrize("broken", [Unavailable("reset"), Unavailable("half a body"), Unavailable("no answer in time")])
async def test_an_answer_that_got_lost_is_no_second_write(broken: Unavailable) -> None:
    async with running() as bench:
        bench.api.lost = broken
        bench.shelf.offer(*usb(1))
        await anyio.sleep(30)
        assert len(bench.api.writes) == 1
        assert bench.publisher.published


async def test_retry_after_is_honoured_and_jittered() -> None:
    async with running(None, *usb(1)) as bench:
        bench.api.retry_after = 20
        bench.api.faults["patch"] = [429]
        del bench.api.asked[:]
        bench.shelf.offer(*usb(1, 2))
        await anyio.sleep(1)
        bench.shelf.offer(*usb(1, 2, 3))
        await anyio.sleep(60)
        first, second = (asked.at for asked in bench.api.asked if asked.verb == "patch")
        assert 20 <= second - first <= 24.5
        assert len(bench.api.devices()) == 3


async def test_a_missing_right_is_said_once() -> None:
    async with running(None, *usb(1)) as bench:
        bench.api.faults["patch"] = [403] * 100
        bench.shelf.offer(*usb(1, 2))
        del bench.api.asked[:]
        await anyio.sleep(300)
        assert "403" in bench.publisher.trouble
        assert not bench.publisher.published
        assert len(bench.api.asked) < 30


async def test_an_hour_without_a_server_ends_in_one_write_of_the_final_state() -> None:
    async with running(None, *usb(1)) as bench:
        before = len(bench.api.writes)
        bench.api.away = True
        bench.api.break_watch()
        for number in range(500):
            bench.shelf.offer(*usb(1, 2 + number % 7))
            await anyio.sleep(7.2)
        bench.shelf.offer(*usb(1, 9))
        bench.api.away = False
        await anyio.sleep(61)
        assert sorted(bench.api.devices()) == ["usb-1-1-1-0", "usb-1-9-1-0"]
        assert len(bench.api.writes) == before + 1


async def test_a_flapping_device_is_absent_until_quiet_and_others_are_published_at_once() -> None:
    async with running(None, *usb(1)) as bench:
        for _ in range(20):
            bench.shelf.offer(*usb(1, 2))
            await anyio.sleep(0.1)
            bench.shelf.offer(*usb(1))
            await anyio.sleep(0.1)
        bench.shelf.offer(*usb(1, 2, 3))
        await anyio.sleep(3)
        assert sorted(bench.api.devices()) == ["usb-1-1-1-0", "usb-1-3-1-0"]
        assert bench.publisher.held_back == {"usb-1-2-1-0"}
        await anyio.sleep(70)
        assert len(bench.api.devices()) == 3
        assert bench.publisher.held_back == frozenset()


class TestARefusedDevice:
    """One bad field makes the server refuse the whole slice."""

    bad = offer("usb-1-5-1-0", serial="x" * 65)

    async def test_alone_is_held_back_and_named(self) -> None:
        async with running(None, *usb(1, 2, 3), self.bad, *usb(6)) as bench:
            await anyio.sleep(5)
            assert len(bench.api.devices()) == 4
            assert bench.publisher.held_back == {"usb-1-5-1-0"}
            (about, kind, message) = bench.heard.events[0]
            assert (about, kind) == ("Node/node-a", "Warning DeviceRefused")
            assert "usb-1-5-1-0" in message
            assert "may not be more than 64 bytes" in message
            assert len(bench.api.writes) == 1

    async def test_is_tried_again_when_it_changes(self) -> None:
        async with running(None, *usb(1), self.bad) as bench:
            await anyio.sleep(5)
            bench.shelf.offer(*usb(1), offer("usb-1-5-1-0", serial="good"))
            await anyio.sleep(5)
            assert len(bench.api.devices()) == 2
            assert bench.publisher.held_back == frozenset()

    async def test_costs_no_write_while_it_stays_the_same(self) -> None:
        async with running(None, *usb(1), self.bad) as bench:
            await anyio.sleep(5)
            del bench.api.asked[:]
            bench.shelf.offer(*usb(1), self.bad)
            await anyio.sleep(600)
            assert bench.api.asked == []

    async def test_several_are_found_among_many(self) -> None:
        bad = [offer(f"usb-2-{number}-1-0", serial="x" * 65) for number in (1, 7, 30)]
        async with running(None, *usb(*range(1, 60)), *bad) as bench:
            await anyio.sleep(20)
            assert len(bench.api.devices()) == 59
            assert bench.publisher.held_back == {device.name for device in bad}

    async def test_a_policy_that_refuses_everything_holds_no_device_back(self) -> None:
        async with running() as bench:
            bench.api.faults["create"] = [422] * 10_000
            bench.shelf.offer(*usb(1, 2))
            await anyio.sleep(600)
            assert bench.publisher.held_back == frozenset()
            assert "422" in bench.publisher.trouble
            assert len(bench.api.asked) < 150


class TestADroppedField:
    """The server does not know allowMultipleAllocations."""

    gpu = offer("pci-0000-00-02-0", shareable=True)

    @staticmethod
    def old() -> DirectApi:
        api = DirectApi(git_version="v1.34.4")
        api.verbs.gates["DRAConsumableCapacity"] = False
        api.verbs.gates["DRADeviceTaints"] = False
        return api

    async def test_is_one_write_and_one_event_that_names_the_gate(self) -> None:
        async with running(self.old(), self.gpu) as bench:
            await anyio.sleep(600)
            assert len(bench.api.writes) == 1
            assert len(bench.heard.events) == 1
            assert "DRAConsumableCapacity" in bench.heard.events[0][2]
            assert bench.publisher.published

    async def test_another_device_costs_one_write_more(self) -> None:
        async with running(self.old(), self.gpu) as bench:
            bench.shelf.offer(self.gpu, *usb(1))
            await anyio.sleep(600)
            assert len(bench.api.writes) == 2
            assert len(bench.heard.events) == 1

    async def test_a_restart_writes_nothing(self) -> None:
        api = self.old()
        async with running(api, self.gpu):
            pass
        async with running(api, self.gpu) as bench:
            await anyio.sleep(60)
            assert len(bench.api.writes) == 1
            assert "DRAConsumableCapacity" in bench.heard.events[0][2]

    async def test_is_tried_again_when_the_server_was_upgraded(self) -> None:
        async with running(self.old(), self.gpu) as bench:
            await anyio.sleep(10)
            bench.api.verbs.gates.clear()
            bench.api.git_version = "v1.36.0"
            bench.api.break_watch()
            await anyio.sleep(10)
            assert bench.api.slices()[NAME]["spec"]["devices"][0]["allowMultipleAllocations"] is True
            assert len(bench.api.writes) == 2

    async def test_an_upgrade_that_changes_nothing_writes_nothing(self) -> None:
        async with running(self.old(), self.gpu) as bench:
            await anyio.sleep(10)
            bench.api.git_version = "v1.34.5"
            bench.api.break_watch()
            await anyio.sleep(60)
            assert len(bench.api.writes) == 1

    async def test_is_sent_again_when_a_stored_slice_shows_it(self) -> None:
        async with running(self.old(), self.gpu, *usb(1)) as bench:
            await anyio.sleep(10)
            bench.api.verbs.gates.clear()
            edited = bench.api.slices()[NAME]
            edited["spec"]["devices"][0]["allowMultipleAllocations"] = True
            bench.api.put(edited)
            await anyio.sleep(5)
            assert bench.api.slices()[NAME]["spec"]["devices"][0]["allowMultipleAllocations"] is True
            assert len(bench.api.writes) == 1

    async def test_a_tainted_device_gets_no_new_time_with_each_write(self) -> None:
        taint = Taint(key="liken.sh/unplugged", value="", effect="NoExecute")
        gone = Offer(name=usb(1)[0].name, key=usb(1)[0].key, nodes=(), taints=(taint,))
        async with running(None, gone) as bench:
            before = bench.api.slices()[NAME]["spec"]["devices"][0]["taints"]
            bench.shelf.offer(gone, *usb(2))
            await anyio.sleep(5)
            assert bench.api.slices()[NAME]["spec"]["devices"][0]["taints"] == before
            assert len(bench.api.writes) == 2

    async def test_any_other_difference_is_tolerated_and_said_once(self) -> None:
        async with running() as bench:
            real = bench.api.verbs.create

            def webhook(target: Any, body: Json, options: Any) -> Json:
                if target.kind.kind == "ResourceSlice":
                    body = copy.deepcopy(body)
                    body["spec"]["devices"][0]["attributes"]["zone"] = {"string": "x"}
                return real(target, body, options)

            bench.api.verbs = _Meddled(bench.api.verbs, webhook)  # type: ignore[assignment]
            bench.shelf.offer(*usb(1))
            await anyio.sleep(600)
            assert len(bench.api.writes) == 1
            assert [event[1] for event in bench.heard.events] == ["Warning FieldDropped"]


class _Meddled:
    """Verbs with another `create`."""

    def __init__(self, verbs: Any, create: Any) -> None:
        self._verbs = verbs
        self.create = create

    def __getattr__(self, name: str) -> Any:
        return getattr(self._verbs, name)


class TestManyDevices:
    """More than 128 devices become several slices of one pool."""

    async def test_257_devices_are_three_slices_and_one_change_is_one_patch(self) -> None:
        async with running() as bench:
            offers = usb(*range(257))
            bench.shelf.offer(*offers)
            await anyio.sleep(5)
            items = bench.api.slices()
            assert sorted(items) == [NAME, f"{NAME}-1", f"{NAME}-2"]
            assert {generation(item) for item in items.values()} == {1}
            assert {item["spec"]["pool"]["resourceSliceCount"] for item in items.values()} == {3}
            assert len(set(bench.api.devices())) == len(bench.api.devices()) == 257
            second = items[f"{NAME}-1"]["spec"]["devices"][5]["name"]
            del bench.api.asked[:]
            bench.shelf.offer(*(offer(found.name, serial="new") if found.name == second else found for found in offers))
            await anyio.sleep(5)
            assert [(asked.verb, asked.name) for asked in bench.api.asked] == [("patch", f"{NAME}-1")]
            assert {generation(item) for item in bench.api.slices().values()} == {1}

    async def test_a_taint_among_65_splits_the_pool_and_both_halves_are_one_generation(self) -> None:
        taint = Taint(key="liken.sh/unplugged", value="", effect="NoExecute")
        async with running(None, *usb(*range(65))) as bench:
            assert list(bench.api.slices()) == [NAME]
            first = usb(0)[0]
            tainted = Offer(name=first.name, key=first.key, nodes=(), attributes=first.attributes, taints=(taint,))
            bench.shelf.offer(tainted, *usb(*range(1, 65)))
            await anyio.sleep(10)
            items = bench.api.slices()
            assert sorted(items) == [NAME, f"{NAME}-1"]
            assert len({generation(item) for item in items.values()}) == 1
            assert len(set(bench.api.devices())) == len(bench.api.devices()) == 65
            bench.shelf.offer(*usb(*range(65)))
            await anyio.sleep(10)
            items = bench.api.slices()
            assert len({generation(item) for item in items.values()}) == 1
            assert {item["spec"]["pool"]["resourceSliceCount"] for item in items.values()} == {len(items)}
            assert len(set(bench.api.devices())) == len(bench.api.devices()) == 65

    async def test_a_pass_that_fails_half_way_is_finished_with_what_is_new(self) -> None:
        async with running() as bench:
            bench.api.faults["create"] = [None, 503]
            bench.shelf.offer(*usb(*range(200)))
            await anyio.sleep(0.1)
            bench.shelf.offer(*usb(*range(201)))
            await anyio.sleep(10)
            items = bench.api.slices()
            assert len(items) == 2
            assert len({generation(item) for item in items.values()}) == 1
            assert len(set(bench.api.devices())) == len(bench.api.devices()) == 201

    async def test_the_kubelet_wipes_all_slices_at_each_of_its_starts(self) -> None:
        async with running(None, *usb(*range(200))) as bench:
            for _ in range(3):
                await anyio.sleep(20)
                for name in bench.api.slices():
                    bench.api.remove(name)
                await anyio.sleep(1)
                assert len(bench.api.devices()) == 200


async def test_slices_of_an_older_layout_are_removed() -> None:
    api = DirectApi()
    pool = {"name": NODE, "generation": 7, "resourceSliceCount": 1}
    spec = {"driver": "liken.sh", "nodeName": NODE, "pool": pool, "devices": []}
    head = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice"}
    api.put({**head, "metadata": {"name": "node-a-liken.sh-abcde"}, "spec": spec})
    other = {**spec, "driver": "other.example", "pool": {**pool, "name": "theirs"}}
    api.put({**head, "metadata": {"name": "node-a-other"}, "spec": other})
    theirs = {**spec, "nodeName": "node-b", "pool": {**pool, "name": "node-b"}}
    api.put({**head, "metadata": {"name": "node-b-liken.sh"}, "spec": theirs})
    async with running(api, *usb(1)) as bench:
        assert sorted(bench.api.slices()) == ["node-a-liken.sh", "node-a-other", "node-b-liken.sh"]
        assert generation(bench.api.slices()[NAME]) == 8
        assert bench.publisher.published


async def test_a_slice_of_our_name_in_another_pool_is_made_anew() -> None:
    api = DirectApi()
    pool = {"name": "old-pool", "generation": 3, "resourceSliceCount": 1}
    spec = {"driver": "liken.sh", "nodeName": NODE, "pool": pool, "devices": []}
    api.put({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": NAME}, "spec": spec})
    async with running(api, *usb(1)) as bench:
        assert bench.api.slices()[NAME]["spec"]["pool"]["name"] == NODE
        assert bench.api.devices() == ["usb-1-1-1-0"]


async def test_a_name_taken_by_another_driver_is_said_and_left_alone() -> None:
    api = DirectApi()
    pool = {"name": "theirs", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "other.example", "nodeName": NODE, "pool": pool, "devices": []}
    api.put({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": NAME}, "spec": spec})
    async with running(api, *usb(1)) as bench:
        await anyio.sleep(60)
        assert "the name is taken by a slice of driver 'other.example'" in bench.publisher.trouble
        assert bench.api.slices()[NAME]["spec"]["driver"] == "other.example"
        assert len(bench.api.asked) < 40


async def test_a_restart_beside_its_own_slice_writes_nothing_and_a_changed_machine_once() -> None:
    api = DirectApi()
    async with running(api, *usb(1)):
        pass
    async with running(api, *usb(1)) as bench:
        await anyio.sleep(10)
        assert len(bench.api.writes) == 1
    async with running(api) as bench:
        bench.shelf.offer()
        await anyio.sleep(10)
        assert bench.api.devices() == []
        assert len(bench.api.writes) == 2


async def test_the_slices_stay_at_the_end_and_go_with_withdraw() -> None:
    api = DirectApi()
    async with running(api, *usb(*range(200))) as bench:
        pass
    assert len(api.slices()) == 2
    assert await bench.publisher.withdraw() == 2
    assert api.slices() == {}
    assert await bench.publisher.withdraw() == 0
