"""What `explain` says about a verdict: what was found, and what a person can do about it.

Every sentence is written for somebody who was woken at two in the morning: it names the file, the driver or the
mount, and a command where there is one. Text from hardware reaches a sentence only through `attributes.text`.
"""

from collections.abc import Iterable
from typing import Final, assert_never

from liken.model.hardware import Bus, DeviceFacts, Reason
from liken.state.attributes import class_code, class_word, plain, shown, text
from liken.state.policy import Shape, Shaped

SHAPES: Final = {
    Shape.GPU: "a GPU: its render nodes serve many claims at once; the card nodes and each kind of monitor wire are "
    "devices of their own, for one claim each",
    Shape.DISPLAY_CARD: "a display card without a render node: its card nodes are for one claim, because one process "
    "at a time can drive a display",
    Shape.SOUND_CARD: "a sound card: many claims may have it at once",
    Shape.BLUETOOTH: "a Bluetooth adapter: it has no node of its own, so a claim receives its USB node",
    Shape.SERIAL_LINE: "a serial line that spec.serio attaches: the tty stays with liken, and what its driver made is "
    "offered",
    Shape.ONE_KIND: "all its nodes are of one kind: one device for one claim",
    Shape.UNKNOWN_MIX: "a mix of nodes that nobody examined: one device with all of them, for one claim",
}
"""Why a device is split, shared or whole, by its shape."""

_VFIO: Final = frozenset({"vfio-pci", "mlx5_vfio_pci", "nvgrace_gpu_vfio_pci", "qat_vfio_pci", "virtio_vfio_pci"})
_NVIDIA: Final = "CUDA needs /dev/nvidia*, which the kernel does not list in sysfs"
_HOST_CONTROLLER: Final = "0c03"


def published(facts: DeviceFacts, shape: Shaped, bus_taken: str | None) -> str:
    """Why the device is offered as it is."""
    parts = [SHAPES[shape.shape]]
    if shape.kept_back:
        parts.append(f"delivered nowhere: {', '.join(sorted(f'/dev/{node.name}' for node in shape.kept_back))}")
    if facts.key.bus is Bus.USB and shape.drafts[0].shareable:
        parts.append("it is shareable, so the USB node that opens the whole device stays away")
    elif bus_taken:
        parts.append(bus_taken)
    if facts.driver == "nvidia":
        parts.append(f"{_NVIDIA}, so no claim on it can compute with CUDA")
    return "; ".join(parts)


def bus_node_taken(use: str) -> str:
    """Why no interface of an adapter delivers the bus node while the machine uses one of them."""
    return f"no claim here receives the USB node: {use}, and a reset through that node would take it away"


def bus_node_attached() -> str:
    """Why no interface of an attached adapter delivers the bus node."""
    return "no claim here receives the USB node: a reset through it would end the attachment of spec.serio"


def detached(facts: DeviceFacts) -> str:
    """A held device whose kernel driver a program in the claim's pod detached."""
    return (
        f"a program in the claim's pod took {shown(facts.key.address)} from its kernel driver (libusb): the claim "
        "keeps the USB node alone, and the kernel's driver comes back when the claim ends"
    )


def usb_device(facts: DeviceFacts, interfaces: Iterable[DeviceFacts]) -> str:
    """Why a usb_device is not offered itself, and why it may have no interfaces."""
    found = [shown(interface.key.address) for interface in interfaces]
    if found:
        return f"a USB device is what its interfaces hang on, and they are judged one by one: {', '.join(found)}"
    if text(facts.files.get("authorized")) == "0":
        return "it is not authorised (its file `authorized` says 0), and therefore it has no interfaces"
    if (text(facts.files.get("bConfigurationValue")) or "0") == "0":
        return "it is not configured (its file `bConfigurationValue` says nothing), and therefore has no interfaces"
    return "a USB device is what its interfaces hang on, and it has none"


