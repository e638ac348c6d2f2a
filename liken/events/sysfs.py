"""The only reader of `/sys`: a bus entry -> facts; the root -> all facts. Bytes in, plain records out.

In: a sysfs root (also a recording's) and, for what the machine itself uses, `/proc` and `/dev`. Out: `DeviceFacts` of
one pass, or the problem that made one impossible. An error costs the attribute when it is an optional one, else that
device, never the pass. A device that changed while it was read is read again: what comes out is never one half of the
old and one half of the new. Calls block: run them in a thread.
"""

import os
import posixpath
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from liken.events.holders import holders, multipath_head
from liken.events.numbers import dev_number, numbers, properties
from liken.events.system import system_facts
from liken.events.tree import Listing, Tree, gone
from liken.model.hardware import (
    Bus,
    BusAddress,
    DeviceFacts,
    DeviceKey,
    DevPath,
    Holder,
    NodeFact,
    Problem,
    Reason,
    SystemFacts,
)

ATTEMPTS: Final = 3
"""How often a device is read that changes under the reader's eyes."""

PCI_FILES: Final = (b"vendor", b"device", b"class", b"modalias", b"serial_number")
USB_DEVICE_FILES: Final = (
    *(b"idVendor", b"idProduct", b"busnum", b"devnum", b"manufacturer", b"product", b"serial"),
    *(b"authorized", b"bConfigurationValue", b"bDeviceClass"),
)
USB_INTERFACE_FILES: Final = (
    *(b"bInterfaceClass", b"bInterfaceSubClass", b"bInterfaceProtocol", b"bInterfaceNumber"),
    *(b"modalias", b"authorized"),
)
REQUIRED: Final = frozenset(
    {b"vendor", b"device", b"class", b"idVendor", b"idProduct", b"busnum", b"devnum", b"bInterfaceClass"}
)
"""Without these a device cannot be told from another; every other file may be missing or unreadable."""

FILES_READ: Final = frozenset(
    {*PCI_FILES, *USB_DEVICE_FILES, *USB_INTERFACE_FILES, b"uevent", b"dev", b"partition", b"active", b"name"}
)
"""Every file of sysfs that liken reads, by its own name: a recording needs no other."""

_CONTROL: Final = frozenset({"nvme", "nvme-generic"})
_STOP: Final = frozenset({b"pci", b"usb", b"bluetooth"})
_BUSES: Final = {b"pci": Bus.PCI, b"usb": Bus.USB}
_NO_NODES: Final = frozenset({b"power", b"msi_irqs", b"statistics", b"queues"})
_KEY_FILES: Final = {Bus.PCI: b"/bus/pci/devices/", Bus.USB: b"/bus/usb/devices/"}


class SysfsError(Exception):
    """Sysfs as a whole cannot be read; the message says what is missing and what to do."""


class _ChangedError(Exception):
    """A device is not what it was a moment ago."""


class _UnreadableError(Exception):
    """A file that is needed is there and cannot be read."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Facts of one bus entry, and the PCI and USB devices found directly below it."""

    facts: DeviceFacts
    below: tuple[DeviceKey, ...] = ()


@dataclass(frozen=True, slots=True)
class Stray:
    """A device node that hangs on no PCI or USB device; `anchor` is the bus it hangs on, or `platform`, `virtual`."""

    path: DevPath
    kind: str | None
    anchor: str


