"""What the machine itself uses: mounts, swap and kernel consoles, as pid 1 and the kernel see them.

Read from `/proc/1/mountinfo` (a daemon in a container has mounts of its own, which say nothing about the machine;
`/proc/self/mountinfo` only when pid 1's may not be read), `/proc/swaps` and `/sys/class/tty/console/active`. A file
that cannot be read counts as empty: a recording has none of them.
"""

import os
import posixpath
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from liken.events.numbers import dev_number
from liken.events.tree import Tree
from liken.model.hardware import DevNumber, SystemFacts

_ESCAPE: Final = re.compile(rb"\\([0-7]{3})")
_FIELDS: Final = 5
_LIMIT: Final = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of mountinfo: the file system's number, where it is mounted, and from what."""

    number: DevNumber | None
    point: bytes
    source: bytes


def system_facts(tree: Tree, proc: Path, dev: Path) -> SystemFacts:
    """The machine's own use of its devices; never raises OSError."""
    lookup = _Numbers(tree, dev)
    mounts = tuple(mounts_of(_whole(mountinfo(proc))))
    numbers: dict[DevNumber, str] = {}
    sources: dict[str, str] = {}
    for mount in mounts:
        number = mount.number
        if mount.source.startswith(b"/dev/"):
            sources.setdefault(os.fsdecode(mount.source), os.fsdecode(mount.point))
            if number is None or number.major == 0:
                number = lookup.of(mount.source)
        if number is not None and number.major != 0:
            numbers.setdefault(number, os.fsdecode(mount.point))
    return SystemFacts(
        mounts=numbers,
        sources=sources,
        swaps=_swaps(_whole(proc / "swaps"), mounts, lookup),
        consoles=_consoles(tree),
        uhid=_uhid(tree, dev),
    )


def mountinfo(proc: Path) -> Path:
    """The mountinfo that tells of the machine's mounts: pid 1's, else our own."""
    first = proc / "1" / "mountinfo"
    return first if os.access(first, os.R_OK) else proc / "self" / "mountinfo"


def mounts_of(content: bytes) -> Iterable[Mount]:
    """The mounts of a mountinfo file; lines that are none are passed over."""
    for line in content.split(b"\n"):
        head, dash, tail = line.partition(b" - ")
        fields, rest = head.split(b" "), tail.split(b" ")
        if dash and len(fields) > _FIELDS and len(rest) > 1:
            yield Mount(dev_number(fields[2]), _unescaped(fields[4]), _unescaped(rest[1]))


def _swaps(content: bytes, mounts: tuple[Mount, ...], lookup: "_Numbers") -> dict[DevNumber, str]:
    swaps: dict[DevNumber, str] = {}
    for line in content.split(b"\n")[1:]:
        fields = line.split()
        if len(fields) < 2 or not fields[0].startswith(b"/"):  # noqa: PLR2004 - file name and type
            continue
        path = _unescaped(fields[0])
        number = lookup.of(path) if fields[1] == b"partition" else _below(path, mounts, lookup)
        if number is not None:
            swaps.setdefault(number, os.fsdecode(path))
    return swaps


def _below(path: bytes, mounts: tuple[Mount, ...], lookup: "_Numbers") -> DevNumber | None:
    """The file system a swap file lies on: the longest mount point above it, the newest of equals."""
    best: Mount | None = None
    for mount in mounts:
        point = mount.point.rstrip(b"/") + b"/"
        if path.startswith(point) and (best is None or len(mount.point) >= len(best.point)):
            best = mount
    if best is None:
        return None
    return best.number if best.number and best.number.major else lookup.of(best.source)


class _Numbers:
    """Numbers of block devices by their path below /dev."""

    def __init__(self, tree: Tree, dev: Path) -> None:
        self._tree, self._dev = tree, dev

    def of(self, path: bytes) -> DevNumber | None:
        name = path.removeprefix(b"/dev/")
        if name == path or b".." in name.split(b"/"):
            return None
        home = b"/class/block/" + name.replace(b"/", b"!")
        return self._read(home) or self._mapped(name) or self._node(name)

    def _read(self, home: bytes) -> DevNumber | None:
        try:
            place = posixpath.normpath(posixpath.join(posixpath.dirname(home), self._tree.link(home)))
            return dev_number(self._tree.read(place + b"/dev"))
        except OSError:
            return None

    def _mapped(self, name: bytes) -> DevNumber | None:
        """A device mapper name: `mapper/root`."""
        if not name.startswith(b"mapper/"):
            return None
        try:
            entries = self._tree.names(b"/class/block")
        except OSError:
            return None
        for entry in entries:
            home = b"/class/block/" + entry
            if entry.startswith(b"dm-"):
                try:
                    place = posixpath.normpath(posixpath.join(b"/class/block", self._tree.link(home)))
                    if self._tree.read(place + b"/dm/name").strip() == name.removeprefix(b"mapper/"):
                        return dev_number(self._tree.read(place + b"/dev"))
                except OSError:
                    continue
        return None

    def _node(self, name: bytes) -> DevNumber | None:
        """A link made by udev (`disk/by-uuid/…`): the node says its number."""
        try:
            status = (self._dev / os.fsdecode(name)).stat()
        except OSError:
            return None
        if not stat.S_ISBLK(status.st_mode):
            return None
        return DevNumber(os.major(status.st_rdev), os.minor(status.st_rdev))


def _consoles(tree: Tree) -> frozenset[str]:
    for home in (b"/class/tty/console", b"/devices/virtual/tty/console"):
        try:
            place = home if home.startswith(b"/devices") else _followed(tree, home)
            return frozenset(name.decode("utf-8", "replace") for name in tree.read(place + b"/active").split())
        except OSError:
            continue
    return frozenset()


def _followed(tree: Tree, link: bytes) -> bytes:
    return posixpath.normpath(posixpath.join(posixpath.dirname(link), tree.link(link)))


def _uhid(tree: Tree, dev: Path) -> bool:
    """Whether uhid is there now: its module or its device, and its node wherever /dev has any node at all."""
    if not (tree.exists(b"/module/uhid") or tree.exists(b"/class/misc/uhid")):
        return False
    try:
        return (dev / "uhid").exists() or not any(dev.iterdir())
    except OSError:
        return True


def _unescaped(field: bytes) -> bytes:
    return _ESCAPE.sub(lambda found: bytes([int(found[1], 8) & 0xFF]), field)


def _whole(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_LIMIT)
    except OSError:
        return b""
