"""Hardware comes and goes on a real kernel, and the slice says so: each test prints how long that took."""

from pathlib import Path

import pytest

from tests.vm.conftest import Stopwatch
from tests.vm.disks import stick
from tests.vm.hardware import Hardware, ports
from tests.vm.node import Node
from tests.vm.published import names
from tests.vm.usb_device import Bluetooth, Identity

pytestmark = [pytest.mark.vm, pytest.mark.timeout(400)]


def test_a_usb_serial_adapter_is_published_when_plugged_and_withdrawn_when_pulled(
    node: Node, hardware: Hardware, stopwatch: Stopwatch
) -> None:
    mark = node.published.mark()
    stopwatch.start()
    adapter = hardware.serial_adapter("3", serial="FT1")
    came = node.published.wait(lambda devices: "usb-1-3-1-0" in devices, since=mark)
    stopwatch.stop("published", came)
    attributes = came.devices["usb-1-3-1-0"]["attributes"]
    assert attributes["subsystem"] == {"string": "tty"}
    assert attributes["serial"] == {"string": "FT1"}
    stopwatch.start()
    hardware.unplug(adapter)
    went = node.published.wait(lambda devices: "usb-1-3-1-0" not in devices, since=came.number + 1)
    stopwatch.stop("withdrawn", went)


def test_usb_storage_is_published_when_plugged_and_withdrawn_when_pulled(
    node: Node, hardware: Hardware, stopwatch: Stopwatch, tmp_path: Path
) -> None:
    mark = node.published.mark()
    stopwatch.start()
    disk = hardware.storage("4", stick(tmp_path))
    came = node.published.wait(lambda devices: bool(names(devices, ["usb-2-4"])), since=mark)
    stopwatch.stop("published", came)
    assert came.devices["usb-2-4-1-0"]["attributes"]["driver"] == {"string": "usb-storage"}
    stopwatch.start()
    hardware.unplug(disk)
    went = node.published.wait(lambda devices: "usb-2-4-1-0" not in devices, since=came.number + 1)
    stopwatch.stop("withdrawn", went)


def test_a_hub_with_children_publishes_the_children_and_not_the_hub(
    node: Node, hardware: Hardware, stopwatch: Stopwatch
) -> None:
    mark = node.published.mark()
    stopwatch.start()
    hub = hardware.hub("5")
    children = [hardware.serial_adapter("5.1"), hardware.keyboard("5.2"), hardware.serial_adapter("5.8")]
    expected = {"usb-1-5-1-1-0", "usb-1-5-2-1-0", "usb-1-5-8-1-0"}
    came = node.published.wait(lambda devices: names(devices, ["usb-1-5"]) == expected, since=mark)
    stopwatch.stop("published", came)
    stopwatch.start()
    hardware.unplug(hub)
    for child in children:
        hardware.gone(child)
    went = node.published.wait(lambda devices: not names(devices, ["usb-1-5"]), since=came.number + 1)
    stopwatch.stop("withdrawn", went)


def test_a_usb_sound_card_is_published_as_shareable_sound(node: Node, hardware: Hardware, stopwatch: Stopwatch) -> None:
    mark = node.published.mark()
    stopwatch.start()
    card = hardware.audio("6")
    came = node.published.wait(lambda devices: "usb-1-6-1-0" in devices, since=mark)
    stopwatch.stop("published", came)
    device = came.devices["usb-1-6-1-0"]
    assert device["allowMultipleAllocations"] is True
    assert device["attributes"]["sound.liken.sh/supportsSound"] == {"bool": True}
    stopwatch.start()
    hardware.unplug(card)
    went = node.published.wait(lambda devices: not names(devices, ["usb-1-6"]), since=came.number + 1)
    stopwatch.stop("withdrawn", went)


def test_an_input_device_is_published_when_plugged_and_withdrawn_when_pulled(
    node: Node, hardware: Hardware, stopwatch: Stopwatch
) -> None:
    mark = node.published.mark()
    stopwatch.start()
    keyboard = hardware.keyboard("7")
    came = node.published.wait(lambda devices: "usb-1-7-1-0" in devices, since=mark)
    stopwatch.stop("published", came)
    stopwatch.start()
    hardware.unplug(keyboard)
    went = node.published.wait(lambda devices: "usb-1-7-1-0" not in devices, since=came.number + 1)
    stopwatch.stop("withdrawn", went)