class Sysfs:
    """Reads one sysfs tree; holds no state, so any number of threads may use it."""

    def __init__(
        self,
        root: Path = Path("/sys"),
        proc: Path = Path("/proc"),
        dev: Path = Path("/dev"),
        *,
        tree: Tree | None = None,
    ) -> None:
        self.root, self.proc, self.dev = root, proc, dev
        self.tree = tree if tree is not None else Tree(root)

    def keys(self) -> tuple[DeviceKey, ...]:
        """Every entry of the two bus folders, also those that dangle; raises SysfsError when there is no such folder.

        A machine without one of the two buses is fine.
        """
        found: list[DeviceKey] = []
        missing = 0
        for bus in Bus:
            try:
                names = self.tree.names(_KEY_FILES[bus].rstrip(b"/"))
            except OSError as error:
                if not gone(error):
                    raise SysfsError(
                        f"cannot list {self.root}/bus/{bus}/devices: {error.strerror}. liken reads it as root or with "
                        "CAP_DAC_READ_SEARCH; in a container mount the host's /sys."
                    ) from error
                missing += 1
                continue
            found += [DeviceKey(bus, BusAddress(os.fsdecode(name))) for name in sorted(names)]
        if missing == len(Bus):
            raise SysfsError(
                f"{self.root} has neither bus/pci/devices nor bus/usb/devices, so it is no sysfs. In a container mount "
                "the host's /sys there; for another tree name it with --sysfs."
            )
        return tuple(found)

    def everything(self) -> tuple[DeviceFacts, ...]:
        """Facts of every bus entry; what left since the listing is not among them."""
        return tuple(reading.facts for key in self.keys() if (reading := self.reading(key)) is not None)

    def device(self, key: DeviceKey) -> DeviceFacts | None:
        """Facts of one bus entry; None when there is no such entry."""
        reading = self.reading(key)
        return reading.facts if reading is not None else None

    def system(self) -> SystemFacts:
        """What the machine itself uses, now."""
        return system_facts(self.tree, self.proc, self.dev)

    def reading(self, key: DeviceKey) -> Reading | None:
        """Facts of one bus entry and what hangs below it; None when there is no such entry."""
        path = DevPath("")
        for attempt in range(ATTEMPTS):
            try:
                target = self.tree.link(_entry(key))
            except OSError as error:
                if gone(error):
                    return None
                return _failed(key, path, Reason.UNREADABLE, _words(_entry(key), error))
            place = posixpath.normpath(posixpath.join(_KEY_FILES[key.bus], target))
            path = DevPath(os.fsdecode(place))
            if not place.startswith(b"/devices/"):
                return _failed(key, path, Reason.UNREADABLE, f"{shown(_entry(key))} leads out of sysfs")
            try:
                return self._attempt(key, place)
            except _ChangedError as change:
                last = str(change)
            except _UnreadableError as problem:
                return _failed(key, path, Reason.UNREADABLE, str(problem))
            if attempt + 1 == ATTEMPTS:
                return _failed(key, path, Reason.VANISHED, last)
        raise AssertionError  # the loop returns

    def owner(self, path: DevPath) -> DeviceKey | None:
        """The nearest PCI or USB device at or above a path, as far as the path still exists; None: there is none."""
        place = os.fsencode(path)
        while place.startswith(b"/devices/"):
            bus = _BUSES.get(self._subsystem(place) or b"")
            if bus is not None:
                return DeviceKey(bus, BusAddress(os.fsdecode(posixpath.basename(place))))
            place = posixpath.dirname(place)
        return None

    def stray(self, devname: str) -> Stray | None:
        """The device behind a `/dev` name (`ttyS0`, `dri/card0`) that belongs to no PCI or USB device; else None."""
        wanted = os.fsencode(devname.removeprefix("/dev/"))
        for place in self._named(wanted):
            path = DevPath(os.fsdecode(place))
            if self.owner(path) is None:
                kind = self._subsystem(place)
                return Stray(path=path, kind=os.fsdecode(kind) if kind else None, anchor=self._anchor(place))
        return None

    # -- one device ----------------------------------------------------------------------------------------------

    def _attempt(self, key: DeviceKey, place: bytes) -> Reading:
        try:
            stamp, driver = self.tree.stamp(place), self._link_name(place + b"/driver")
            listing = self.tree.listing(place)
        except OSError as error:
            raise _sorted_out(place, error) from error
        uevent = self._uevent(place) if b"uevent" in listing.files else {}
        devtype = uevent.get(b"DEVTYPE")
        files = self._files(place, listing, _wanted(key))
        nodes, below, hci = self._subtree(place, listing)
        try:
            if self.tree.stamp(place) != stamp or self._link_name(place + b"/driver") != driver:
                raise _ChangedError(f"{shown(place)} changed while it was read")
        except OSError as error:
            raise _sorted_out(place, error) from error
        facts = DeviceFacts(
            key=key,
            path=DevPath(os.fsdecode(place)),
            driver=os.fsdecode(driver) if driver else None,
            devtype=os.fsdecode(devtype) if devtype else None,
            files=files,
            nodes=nodes,
            hci=hci,
        )
        return Reading(facts, below)

    def _files(self, place: bytes, listing: Listing, wanted: tuple[bytes, ...]) -> dict[str, bytes]:
        files: dict[str, bytes] = {}
        for name in wanted:
            if name in listing.files:
                try:
                    files[name.decode()] = self.tree.read(place + b"/" + name)
                except OSError as error:
                    if name in REQUIRED:
                        raise _sorted_out(place + b"/" + name, error) from error
        return files

    def _subtree(self, top: bytes, listing: Listing) -> tuple[tuple[NodeFact, ...], tuple[DeviceKey, ...], bool]:
        """Nodes of a device's own subtree, the PCI and USB devices where the walk stopped, and whether it met a HCI."""
        nodes: list[NodeFact] = []
        below: list[DeviceKey] = []
        heads: list[Holder] = []
        hci = False
        waiting = [top + b"/" + name for name in descend(listing)]
        while waiting:
            place = waiting.pop()
            try:
                listing = self.tree.listing(place)
                kind = self._link_name(place + b"/subsystem") if b"subsystem" in listing.links else None
            except OSError as error:
                raise _sorted_out(place, error) from error
            if kind in _STOP:
                name = posixpath.basename(place)
                if kind == b"bluetooth":
                    hci = hci or name.startswith(b"hci")
                else:
                    below.append(DeviceKey(_BUSES[kind], BusAddress(os.fsdecode(name))))
                continue
            if b"dev" in listing.files:
                node = self._node(place, kind, listing)
                if node is not None:
                    nodes.append(node)
            elif kind == b"block":
                heads += multipath_head(self.tree, posixpath.basename(place))
            waiting += [place + b"/" + name for name in descend(listing)]
        if heads:
            nodes = [replace(node, holders=tuple(heads)) if node.kind in _CONTROL else node for node in nodes]
        nodes.sort(key=lambda node: node.path)
        return tuple(nodes), tuple(sorted(below)), hci

    def _node(self, place: bytes, kind: bytes | None, listing: Listing) -> NodeFact | None:
        uevent = self._uevent(place) if b"uevent" in listing.files else {}
        name = uevent.get(b"DEVNAME")
        if not name:
            return None
        number = numbers(uevent.get(b"MAJOR", b""), uevent.get(b"MINOR", b""))
        if number is None:
            try:
                number = dev_number(self.tree.read(place + b"/dev"))
            except OSError as error:
                raise _sorted_out(place + b"/dev", error) from error
        return NodeFact(
            path=DevPath(os.fsdecode(place)),
            name=os.fsdecode(name.removeprefix(b"/dev/")),
            kind=os.fsdecode(kind) if kind else None,
            number=number,
            holders=holders(self.tree, place) if kind == b"block" and b"holders" in listing.folders else (),
        )

    def _uevent(self, place: bytes) -> dict[bytes, bytes]:
        try:
            return properties(self.tree.read(place + b"/uevent"))
        except OSError as error:
            raise _sorted_out(place + b"/uevent", error) from error

    def _link_name(self, place: bytes) -> bytes | None:
        """Last part of a link's target; None when there is no link."""
        try:
            return posixpath.basename(self.tree.link(place))
        except OSError as error:
            if gone(error):
                return None
            raise

    def _subsystem(self, place: bytes) -> bytes | None:
        try:
            return self._link_name(place + b"/subsystem")
        except OSError:
            return None

    # -- nodes by name -------------------------------------------------------------------------------------------

    def _named(self, devname: bytes) -> Iterator[bytes]:
        """Places of the devices whose node or whose own name is `devname`, at most one for each class and bus entry."""
        last = posixpath.basename(devname)
        for folder in self._homes():
            try:
                names = self.tree.names(folder)
            except OSError:
                continue
            for name in names:
                if last not in (name, name.replace(b"!", b"/")) and not devname.startswith(b"bus/"):
                    continue
                try:
                    target = self.tree.link(folder + b"/" + name)
                    place = posixpath.normpath(posixpath.join(folder, target))
                    known = properties(self.tree.read(place + b"/uevent")).get(b"DEVNAME", b"")
                except OSError:
                    continue
                if known.removeprefix(b"/dev/") == devname or (b"/" not in devname and name == devname):
                    yield place

    def _homes(self) -> Iterator[bytes]:
        for top, tail in ((b"/class", b""), (b"/bus", b"/devices")):
            try:
                names = self.tree.names(top)
            except OSError:
                continue
            yield from (top + b"/" + name + tail for name in sorted(names))

    def _anchor(self, place: bytes) -> str:
        parts = place.split(b"/")
        for end in range(len(parts) - 1, 2, -1):
            bus = self._subsystem(b"/".join(parts[:end]))
            if bus is not None and self.tree.exists(b"/bus/" + bus):
                return shown(bus)
        return shown(parts[2]) if len(parts) > 2 else ""  # noqa: PLR2004 - "", devices, and what hangs there


