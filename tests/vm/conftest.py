"""One guest a session, its kernel from the cache; without QEMU, busybox, kmod or a kernel these tests skip.

`node` is the daemon in that guest with the API server outside; around each test, what the server holds must equal
what a fresh `liken devices` finds. `stopwatch` notes the times that the summary prints.
"""

import compileall
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from anyio.from_thread import start_blocking_portal

from liken.demo.apiserver import ApiServer
from liken.machine.crd import crd
from tests.vm.hardware import Hardware
from tests.vm.kernel import cached
from tests.vm.machine import BUSYBOX, QEMU, VirtualMachine
from tests.vm.node import Node
from tests.vm.published import Write

DRIVERS = (
    "usb_storage", "sd_mod", "ext4", "usbhid", "hid_generic", "evdev", "ftdi_sio", "snd_usb_audio", "btusb", "cdc_acm",
)  # fmt: skip
CHECKOUT = Path(__file__).parents[2]
timings: dict[str, float] = {}


@pytest.fixture(scope="session")
def machine() -> Iterator[VirtualMachine]:
    """A booted guest with a USB controller and the drivers of common USB devices."""
    kernel = cached()
    if kernel is None:
        pytest.skip("no guest kernel: run `python -m tests.vm.kernel`")
    for program in (QEMU, "modprobe"):
        if shutil.which(program, path="/usr/sbin:/sbin:/usr/bin:/bin:/usr/local/bin") is None:
            pytest.skip(f"no {program}: install qemu-system-x86 and kmod")
    if not BUSYBOX.exists():
        pytest.skip(f"no {BUSYBOX}: install busybox-static")
    compileall.compile_dir(str(CHECKOUT / "liken"), quiet=2)  # the guest cannot keep what it compiles
    with VirtualMachine(kernel) as booted:
        mark = booted.guest.mark()
        booted.guest.run("modprobe xhci_pci")
        booted.guest.uevent(mark, ACTION="add", DEVTYPE="usb_device", DEVPATH="/usb1")
        booted.guest.run(["modprobe", "-a", *DRIVERS])
        timings["boot of the guest"] = booted.boot_s
        yield booted


@pytest.fixture
def hardware(machine: VirtualMachine) -> Iterator[Hardware]:
    """What a test plugs in; pulled out again when it ends."""
    plugged = Hardware(machine)
    yield plugged
    plugged.clear()


@pytest.fixture(scope="session")
def running(machine: VirtualMachine) -> Iterator[Node]:
    """The daemon, started once, with an API server on the host."""
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(ApiServer.serve(port=0)) as server:
        node = Node(machine, server.url)
        server.put(crd())
        try:
            began = time.monotonic()
            node.preload()
            timings["import of liken in the guest"] = time.monotonic() - began
            timings["start of the daemon"] = node.start()
            node.agree()
            node.at_rest = frozenset(node.published.devices)
            yield node
        finally:
            node.close()


@pytest.fixture
def node(running: Node, hardware: Hardware) -> Iterator[Node]:
    """The daemon and the server, in agreement with the hardware when the test ends; nothing stays plugged in."""
    yield running
    running.agree()
    hardware.clear()
    running.published.wait(lambda devices: devices.keys() <= running.at_rest)


@dataclass(slots=True)
class Stopwatch:
    """The time from what a test does to the hardware until the slice says so."""

    test: str
    began: float = field(default_factory=time.monotonic)

    def start(self) -> None:
        """The monitor command is about to be given."""
        self.began = time.monotonic()

    def stop(self, what: str, write: Write) -> float:
        """Note the seconds until `write`."""
        timings[f"{self.test}: {what}"] = taken = write.at - self.began
        return taken


@pytest.fixture
def stopwatch(request: pytest.FixtureRequest) -> Stopwatch:
    """Times of this test for the summary."""
    return Stopwatch(test=request.node.name)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the times from monitor command to slice."""
    if timings:
        terminalreporter.section("from the monitor command to the slice")
        for what, seconds in timings.items():
            terminalreporter.write_line(f"{seconds * 1000:8.0f} ms  {what}")
