"""Decisions: what a pod may claim, why the rest is withheld, and the snapshot that carries both.

Produced by `state`, read by every other package. A `Snapshot` is immutable; its `revision` grows by one with
each change, so a loop that remembers the revision it served can never miss the newest state.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NewType, Protocol

from liken.model.hardware import DeviceKey, DevNumber, Inventory, Reason
from liken.model.machine import SerioEntry

DeviceName = NewType("DeviceName", str)
"""A device's name in the pool, a DNS label that follows the slot: `usb-2-1-1-0`."""

BUS_NODE_KIND = "usb"
"""The kind of a usbfs node (`/dev/bus/usb/BBB/DDD`): the name of its subsystem."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceNode:
    """One `/dev` path a device delivers now, its kind, and its numbers where sysfs tells them."""

    path: str
    kind: str | None
    number: DevNumber | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Taint:
    """A device taint; `time_added` is RFC 3339 in UTC and is sent back as the server stored it."""

    key: str
    value: str
    effect: str
    time_added: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One device a pod may claim, and exactly the nodes that claim delivers (sorted by path).

    Attribute keys are plain in the driver's own domain (`renderNode`) or qualified
    (`resource.kubernetes.io/pciBusID`); values are text of at most 64 bytes or True.
    """

    name: DeviceName
    key: DeviceKey
    nodes: tuple[DeviceNode, ...]
    attributes: Mapping[str, str | bool] = field(default_factory=dict)
    shareable: bool = False  # unknown hardware never shares
    taints: tuple[Taint, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What liken decided about one bus entry: the offers it makes, or the one reason it makes none.

    `title` is the device's name for a person, `detail` says what was found (which file, which mount), `advice`
    what to do about it; both may be empty.
    """

    key: DeviceKey
    title: str
    reason: Reason | None = None
    detail: str = ""
    advice: str = ""
    offers: tuple[DeviceName, ...] = ()


class HardwareNames(Protocol):
    """Looks a numeric identity (four lower-case hex digits) up in pci.ids or usb.ids; None: not listed."""

    def pci_vendor(self, vendor: str) -> str | None:
        """Name of a PCI vendor."""

    def pci_device(self, vendor: str, device: str) -> str | None:
        """Name of a PCI device of that vendor."""

    def usb_vendor(self, vendor: str) -> str | None:
        """Name of a USB vendor."""

    def usb_product(self, vendor: str, product: str) -> str | None:
        """Name of a USB product of that vendor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Departed:
    """A device that was offered and no longer is: when (Unix seconds), and what happened in words."""

    name: DeviceName
    at: float
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the decisions depend on besides hardware.

    `serio`: the serial attachments in force. `held`: devices of prepared claims, with the offer as it was when
    prepared: a held device whose driver a libusb program detached stays offered. `taint_gone`: a held device
    that vanished stays in the slice with a NoExecute taint.
    """

    serio: tuple[SerioEntry, ...] = ()
    held: Mapping[DeviceName, Offer] = field(default_factory=dict)
    taint_gone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything known at one revision. `complete` is False until the first enumeration has ended.

    `changed_at` is the time (`anyio.current_time()`) of the first event that led here, None at start or after a
    resync: publish measures from it. `departed` is bounded, newest last.
    """

    revision: int
    complete: bool
    inventory: Inventory
    rules: Rules
    offers: Mapping[DeviceName, Offer]
    verdicts: Mapping[DeviceKey, Verdict]
    departed: Mapping[DeviceName, Departed] = field(default_factory=dict)
    changed_at: float | None = None
