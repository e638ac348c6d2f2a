"""Small machines as recordings, a tree whose files fail, and trees of the shared cases."""

import asyncio
import errno
import importlib.util
import os
import pathlib
import selectors
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal

import anyio

from liken.demo.testbed import Testbed
from liken.events.blocks import blocks
from liken.events.feed import Feed
from liken.events.mirror import Mirror, MirrorSettings
from liken.events.plant import plant
from liken.events.readers import THREAD_NAME
from liken.events.sysfs import Sysfs
from liken.events.tree import Listing, Tree
from liken.metrics import Metrics
from liken.model.api import ObjectRef
from liken.model.hardware import Bus, BusAddress, DeviceKey
from liken.state.graph import Delta
from liken.state.store import Store
from tests.unit.fakes_state import NoNames
from tests.virtual import PATIENCE_S, STEP_S, VirtualLoop, _JumpingSelector

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


class _PatientSelector(_JumpingSelector):
    """Lets the threads that read sysfs come to their end before time jumps; those of earlier tests do not count."""

    def __init__(self) -> None:
        super().__init__()
        self._earlier = set(threading.enumerate())

    def _reading(self) -> bool:
        return any(thread.name == THREAD_NAME and thread not in self._earlier for thread in threading.enumerate())

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        until = time.monotonic() + PATIENCE_S
        while (timeout is None or timeout > 0) and self._reading() and time.monotonic() < until:
            if ready := selectors.DefaultSelector.select(self, STEP_S):
                return ready
        return super().select(timeout)


class MirrorLoop(VirtualLoop):
    """Virtual time in which a mirror's reads take none."""

    def __init__(self) -> None:
        self._jumping = _PatientSelector()
        asyncio.SelectorEventLoop.__init__(self, self._jumping)


@dataclass(kw_only=True)
class Mirrored:
    """A testbed whose events a mirror hears, and what it made of them."""

    bed: Testbed
    feed: Feed
    sysfs: Sysfs
    tree: FaultyTree
    store: Store
    mirror: Mirror
    metrics: Metrics
    told: list[tuple[str, str]]
    deltas: list[Delta]

    @property
    def offered(self) -> list[str]:
        return sorted(self.store.snapshot.offers)

    def nodes(self, name: str) -> list[str]:
        return [
            node.path for offer in self.store.snapshot.offers.values() if offer.name == name for node in offer.nodes
        ]

    def count(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(name, labels) or 0.0

    def equal(self) -> bool:
        """Whether the store holds what a fresh enumeration gives."""
        return dict(self.store.snapshot.inventory.devices) == {facts.key: facts for facts in self.sysfs.everything()}


class Told:
    """A Recorder that keeps what it is told."""

    def __init__(self, told: list[tuple[str, str]]) -> None:
        self._told = told

    def record(self, about: ObjectRef, *, kind: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        self._told.append((f"{about.name} {kind} {reason}", message))


@asynccontextmanager
async def mirrored(root: pathlib.Path, *texts: str, **settings: Any) -> AsyncIterator[Mirrored]:
    """A running mirror of these recordings; `mute()` the feed to lose events."""
    feed, metrics, told = Feed(), Metrics(), list[tuple[str, str]]()
    bed = Testbed(root, lambda action, path, _: feed.tell(action, path))
    for text in texts:
        bed.load(text.encode())
    tree = FaultyTree(bed.sys)
    sysfs = Sysfs(bed.sys, root / "proc", root / "dev", tree=tree)
    store, deltas = Store(NoNames()), list[Delta]()
    mirror = Mirror(
        sysfs=sysfs,
        store=store,
        settings=MirrorSettings(**settings),
        metrics=metrics,
        recorder=Told(told),
        node=ObjectRef(api_version="v1", kind="Node", name="node"),
        source=lambda: feed,
        on_change=lambda delta, _: deltas.append(delta),
    )
    async with anyio.create_task_group() as tasks:
        await tasks.start(mirror.run)
        deltas.clear()
        yield Mirrored(
            bed=bed,
            feed=feed,
            sysfs=sysfs,
            tree=tree,
            store=store,
            mirror=mirror,
            metrics=metrics,
            told=told,
            deltas=deltas,
        )
        tasks.cancel_scope.cancel()


def step_changes(m: Mirrored, module: Any, step: dict[str, Any], root: pathlib.Path) -> None:
    """What a step of a shared case does to the tree, and the event that tells it."""
    if "tree_change" in step:
        module.materialise(step["tree_change"], root / "sys")
    if "recv_error" in step:
        m.feed.overflow()
    if "cut_at" in step:
        m.feed.overflow("truncated")
    elif "header" in step:
        action, _, path = step["header"].partition("@")
        m.feed.tell(action, path)
        if old := step.get("keys", {}).get("DEVPATH_OLD"):
            m.feed.tell(action, old)
