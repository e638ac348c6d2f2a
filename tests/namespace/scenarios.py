"""One scenario a process: private namespaces, a real netlink socket, a real mirror; what was seen as JSON on stdout.

`python -m tests.namespace.scenarios NAME LOOP USER` with LOOP `uvloop` or `asyncio`, USER `nobody` or anything else.
"""

import ctypes
import json
import os
import socket
import struct
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import anyio
import pyudev  # noqa: F401 - nobody may not be able to read where Python is installed: everything is imported before
import uvloop  # noqa: F401

from liken.demo.testbed import NamespacesForbidden, Netlink, Testbed, datagram, enter_namespaces
from liken.events.kernel import KernelEvents
from liken.events.mirror import Mirror, MirrorSettings
from liken.events.sysfs import Sysfs
from liken.metrics import Metrics
from liken.model.api import ObjectRef
from liken.model.offers import DeviceName
from liken.state.ids import IdsFiles
from liken.state.store import Store

HUB = Path(__file__).parents[1] / "fixtures/recordings/usb-serial-ftdi-hub.umockdev"
ADAPTER = "/devices/pci0000:00/0000:00:10.0/usb1/1-1/1-1.1"
DEVICE = DeviceName("usb-1-1-1-1-0")
FORBIDDEN = 77
NOBODY = 65_534
PR_SET_DUMPABLE = 4