def no_driver(facts: DeviceFacts) -> str:
    """Why there is no kernel driver."""
    if facts.driver is not None:
        address = shown(facts.key.address)
        return f"a program on this machine holds {address} through usbfs (libusb), so no kernel driver has it"
    if text(facts.files.get("authorized")) == "0":
        return "no driver is bound, because it is not authorised (its file `authorized` says 0)"
    return "no driver is bound to it"


def structure(facts: DeviceFacts) -> str:
    """Why a bridge, port or hub is not offered."""
    kind = "a PCI bridge or port" if facts.key.bus is Bus.PCI else "a USB hub"
    return f"it is {kind}: devices attach to it, and each is judged by itself"


def secondary(radio: str) -> str:
    """Why a further interface of one radio is not offered."""
    return f"btusb drives it together with {radio}, which publishes the adapter: they are one radio"


def serial_line_waits(facts: DeviceFacts) -> str:
    """Why a serial line without a CEC or input node is not offered."""
    ttys = ", ".join(sorted(f"/dev/{node.name}" for node in facts.nodes if node.kind == "tty"))
    return f"a spec.serio entry takes its serial line ({ttys}), and that driver has made no device yet"


def nothing(facts: DeviceFacts, bus_taken: str | None) -> str:
    """Why a driver's device has no node to deliver."""
    driver = plain(facts.driver or "") or "its driver"
    if driver in _VFIO:
        return f"{driver} has it: its group node /dev/vfio/N is outside the device, shared by a group, and not offered"
    if driver == "nvidia":
        return f"{_NVIDIA}, and nvidia made no DRM node below the device"
    if driver == "btusb":
        return bus_taken or "its USB node cannot be named: busnum or devnum is missing"
    if class_word(facts) == "network":
        return f"a network interface has no /dev node ({driver})"
    if (class_code(facts) or "").startswith(_HOST_CONTROLLER):
        return f"a USB controller has no /dev node of its own ({driver}): what is plugged into it is offered by itself"
    return f"{driver} made no /dev node below it"


def advice(facts: DeviceFacts, reason: Reason | None) -> str:  # noqa: PLR0911 - one sentence for each reason
    """What to do about it; empty when there is nothing to do."""
    match reason:
        case None:
            return "for CUDA use NVIDIA's own DRA driver" if facts.driver == "nvidia" else ""
        case Reason.NO_DRIVER:
            return _driver_advice(facts)
        case Reason.BUS_STRUCTURE:
            unauthorised = ":" not in facts.key.address and text(facts.files.get("authorized")) == "0"
            return _authorise(facts) if unauthorised else ""
        case Reason.NOTHING_TO_DELIVER:
            return _node_advice(facts)
        case Reason.MACHINE_DEPENDS_ON_IT:
            return "to offer it, unmount it, end its swap, stop what is stacked on it, or take the console off it"
        case Reason.HELD_SERIAL_LINE:
            return "look at status.serio of this node's Machine: it says what the attachment waits for"
        case Reason.SECONDARY_INTERFACE:
            return "claim the device of the other interface"
        case Reason.VANISHED:
            return "nothing: the next event of the kernel settles it"
        case Reason.UNREADABLE:
            return "look at the named file, as root and from the daemon's container; `liken doctor` checks the rights"
    assert_never(reason)


def _driver_advice(facts: DeviceFacts) -> str:
    if facts.driver is not None:
        return f"end that program, then write {shown(facts.key.address)} to /sys/bus/usb/drivers_probe"
    if text(facts.files.get("authorized")) == "0":
        return _authorise(facts)
    return "`liken unclaimed` names the module to declare in spec.modules, if this machine has one"


def _node_advice(facts: DeviceFacts) -> str:
    if facts.driver in _VFIO:
        return "bind the device's own driver, or use a driver for virtual machines (KubeVirt, Kata)"
    if facts.driver == "nvidia":
        return "use NVIDIA's own DRA driver"
    return "use a network plug-in (CNI) instead" if class_word(facts) == "network" else ""


def _authorise(facts: DeviceFacts) -> str:
    file = f"/sys/bus/usb/devices/{shown(facts.key.address)}/authorized"
    return f"allow it in USBGuard or whatever keeps it away, or write 1 to {file}"
