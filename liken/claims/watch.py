"""Wakes when something in one of a few folders came or went; costs nothing while nothing does.

In: folders, which may be missing, be removed and come back. Out: `Watch.change()`, a hint to look again, never what
happened. inotify by ctypes, because the kubelet's folders change once in months and a poll would wake the machine all
the time; a slow poll stands behind it, for file systems and limits under which inotify fails.
"""

import ctypes
import os
from collections.abc import Collection
from pathlib import Path
from types import TracebackType
from typing import Self

import anyio

_NONBLOCK_CLOEXEC = os.O_NONBLOCK | os.O_CLOEXEC
_CREATE, _DELETE, _MOVED_FROM, _MOVED_TO = 0x100, 0x200, 0x40, 0x80
_DELETE_SELF, _MOVE_SELF, _ONLYDIR = 0x400, 0x800, 0x01000000
_MASK = _CREATE | _DELETE | _MOVED_FROM | _MOVED_TO | _DELETE_SELF | _MOVE_SELF | _ONLYDIR
_POLL_S, _BLIND_POLL_S = 30.0, 5.0
_BUFFER = 65536


class Watch:
    """Watches `folders` and the nearest existing folder above each missing one; a context manager."""

    def __init__(self, folders: Collection[Path]) -> None:
        self._folders = frozenset(folders) | {folder.parent for folder in folders}
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._file = self._libc.inotify_init1(_NONBLOCK_CLOEXEC)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def arm(self) -> None:
        """Watch what exists now; do it before looking, so that nothing falls between."""
        if self._file < 0:
            return
        for folder in self._folders:
            self._libc.inotify_add_watch(self._file, os.fsencode(_existing(folder)), _MASK)

    async def change(self) -> None:
        """Return when something may have changed since `arm`."""
        if self._file < 0:
            await anyio.sleep(_BLIND_POLL_S)
            return
        with anyio.move_on_after(_POLL_S):
            await anyio.wait_readable(self._file)
            os.read(self._file, _BUFFER)


def _existing(folder: Path) -> Path:
    return next((place for place in (folder, *folder.parents) if place.is_dir()), Path("/"))
