"""One guest a session, its kernel from the cache; without QEMU, busybox, kmod or a kernel these tests skip."""

import shutil
from collections.abc import Iterator

import pytest

from tests.vm.hardware import Hardware
from tests.vm.kernel import cached
from tests.vm.machine import BUSYBOX, QEMU, VirtualMachine

DRIVERS = (
    "usb_storage",
    "sd_mod",
    "ext4",
    "usbhid",
    "hid_generic",
    "evdev",
    "ftdi_sio",
    "snd_usb_audio",
    "btusb",
    "cdc_acm",
)


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
    with VirtualMachine(kernel) as booted:
        mark = booted.guest.mark()
        booted.guest.run("modprobe xhci_pci")
        booted.guest.uevent(mark, ACTION="add", DEVTYPE="usb_device", DEVPATH="/usb1")
        booted.guest.run(["modprobe", "-a", *DRIVERS])
        yield booted


@pytest.fixture
def hardware(machine: VirtualMachine) -> Iterator[Hardware]:
    """What a test plugs in; pulled out again when it ends."""
    plugged = Hardware(machine)
    yield plugged
    plugged.clear()