def test_a_bluetooth_adapter_of_two_interfaces_is_published_once(
    node: Node, hardware: Hardware, stopwatch: Stopwatch
) -> None:
    mark = node.published.mark()
    stopwatch.start()
    adapter = hardware.made_up("8", Bluetooth(Identity(vendor=0x0A12, product=0x0001, classes=(0xE0, 1, 1))))
    came = node.published.wait(lambda devices: "usb-1-8-1-0" in devices, since=mark)
    stopwatch.stop("published", came)
    assert came.devices["usb-1-8-1-0"]["attributes"]["driver"] == {"string": "btusb"}
    node.machine.guest.uevent(SUBSYSTEM="bluetooth", ACTION="add", DEVTYPE="host")
    node.agree()
    assert names(node.published.devices, ["usb-1-8"]) == {"usb-1-8-1-0"}
    stopwatch.start()
    hardware.unplug(adapter)
    went = node.published.wait(lambda devices: not names(devices, ["usb-1-8"]), since=came.number + 1)
    stopwatch.stop("withdrawn", went)


def test_a_smart_card_reader_without_a_kernel_driver_is_withheld_and_costs_no_write(
    node: Node, hardware: Hardware
) -> None:
    events, writes = node.machine.guest.mark(), node.published.mark()
    reader = hardware.card_reader("2")
    node.machine.guest.uevent(events, ACTION="add", DEVTYPE="usb_interface", DEVPATH="/1-2:1.0")
    assert node.reason("1-2:1.0") == "NoDriver"
    hardware.unplug(reader)
    node.machine.guest.uevent(events, ACTION="remove", DEVTYPE="usb_device", DEVPATH="/1-2")
    node.agree()
    assert node.published.mark() == writes


def test_a_replug_into_another_port_moves_the_device(node: Node, hardware: Hardware, stopwatch: Stopwatch) -> None:
    mark = node.published.mark()
    adapter = hardware.serial_adapter("1", serial="WANDERER")
    came = node.published.wait(lambda devices: "usb-1-1-1-0" in devices, since=mark)
    stopwatch.start()
    hardware.unplug(adapter)
    hardware.serial_adapter("2", serial="WANDERER")
    moved = node.published.wait(lambda devices: names(devices, ["usb-1-"]) == {"usb-1-2-1-0"}, since=came.number + 1)
    stopwatch.stop("moved", moved)
    assert moved.devices["usb-1-2-1-0"]["attributes"]["serial"] == {"string": "WANDERER"}


def test_twins_with_one_serial_are_two_devices(node: Node, hardware: Hardware, stopwatch: Stopwatch) -> None:
    mark = node.published.mark()
    stopwatch.start()
    hardware.hub("4")
    hardware.serial_adapter("4.1", serial="0001")
    hardware.serial_adapter("4.2", serial="0001")
    twins = {"usb-1-4-1-1-0", "usb-1-4-2-1-0"}
    came = node.published.wait(lambda devices: names(devices, ["usb-1-4"]) == twins, since=mark)
    stopwatch.stop("published", came)
    assert {came.devices[name]["attributes"]["serial"]["string"] for name in twins} == {"0001"}


def test_a_hub_with_eight_children_pulled_at_once_is_one_or_two_writes(
    node: Node, hardware: Hardware, stopwatch: Stopwatch
) -> None:
    mark = node.published.mark()
    hub = hardware.hub("3")
    children = [hardware.serial_adapter(port) for port in ports("3")]
    node.published.wait(lambda devices: len(names(devices, ["usb-1-3"])) == 8, since=mark)
    mark = node.published.mark()
    stopwatch.start()
    hardware.unplug(hub)
    for child in children:
        hardware.gone(child)
    went = node.published.wait(lambda devices: not names(devices, ["usb-1-3"]), since=mark)
    stopwatch.stop("withdrawn", went)
    node.agree()
    assert node.published.mark() - mark <= 2


def test_a_pci_card_with_a_driver_is_published_when_plugged_and_withdrawn_when_pulled(
    node: Node, hardware: Hardware, stopwatch: Stopwatch
) -> None:
    node.machine.guest.run("modprobe bochs")
    mark = node.published.mark()
    stopwatch.start()
    card = hardware.pci("bochs-display", "slot1")
    came = node.published.wait(lambda devices: "pci-0000-01-00-0" in devices, since=mark)
    stopwatch.stop("published", came)
    assert came.devices["pci-0000-01-00-0"]["attributes"]["displayNode"] == {"bool": True}
    stopwatch.start()
    hardware.unplug(card)
    went = node.published.wait(lambda devices: "pci-0000-01-00-0" not in devices, since=came.number + 1)
    stopwatch.stop("withdrawn", went)
