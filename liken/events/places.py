"""Which device a path belongs to, and what hangs below which device: the mirror's own index of what it has read.

In: readings as they are committed. Out: for the path of an event the entries to look at, by this index as far as the
path is known (so also for devices that are gone) and by the names of its parts beyond that. No system call is made:
an event costs a few look-ups.
"""

import re
from collections.abc import Iterator
from typing import Final

from liken.events.sysfs import Reading
from liken.model.hardware import Bus, BusAddress, DeviceKey, DevPath
from liken.state.graph import owner_key

_PCI: Final = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_USB: Final = re.compile(r"[0-9]+-[0-9.]+(:[0-9]+\.[0-9]+)?|usb[0-9]+")
_STACKED: Final = re.compile(r"/devices/virtual/(block/(?!loop|ram|zram|nbd)[^/]+|nvme-subsystem/)")
_STORAGE: Final = frozenset({"block", "nvme"})
_REMEMBERED: Final = 4096


class Places:
    """Paths and children of every bus entry; one writer."""

    def __init__(self) -> None:
        self._below: dict[DeviceKey, tuple[DeviceKey, ...]] = {}
        self._paths: dict[DeviceKey, DevPath] = {}
        self._keys: dict[DevPath, DeviceKey] = {}
        self._block: set[DeviceKey] = set()
        self._answers: dict[DevPath, frozenset[DeviceKey]] = {}

    def __contains__(self, key: object) -> bool:
        return key in self._paths

    def __iter__(self) -> Iterator[DeviceKey]:
        return iter(self._paths)

    def path(self, key: DeviceKey) -> DevPath | None:
        """Where an entry was last seen."""
        return self._paths.get(key)

    def below(self, key: DeviceKey) -> tuple[DeviceKey, ...]:
        """The PCI and USB devices last seen directly below an entry."""
        return self._below.get(key, ())

    def put(self, key: DeviceKey, reading: Reading) -> None:
        """Take over what was read of an entry."""
        facts = reading.facts
        if self._paths.get(key) != facts.path:
            self.drop(key)
            self._paths[key] = facts.path
            if facts.path:
                self._keys[facts.path] = key
        if facts.problem is None:
            self._below[key] = reading.below
            (self._block.add if any(node.kind in _STORAGE for node in facts.nodes) else self._block.discard)(key)

    def drop(self, key: DeviceKey) -> None:
        """Forget an entry that is gone."""
        path = self._paths.pop(key, None)
        if path is not None and self._keys.get(path) == key:
            del self._keys[path]
        self._below.pop(key, None)
        self._block.discard(key)
        self._answers.clear()

    def concerned(self, path: DevPath) -> frozenset[DeviceKey]:
        """The entries an event at `path` is about; empty: none that liken knows or cares for.

        The nearest known entry at or above it, and every part beyond that whose name is one a bus gives. What is
        stacked on block devices (device mapper, md, NVMe multipath) has no device above it: all with storage are meant.
        """
        known = self._answers.get(path)
        if known is None:
            if len(self._answers) >= _REMEMBERED:
                self._answers.clear()
            known = self._answers[path] = frozenset(self._found(path))
        return known if not _STACKED.match(path) else frozenset(self._block)

    def _found(self, path: DevPath) -> Iterator[DeviceKey]:
        here = path
        while here:
            key = self._keys.get(here)
            if key is not None:
                yield key
                return
            here_above, _, name = here.rpartition("/")
            if (named := _named(name)) is not None:
                yield named
            here = DevPath(here_above)


def unit(places: Places, key: DeviceKey) -> set[DeviceKey]:
    """What is read together with an entry: a usb_device and its interfaces, a PCI device alone."""
    owner = owner_key(key)
    interfaces = {other for other in places.below(owner) if owner_key(other) == owner}
    return {key, owner, *interfaces}


def _named(name: str) -> DeviceKey | None:
    if _PCI.fullmatch(name):
        return DeviceKey(Bus.PCI, BusAddress(name))
    if _USB.fullmatch(name):
        return DeviceKey(Bus.USB, BusAddress(name))
    return None
