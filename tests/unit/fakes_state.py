"""Facts of small machines, written by hand, and a stand-in for the ids files."""

from collections.abc import Iterable, Sequence

from liken.model.hardware import (
    Bus,
    BusAddress,
    DeviceFacts,
    DeviceKey,
    DevNumber,
    DevPath,
    Holder,
    Inventory,
    NodeFact,
    SystemFacts,
)
from liken.model.offers import DeviceName, Offer

CONTROLLER = "/devices/pci0000:00/0000:00:14.0"


class NoNames:
    """HardwareNames that knows nothing."""

    def pci_vendor(self, vendor: str) -> str | None:  # noqa: ARG002
        return None

    def pci_device(self, vendor: str, device: str) -> str | None:  # noqa: ARG002
        return None

    def usb_vendor(self, vendor: str) -> str | None:  # noqa: ARG002
        return None

    def usb_product(self, vendor: str, product: str) -> str | None:  # noqa: ARG002
        return None


class SomeNames(NoNames):
    """HardwareNames that knows one vendor of each bus and one of its models."""

    def pci_vendor(self, vendor: str) -> str | None:
        return "Intel Corporation" if vendor == "8086" else None

    def pci_device(self, vendor: str, device: str) -> str | None:
        return "Alder Lake-N [UHD Graphics]" if (vendor, device) == ("8086", "46d2") else None

    def usb_vendor(self, vendor: str) -> str | None:
        return "Silicon Labs" if vendor == "10c4" else None

    def usb_product(self, vendor: str, product: str) -> str | None:
        return "CP210x UART Bridge" if (vendor, product) == ("10c4", "ea60") else None


def pci_key(address: str) -> DeviceKey:
    return DeviceKey(Bus.PCI, BusAddress(address))


def usb_key(address: str) -> DeviceKey:
    return DeviceKey(Bus.USB, BusAddress(address))


def node(name: str, kind: str | None, number: str = "", holders: Sequence[tuple[str, str]] = ()) -> NodeFact:
    """A node `name` of a kind; `number` as `8:16`; `holders` as (name, number)."""
    held = tuple(Holder(name=name, number=dev(number)) for name, number in holders)
    return NodeFact(path=DevPath(f"/devices/x/{name}"), name=name, kind=kind, number=dev(number), holders=held)


def dev(number: str) -> DevNumber | None:
    return DevNumber(*map(int, number.split(":"))) if number else None


def pci(
    address: str,
    driver: str | None = None,
    nodes: Iterable[NodeFact] = (),
    *,
    ids: str = "8086:46d2",
    code: str = "030000",
    path: str = "",
    **files: bytes,
) -> DeviceFacts:
    vendor, device = ids.split(":")
    known = {"vendor": f"0x{vendor}\n".encode(), "device": f"0x{device}\n".encode(), "class": f"0x{code}\n".encode()}
    return DeviceFacts(
        key=pci_key(address),
        path=DevPath(path or f"/devices/pci0000:00/{address}"),
        driver=driver,
        files=known | files,
        nodes=tuple(nodes),
    )


def usb_device(
    address: str, *, bus: int = 1, number: int = 2, ids: str = "10c4:ea60", driver: str = "usb", **files: bytes
) -> DeviceFacts:
    vendor, product = ids.split(":")
    known = {
        "idVendor": f"{vendor}\n".encode(),
        "idProduct": f"{product}\n".encode(),
        "busnum": f"{bus}\n".encode(),
        "devnum": f"{number}\n".encode(),
        "bConfigurationValue": b"1\n",
    }
    return DeviceFacts(
        key=usb_key(address),
        path=DevPath(f"{CONTROLLER}/usb{bus}/{address}"),
        driver=driver,
        devtype="usb_device",
        files=known | files,
    )


def interface(
    address: str,
    driver: str | None = None,
    nodes: Iterable[NodeFact] = (),
    *,
    code: str = "ff",
    hci: bool = False,
    **files: bytes,
) -> DeviceFacts:
    parent = address.split(":", maxsplit=1)[0]
    return DeviceFacts(
        key=usb_key(address),
        path=DevPath(f"{CONTROLLER}/usb1/{parent}/{address}"),
        driver=driver,
        devtype="usb_interface",
        files={"bInterfaceClass": f"{code}\n".encode()} | files,
        nodes=tuple(nodes),
        hci=hci,
    )


def serial_stick(port: str, *, number: int = 2, tty: str = "ttyUSB0", serial: bytes = b"") -> tuple[DeviceFacts, ...]:
    """A USB serial adapter in a port: the usb_device and its one interface."""
    return (
        usb_device(port, number=number, serial=serial),
        interface(f"{port}:1.0", "cp210x", [node(tty, "tty", f"188:{tty.removeprefix('ttyUSB')}")]),
    )


def inventory(*devices: DeviceFacts, system: SystemFacts | None = None) -> Inventory:
    return Inventory(devices={device.key: device for device in devices}, system=system or SystemFacts())


def paths(offer: Offer) -> list[str]:
    return [node.path for node in offer.nodes]


def name(text: str) -> DeviceName:
    return DeviceName(text)
