"""What is stacked on a block device: `holders/` followed to the end, partitions of a holder included.

Names in `holders/` are looked up below `/class/block`, so that no link is followed on the walk. A ring ends at the
first device met twice. What leaves while it is followed is left out: its own event makes the device dirty again.
"""

import posixpath
import re
from collections import deque
from typing import Final

from liken.events.numbers import dev_number
from liken.events.tree import Tree
from liken.model.hardware import Holder

_CLASS: Final = b"/class/block/"
_HIDDEN: Final = re.compile(rb"nvme([0-9]+)c[0-9]+n([0-9]+)")


def holders(tree: Tree, place: bytes) -> tuple[Holder, ...]:
    """Every block device on top of the one at `place`, transitively, nearest first."""
    return _followed(tree, _held(tree, place))


def multipath_head(tree: Tree, hidden: bytes) -> tuple[Holder, ...]:
    """The disk that an NVMe path such as `nvme0c1n1` is a hidden part of, and what is stacked on it; else nothing.

    The kernel makes `nvme0n1` below `/devices/virtual`, with no link from the controller to it.
    """
    parts = _HIDDEN.fullmatch(hidden)
    return _followed(tree, [b"nvme%sn%s" % parts.groups()]) if parts is not None else ()


def _followed(tree: Tree, names: list[bytes]) -> tuple[Holder, ...]:
    found: dict[bytes, Holder] = {}
    waiting = deque(names)
    while waiting:
        name = waiting.popleft()
        if name in found:
            continue
        home = _home(tree, name)
        try:
            number = dev_number(tree.read(home + b"/dev"))
        except OSError:
            number = None
        found[name] = Holder(name=name.decode("utf-8", "surrogateescape"), number=number)
        waiting += _held(tree, home)
        waiting += _partitions(tree, home)
    return tuple(found.values())


def _held(tree: Tree, place: bytes) -> list[bytes]:
    try:
        return sorted(tree.names(place + b"/holders"))
    except OSError:
        return []


def _partitions(tree: Tree, home: bytes) -> list[bytes]:
    try:
        folders = tree.listing(home).folders
    except OSError:
        return []
    return sorted(name for name in folders if tree.exists(home + b"/" + name + b"/partition"))


def _home(tree: Tree, name: bytes) -> bytes:
    """The folder of a block device; that of a virtual one where the class does not list it."""
    try:
        return posixpath.normpath(posixpath.join(_CLASS, tree.link(_CLASS + name)))
    except OSError:
        return b"/devices/virtual/block/" + name
