"""Which /dev nodes belong to a device: those of its own subtree, and the usbfs node above a USB interface.

The walk itself (real directories only, stopping at the next PCI, USB or Bluetooth device) is the reader's; here its
facts become paths. The usbfs node is resolved from `busnum` and `devnum` each time, because the kernel gives a new
devnum at every enumeration: a stored one would open another device.
"""

import re
from collections.abc import Iterable
from typing import Final

from liken.model.hardware import Bus, DeviceFacts, DevNumber, NodeFact
from liken.model.offers import BUS_NODE_KIND, DeviceNode
from liken.state.attributes import plain, text

USBFS_MAJOR: Final = 189
"""Major number of usbfs nodes (`USB_DEVICE_MAJOR` of the kernel); minor: (bus - 1) * 128 + device - 1."""

UHID: Final = DeviceNode(path="/dev/uhid", kind="misc", number=DevNumber(10, 239))
"""Where BLE remotes and keyboards are made; the numbers are the kernel's `MISC_MAJOR` and `UHID_MINOR`."""

_NUMBER: Final = re.compile(r"0*([1-9][0-9]{0,2})")


def delivered(nodes: Iterable[NodeFact]) -> tuple[DeviceNode, ...]:
    """Nodes as a claim delivers them, each once, sorted by path."""
    found = {f"/dev/{node.name}": node for node in nodes}
    return tuple(DeviceNode(path=path, kind=node.kind, number=node.number) for path, node in sorted(found.items()))


def bus_node(owner: DeviceFacts) -> DeviceNode | None:
    """The usbfs node of a usb_device: `/dev/bus/usb/BBB/DDD`; None on PCI, or when its numbers are not there."""
    if owner.key.bus is Bus.PCI:
        return None
    bus, device = (_NUMBER.fullmatch(text(owner.files.get(file)) or "") for file in ("busnum", "devnum"))
    if bus is None or device is None:
        return None
    numbers = int(bus[1]), int(device[1])
    return DeviceNode(
        path="/dev/bus/usb/{:03}/{:03}".format(*numbers),
        kind=BUS_NODE_KIND,
        number=DevNumber(USBFS_MAJOR, (numbers[0] - 1) * 128 + numbers[1] - 1),
    )


def undeliverable(nodes: Iterable[NodeFact]) -> NodeFact | None:
    """The first node whose name is no text or leaves /dev: with it the whole device cannot be offered."""
    return next((node for node in nodes if not _deliverable(node.name)), None)


def _deliverable(name: str) -> bool:
    return plain(name) == name and not {"", ".", ".."} & set(name.split("/"))
