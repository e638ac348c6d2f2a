"""The parts publishing decides with: pace, what is stored, the plan, refused devices, dropped fields."""

import random
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from liken.model.api import Invalid, Json, Listed, WatchEvent, WatchKind
from liken.publish import plan
from liken.publish.losses import Without, missing, shown
from liken.publish.pace import Bucket, Pause
from liken.publish.plan import Create, Delete, Patch, changes
from liken.publish.refused import PROBES_LIMIT, WholeSliceRefused, refused_devices
from liken.publish.stored import Stored
from tests.unit.fakes_publish import NODE, offer

pytestmark = pytest.mark.anyio


def item(name: str, version: int, *devices: Json, driver: str = "liken.sh", node: str = NODE, uid: str = "u") -> Json:
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    return {
        "metadata": {"name": name, "resourceVersion": str(version), "uid": uid},
        "spec": {"driver": driver, "nodeName": node, "pool": pool, "devices": list(devices)},
    }


def event(kind: str, found: Json) -> WatchEvent:
    return WatchEvent(kind=WatchKind(kind), item=found)


class TestPace:
    def test_a_burst_passes_and_then_one_write_each_two_seconds(self) -> None:
        bucket = Bucket(5, 2.0, now=0.0)
        for _ in range(5):
            assert bucket.delay(0.0) == 0
            bucket.take(0.0)
        assert bucket.delay(0.0) == 2.0
        assert bucket.delay(1.5) == 0.5
        assert bucket.delay(2.0) == 0

    def test_a_pool_written_at_once_is_paid_for_afterwards(self) -> None:
        bucket = Bucket(5, 2.0, now=0.0)
        for _ in range(20):
            bucket.take(0.0)
        assert bucket.delay(0.0) == 32.0

    @settings(max_examples=100, deadline=None)
    @given(st.lists(st.floats(0, 50), max_size=60))
    def test_no_pattern_of_asking_gets_more_than_the_rate(self, waits: list[float]) -> None:
        bucket, now, taken = Bucket(5, 2.0, now=0.0), 0.0, 0
        for wait in waits:
            now += wait
            while bucket.delay(now) == 0:
                bucket.take(now)
                taken += 1
        assert taken <= 5 + now / 2.0 + 1e-6

    @settings(max_examples=50, deadline=None)
    @given(st.integers(0, 2**32), st.floats(0, 600))
    def test_a_wait_is_never_shorter_than_the_server_asked(self, seed: int, retry_after: float) -> None:
        pause = Pause(0.25, 30.0, random.Random(seed))
        for _ in range(12):
            assert pause.next(retry_after) >= retry_after
        assert pause.next() <= 30.0


class TestStored:
    def test_an_older_event_never_replaces_a_newer_answer(self) -> None:
        stored = Stored(NODE)
        stored.listed(Listed(items=(item("a", 5),), version="9"))
        stored.answered(item("a", 20))
        assert not stored.changed(event("MODIFIED", item("a", 15)))
        assert not stored.changed(event("DELETED", item("a", 16)))
        assert stored.items == (item("a", 20),)
        assert stored.changed(event("DELETED", item("a", 21)))
        assert not stored.items

    def test_a_list_forgets_what_is_gone_but_not_what_was_written_meanwhile(self) -> None:
        stored = Stored(NODE)
        stored.listed(Listed(items=(item("a", 5), item("b", 5)), version="9"))
        stored.answered(item("c", 30))
        stored.listed(Listed(items=(item("a", 5),), version="20"))
        assert [found["metadata"]["name"] for found in stored.items] == ["a", "c"]

    def test_an_unchanged_object_keeps_its_identity(self) -> None:
        stored = Stored(NODE)
        first = item("a", 5)
        stored.answered(first)
        stored.changed(event("MODIFIED", item("a", 5)))
        stored.listed(Listed(items=(item("a", 5),), version="9"))
        assert stored.items[0] is first

    def test_slices_of_others_are_not_seen(self) -> None:
        stored = Stored(NODE)
        others = (item("b", 5, driver="other.sh"), item("c", 5, node="node-b"), {"metadata": {"name": "d"}})
        stored.listed(Listed(items=others, version="9"))
        for other in others:
            stored.changed(event("ADDED", other))
            stored.answered(other)
        assert stored.known
        assert not stored.items

    @settings(max_examples=100, deadline=None)
    @given(st.permutations(range(8)), st.integers(0, 7))
    def test_any_order_of_events_and_answers_ends_in_the_newest(self, order: list[int], deleted: int) -> None:
        stored = Stored(NODE)
        stored.answered(item("a", 10))
        for number in order:
            kind = "DELETED" if number == deleted else "MODIFIED"
            stored.changed(event(kind, item("a", 20 + number)))
        held = [found["metadata"]["resourceVersion"] for found in stored.items]
        assert held == ([] if deleted == 7 else ["27"])

    def test_a_late_answer_does_not_bring_a_deleted_slice_back(self) -> None:
        stored = Stored(NODE)
        stored.answered(item("a", 10))
        assert stored.changed(event("DELETED", item("a", 12)))
        stored.answered(item("a", 11))
        assert not stored.items
        stored.answered(item("a", 13, uid="new"))
        assert len(stored.items) == 1


