"""One claim, one writer: among the tasks of this process and among the two instances of a rolling update.

In: the names of what will be written (claims, exclusive devices). Out: a context in which nobody else writes them.
Between processes it is a lock of single bytes of one file, one byte for a name: nothing to create or to clean up for
each claim, and the kernel frees it when a process dies. Open file descriptions own these locks, not processes, so
that closing another descriptor of the file frees nothing.
"""

import errno
import fcntl
import hashlib
import os
import struct
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio

_POLL_S = 0.02
_FLOCK = struct.Struct("hhqqi4x")  # l_type, l_whence, l_start, l_len, l_pid, which must be 0


class Busy(Exception):
    """Another instance kept a lock for longer than the caller could wait."""


class ByteLocks:
    """Locks on bytes of one file. `path` None: no other instance can exist (tests, standalone)."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._file = -1

    def take(self, name: str) -> bool:
        """Try to lock `name`; False when another instance has it. Raises OSError when the file cannot be had."""
        return self._path is None or self._set(name, fcntl.F_WRLCK)

    def free(self, name: str) -> None:
        """Unlock `name`."""
        if self._path is not None and self._file >= 0:
            self._set(name, fcntl.F_UNLCK)

    def close(self) -> None:
        """Free everything."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _set(self, name: str, kind: int) -> bool:
        if self._file < 0:
            self._file = self._opened()
        start = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest()) >> 2
        try:
            fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, _FLOCK.pack(kind, os.SEEK_SET, start, 1, 0))
        except OSError as error:
            if error.errno in {errno.EAGAIN, errno.EACCES}:
                return False
            raise
        return True

    def _opened(self) -> int:
        assert self._path is not None
        self._path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


@dataclass(slots=True)
class _Local:
    lock: anyio.Lock = field(default_factory=lambda: anyio.Lock(fast_acquire=True))
    users: int = 0


class Locks:
    """Locks by name for the tasks of one process, and through `ByteLocks` against another instance."""

    def __init__(self, shared: ByteLocks) -> None:
        self._shared = shared
        self._local: dict[str, _Local] = {}

    @asynccontextmanager
    async def holding(self, names: Iterable[str], *, patience_s: float) -> AsyncIterator[None]:
        """Hold every name; always taken in order, so that two callers never wait for each other.

        Raises Busy when another instance keeps one for longer than `patience_s`.
        """
        held: list[str] = []
        try:
            for name in sorted(set(names)):
                await self._take(name, patience_s)
                held.append(name)
            yield
        finally:
            for name in reversed(held):
                self._shared.free(name)
                self._let_go(name, self._local[name])

    async def _take(self, name: str, patience_s: float) -> None:
        local = self._local.setdefault(name, _Local())
        local.users += 1
        try:
            await local.lock.acquire()
        except BaseException:
            local.users -= 1
            raise
        try:
            await self._among_instances(name, patience_s)
        except BaseException:
            self._let_go(name, local)
            raise

    def _let_go(self, name: str, local: _Local) -> None:
        local.lock.release()
        local.users -= 1
        if not local.users:
            del self._local[name]

    async def _among_instances(self, name: str, patience_s: float) -> None:
        until = anyio.current_time() + patience_s
        while not self._shared.take(name):
            if anyio.current_time() >= until:
                raise Busy(name)
            await anyio.sleep(_POLL_S)