@dataclass
class Recorded:
    """A Recorder that keeps what it was told."""

    said: list[tuple[str, str]] = field(default_factory=list)

    def record(self, about: ObjectRef, *, kind: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        self.said.append((about.name, f"{kind} {reason}: {message}"))


@dataclass
class World:
    bed: Testbed
    mirror: Mirror
    store: Store
    metrics: Metrics
    events: Recorded
    sysfs: Sysfs

    def counter(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(name, labels) or 0.0

    async def until(self, what: Callable[[], bool]) -> float:
        """Milliseconds until it holds."""
        began = time.monotonic()
        with anyio.fail_after(10):
            while not what():
                await anyio.sleep(0.001)
        return (time.monotonic() - began) * 1000

    @property
    def offered(self) -> list[str]:
        return sorted(self.store.snapshot.offers)

    def fresh(self) -> bool:
        """Whether the store is what a fresh enumeration gives."""
        return {facts.key: facts for facts in self.sysfs.everything()} == self.store.snapshot.inventory.devices


@asynccontextmanager
async def world(
    root: Path, *, source: Callable[[], KernelEvents] | None = None, **settings: Any
) -> AsyncIterator[World]:
    bed = Testbed(root, Netlink())
    bed.load(HUB.read_bytes())
    proc = root / "proc"
    proc.mkdir()
    (proc / "1").symlink_to("/proc/self")
    sysfs = Sysfs(Path("/sys"), proc, root / "dev")
    store, metrics, events = Store(IdsFiles(b"", b"")), Metrics(), Recorded()
    node = ObjectRef(api_version="v1", kind="Node", name="node")
    mirror = Mirror(
        sysfs=sysfs,
        store=store,
        settings=MirrorSettings(**settings),
        metrics=metrics,
        recorder=events,
        node=node,
        source=source,
    )
    async with anyio.create_task_group() as tasks:
        await tasks.start(mirror.run)
        yield World(bed, mirror, store, metrics, events, sysfs)
        tasks.cancel_scope.cancel()


async def hotplug(root: Path) -> dict[str, Any]:
    async with world(root) as w:
        before = w.offered
        gone = w.bed.unplug(ADAPTER)
        left = await w.until(lambda: DEVICE not in w.store.snapshot.offers)
        w.bed.plug(gone)
        back = await w.until(lambda: DEVICE in w.store.snapshot.offers)
        await anyio.sleep(0.2)
        w.bed.replug(ADAPTER, devnum=9, renamed={"ttyUSB0": "ttyUSB1"})
        await w.until(lambda: "/dev/ttyUSB1" in [n.path for o in w.store.snapshot.offers.values() for n in o.nodes])
        nodes = [node.path for node in w.store.snapshot.offers[DEVICE].nodes]
        return {"before": before, "left_ms": left, "back_ms": back, "nodes": nodes, "fresh": w.fresh()}


async def bound_and_unbound(root: Path) -> dict[str, Any]:
    async with world(root) as w:
        interface = f"{ADAPTER}/1-1.1:1.0"
        below = w.bed.unbind(interface)
        await w.until(lambda: DEVICE not in w.store.snapshot.offers)
        withheld = [str(v.reason) for k, v in w.store.snapshot.verdicts.items() if k.address == "1-1.1:1.0"]
        w.bed.bind(interface, "ftdi_sio")
        w.bed.plug(below)
        await w.until(lambda: DEVICE in w.store.snapshot.offers)
        return {"withheld": withheld, "fresh": w.fresh()}


async def overflow(root: Path) -> dict[str, Any]:
    async with world(root, receive_buffer=16_384) as w:
        w.bed.unplug(ADAPTER)
        w.bed.flood(5_000, "/devices/pci0000:00/0000:00:10.0")  # the loop has no turn: the buffer overflows
        await w.until(lambda: w.counter("liken_resyncs_total", cause="overflow") > 0)
        await w.until(lambda: DEVICE not in w.store.snapshot.offers)
        await anyio.sleep(0.3)
        resyncs = w.counter("liken_resyncs_total", cause="overflow")
        equal = w.fresh()
        used = time.process_time()
        await anyio.sleep(0.5)
        idle = time.process_time() - used
        w.bed.load(HUB.read_bytes())
        w.bed.announce("add", ADAPTER)
        heard = await w.until(lambda: DEVICE in w.store.snapshot.offers)
        return {"resyncs": resyncs, "equal": equal, "idle_cpu_s": idle, "heard_ms": heard, "fresh": w.fresh()}


async def foreign(root: Path) -> dict[str, Any]:
    async with world(root) as w:
        seen = w.counter("liken_uevents_total")
        revision = w.store.snapshot.revision
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 15) as sender:
            sender.bind((4242, 0))
            sender.sendto(datagram("remove", ADAPTER, {}), (0, 1))
        await w.until(lambda: w.counter("liken_uevents_dropped_total", cause="foreign") > 0)
        await anyio.sleep(0.2)
        return {
            "dropped": w.counter("liken_uevents_dropped_total", cause="foreign"),
            "counted": w.counter("liken_uevents_total") - seen,
            "same_revision": w.store.snapshot.revision == revision,
        }


async def hostile(root: Path) -> dict[str, Any]:
    """Datagrams no kernel sends, from the kernel's own port."""
    async with world(root) as w:
        tell = Netlink()
        for payload in (
            b"\xff\xfe@/devices/x\0",
            b"add@\0",
            b"add@/devices/\xff\n\x1b[2J\0",
            b"@@@@\0",
            b"no end",
            b"\0",
        ):
            header = struct.pack("IHHII", 16 + len(payload), 0x10, 1, 0, 0)
            tell._socket.sendto(header + payload, (0, 0))
        w.bed.unplug(ADAPTER)
        await w.until(lambda: DEVICE not in w.store.snapshot.offers)
        return {"malformed": w.counter("liken_uevents_dropped_total", cause="malformed"), "fresh": w.fresh()}


async def cut_short(root: Path) -> dict[str, Any]:
    """Every datagram is longer than what is read of it: each is a reason to compare everything."""
    metrics = Metrics()
    async with world(root, source=lambda: KernelEvents(metrics=metrics, datagram=48)) as w:
        w.bed.unplug(ADAPTER)
        await w.until(lambda: DEVICE not in w.store.snapshot.offers)
        await anyio.sleep(0.3)
        return {"resyncs": w.counter("liken_resyncs_total", cause="truncated"), "fresh": w.fresh()}


class Silent:
    """An announcer that tells udev's group only, as udevd does: the kernel's listeners hear nothing."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 15)

    def __call__(self, action: str, path: str, properties: Any) -> None:
        self._socket.sendto(b"libudev\0" + datagram(action, path, properties), (0, 2))


async def deaf(root: Path) -> dict[str, Any]:
    async with world(root, resync_s=1.0) as w:
        w.bed._announce = Silent()
        gone = w.bed.unplug(ADAPTER)
        await w.until(lambda: DEVICE not in w.store.snapshot.offers)
        first, said = w.counter("liken_corrections_total"), len(w.events.said)
        w.bed.plug(gone)
        await w.until(lambda: DEVICE in w.store.snapshot.offers)
        return {
            "first": first,
            "said_first": said,
            "second": w.counter("liken_corrections_total"),
            "said": w.events.said,
            "uevents": w.counter("liken_uevents_total"),
        }


async def mounted(root: Path) -> dict[str, Any]:
    async with world(root) as w:
        await anyio.sleep(0.1)
        point = root / "point"
        point.mkdir()
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.mount(b"/dev/sdz1", os.fsencode(point), b"tmpfs", 0, None) == 0
        noticed = await w.until(lambda: "/dev/sdz1" in w.store.snapshot.inventory.system.sources)
        assert libc.umount2(os.fsencode(point), 2) == 0
        await w.until(lambda: "/dev/sdz1" not in w.store.snapshot.inventory.system.sources)
        used = time.process_time()
        await anyio.sleep(0.5)
        return {"noticed_ms": noticed, "idle_cpu_s": time.process_time() - used}


SCENARIOS: dict[str, Callable[[Path], Awaitable[dict[str, Any]]]] = {
    scenario.__name__: scenario
    for scenario in (hotplug, bound_and_unbound, overflow, cut_short, foreign, hostile, deaf, mounted)
}


def become_nobody() -> None:
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)  # else /proc/self stays root's


def main(name: str, loop: str, user: str) -> int:
    if user == "nobody":
        become_nobody()
    with TemporaryDirectory(prefix="liken-testbed-") as folder:
        root = Path(folder)
        (root / "sys").mkdir()
        try:
            enter_namespaces(root / "sys")
        except NamespacesForbidden as reason:
            sys.stdout.write(f"{reason}\n")
            return FORBIDDEN
        seen = anyio.run(SCENARIOS[name], root, backend_options={"use_uvloop": loop == "uvloop"})
    sys.stdout.write(json.dumps(seen) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
