"""Counts what passes between the nodes and the API server: a TCP proxy that reads HTTP as it goes by.

Every client here waits for an answer before its next request, so a request begins where a chunk from the client begins;
watch events are lines of the answer. In: connections to `port`. Out: a `Reading`, which `since` subtracts.
"""

import contextlib
import re
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Self

import anyio
from anyio.abc import ByteReceiveStream, ByteStream, SocketStream

CHUNK = 1 << 16
REQUEST = re.compile(rb"(GET|POST|PUT|PATCH|DELETE) (\S+) HTTP/1\.1\r\n")
EVENT = re.compile(rb'\{"type": ?"(ADDED|MODIFIED|DELETED)"')
LONGEST_EVENT_START = 24
ENDINGS = (anyio.BrokenResourceError, anyio.EndOfStream, anyio.ClosedResourceError, ssl.SSLError)


@dataclass(slots=True)
class Reading:
    """What was counted so far: requests by verb, their times, bytes each way, watch events, connections."""

    requests: Counter[str] = field(default_factory=Counter)
    times: list[float] = field(default_factory=list)
    sent: int = 0
    received: int = 0
    events: int = 0
    connections: int = 0

    def copy(self) -> "Reading":
        """The reading as it is now."""
        return Reading(
            Counter(self.requests), self.times.copy(), self.sent, self.received, self.events, self.connections
        )

    def since(self, before: "Reading") -> "Reading":
        """What came after another reading."""
        return Reading(
            self.requests - before.requests,
            self.times[len(before.times) :],
            self.sent - before.sent,
            self.received - before.received,
            self.events - before.events,
            self.connections - before.connections,
        )

    def busiest(self, window_s: float) -> int:
        """The most requests that began within any `window_s` seconds."""
        most, first = 0, 0
        for last, at in enumerate(self.times):
            while at - self.times[first] > window_s:
                first += 1
            most = max(most, last - first + 1)
        return most


class Meter:
    """A proxy in front of one server. Make it with `serve`."""

    def __init__(self, upstream: Callable[[], Awaitable[ByteStream]]) -> None:
        self._upstream = upstream
        self.port = 0
        self.reading = Reading()

    @classmethod
    @contextlib.asynccontextmanager
    async def serve(cls, upstream: Callable[[], Awaitable[ByteStream]]) -> AsyncIterator[Self]:
        """Listen on loopback and carry each connection to a new one of `upstream`."""
        meter = cls(upstream)
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1", backlog=4096)
        meter.port = int(listener.extra(anyio.abc.SocketAttribute.local_port))
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, meter._carry)
            yield meter
            tasks.cancel_scope.cancel()

    async def _carry(self, client: SocketStream) -> None:
        self.reading.connections += 1
        async with client:
            try:
                server = await self._upstream()
            except OSError:
                return
            try:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._up, client, server)
                    await self._down(server, client)
                    tasks.cancel_scope.cancel()
            finally:
                await anyio.aclose_forcefully(server)

    async def _up(self, client: ByteReceiveStream, server: ByteStream) -> None:
        with contextlib.suppress(*ENDINGS):
            while True:
                chunk = await client.receive(CHUNK)
                self.reading.received += len(chunk)
                if found := REQUEST.match(chunk):
                    self.reading.times.append(anyio.current_time())
                    self.reading.requests[_verb(*found.groups())] += 1
                await server.send(chunk)
        await anyio.aclose_forcefully(server)

    async def _down(self, server: ByteReceiveStream, client: ByteStream) -> None:
        rest = b""
        with contextlib.suppress(*ENDINGS):
            while True:
                chunk = await server.receive(CHUNK)
                self.reading.sent += len(chunk)
                text = rest + chunk
                ends = [found.end() for found in EVENT.finditer(text)]
                self.reading.events += len(ends)
                rest = text[max([*ends, len(text) - LONGEST_EVENT_START, 0]) :]
                await client.send(chunk)


def _verb(method: bytes, target: bytes) -> str:
    path, _, query = target.decode().partition("?")
    kind = path.rsplit("/", 1)[-1] if path.endswith("resourceslices") else ""
    if method == b"GET":
        return "watch" if "watch=" in query and "watch=false" not in query else "list" if kind else "get"
    return {b"POST": "create", b"PUT": "update", b"PATCH": "patch", b"DELETE": "delete"}[method]
