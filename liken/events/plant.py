"""A recording's blocks as folders, files and links of a fake sysfs, laid out as the kernel lays out the real one.

In: `Block` values. Out: `devices/…` with `uevent`, `dev`, attributes and links, and the links below `bus/` and
`class/`. A udev dump has no attribute files, so those liken reads are derived from its properties. Nothing is written
through a link: every folder on the way is made here or is a real one.
"""

import os
import posixpath
import re
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from liken.events.blocks import Block, RecordingError

BUSES: Final = frozenset(
    b"ac97 acpi amba auxiliary bcma cec clockevents clocksource container cpu dax edac event_source faux firewire "
    b"gameport gpio greybus hid hsi i2c i3c iio iio_bus iommu isa machinecheck mdio_bus mei memory memory_tiering mhi "
    b"mmc mipi-dsi nd ndbus node nvmem pci pci-epf pci_express pcmcia platform pnp rapidio rc-bus rmi4 scsi sdio "
    b"serial serial-base serio slimbus snd_seq soc soundwire spi spmi ssb thunderbolt typec ulpi usb usb-serial "
    b"usb_serial virtio vme w1 wmi workqueue xen xen-backend zorro".split()
)
"""Subsystems that are a bus; every other one is a class."""

KERNEL_KEYS: Final = tuple(
    b"MAJOR MINOR DEVNAME DEVMODE DEVTYPE DRIVER PRODUCT TYPE INTERFACE MODALIAS BUSNUM DEVNUM PCI_CLASS PCI_ID "
    b"PCI_SUBSYS_ID PCI_SLOT_NAME HID_ID HID_NAME HID_PHYS HID_UNIQ NAME PHYS UNIQ DISKSEQ PARTN".split()
)
"""Properties that stand in the kernel's own uevent file; the rest of a recording is udev's."""

_IGNORED: Final = (b"power/", b"uevent", b"subsystem")
_INTERFACE: Final = re.compile(rb":[0-9]+\.([0-9]+)$")
_ENCODED: Final = re.compile(rb"\\x([0-9a-fA-F]{2})")


def found(root: Path) -> None:
    """Make the folders every sysfs has."""
    for folder in ("devices", "class", "bus/pci/devices", "bus/usb/devices"):
        (root / folder).mkdir(parents=True, exist_ok=True)


def plant(root: Path, devices: Iterable[Block]) -> list[Block]:
    """Write devices and modules below a sysfs root and return them; what is neither is passed over.

    Raises RecordingError when they contradict each other.
    """
    found(root)
    planted = [block for block in devices if block.path.startswith((b"/devices/", b"/module/"))]
    made: set[bytes] = set()
    for block in planted:
        try:
            _Place(root, block, made).write()
        except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
            raise RecordingError(
                f"the recording contradicts itself: {shown_name(error)} is both a file and a folder"
            ) from error
    return planted


def uevent(block: Block) -> bytes:
    """The device's uevent file."""
    if b"uevent" in block.files:
        return block.files[b"uevent"]
    told = dict(block.properties)
    if b"DEVNAME" not in told and block.node is not None:
        told[b"DEVNAME"] = block.node
    if b"DEVNAME" in told:
        told[b"DEVNAME"] = told[b"DEVNAME"].removeprefix(b"/dev/")
    if b"MAJOR" not in told and b"dev" in block.files:
        told[b"MAJOR"], _, told[b"MINOR"] = block.files[b"dev"].strip().partition(b":")
    return b"".join(b"%s=%s\n" % (key, told[key]) for key in KERNEL_KEYS if key in told)


def shown_name(error: OSError) -> str:
    """The file an error is about, for a message."""
    return os.fsencode(error.filename or "?").decode("utf-8", "backslashreplace")


