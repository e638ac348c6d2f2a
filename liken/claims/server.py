"""A grpclib server on a unix socket that comes up whole and goes away without losing a call.

In: handlers and a path. Out: a socket that exists only while somebody listens on it (bound under a hidden name, mode
0600, then renamed), never in the place of a living one. A stop refuses new calls, tells the peers (GOAWAY), lets the
calls at work end, and removes the file only if it is still ours. grpclib itself has no drain: this uses its private
attributes, for which its version is pinned.
"""

import asyncio
import errno
import os
import socket
import stat
import weakref
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import anyio
import structlog
from grpclib.protocol import H2Protocol
from grpclib.server import Handler, Server
from h2.errors import ErrorCodes
from hyperframe.frame import GoAwayFrame

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

LONGEST_PATH = 107  # bytes: sun_path without its NUL
MODE = 0o600
HIDDEN = ".liken-"  # the kubelet passes over names with a dot
_BACKLOG = 100
_CANCEL_S = 1.0


class SocketError(Exception):
    """A socket cannot be served; the message names the path and what to do."""


class _Refusing(Handler):
    """Refuses calls once its server drains: the peer may safely repeat them elsewhere."""

    server: "DrainingServer"

    def accept(self, stream: Any, headers: Any, release_stream: Any) -> None:
        if not self.server.draining:
            super().accept(stream, headers, release_stream)
            return
        connection = stream.connection
        connection._connection.reset_stream(stream.id, error_code=ErrorCodes.REFUSED_STREAM)  # noqa: SLF001
        connection.flush()
        release_stream()


class DrainingServer(Server):
    """Serves connections from any number of listening sockets, and stops with grace."""

    def __init__(self, handlers: Collection[Any]) -> None:
        super().__init__(handlers)
        self.draining = False
        self._listeners: list[asyncio.AbstractServer] = []
        self._protocols: weakref.WeakSet[H2Protocol] = weakref.WeakSet()

    def _protocol_factory(self) -> H2Protocol:
        self.__gc_step__()
        handler = _Refusing(self._mapping, self._codec, self._status_details_codec, self.__dispatch__)
        handler.server = self
        self._handlers.add(handler)
        protocol = H2Protocol(handler, self._config, self._h2_config)
        self._protocols.add(protocol)
        return protocol

    async def listen(self, listening: socket.socket) -> None:
        """Accept connections from one more socket."""
        loop = asyncio.get_running_loop()
        self._listeners.append(await loop.create_unix_server(self._protocol_factory, sock=listening, backlog=_BACKLOG))

    def deaf(self) -> None:
        """Accept no connection any more; those that exist live on."""
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()

    async def drain(self, grace_s: float) -> None:
        """End every connection: at once the idle ones, the others when their calls have ended or the grace is over."""
        self.deaf()
        self.draining = True
        protocols = [protocol for protocol in self._protocols if hasattr(protocol, "connection")]
        for protocol in protocols:
            _go_away(protocol)
        with anyio.move_on_after(grace_s):
            while working := self._unfinished("_tasks"):
                await asyncio.wait(working)
        for handler in self._handlers:
            handler.close()
        if cancelled := self._unfinished("_cancelled"):
            log.warning("claims.calls_cut_off", calls=len(cancelled))
            await asyncio.wait(cancelled, timeout=_CANCEL_S)
        for protocol in protocols:
            protocol.connection.close()  # what is written is still sent

    def _unfinished(self, which: Literal["_tasks", "_cancelled"]) -> list[asyncio.Task[None]]:
        """The calls at work, or those that were cancelled and have not ended."""
        return [task for handler in self._handlers for task in _members(getattr(handler, which)) if not task.done()]


def _members(tasks: Any) -> list[asyncio.Task[None]]:
    return list(tasks.values() if isinstance(tasks, dict) else tasks)