class TestPlan:
    def test_nothing_is_due_when_all_is_right(self) -> None:
        held = item("a", 5)
        assert changes([held], [held], {}) == ()

    def test_creations_and_patches_come_before_deletions(self) -> None:
        changed = item("b", 5, {"name": "x"})
        due = changes([item("a", 0), changed], [item("b", 5), item("z", 5)], {})
        assert [type(found) for found in due] == [Create, Patch, Delete]
        assert [found.name for found in due] == ["a", "b", "z"]

    def test_a_tolerated_difference_is_not_written_and_another_one_is(self) -> None:
        held, wanted = item("a", 5), item("a", 5, {"name": "x"})
        (patch,) = changes([wanted], [held], {})
        assert isinstance(patch, Patch)
        tolerated = {"a": plan.difference(patch.ops)}
        assert changes([wanted], [held], tolerated) == ()
        assert changes([wanted], [item("a", 6)], tolerated) == ()
        assert len(changes([item("a", 5, {"name": "y"})], [held], tolerated)) == 1


class _Picky:
    """Refuses a slice that has one of these devices, or both of a pair; counts what it is asked."""

    def __init__(self, bad: set[str], pair: tuple[str, str] | None = None, *, policy: bool = False) -> None:
        self.bad, self.pair, self.policy = bad, pair, policy
        self.asked = 0

    async def create(self, path: str, body: Json, *, dry_run: bool = False) -> Json:
        assert dry_run
        assert path.endswith("/resourceslices")
        assert "name" not in body["metadata"]
        self.asked += 1
        names = {device["name"] for device in body["spec"]["devices"]}
        if self.policy or names & self.bad or (self.pair and set(self.pair) <= names):
            raise Invalid(f"refused: {sorted(names & self.bad)}")
        return body


class TestRefused:
    @settings(max_examples=60, deadline=None)
    @given(st.integers(1, 128), st.data())
    def test_exactly_the_refused_devices_are_found(self, count: int, data: Any) -> None:
        names = [f"d{number}" for number in range(count)]
        bad = set(data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=6)))
        api = _Picky(bad)
        body = item("a", 1, *({"name": name} for name in names))

        async def main() -> None:
            found = await refused_devices(api, body)  # type: ignore[arg-type]
            assert {name for name, _ in found} == bad
            assert all(name in words for name, words in found)

        anyio.run(main)
        assert api.asked <= 2 + 10 * (len(bad) + 1)

    async def test_of_a_pair_that_does_not_go_together_one_stays(self) -> None:
        body = item("a", 1, *({"name": f"d{number}"} for number in range(20)))
        found = await refused_devices(_Picky(set(), ("d3", "d11")), body)  # type: ignore[arg-type]
        assert [name for name, _ in found] == ["d11"]

    @pytest.mark.parametrize("api", [_Picky(set(), policy=True), _Picky(set())])
    async def test_a_refusal_that_is_no_devices_fault_blames_none(self, api: _Picky) -> None:
        with pytest.raises(WholeSliceRefused):
            await refused_devices(api, item("a", 1, {"name": "d"}))  # type: ignore[arg-type]

    async def test_the_search_is_bounded(self) -> None:
        names = [f"d{number}" for number in range(128)]
        api = _Picky(set(names))
        found = await refused_devices(api, item("a", 1, *({"name": name} for name in names)))  # type: ignore[arg-type]
        assert found
        assert api.asked <= PROBES_LIMIT + 20


class TestLosses:
    def test_normal_differences_are_none(self) -> None:
        taint = {"key": "k", "effect": "NoExecute"}
        sent = item("a", 1, {"name": "d", "attributes": {}, "allowMultipleAllocations": False, "taints": [taint]})
        answer = item("a", 1, {"name": "d", "taints": [{**taint, "timeAdded": "now"}]})
        assert missing(sent, answer) == frozenset()
        assert missing(item("a", 1), {**item("a", 1), "spec": {"devices": None}}) == frozenset()

    def test_a_field_is_missing_from_any_device(self) -> None:
        sent = item("a", 1, {"name": "d"}, {"name": "e", "allowMultipleAllocations": True})
        assert missing(sent, item("a", 1, {"name": "d"}, {"name": "e"})) == {"allowMultipleAllocations"}
        assert missing(sent, sent) == frozenset()
        assert shown([sent], frozenset({"allowMultipleAllocations", "taints"})) == {"allowMultipleAllocations"}

    def test_an_offer_without_the_field_stays_the_same_object(self) -> None:
        without = Without()
        gpu, stick = offer("pci-0000-00-02-0", shareable=True), offer("usb-1-1-1-0")
        assert without.offer(gpu) is gpu
        without.set(frozenset({"allowMultipleAllocations"}))
        assert not without.offer(gpu).shareable
        assert without.offer(gpu) is without.offer(gpu)
        assert without.offer(stick) is stick
