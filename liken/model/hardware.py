"""Facts: what the kernel said about a device, before anybody decided what it means.

`events/sysfs.py` is the only maker of these records; `state` judges them. A fact is a plain value that is
compared with `==`, so an event that changed nothing is recognised as such. Text from sysfs keeps undecodable
bytes as surrogate escapes in paths, and attribute files stay bytes until `state/attributes.py` judges them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple, NewType

DevPath = NewType("DevPath", str)
"""A path below the root of sysfs as a uevent's DEVPATH has it: `/devices/pci0000:00/0000:00:14.0`."""

BusAddress = NewType("BusAddress", str)
"""An entry's name below `/sys/bus/<bus>/devices`: `0000:00:02.0`, `2-1`, `2-1:1.0`, `usb1`."""


class Bus(StrEnum):
    """The two buses liken publishes."""

    PCI = "pci"
    USB = "usb"


class DeviceKey(NamedTuple):
    """What identifies a bus entry: its slot or port, never its unit."""

    bus: Bus
    address: BusAddress

    def __str__(self) -> str:
        return f"{self.bus}:{self.address}"


class DevNumber(NamedTuple):
    """Major and minor number of a device node."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}:{self.minor}"


class Reason(StrEnum):
    """Why a bus entry is withheld: a closed vocabulary (the device reference documents each)."""

    NO_DRIVER = "NoDriver"
    BUS_STRUCTURE = "BusStructure"
    NOTHING_TO_DELIVER = "NothingToDeliver"
    MACHINE_DEPENDS_ON_IT = "MachineDependsOnIt"
    HELD_SERIAL_LINE = "HeldSerialLine"
    SECONDARY_INTERFACE = "SecondaryInterface"
    VANISHED = "Vanished"
    UNREADABLE = "Unreadable"


REASONS: Final[Mapping[Reason, str]] = {
    Reason.NO_DRIVER: "No kernel driver is bound to it. If a module could drive it, it is in the unclaimed report.",
    Reason.BUS_STRUCTURE: "It is what devices attach to: a PCI bridge or port, a USB hub, or a USB device as such, "
    "whose interfaces are judged one by one.",
    Reason.NOTHING_TO_DELIVER: "Its driver made no `/dev` node below it: network cards, host controllers, many "
    "interfaces.",
    Reason.MACHINE_DEPENDS_ON_IT: "The machine itself uses something below it: a mounted, swapping or stacked block "
    "device (LVM, md, dm-crypt, followed to the end), or a tty that is an active kernel console.",
    Reason.HELD_SERIAL_LINE: "An entry of `spec.serio` takes its serial line, and that driver has made no device yet.",
    Reason.SECONDARY_INTERFACE: "One driver bound it together with a sibling, which publishes the device they are.",
    Reason.VANISHED: "It disappeared while it was read. The next event settles it.",
    Reason.UNREADABLE: "It is there and cannot be read: no answer, an I/O error, a missing permission. The detail "
    "names the file.",
}
"""What each reason means, for the reference and for a person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Why a device could not be read: `Vanished` or `Unreadable`, and which file said what."""

    reason: Reason
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A block device stacked on another one: an entry of `holders/`, followed to the end."""

    name: str
    number: DevNumber | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFact:
    """A directory below a device that holds a `dev` file and whose `uevent` has DEVNAME.

    `name` is DEVNAME (`dri/card0`), `kind` the basename of the `subsystem` link or None, `holders` every block
    device on top of this one, transitively, nearest first.
    """

    path: DevPath
    name: str
    kind: str | None
    number: DevNumber | None
    holders: tuple[Holder, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """One entry of `/sys/bus/{pci,usb}/devices`, as it was read in one pass.

    `files` holds the raw bytes of the attribute files that exist (`vendor`, `idVendor`, `serial`, `modalias`,
    `bInterfaceClass`, `busnum`, …), `nodes` the device nodes of its own subtree (never of a PCI, USB or
    Bluetooth device below it), `hci` whether a `bluetooth/hciN` child hangs there. With a `problem` the other
    fields may be empty, and the device is withheld.
    """

    key: DeviceKey
    path: DevPath
    driver: str | None = None
    devtype: str | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)
    nodes: tuple[NodeFact, ...] = ()
    hci: bool = False
    problem: Problem | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemFacts:
    """What the machine itself uses, and which switches of the kernel matter to delivery.

    `mounts` maps a block device's number to a mount point of pid 1, `sources` a mount's source path (`/dev/sdb1`)
    to its mount point (file systems whose number is anonymous, as btrfs), `swaps` a number to the swap's path,
    `consoles` the active kernel consoles (`ttyUSB0`), `uhid` whether `/sys/module/uhid` and `/dev/uhid` exist.
    """

    mounts: Mapping[DevNumber, str] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    swaps: Mapping[DevNumber, str] = field(default_factory=dict)
    consoles: frozenset[str] = frozenset()
    uhid: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """The device graph: every bus entry's facts, and the machine's own use of them."""

    devices: Mapping[DeviceKey, DeviceFacts] = field(default_factory=dict)
    system: SystemFacts = field(default_factory=SystemFacts)