def shown(path: bytes) -> str:
    """A path for a message: what is no text stands as an escape."""
    return path.decode("utf-8", "backslashreplace")


def _wanted(key: DeviceKey) -> tuple[bytes, ...]:
    if key.bus is Bus.PCI:
        return PCI_FILES
    return USB_INTERFACE_FILES if ":" in key.address else USB_DEVICE_FILES


def descend(listing: Listing) -> Iterator[bytes]:
    """Folders that may hold a device: not the attribute groups of a device, nor the endpoints of a USB one."""
    groups = b"uevent" in listing.files
    for name in listing.folders:
        if not (groups and (name in _NO_NODES or name.startswith(b"ep_"))):
            yield name


def _entry(key: DeviceKey) -> bytes:
    return _KEY_FILES[key.bus] + os.fsencode(key.address)


def _failed(key: DeviceKey, path: DevPath, reason: Reason, detail: str) -> Reading:
    return Reading(DeviceFacts(key=key, path=path, problem=Problem(reason=reason, detail=detail)))


def _sorted_out(place: bytes, error: OSError) -> Exception:
    """The error of a file that is needed: the device is changing, or it cannot be read."""
    return _ChangedError(_words(place, error)) if gone(error) else _UnreadableError(_words(place, error))


def _words(place: bytes, error: OSError) -> str:
    return f"/sys{shown(place)}: {error.strerror or error}"
