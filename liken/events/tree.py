"""The only system calls on sysfs: bounded reads, one directory at a time, never through a symbolic link.

Paths are bytes below a root (`/bus/usb/devices`), because sysfs is bytes. A test that wants a file to fail hands
`Sysfs` a subclass. Every error is the OSError of the call; `gone` tells those that mean "it is not there any more".
"""

import errno
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

READ_LIMIT: Final = 4096
"""Bytes read of an attribute: the kernel's own limit, one page."""

_GONE: Final = frozenset({errno.ENOENT, errno.ENODEV, errno.ENOTDIR, errno.ENXIO, errno.ESTALE})


def gone(error: OSError) -> bool:
    """Whether the error says that the file or its device is not there any more."""
    return error.errno in _GONE


@dataclass(slots=True)
class Listing:
    """One directory: names of its regular files, real directories and symbolic links."""

    files: set[bytes] = field(default_factory=set)
    folders: list[bytes] = field(default_factory=list)
    links: set[bytes] = field(default_factory=set)


class Tree:
    """Files below one root, by absolute bytes path inside it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._root = os.fsencode(root).rstrip(b"/")

    def read(self, path: bytes, limit: int = READ_LIMIT) -> bytes:
        """The first `limit` bytes of a file, as one read gives them (an attribute of sysfs is one read)."""
        fd = os.open(self._root + path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            return os.read(fd, limit)
        finally:
            os.close(fd)

    def listing(self, path: bytes) -> Listing:
        """What a directory holds; device files and sockets are left out."""
        found = Listing()
        with os.scandir(self._root + path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    found.folders.append(entry.name)
                elif entry.is_symlink():
                    found.links.add(entry.name)
                else:
                    found.files.add(entry.name)
        return found

    def names(self, path: bytes) -> list[bytes]:
        """The names in a directory."""
        return os.listdir(self._root + path)  # noqa: PTH208 - Path has no bytes

    def link(self, path: bytes) -> bytes:
        """The target of a symbolic link, as written."""
        return os.readlink(self._root + path)  # noqa: PTH115 - Path has no bytes

    def stamp(self, path: bytes) -> tuple[int, int]:
        """What changes when a directory is made anew under the same name (a file system may reuse its inode)."""
        status = os.lstat(self._root + path)
        return status.st_ino, status.st_ctime_ns

    def exists(self, path: bytes) -> bool:
        """Whether something is there; False when that cannot be told."""
        try:
            os.lstat(self._root + path)
        except OSError:
            return False
        return True
