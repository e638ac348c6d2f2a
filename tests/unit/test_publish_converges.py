"""Whatever happens on the way, in the end the server holds exactly what is offered, in one whole pool."""

import random
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from liken.demo.apiserver_refusals import Refusal
from liken.metrics import Metrics
from liken.model.api import Json, Unavailable
from liken.model.offers import Offer
from liken.publish.publisher import Publisher
from tests.unit.fakes_publish import NODE, DirectApi, Heard, Shelf, offer
from tests.virtual import VirtualLoop

FAULTS = (400, 401, 403, 404, 409, 410, 413, 422, 429, 500, 503)
VERBS = ("create", "patch", "delete", "get", "list", "version")
SETTLED_S = 400.0

Step = tuple[str, Any]

OFFERED = st.tuples(st.integers(0, 300), st.integers(0, 2), st.booleans()).map(lambda found: ("offer", found))
FAULT = st.tuples(st.sampled_from(VERBS), st.sampled_from(FAULTS), st.integers(1, 4)).map(
    lambda found: ("fault", found)
)
MEDDLE = st.sampled_from(["delete", "delete all", "edit", "foreign", "break watch", "away", "back", "lost", "node"])
STEP = st.one_of(OFFERED, FAULT, MEDDLE.map(lambda found: ("meddle", found)))
WAIT = st.sampled_from([0.0, 0.001, 0.05, 0.3, 3.0])


def offered(count: int, kind: int, shareable: bool) -> list[Offer]:  # noqa: FBT001
    return [
        offer(f"usb-1-{number}-1-0", shareable=shareable and number == 0, kind=str(kind)) for number in range(count)
    ]


def meddle(api: DirectApi, what: str, dice: random.Random) -> None:
    names = list(api.slices())
    match what:
        case "delete" if names:
            api.remove(dice.choice(names))
        case "delete all":
            for name in names:
                api.remove(name)
        case "edit" if names:
            api.put(edited(api, dice.choice(names)))
        case "foreign":
            api.put(foreign(dice.randrange(9)))
        case "break watch":
            api.break_watch()
        case "away" | "back":
            api.away = what == "away"
        case "lost":
            api.lost = Unavailable("reset")
        case "node":
            api.remove_node()
            api.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})


def edited(api: DirectApi, name: str) -> Json:
    item = api.slices()[name]
    item["spec"]["devices"] = (item["spec"].get("devices") or [])[1:]
    item["spec"]["pool"]["generation"] += 3
    return item


def foreign(number: int) -> Json:
    pool = {"name": NODE, "generation": number, "resourceSliceCount": 2}
    spec = {"driver": "liken.sh", "nodeName": NODE, "pool": pool, "devices": [{"name": "usb-1-3-1-0"}]}
    metadata = {"name": f"{NODE}-old-{number}"}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": metadata, "spec": spec}


async def play(steps: list[tuple[Step, float]], seed: int, *, old: bool) -> None:
    api, shelf, dice = DirectApi(latency_s=0.002), Shelf(), random.Random(seed)
    if old:
        api.verbs.gates |= {"DRAConsumableCapacity": False, "DRADeviceTaints": False}
    publisher = Publisher(
        api=api, store=shelf, node_name=NODE, metrics=Metrics(), recorder=Heard(), dice=random.Random(seed)
    )
    wanted: list[Offer] = []
    began = anyio.current_time()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(publisher.run)
        for (kind, what), wait in steps:
            if kind == "offer":
                wanted = offered(*what)
                shelf.offer(*wanted)
            elif kind == "fault":
                verb, status, times = what
                api.faults.setdefault(verb, []).extend([status] * times)
            else:
                try:
                    meddle(api, what, dice)
                except Refusal:
                    continue  # it was there already, or gone
            await anyio.sleep(wait)
        api.faults.clear()
        api.away = False
        shelf.offer(*wanted)
        await anyio.sleep(SETTLED_S)
        is_whole(api, wanted)
        assert publisher.published
        assert publisher.held_back == frozenset()
        del api.asked[:]
        await anyio.sleep(600)
        assert api.asked == []
        assert anyio.current_time() > began
        tasks.cancel_scope.cancel()


def is_whole(api: DirectApi, wanted: list[Offer]) -> None:
    items = list(api.slices().values())
    devices = [device["name"] for item in items for device in item["spec"].get("devices") or ()]
    assert sorted(devices) == sorted(str(found.name) for found in wanted)
    pools = {(item["spec"]["pool"]["generation"], item["spec"]["pool"]["resourceSliceCount"]) for item in items}
    assert {count for _, count in pools} == {len(items)}
    assert len(pools) == 1
    by_name = {found.name: found for found in wanted}
    for item in items:
        for device in item["spec"].get("devices") or ():
            assert device["attributes"]["kind"]["string"] == by_name[device["name"]].attributes["kind"]


@pytest.mark.timeout(240)
@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(STEP, WAIT), max_size=25), st.integers(0, 2**16), st.booleans())
def test_any_course_of_events_ends_in_what_is_offered(steps: list[tuple[Step, float]], seed: int, old: bool) -> None:  # noqa: FBT001
    async def main() -> None:
        await play(steps, seed, old=old)

    anyio.run(main, backend_options={"loop_factory": VirtualLoop})