class _Place:
    """One device's folder while it is written."""

    def __init__(self, root: Path, block: Block, made: set[bytes]) -> None:
        self._root = os.fsencode(root)
        self._block = block
        self._path = block.path
        self._made = made  # folders known to be real ones

    def write(self) -> None:
        """In the kernel's order: what a device is first, `dev` late, and the link that makes it a bus entry last."""
        block = self._block
        self._folder(self._path)
        home = self._subsystem()
        self._file(b"uevent", uevent(block))
        derived = {} if block.files else attributes(block)
        for name, content in (derived | block.files).items():
            if not name.startswith(_IGNORED) and name != b"dev":
                self._file(name, content)
        for name, target in block.links.items():
            if name != b"subsystem":
                self._link(self._path + b"/" + name, _inside(self._path + b"/" + name, target))
        if home is not None and (driver := block.properties.get(b"DRIVER")) and b"driver" not in block.links:
            self._link(self._path + b"/driver", b"%s/drivers/%s" % (home, driver.replace(b"/", b"!")))
        if (number := _dev(block)) is not None:
            self._file(b"dev", number)
        if home is not None:
            entries = home + b"/devices" if home.startswith(b"/bus/") else home
            self._folder(entries)
            self._link(entries + b"/" + block.name, self._path)

    def _subsystem(self) -> bytes | None:
        subsystem = self._block.subsystem
        if subsystem is None:
            return None
        if b"/" in subsystem or subsystem in (b".", b".."):
            raise RecordingError("a subsystem's name in the recording is no name")
        home = (b"/bus/" if subsystem in BUSES else b"/class/") + subsystem
        self._folder(home)
        self._link(self._path + b"/subsystem", home)
        return home

    def _folder(self, path: bytes) -> None:
        """Make a folder and those above it; one that is a link is refused."""
        if path in self._made or path == b"/":
            return
        self._folder(posixpath.dirname(path))
        place = self._root + path
        try:
            os.mkdir(place)  # noqa: PTH102 - Path has no bytes
        except FileExistsError:
            if not stat.S_ISDIR(os.lstat(place).st_mode):
                raise NotADirectoryError(None, "is no folder", place) from None
        self._made.add(path)

    def _file(self, name: bytes, content: bytes) -> None:
        path = self._path + b"/" + name
        self._folder(posixpath.dirname(path))
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(self._root + path, flags, 0o644)
        try:
            os.write(fd, content)
        finally:
            os.close(fd)

    def _link(self, path: bytes, target: bytes) -> None:
        """A relative link inside the tree, as the kernel makes them; one that is there stays."""
        self._folder(posixpath.dirname(path))
        relative = posixpath.relpath(target, posixpath.dirname(path))
        if not os.path.lexists(self._root + path):
            os.symlink(relative, self._root + path)  # noqa: PTH211 - Path has no bytes


def _inside(path: bytes, target: bytes) -> bytes:
    """Where a recorded link leads, inside the tree; one that is absolute or climbs out of it is refused."""
    steps = posixpath.dirname(path).strip(b"/").split(b"/")
    for part in target.split(b"/"):
        if part == b".." and steps:
            steps.pop()
        elif part == b".." or target.startswith(b"/") or b"\0" in part:
            raise RecordingError("a link in the recording leads out of it")
        elif part not in (b"", b"."):
            steps.append(part)
    return b"/" + b"/".join(steps)


def _dev(block: Block) -> bytes | None:
    if b"dev" in block.files:
        return block.files[b"dev"]
    told = block.properties
    if b"MAJOR" in told and (block.node or told.get(b"DEVNAME")):
        return b"%s:%s\n" % (told[b"MAJOR"], told.get(b"MINOR", b"0"))
    return None


def attributes(block: Block) -> dict[bytes, bytes]:
    """Attribute files that a udev dump does not hold, from the properties it does hold."""
    told = block.properties
    files: dict[bytes, bytes] = {}
    if b"MODALIAS" in told:
        files[b"modalias"] = told[b"MODALIAS"]
    match block.subsystem, told.get(b"DEVTYPE"):
        case b"usb", b"usb_device":
            files |= _usb_device(told)
        case b"usb", b"usb_interface":
            names = (b"bInterfaceClass", b"bInterfaceSubClass", b"bInterfaceProtocol")
            files |= _numbers(names, told.get(b"INTERFACE", b"").split(b"/"), 10, b"%02x")
            if number := _INTERFACE.search(block.path):
                files |= _numbers((b"bInterfaceNumber",), [number[1]], 10, b"%02x")
        case b"pci", _:
            files |= _numbers((b"class",), [told.get(b"PCI_CLASS", b"")], 16, b"0x%06x")
            files |= _numbers((b"vendor", b"device"), told.get(b"PCI_ID", b"").split(b":"), 16, b"0x%04x")
        case _:
            pass
    return {name: value + b"\n" for name, value in files.items()}


def _usb_device(told: dict[bytes, bytes]) -> dict[bytes, bytes]:
    files = _numbers((b"idVendor", b"idProduct", b"bcdDevice"), told.get(b"PRODUCT", b"").split(b"/"), 16, b"%04x")
    files |= _numbers((b"bDeviceClass", b"bDeviceSubClass"), told.get(b"TYPE", b"").split(b"/"), 10, b"%02x")
    files |= _numbers((b"busnum", b"devnum"), [told.get(b"BUSNUM", b""), told.get(b"DEVNUM", b"")], 10, b"%d")
    for name, encoded, fallback in (
        (b"manufacturer", b"ID_VENDOR_ENC", b"ID_VENDOR_ID"),
        (b"product", b"ID_MODEL_ENC", b"ID_MODEL_ID"),
    ):
        value = told.get(encoded)
        if value and value != told.get(fallback):  # udev writes the id where there is no string
            files[name] = _ENCODED.sub(lambda code: bytes([int(code[1], 16)]), value)
    if told.get(b"ID_SERIAL_SHORT"):
        files[b"serial"] = told[b"ID_SERIAL_SHORT"]
    return files


def _numbers(names: tuple[bytes, ...], values: list[bytes], base: int, form: bytes) -> dict[bytes, bytes]:
    files = {}
    for name, value in zip(names, values, strict=False):
        try:
            files[name] = form % int(value, base)
        except ValueError:
            continue
    return files
