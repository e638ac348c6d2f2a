"""What the real kernel tells of hardware that comes and goes: the ground under every other test of this tier."""

import socket
import threading

import pytest

from tests.vm.guest.agent import HOST
from tests.vm.hardware import Hardware, ports
from tests.vm.machine import VirtualMachine
from tests.vm.usb_device import Bluetooth, Identity

pytestmark = [pytest.mark.vm, pytest.mark.timeout(400)]


def test_the_guest_reaches_the_hosts_loopback(machine: VirtualMachine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"good day\n")

        thread = threading.Thread(target=greet)
        thread.start()
        said = machine.guest.run(f"busybox nc -w 5 {HOST} {server.getsockname()[1]} </dev/null")
        thread.join()
    assert said == "good day\n"


def test_a_serial_adapter_comes_with_its_tty_and_goes_with_it(machine: VirtualMachine, hardware: Hardware) -> None:
    mark = machine.guest.mark()
    adapter = hardware.serial_adapter("3")
    came = machine.guest.uevent(mark, ACTION="add", SUBSYSTEM="tty")
    assert came.fields["DEVPATH"].endswith("/usb1/1-3/1-3:1.0/ttyUSB0/tty/ttyUSB0")
    hardware.unplug(adapter)
    machine.guest.uevent(mark, ACTION="remove", SUBSYSTEM="tty", DEVNAME="ttyUSB0")
    machine.guest.uevent(mark, ACTION="remove", DEVTYPE="usb_device", DEVPATH="/1-3")


def test_a_hub_takes_its_eight_children_along(machine: VirtualMachine, hardware: Hardware) -> None:
    hub = hardware.hub("1")
    machine.guest.uevent(ACTION="bind", DEVTYPE="usb_interface", DRIVER="hub", DEVPATH="/1-1:1.0")
    mark = machine.guest.mark()
    children = [hardware.serial_adapter(port) for port in ports("1")]
    machine.guest.uevent(mark, ACTION="add", SUBSYSTEM="tty", DEVNAME="ttyUSB7")
    hardware.unplug(hub)
    machine.guest.uevent(mark, ACTION="remove", DEVTYPE="usb_device", DEVPATH="/usb1/1-1")
    assert len(machine.guest.uevents(mark, ACTION="remove", SUBSYSTEM="tty")) == 8
    for child in children:
        hardware.gone(child)


def test_a_bluetooth_adapter_completes_its_initialisation(machine: VirtualMachine, hardware: Hardware) -> None:
    mark = machine.guest.mark()
    hardware.made_up("2", Bluetooth(Identity(vendor=0x0A12, product=0x0001, classes=(0xE0, 1, 1))))
    came = machine.guest.uevent(mark, ACTION="add", SUBSYSTEM="bluetooth", DEVTYPE="host")
    assert came.fields["DEVPATH"].endswith("/1-2:1.0/bluetooth/hci0")
    driver = machine.guest.run("readlink /sys/bus/usb/devices/1-2:1.1/driver")
    assert driver.endswith("/btusb\n"), "btusb binds the second interface too"


def test_a_pci_card_comes_and_goes(machine: VirtualMachine, hardware: Hardware) -> None:
    machine.guest.run("modprobe bochs")
    mark = machine.guest.mark()
    card = hardware.pci("bochs-display", "slot2")
    machine.guest.uevent(mark, ACTION="add", SUBSYSTEM="drm", DEVNAME="dri/card0")
    hardware.unplug(card)
    machine.guest.uevent(mark, ACTION="remove", SUBSYSTEM="drm", DEVNAME="dri/card0")
    machine.guest.uevent(mark, ACTION="remove", SUBSYSTEM="pci")