def _go_away(protocol: H2Protocol) -> None:
    """Tell the peer to open no more streams; h2's own way would forbid to finish those that are open."""
    connection = protocol.connection
    if connection.is_closing():
        return
    frame = GoAwayFrame(0)
    frame.last_stream_id = connection._connection.highest_inbound_stream_id  # noqa: SLF001
    frame.error_code = ErrorCodes.NO_ERROR
    connection._transport.write(frame.serialize())  # noqa: SLF001


class Endpoint:
    """One path that is served: opened, opened again when somebody removed it, closed."""

    def __init__(self, path: Path, handlers: Collection[Any]) -> None:
        self.path = path
        self._handlers = handlers
        self._server: DrainingServer | None = None
        self._identity: tuple[int, int] | None = None

    async def open(self) -> None:
        """Serve the path. Raises SocketError."""
        listening, self._identity = listening_socket(self.path)
        if self._server is None:
            self._server = DrainingServer(self._handlers)
        self._server.deaf()  # a socket without a name takes no new caller
        await self._server.listen(listening)

    @property
    def present(self) -> bool:
        """Whether the path leads to our socket."""
        return self._identity is not None and _identity(self.path) == self._identity

    def withdraw(self) -> None:
        """Remove the path, if it is still ours; open connections live on."""
        if self.present:
            with suppress(FileNotFoundError):
                self.path.unlink()
        self._identity = None

    async def close(self, grace_s: float) -> None:
        """Remove the path and end the connections, with grace for the calls at work."""
        self.withdraw()
        if self._server is not None:
            await self._server.drain(grace_s)
            self._server = None


def listening_socket(path: Path) -> tuple[socket.socket, tuple[int, int]]:
    """A socket that listens at `path`, and its identity (device, inode). Raises SocketError."""
    if len(os.fsencode(path)) > LONGEST_PATH:
        raise SocketError(
            f"socket path {path} has {len(os.fsencode(path))} bytes and the kernel allows {LONGEST_PATH}: "
            "choose a shorter folder for the kubelet's plugins"
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _clear(path)
        return _bound(path)
    except OSError as error:
        raise SocketError(
            f"cannot serve the socket {path}: {error.strerror or error}: may liken write there?"
        ) from error


def _bound(path: Path) -> tuple[socket.socket, tuple[int, int]]:
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        hidden = _hidden(listening, path.parent)
        hidden.chmod(MODE)
        listening.listen(_BACKLOG)
        hidden.rename(path)
    except BaseException:
        listening.close()
        raise
    identity = _identity(path)
    assert identity is not None
    return listening, identity


def _hidden(listening: socket.socket, folder: Path) -> Path:
    """Bind under a name that the kubelet does not see; not longer than the shortest real one."""
    for number in range(10):
        hidden = folder / f"{HIDDEN}{number}"
        if alive(hidden) is False:
            hidden.unlink(missing_ok=True)
        try:
            listening.bind(str(hidden))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
        else:
            return hidden
    raise SocketError(f"{folder} holds too many sockets {HIDDEN}0 to 9: remove them")


def _clear(path: Path) -> None:
    """Remove the socket of a dead instance; never that of a living one."""
    match alive(path):
        case True:
            raise SocketError(f"another process serves {path}: stop the other liken, or give each its pod's uid")
        case False:
            path.unlink(missing_ok=True)


def alive(path: Path) -> bool | None:
    """Whether somebody listens at a socket; None when there is nothing. Raises SocketError for no socket."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    if not stat.S_ISSOCK(found.st_mode):
        raise SocketError(f"{path} is not a socket: remove it")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return False
        except FileNotFoundError:
            return None
        except OSError:
            return True  # a full queue, or no permission: somebody is there
    return True


def sweep(folder: Path, patterns: Iterable[str]) -> None:
    """Remove the sockets of dead instances that match, so that nobody dials them."""
    for pattern in patterns:
        for path in folder.glob(pattern):
            with suppress(OSError, SocketError):
                if alive(path) is False:
                    path.unlink(missing_ok=True)
                    log.info("claims.stale_socket_removed", path=str(path))


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
