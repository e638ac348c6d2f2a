"""Events: what liken says about an object on the API server, so that `kubectl describe` shows it.

`record` only queues: it never waits and never raises. Repeats within ten minutes raise the count of the same Event
instead of making a new one, a token bucket keeps a storm of different ones from the API server, and when the server
is away the oldest are dropped. Events are hints: whoever must not miss something reads a status or the log.
"""

import hashlib
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, NamedTuple, Protocol

import anyio
import structlog

from liken.kube import paths
from liken.kube.watch import Pause
from liken.model.api import ApiError, Conflict, Forbidden, Json, NotFound, ObjectRef, TooManyRequests, Unavailable

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

QUEUE_LIMIT = 64
KNOWN_LIMIT = 256
SAME_S = 600.0
BURST = 10
REFILL_S = 6.0
MESSAGE_BYTES = 1024
TRIES = 5

EventKind = Literal["Normal", "Warning"]


class EventApi(Protocol):
    """What Events need of the API server."""

    async def create(self, path: str, body: Json) -> Json:
        """Create an Event."""

    async def merge_patch(self, path: str, body: Json) -> Json:
        """Raise its count."""


class _Key(NamedTuple):
    about: ObjectRef
    kind: EventKind
    reason: str
    message: str


@dataclass(slots=True)
class _Known:
    """An Event there is: its name, when it was last written, and how often the same was said."""

    name: str
    at: float
    count: int


class EventRecorder:
    """Queues Events and writes them in `run`."""

    def __init__(
        self,
        api: EventApi,
        *,
        component: str = "liken",
        node_name: str = "",
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._api = api
        self._component = component
        self._node_name = node_name
        self._wall = wall
        self._waiting: OrderedDict[_Key, int] = OrderedDict()
        self._known: OrderedDict[_Key, _Known] = OrderedDict()
        self._wake = anyio.Event()
        self._tokens = float(BURST)
        self._filled_at = -math.inf
        self._forbidden = False

    def record(self, about: ObjectRef, *, kind: EventKind, reason: str, message: str) -> None:
        """Queue one Event."""
        text = message.encode()[:MESSAGE_BYTES].decode(errors="ignore")
        key = _Key(about, kind, reason, text)
        self._waiting[key] = self._waiting.get(key, 0) + 1
        while len(self._waiting) > QUEUE_LIMIT:
            self._waiting.popitem(last=False)
        self._wake.set()

    async def run(self) -> None:
        """Write what is queued, until cancelled."""
        while True:
            if not self._waiting:
                self._wake = anyio.Event()
                await self._wake.wait()
            await anyio.sleep(self._delay())
            if not self._waiting:
                continue
            key, count = self._waiting.popitem(last=False)
            await self._deliver(key, count)

    def _delay(self) -> float:
        now = anyio.current_time()
        self._tokens = min(float(BURST), self._tokens + (now - self._filled_at) / REFILL_S)
        self._filled_at = now
        self._tokens -= 1.0
        return max(0.0, -self._tokens * REFILL_S)

    async def _deliver(self, key: _Key, count: int) -> None:
        pause = Pause(1.0)
        for _ in range(TRIES):
            try:
                await self._write(key, count)
            except (Unavailable, TooManyRequests) as error:
                await anyio.sleep(max(pause.next(), error.retry_after or 0.0))
            except Forbidden as error:
                if not self._forbidden:
                    self._forbidden = True
                    log.warning("events.forbidden", error=str(error))
                return
            except ApiError as error:
                log.warning("events.not_written", reason=key.reason, error=str(error))
                return
            else:
                return
        log.warning("events.not_written", reason=key.reason, error="the API server does not answer")

    async def _write(self, key: _Key, count: int) -> None:
        now = self._wall()
        known = self._known.get(key)
        if known is not None and now - known.at < SAME_S:
            path = paths.event(_namespace(key.about), known.name)
            body: Json = {"count": known.count + count, "lastTimestamp": _stamp(now), "type": key.kind}
            try:
                await self._api.merge_patch(path, body)
            except NotFound:
                del self._known[key]
            else:
                self._known[key] = _Known(known.name, now, known.count + count)
                return
        event = self._event(key, count, now)
        try:
            await self._api.create(paths.events(_namespace(key.about)), event)
        except Conflict:
            return  # an answer got lost and the Event is there
        self._known[key] = _Known(event["metadata"]["name"], now, count)
        self._known.move_to_end(key)
        while len(self._known) > KNOWN_LIMIT:
            self._known.popitem(last=False)

    def _event(self, key: _Key, count: int, now: float) -> Json:
        about = key.about
        digest = hashlib.sha256("\0".join((*_words(about), key.kind, key.reason, key.message)).encode()).hexdigest()
        involved = {"apiVersion": about.api_version, "kind": about.kind, "name": about.name}
        involved |= {"namespace": about.namespace} if about.namespace else {}
        involved |= {"uid": about.uid} if about.uid else {}
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": f"{about.name[:200]}.{digest[:8]}{int(now * 1000):x}",
                "namespace": _namespace(about),
            },
            "involvedObject": involved,
            "type": key.kind,
            "reason": key.reason,
            "message": key.message,
            "count": count,
            "firstTimestamp": _stamp(now),
            "lastTimestamp": _stamp(now),
            "source": {"component": self._component, "host": self._node_name},
            "reportingComponent": self._component,
            "reportingInstance": self._node_name,
        }


def _words(about: ObjectRef) -> Sequence[str]:
    return about.api_version, about.kind, about.namespace, about.name, about.uid


def _namespace(about: ObjectRef) -> str:
    return about.namespace or "default"


def _stamp(now: float) -> str:
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
