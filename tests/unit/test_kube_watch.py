"""Watching and following in virtual time, with streams as scripts."""

import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from liken.kube import watch as watching
from liken.kube.transport import Request
from liken.kube.watch import Pause, Selection, follow, watch
from liken.model.api import ApiError, Followed, Forbidden, Gone, Json, Listed, Unavailable, WatchEvent

pytestmark = pytest.mark.anyio

CHOSEN = Selection(path="/apis/resource.k8s.io/v1/resourceslices", field_selector="spec.nodeName=a")


def line(kind: str, version: int, **more: Any) -> bytes:
    item = {"metadata": {"name": "x", "resourceVersion": str(version)}, **more}
    return json.dumps({"type": kind, "object": item}).encode() + b"\n"


ERROR_410 = b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}\n'


@dataclass
class Script:
    """A stream: bytes to deliver, seconds to wait, an error to raise."""

    steps: list[bytes | float | Exception]
    content: "Script" = field(init=False)
    status: int = 200

    def __post_init__(self) -> None:
        self.content = self

    async def iter_any(self) -> AsyncIterator[bytes]:
        for step in self.steps:
            match step:
                case bytes():
                    yield step
                case Exception():
                    raise step
                case seconds:
                    await anyio.sleep(seconds)

    def close(self) -> None:
        """A stream of a script has nothing to close."""


@dataclass
class Wire:
    """A transport that hands out one script after another, then one that never ends; errors are raised."""

    scripts: list[Script | Exception]
    requests: list[tuple[float, Request]] = field(default_factory=list)
    server: str = "https://example"

    @contextlib.asynccontextmanager
    async def request(self, request: Request) -> AsyncIterator[Script]:
        self.requests.append((anyio.current_time(), request))
        found = self.scripts.pop(0) if self.scripts else Script([1e9])
        if isinstance(found, Exception):
            raise found
        yield found


@dataclass
class Lists:
    """A lister with a growing version; `errors` come first."""

    errors: list[ApiError] = field(default_factory=list)
    at: list[float] = field(default_factory=list)

    async def __call__(self, path: str, *, field_selector: str = "", label_selector: str = "") -> Json:
        assert (path, field_selector, label_selector) == (CHOSEN.path, CHOSEN.field_selector, "")
        self.at.append(anyio.current_time())
        if self.errors:
            raise self.errors.pop(0)
        version = str(100 * len(self.at))
        item = {"metadata": {"name": "x", "resourceVersion": version}}
        return {
            "kind": "ResourceSliceList",
            "apiVersion": "v1",
            "metadata": {"resourceVersion": version},
            "items": [item],
        }


async def events(wire: Wire) -> list[WatchEvent]:
    stream = watch(wire, CHOSEN, resource_version="5")  # type: ignore[arg-type]
    async with contextlib.aclosing(stream):
        return [event async for event in stream]


async def followed(wire: Wire, lists: Lists, seconds: float = 3600.0) -> list[Followed]:
    seen: list[Followed] = []
    with anyio.move_on_after(seconds):
        stream = follow(wire, lists, CHOSEN)  # type: ignore[arg-type]
        async with contextlib.aclosing(stream):
            async for found in stream:
                seen.append(found)  # noqa: PERF401  (it never ends)
    return seen


async def test_a_watch_asks_for_bookmarks_an_end_and_its_selection() -> None:
    wire = Wire([Script([])])
    await events(wire)
    query = wire.requests[0][1].query
    assert query["allowWatchBookmarks"] == "true"
    assert int(query["timeoutSeconds"]) > 0
    assert query["fieldSelector"] == "spec.nodeName=a"
    assert query["resourceVersion"] == "5"


async def test_lines_may_be_cut_anywhere() -> None:
    whole = line("ADDED", 6) + b"\r\n" + line("BOOKMARK", 7) + line("DELETED", 8)
    for size in (1, 2, 7, 50, len(whole)):
        pieces: list[bytes | float | Exception] = [whole[at : at + size] for at in range(0, len(whole), size)]
        assert [event.kind for event in await events(Wire([Script(pieces)]))] == ["ADDED", "BOOKMARK", "DELETED"]


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=80))
def test_no_bytes_end_the_daemon(noise: bytes) -> None:
    async def main() -> None:
        with contextlib.suppress(ApiError):
            await events(Wire([Script([line("ADDED", 6), noise, b"\n"])]))

    anyio.run(main)


@pytest.mark.parametrize(
    "garbage",
    [
        b"<html>502 Bad Gateway</html>\n",
        b"[]\n",
        b'"x"\n',
        b'{"type":"ADDED"}\n',
        b'{"type":"ADDED","object":{}}\n',
        b'{"type":"NEW","object":{"metadata":{}}}\n',
        b'{"type":"ERROR","object":null}\n',
        b"\xff\xfe\n",
        line("ADDED", 7)[:-10],
    ],
)
async def test_what_is_no_event_is_unavailable(garbage: bytes) -> None:
    with pytest.raises(Unavailable):
        await events(Wire([Script([line("ADDED", 6), garbage])]))


