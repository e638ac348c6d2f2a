"""Watching: one connection as an iterator of events, and a collection followed for ever.

`follow` is what loops use: a list, its changes, and a new list after every end that was not the regular one (410,
an error, a server that went away early), with growing, jittered pauses. A regular end (the time asked for has run
out, or nothing at all came for longer than the server's bookmarks) resumes where it was, without a list. A broken
answer in the stream (an HTML page of a proxy, half a line) is Unavailable, never an event.
"""

import contextlib
import json
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

import aiohttp
import anyio
import structlog

from liken.kube import failures, paths
from liken.kube.transport import Request, Transport
from liken.model.api import ApiError, Followed, Gone, Json, Listed, Unavailable, WatchEvent, WatchKind

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

WATCH_S = 480
"""Seconds after which the server is asked to end a watch (jittered, so that nodes do not reconnect together)."""
SILENCE_S = 150.0
"""Bookmarks come about once a minute: longer silence means that the connection is dead."""
LINE_LIMIT = 8 << 20
FIRST_PAUSE_S = 1.0
LAST_PAUSE_S = 30.0
EARLY_S = 5.0


class Pause:
    """Growing waits, each anywhere between nothing and its nominal length; `reset` after a success.

    All nodes lose their watch at the same moment: full jitter spreads their lists over the whole second.
    """

    def __init__(self, first: float = FIRST_PAUSE_S, last: float = LAST_PAUSE_S) -> None:
        self._first, self._last = first, last
        self._nominal = first

    def reset(self) -> None:
        """Begin with the shortest wait again."""
        self._nominal = self._first

    def next(self) -> float:
        """Seconds to wait now; the next wait is twice as long, up to the limit."""
        nominal = self._nominal
        self._nominal = min(2 * nominal, self._last)
        return random.uniform(0.0, nominal)  # noqa: S311  (jitter is no secret)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """A collection's path and which of its objects are meant."""

    path: str
    field_selector: str = ""
    label_selector: str = ""

    def query(self) -> dict[str, str]:
        """The selectors as query parameters."""
        selectors = {"fieldSelector": self.field_selector, "labelSelector": self.label_selector}
        return {key: value for key, value in selectors.items() if value}


class _Lapsed(Unavailable):
    """Nothing came for `SILENCE_S`: connect again from where we were."""


class Lister(Protocol):
    """Lists a collection."""

    def __call__(self, path: str, *, field_selector: str = "", label_selector: str = "") -> Awaitable[Json]:
        """A whole list object."""


async def watch(
    transport: Transport, chosen: Selection, *, resource_version: str = "", timeout_s: int = WATCH_S
) -> AsyncGenerator[WatchEvent, None]:
    """One connection's events, bookmarks included; ends when the server ends it. Raises Gone, Unavailable, …."""
    query = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": str(timeout_s), **chosen.query()}
    if resource_version:
        query["resourceVersion"] = resource_version
    request = Request(verb="watch", method="GET", path=chosen.path, query=query, silence_s=SILENCE_S)
    async with transport.request(request) as response:
        try:
            async with contextlib.aclosing(_lines(response, chosen.path)) as lines:
                async for line in lines:
                    yield _event(line, chosen.path)
        except TimeoutError:
            raise _Lapsed(f"watch of {paths.words(chosen.path)}: nothing came for {SILENCE_S:.0f} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise failures.no_answer("watch", chosen.path, transport.server, error) from error
        finally:
            response.close()  # the rest of a stream is never wanted


async def follow(
    transport: Transport, lister: Lister, chosen: Selection, *, on_error: Callable[[ApiError], None] | None = None
) -> AsyncGenerator[Followed, None]:
    """List and watch for ever; see `Kube.follow`."""
    place = _Place()
    while True:
        wait = 0.0
        try:
            if place.version is None:
                listing = await lister(
                    chosen.path, field_selector=chosen.field_selector, label_selector=chosen.label_selector
                )
                place.version = str((listing.get("metadata") or {}).get("resourceVersion") or "")
                yield Listed(items=_typed(listing), version=place.version)
            async with contextlib.aclosing(_changes(transport, chosen, place)) as changes:
                async for change in changes:
                    yield change
        except Gone:
            place.version = None
        except ApiError as error:
            place.version = None
            wait = error.retry_after or 0.0
            if on_error is not None:
                on_error(error)
            place.complain(chosen, error)
        if place.version is None:
            await anyio.sleep(max(place.pause.next(), wait))


class _Place:
    """How far a followed collection has been read; `version` None: list first."""

    def __init__(self) -> None:
        self.version: str | None = None
        self.pause = Pause()
        self._said: tuple[type[ApiError], int] | None = None

    def moved(self, event: WatchEvent) -> None:
        self.version = str(event.item["metadata"].get("resourceVersion") or self.version)
        self.pause.reset()
        self._said = None

    def complain(self, chosen: Selection, error: ApiError) -> None:
        """Say a failure once, until it is another one or events came again."""
        if (type(error), error.status) != self._said:
            self._said = (type(error), error.status)
            log.warning("kube.watch_broken", resource=paths.words(chosen.path), error=str(error))


async def _changes(transport: Transport, chosen: Selection, place: _Place) -> AsyncGenerator[WatchEvent, None]:
    """One watch from `place` on; leaves no version there when the server went away before the time."""
    seconds = random.randint(WATCH_S // 2, WATCH_S)  # noqa: S311
    until = anyio.current_time() + seconds - EARLY_S
    try:
        events = watch(transport, chosen, resource_version=place.version or "", timeout_s=seconds)
        async with contextlib.aclosing(events):
            async for event in events:
                place.moved(event)
                if event.kind is not WatchKind.BOOKMARK:
                    yield event
    except _Lapsed:
        return
    if anyio.current_time() < until:
        place.version = None


async def _lines(response: aiohttp.ClientResponse, path: str) -> AsyncGenerator[bytes, None]:
    """The stream's lines; a line of any length up to `LINE_LIMIT`, and no half line at the end."""
    rest = bytearray()
    async for chunk in response.content.iter_any():
        *lines, tail = chunk.split(b"\n")
        for line in lines:
            rest += line
            if whole := bytes(rest).strip():
                yield whole
            rest.clear()
        rest += tail
        if len(rest) > LINE_LIMIT:
            raise Unavailable(f"cannot watch {paths.words(path)}: one event has more than {LINE_LIMIT} bytes")
    if rest.strip():
        raise failures.not_json("watch", path, response.status, bytes(rest))


def _event(line: bytes, path: str) -> WatchEvent:
    try:
        document = json.loads(line)
        kind, item = document["type"], document["object"]
        if kind != "ERROR":
            return WatchEvent(kind=WatchKind(kind), item=_with_metadata(item))
        code = int(item.get("code") or 500)
    except (ValueError, TypeError, KeyError, AttributeError):
        raise failures.not_json("watch", path, 200, line) from None
    raise failures.refusal("watch", path, code, json.dumps(item).encode(), {})


def _with_metadata(item: Any) -> Json:
    if isinstance(item, dict) and isinstance(item.get("metadata"), dict):
        return item
    raise TypeError("an object without metadata")


def _typed(listing: Json) -> tuple[Json, ...]:
    """The items of a list, each with the type that the list leaves out."""
    kind = str(listing.get("kind") or "").removesuffix("List")
    missing = {"apiVersion": listing.get("apiVersion"), "kind": kind}
    return tuple({**missing, **item} for item in listing.get("items") or [])
