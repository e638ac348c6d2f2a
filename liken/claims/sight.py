"""What a claimed device is at this moment, seen from one snapshot: its nodes, or why there are none.

In: a device's name, what a claim knows of it, and a snapshot. Out: a `Sight`. Shared by prepare (may it be given?) and
refresh (what must the file say?), so that both always decide alike. A device of another model in the same port is not
the claimed one, although it has its name: the name follows the slot, the claim was made for what stood in it.
"""

import re
from dataclasses import dataclass

from liken.claims import words
from liken.model.hardware import Bus, BusAddress, DeviceKey, Reason
from liken.model.offers import BUS_NODE_KIND, DeviceName, DeviceNode, Offer, Snapshot, Verdict

_USB_NAME = re.compile(r"usb-(\d+)-(\d+(?:-\d+)*)-(\d+)-(\d+)(?=-[a-z]|$)")
_PCI_NAME = re.compile(r"pci-([0-9a-f]{4,})-([0-9a-f]{2})-([0-9a-f]{2})-([0-7])(?=-[a-z]|$)")
_USBFS = frozenset({None, "usbfs"})
UNPLUGGED = "liken.sh/unplugged"
"""The taint of a device that stays in the slice although it is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """A device now. No `nodes`: it cannot be delivered, and `why` says what happened.

    `detached`: a program took the kernel's driver, and `nodes` holds the bus node alone. `enumeration` tells one
    plugging-in of a USB device from the next (bus and device number, which the kernel never gives twice in a row).
    `unsure`: it is there and could not be read this time, so nothing is known that was not known before.
    """

    nodes: tuple[DeviceNode, ...] = ()
    offer: Offer | None = None
    detached: bool = False
    enumeration: str = ""
    why: str = ""
    unsure: bool = False


def sight(name: DeviceName, snapshot: Snapshot, known: Offer | None = None) -> Sight:
    """The device `name` in `snapshot`; `known` is the offer of the claim that holds it, if one does."""
    offer = snapshot.offers.get(name)
    if offer is None or not offer.nodes or any(taint.key == UNPLUGGED for taint in offer.taints):
        return Sight(why=_why(name, snapshot, known), unsure=_unread(name, snapshot, known))
    if known is not None and _model(offer) != _model(known):
        return Sight(why=words.another_model(_title(offer), _title(known)))
    detached = _detached(offer, snapshot)
    nodes = tuple(node for node in offer.nodes if node.kind == BUS_NODE_KIND) if detached else offer.nodes
    return Sight(
        nodes=nodes,
        offer=offer,
        detached=detached,
        enumeration=enumeration(offer.key, snapshot),
        why="" if nodes else words.driver_gone(""),
    )


def _unread(name: DeviceName, snapshot: Snapshot, known: Offer | None) -> bool:
    key = known.key if known else key_of(name)
    entries = (snapshot.inventory.devices.get(place) for place in (key, above(key))) if key else ()
    return any(facts is not None and facts.problem is not None for facts in entries)


def _detached(offer: Offer, snapshot: Snapshot) -> bool:
    facts = snapshot.inventory.devices.get(offer.key)
    return offer.key.bus is Bus.USB and facts is not None and facts.driver in _USBFS


def may_be_taken(key: DeviceKey) -> bool:
    """Whether a program can take the kernel's driver from it: only from an interface of a USB device."""
    return key.bus is Bus.USB and ":" in key.address


def driverless(key: DeviceKey, snapshot: Snapshot) -> bool:
    """A USB interface that is there and has no kernel driver: one that a libusb program may have left behind."""
    facts = snapshot.inventory.devices.get(key)
    return may_be_taken(key) and facts is not None and facts.problem is None and facts.driver in _USBFS


def enumeration(key: DeviceKey, snapshot: Snapshot) -> str:
    """`001/007` for what belongs to a USB device, empty for PCI."""
    if key.bus is not Bus.USB:
        return ""
    facts = snapshot.inventory.devices.get(above(key))
    if facts is None:
        return ""
    numbers = (facts.files.get(name, b"").strip() for name in ("busnum", "devnum"))
    return "/".join(f"{int(number):03}" if number.isdigit() else "" for number in numbers).strip("/")


def above(key: DeviceKey) -> DeviceKey:
    """The usb_device an interface belongs to; any other key is its own."""
    if key.bus is not Bus.USB:
        return key
    return DeviceKey(key.bus, BusAddress(key.address.partition(":")[0]))


def key_of(name: str) -> DeviceKey | None:
    """The bus entry a device's name was made from, for a device that no snapshot knows yet."""
    if found := _USB_NAME.match(name):
        bus, ports, configuration, interface = found.groups()
        return DeviceKey(Bus.USB, BusAddress(f"{bus}-{ports.replace('-', '.')}:{configuration}.{interface}"))
    if found := _PCI_NAME.match(name):
        domain, bus, slot, function = found.groups()
        return DeviceKey(Bus.PCI, BusAddress(f"{domain}:{bus}:{slot}.{function}"))
    return None


def _model(offer: Offer) -> tuple[object, object]:
    return offer.attributes.get("vendor"), offer.attributes.get("product")


def _model_at(key: DeviceKey, snapshot: Snapshot) -> tuple[str, str] | None:
    """Vendor and product of what stands at an address, offered or not."""
    facts = snapshot.inventory.devices.get(above(key))
    if facts is None:
        return None
    names = ("idVendor", "idProduct") if key.bus is Bus.USB else ("vendor", "device")
    vendor, product = (
        facts.files.get(name, b"").decode("ascii", "replace").strip().removeprefix("0x").lower() for name in names
    )
    return (vendor, product) if vendor and product else None


def _title(offer: Offer) -> str:
    model = "{}:{}".format(*_model(offer))
    name = offer.attributes.get("name")
    return f"{name} ({model})" if name and name != model else model


def _why(name: DeviceName, snapshot: Snapshot, known: Offer | None) -> str:
    """What happened to a name that resolves to nothing."""
    key = known.key if known else key_of(name)
    verdict = snapshot.verdicts.get(key) if key else None
    if verdict is not None and verdict.reason is Reason.UNREADABLE:
        return words.withheld(verdict.reason, verdict.detail)
    if departed := snapshot.departed.get(name):
        return words.departed(departed.at, departed.why)
    found = _model_at(key, snapshot) if key else None
    if key is None or found is None:
        return words.never_seen()
    if known is not None and found != _model(known):
        return words.another_model(verdict.title if verdict else ":".join(found), _title(known))
    return _withheld(verdict)


def _withheld(verdict: Verdict | None) -> str:
    if verdict is None or verdict.reason is None:
        return words.withheld(Reason.NOTHING_TO_DELIVER, "")
    if verdict.reason is Reason.NO_DRIVER:
        return words.driver_gone(verdict.advice)
    return words.withheld(verdict.reason, verdict.detail)