async def test_an_endless_line_is_given_up() -> None:
    with pytest.raises(Unavailable, match="more than"):
        await events(Wire([Script([b"x" * (1 << 20)] * 9)]))


async def test_a_410_in_the_stream_is_gone() -> None:
    with pytest.raises(Gone, match="too old"):
        await events(Wire([Script([ERROR_410])]))


@pytest.mark.parametrize("error", [aiohttp.ClientPayloadError("half"), ConnectionResetError()])
async def test_a_broken_stream_is_unavailable(error: Exception) -> None:
    with pytest.raises(Unavailable, match="https://example"):
        await events(Wire([Script([line("ADDED", 6), error])]))


async def test_following_begins_with_a_list_and_hides_bookmarks() -> None:
    wire, lists = Wire([Script([line("BOOKMARK", 150), line("MODIFIED", 160), 1e9])]), Lists()
    seen = await followed(wire, lists, 60)
    assert isinstance(seen[0], Listed)
    assert seen[0].items[0]["kind"] == "ResourceSlice"
    assert [type(found) for found in seen] == [Listed, WatchEvent]
    assert wire.requests[0][1].query["resourceVersion"] == "100"


async def test_a_regular_end_resumes_from_the_last_bookmark_without_a_list() -> None:
    wire, lists = Wire([Script([300.0, line("BOOKMARK", 170), 180.0])]), Lists()
    await followed(wire, lists)
    assert len(lists.at) == 1
    assert wire.requests[1][1].query["resourceVersion"] == "170"


async def test_silence_is_a_dead_connection_and_resumes() -> None:
    wire, lists = Wire([Script([150.0, TimeoutError()])]), Lists()
    await followed(wire, lists, 600)
    assert len(lists.at) == 1
    assert [round(at - wire.requests[0][0]) for at, _ in wire.requests] == [0, 150]


@pytest.mark.parametrize(
    "end", [Script([ERROR_410]), Script([]), Script([b"<html>\n"]), Unavailable("503"), Gone("410")]
)
async def test_any_other_end_lists_anew(end: Script | Exception) -> None:
    wire, lists = Wire([end]), Lists()
    seen = await followed(wire, lists, 60)
    assert [type(found) for found in seen] == [Listed, Listed]
    assert lists.at[1] - lists.at[0] <= watching.FIRST_PAUSE_S


async def test_a_server_that_ends_every_watch_at_once_is_asked_more_and_more_seldom() -> None:
    wire, lists = Wire([Script([]) for _ in range(1000)]), Lists()
    await followed(wire, lists, 600)
    assert len(lists.at) < 60
    gaps = [later - earlier for earlier, later in zip(lists.at, lists.at[1:], strict=False)]
    assert max(gaps) <= watching.LAST_PAUSE_S + 0.01
    assert sum(gaps[-10:]) > 4 * sum(gaps[:4])


async def test_nodes_do_not_reconnect_together() -> None:
    first, second = Lists([Unavailable("x")] * 10), Lists([Unavailable("x")] * 10)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(followed, Wire([]), first, 600)
        tasks.start_soon(followed, Wire([]), second, 600)
    assert first.at[-1] != second.at[-1]


async def test_retry_after_of_a_list_is_honoured() -> None:
    lists = Lists([Unavailable("503", status=503, retry_after=40.0)])
    await followed(Wire([]), lists, 100)
    assert lists.at[1] - lists.at[0] >= 40


async def test_every_failure_is_told() -> None:
    told: list[ApiError] = []
    lists = Lists([Forbidden("no right", status=403)] * 3)
    with anyio.move_on_after(60):
        stream = follow(Wire([]), lists, CHOSEN, on_error=told.append)  # type: ignore[arg-type]
        async with contextlib.aclosing(stream):
            await anext(stream)
    assert [str(error) for error in told] == ["no right"] * 3


def waits(pause: Pause) -> Iterator[float]:
    while True:
        yield pause.next()


def waits_of(pause: Pause, count: int) -> list[float]:
    return [wait for wait, _ in zip(waits(pause), range(count), strict=False)]


def test_pauses_grow_to_their_limit_and_begin_again() -> None:
    pause = Pause(1.0, 8.0)
    found = waits_of(pause, 6)
    for wait, nominal in zip(found, (1, 2, 4, 8, 8, 8), strict=True):
        assert 0 <= wait <= nominal
    assert sum(waits_of(Pause(1.0, 8.0), 200)) > 500
    pause.reset()
    assert pause.next() <= 1.0
