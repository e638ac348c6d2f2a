"""Small machines as recordings, a tree whose files fail, and trees of the shared cases."""

import errno
import importlib.util
import os
import pathlib
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from liken.events.blocks import blocks
from liken.events.plant import plant
from liken.events.sysfs import Sysfs
from liken.events.tree import Listing, Tree
from liken.model.hardware import Bus, BusAddress, DeviceKey

CONTROLLER = "/devices/pci0000:00/0000:00:14.0"
RECORDINGS = pathlib.Path(__file__).parents[1] / "fixtures/recordings"


def usb(address: str) -> DeviceKey:
    return DeviceKey(Bus.USB, BusAddress(address))


def pci(address: str) -> DeviceKey:
    return DeviceKey(Bus.PCI, BusAddress(address))


def controller() -> str:
    """A USB controller and its root hub."""
    return f"""\
P: {CONTROLLER}
E: SUBSYSTEM=pci
E: DRIVER=xhci_hcd
A: vendor=0x8086\\n
A: device=0xa36d\\n
A: class=0x0c0330\\n

P: {CONTROLLER}/usb1
N: bus/usb/001/001
E: SUBSYSTEM=usb
E: DEVTYPE=usb_device
E: DRIVER=usb
E: MAJOR=189
E: MINOR=0
A: idVendor=1d6b\\n
A: idProduct=0002\\n
A: busnum=1\\n
A: devnum=1\\n
A: bDeviceClass=09\\n

P: {CONTROLLER}/usb1/1-0:1.0
E: SUBSYSTEM=usb
E: DEVTYPE=usb_interface
E: DRIVER=hub
A: bInterfaceClass=09\\n

"""


def stick(port: str = "1-4", devnum: int = 7, tty: int = 0, serial: str = "A1") -> str:
    """A USB serial adapter."""
    top = f"{CONTROLLER}/usb1/{port}"
    return f"""\
P: {top}
N: bus/usb/001/{devnum:03}
E: SUBSYSTEM=usb
E: DEVTYPE=usb_device
E: DRIVER=usb
E: MAJOR=189
E: MINOR={devnum - 1}
A: idVendor=10c4\\n
A: idProduct=ea60\\n
A: busnum=1\\n
A: devnum={devnum}\\n
A: serial={serial}\\n
A: bDeviceClass=00\\n
A: bConfigurationValue=1\\n

P: {top}/{port}:1.0
E: SUBSYSTEM=usb
E: DEVTYPE=usb_interface
E: DRIVER=cp210x
A: bInterfaceClass=ff\\n
A: bInterfaceSubClass=00\\n
A: bInterfaceProtocol=00\\n
A: modalias=usb:v10C4pEA60d0100dc00dsc00dp00icFFisc00ip00in00\\n

P: {top}/{port}:1.0/ttyUSB{tty}
E: SUBSYSTEM=usb-serial
E: DRIVER=cp210x

P: {top}/{port}:1.0/ttyUSB{tty}/tty/ttyUSB{tty}
N: ttyUSB{tty}
E: SUBSYSTEM=tty
E: MAJOR=188
E: MINOR={tty}

"""


def disk(address: str, name: str, minor: int) -> str:
    """A SATA controller with one disk and a partition on it."""
    top = f"/devices/pci0000:00/{address}"
    block = f"{top}/ata1/host0/target0:0:0/0:0:0:0/block/{name}"
    return f"""\
P: {top}
E: SUBSYSTEM=pci
E: DRIVER=ahci
A: vendor=0x8086\\n
A: device=0x1234\\n
A: class=0x010601\\n

P: {block}
N: {name}
E: SUBSYSTEM=block
E: DEVTYPE=disk
E: MAJOR=8
E: MINOR={minor}

P: {block}/{name}1
N: {name}1
E: SUBSYSTEM=block
E: DEVTYPE=partition
E: MAJOR=8
E: MINOR={minor + 1}
A: partition=1\\n

"""


class FaultyTree(Tree):
    """A sysfs in which some files fail, and which changes when a file is read."""

    def __init__(self, root: pathlib.Path, errors: dict[str, int] | None = None) -> None:
        super().__init__(root)
        self.errors = {path.encode(): number for path, number in (errors or {}).items()}
        self.on_read: dict[bytes, Callable[[], None]] = {}
        self.opened: list[bytes] = []

    def read(self, path: bytes, limit: int = 4096) -> bytes:
        self._meet(path)
        return super().read(path, limit)

    def listing(self, path: bytes) -> Listing:
        self._meet(path)
        return super().listing(path)

    def names(self, path: bytes) -> list[bytes]:
        self._meet(path)
        return super().names(path)

    def link(self, path: bytes) -> bytes:
        self._fail(path)
        return super().link(path)

    def _meet(self, path: bytes) -> None:
        self.opened.append(path)
        if (action := self.on_read.pop(path, None)) is not None:
            action()
        self._fail(path)

    def _fail(self, path: bytes) -> None:
        number = self.errors.get(path)
        if number is not None:
            raise OSError(number, os.strerror(number), path)


def machine(root: pathlib.Path, *texts: str, errors: dict[str, int] | None = None) -> tuple[Sysfs, FaultyTree]:
    """A machine of these recordings below `root/sys`, and its reader."""
    for text in texts:
        plant(root / "sys", blocks(text.encode()))
    plant(root / "sys", ())
    tree = FaultyTree(root / "sys", errors)
    return Sysfs(root / "sys", root / "proc", root / "dev", tree=tree), tree


def cases(shared: pathlib.Path, folder: str = "with-trees") -> ModuleType:
    """The loader beside the shared cases."""
    path = shared / "cases" / folder / "load.py"
    spec = importlib.util.spec_from_file_location(f"cases_{folder.replace('-', '_')}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tree_cases(shared: pathlib.Path, file: str) -> Iterator[dict[str, Any]]:
    for case in cases(shared).cases():
        if case["file"] == file:
            yield case


def built(shared: pathlib.Path, case: dict[str, Any], root: pathlib.Path) -> tuple[Sysfs, FaultyTree]:
    """The tree of a case, and a reader in which its errors happen."""
    plant(root / "sys", ())
    errors = cases(shared).materialise(case["input"].get("tree", {}), root / "sys")
    tree = FaultyTree(root / "sys", {f"/{path}": number for path, number in errors.items()})
    return Sysfs(root / "sys", root / "proc", root / "dev", tree=tree), tree


NO_DEVICE = errno.ENODEV
IO_ERROR = errno.EIO
NO_PERMISSION = errno.EACCES
