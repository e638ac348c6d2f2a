"""The kernel's uevents: the only user of the netlink socket.

pyudev opens the monitor (source `kernel`: in a container no udevd would ever answer), the datagrams are read from its
descriptor here, because `Monitor.poll` never recovers from an overflow. Out: where something changed, or that
something may have been missed. What a datagram says is not believed: it only tells where to look, and one that did
not come from the kernel's own port not even that.
"""

import errno
import os
import socket
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, TypeAlias

import anyio
import anyio.lowlevel
import structlog

from liken.metrics import Metrics
from liken.model.hardware import DevPath

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

DATAGRAM: Final = 16_384
"""Bytes read of one datagram; the kernel's own are at most 2 KiB and a little."""

BATCH: Final = 512
"""Datagrams read before others on the loop have their turn."""

RECEIVE_BUFFER: Final = 32 << 20
"""Asked for the socket: some 50,000 events. Without CAP_NET_ADMIN the kernel grants net.core.rmem_max."""

_SO_RCVBUFFORCE: Final = 33
_ACTIONS: Final = {word.encode(): word for word in ("add", "remove", "change", "bind", "unbind", "move")}
_PATH_LIMIT: Final = 4096
_KNOWN_LIMIT: Final = 1024


class KernelEventsError(Exception):
    """The kernel's events cannot be heard; the message says why and what to do."""


class Changed(NamedTuple):
    """Something happened at `path`; any action is a reason to look."""

    path: DevPath
    action: str


@dataclass(frozen=True, slots=True)
class Resync:
    """Something may have been missed: `overflow`, `truncated` or `reader`."""

    cause: str


Heard: TypeAlias = Changed | Resync


class Source(Protocol):
    """Where changes are heard."""

    def batches(self) -> AsyncIterator[Sequence[Heard]]:
        """What was heard, in order, without end; raises OSError when the source is broken."""

    def close(self) -> None:
        """Stop listening."""


def parsed(header: bytes) -> Changed | None:
    """The place that a uevent's first line names (`add@/devices/…`); None when it names none. Never raises."""
    action, _, path = header.partition(b"@")
    word = _ACTIONS.get(action) or (action.decode("ascii") if action.isalpha() and action.isascii() else None)
    if word is None or path[:1] != b"/" or b"/../" in path or len(path) > _PATH_LIMIT:
        return None
    return Changed(DevPath(path.decode("utf-8", "surrogateescape")), word)


def moved_from(datagram: bytes) -> Changed | None:
    """Where a device was before a `move`; None when the uevent does not tell."""
    _, found, rest = datagram.partition(b"\0DEVPATH_OLD=")
    return parsed(b"move@" + rest.partition(b"\0")[0]) if found else None


class KernelEvents:
    """An open subscription; what happens after the constructor returned is heard."""

    def __init__(self, *, metrics: Metrics, receive_buffer: int = RECEIVE_BUFFER, datagram: int = DATAGRAM) -> None:
        """Subscribe; `datagram`: bytes read of one, what is longer counts as cut. Raises KernelEventsError."""
        self._metrics = metrics
        try:
            import pyudev  # noqa: PLC0415 - commands on a recording do without libudev

            self._monitor = pyudev.Monitor.from_netlink(pyudev.Context(), source="kernel")
            self._monitor.start()
            self._socket = socket.socket(fileno=os.dup(self._monitor.fileno()))
        except (ImportError, OSError) as error:
            raise KernelEventsError(
                f"cannot subscribe to the kernel's uevents: {error}. liken needs libudev (package libudev1) and a "
                "netlink socket; a seccomp profile or a sandbox may forbid it."
            ) from error
        self._socket.setblocking(False)  # noqa: FBT003 - socket's own signature
        self._buffer = bytearray(datagram)
        self._view = memoryview(self._buffer)
        self._known: dict[bytes, Changed] = {}  # first lines heard before: a storm repeats few of them
        self.receive_buffer = _enlarged(self._socket, receive_buffer)

    def close(self) -> None:
        """Unsubscribe."""
        self._socket.close()

    async def batches(self) -> AsyncIterator[Sequence[Heard]]:
        """What was heard; raises OSError when the socket is broken."""
        while True:
            await anyio.wait_readable(self._socket)  # armed anew each time: uvloop drops a reader that saw POLLERR
            more = True
            while more:
                heard, more = self.drained()
                if heard:
                    yield heard
                await anyio.lowlevel.checkpoint()

    def drained(self, limit: int = BATCH) -> tuple[list[Heard], bool]:
        """What is queued, at most `limit` datagrams, and whether there may be more."""
        heard: list[Heard] = []
        foreign = malformed = count = 0
        longest = len(self._buffer)
        receive, buffer, view, known = self._socket.recvfrom_into, self._buffer, self._view, self._known
        while count < limit:
            try:
                size, sender = receive(buffer)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                heard.append(Resync("overflow"))
                count += 1
                continue
            count += 1
            if sender[0]:  # the kernel's port is 0, and it gives no other sender that number
                foreign += 1
                continue
            header = bytes(view[: buffer.find(0, 0, size)])
            changed = known.get(header)
            if changed is None:
                changed = self._first(header, size)
                if changed is None:
                    malformed += 1
                    continue
            if size >= longest:
                heard.append(Resync("truncated"))
                continue
            heard.append(changed)
            if changed.action == "move" and (before := moved_from(bytes(view[:size]))) is not None:
                heard.append(before)
        self._count(count, foreign, malformed)
        return heard, count >= limit

    def _first(self, header: bytes, size: int) -> Changed | None:
        """What a first line says that was not heard lately; None: nothing."""
        changed = parsed(header) if len(header) < size else None
        if changed is not None:
            if len(self._known) >= _KNOWN_LIMIT:
                self._known.clear()
            self._known[header] = changed
        return changed

    def _count(self, received: int, foreign: int, malformed: int) -> None:
        self._metrics.uevents.inc(received - foreign)
        if foreign:
            self._metrics.uevents_dropped.labels(cause="foreign").inc(foreign)
            log.warning("uevents.foreign", dropped=foreign, advice="a local process sends to the kernel's event group")
        if malformed:
            self._metrics.uevents_dropped.labels(cause="malformed").inc(malformed)


def _enlarged(sock: socket.socket, wanted: int) -> int:
    """Give the socket the receive buffer it may have, never less than it has; returns its size."""
    has = sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
    for option in (_SO_RCVBUFFORCE, socket.SO_RCVBUF):
        try:
            sock.setsockopt(socket.SOL_SOCKET, option, wanted)
        except PermissionError:
            continue
        break
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) or has
