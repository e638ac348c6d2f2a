"""Events in virtual time."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import anyio
import pytest

from liken.kube.events import QUEUE_LIMIT, EventRecorder
from liken.model.api import ApiError, Conflict, Forbidden, Json, NotFound, ObjectRef, Unavailable

pytestmark = pytest.mark.anyio

NODE = ObjectRef(api_version="v1", kind="Node", name="node-a", uid="u-1")
CLAIM = ObjectRef(api_version="resource.k8s.io/v1", kind="ResourceClaim", name="zigbee", namespace="home")


@dataclass
class Api:
    errors: list[ApiError | None] = field(default_factory=list)
    made: list[tuple[float, str, Json]] = field(default_factory=list)
    raised: list[tuple[str, Json]] = field(default_factory=list)

    async def create(self, path: str, body: Json) -> Json:
        self._fail()
        self.made.append((anyio.current_time(), path, body))
        return body

    async def merge_patch(self, path: str, body: Json) -> Json:
        self._fail()
        self.raised.append((path, body))
        return body

    def _fail(self) -> None:
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error


@contextlib.asynccontextmanager
async def running(api: Api) -> AsyncIterator[EventRecorder]:
    recorder = EventRecorder(api, node_name="node-a", wall=lambda: 1_000_000.0 + anyio.current_time())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(recorder.run)
        yield recorder
        tasks.cancel_scope.cancel()


async def test_an_event_says_what_about_whom_and_by_whom() -> None:
    api = Api()
    async with running(api) as recorder:
        recorder.record(NODE, kind="Warning", reason="FieldDropped", message="words")
        await anyio.sleep(1)
    ((_, path, event),) = api.made
    assert path == "/api/v1/namespaces/default/events"
    assert event["involvedObject"] == {"apiVersion": "v1", "kind": "Node", "name": "node-a", "uid": "u-1"}
    assert (event["type"], event["reason"], event["message"], event["count"]) == ("Warning", "FieldDropped", "words", 1)
    assert event["source"] == {"component": "liken", "host": "node-a"}
    assert event["firstTimestamp"].endswith("Z")


async def test_an_event_stands_in_the_namespace_of_its_object() -> None:
    api = Api()
    async with running(api) as recorder:
        recorder.record(CLAIM, kind="Normal", reason="Prepared", message="words")
        await anyio.sleep(1)
    assert api.made[0][1] == "/api/v1/namespaces/home/events"
    assert api.made[0][2]["metadata"]["namespace"] == "home"


async def test_repeats_raise_the_count_of_one_event() -> None:
    api = Api()
    async with running(api) as recorder:
        for _ in range(3):
            recorder.record(NODE, kind="Warning", reason="X", message="same")
        await anyio.sleep(60)
        recorder.record(NODE, kind="Warning", reason="X", message="same")
        await anyio.sleep(60)
    assert [event["count"] for _, _, event in api.made] == [3]
    ((path, body),) = api.raised
    assert path.endswith(api.made[0][2]["metadata"]["name"])
    assert body["count"] == 4


async def test_an_event_the_server_forgot_is_made_anew() -> None:
    api = Api(errors=[None, NotFound("gone")])
    async with running(api) as recorder:
        for _ in range(2):
            recorder.record(NODE, kind="Warning", reason="X", message="same")
            await anyio.sleep(60)
    assert len(api.made) == 2
    assert len({event["metadata"]["name"] for _, _, event in api.made}) == 2


async def test_a_storm_is_slowed_and_its_oldest_dropped() -> None:
    api = Api()
    async with running(api) as recorder:
        for number in range(1000):
            recorder.record(NODE, kind="Warning", reason="X", message=str(number))
        await anyio.sleep(10_000)
    assert len(api.made) <= QUEUE_LIMIT
    assert api.made[-1][2]["message"] == "999"
    assert api.made[-1][0] - api.made[0][0] > 300


async def test_an_event_survives_a_server_that_is_away_for_a_moment() -> None:
    api = Api(errors=[Unavailable("away"), Unavailable("away"), None])
    async with running(api) as recorder:
        recorder.record(NODE, kind="Warning", reason="X", message="words")
        await anyio.sleep(60)
    assert len(api.made) == 1


@pytest.mark.parametrize("error", [Forbidden("no right"), Unavailable("away"), Conflict("there"), ApiError("odd")])
async def test_no_failure_ends_the_recorder(error: ApiError) -> None:
    api = Api(errors=[error] * 5)
    async with running(api) as recorder:
        recorder.record(NODE, kind="Warning", reason="X", message="lost")
        await anyio.sleep(300)
        api.errors.clear()
        recorder.record(NODE, kind="Warning", reason="X", message="written")
        await anyio.sleep(60)
    assert [event["message"] for _, _, event in api.made] == ["written"]


async def test_a_message_of_any_length_is_cut() -> None:
    api = Api()
    async with running(api) as recorder:
        recorder.record(NODE, kind="Warning", reason="X", message="é" * 4000)
        await anyio.sleep(1)
    assert len(api.made[0][2]["message"].encode()) <= 1024
