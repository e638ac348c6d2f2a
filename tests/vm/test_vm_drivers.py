"""Drivers come and go on a real kernel while the hardware stays: modprobe, rmmod, unbind, bind."""

import pytest

from tests.vm.claims import allocated
from tests.vm.conftest import Stopwatch
from tests.vm.hardware import Hardware
from tests.vm.kubelet import Kubelet
from tests.vm.node import Node
from tests.vm.published import names
from tests.vm.usb_device import Bluetooth, Identity

pytestmark = [pytest.mark.vm, pytest.mark.timeout(400)]
GPU = "pci-0000-00-11-0"
SOUND = "pci-0000-00-12-0"
SMBUS = "pci-0000-00-1f-3"


def test_modprobe_of_a_gpu_driver_publishes_its_render_and_display_halves_and_rmmod_withdraws_them(
    node: Node, stopwatch: Stopwatch
) -> None:
    mark = node.published.mark()
    stopwatch.start()
    node.machine.guest.run("modprobe virtio-gpu")
    came = node.published.wait(lambda devices: {GPU, f"{GPU}-display"} <= devices.keys(), since=mark)
    stopwatch.stop("published", came)
    assert came.devices[GPU]["allowMultipleAllocations"] is True
    assert came.devices[GPU]["attributes"]["renderNode"] == {"bool": True}
    assert came.devices[f"{GPU}-display"]["attributes"]["displayNode"] == {"bool": True}
    assert "allowMultipleAllocations" not in came.devices[f"{GPU}-display"]
    stopwatch.start()
    node.machine.guest.run("modprobe -r virtio-gpu")
    went = node.published.wait(lambda devices: not names(devices, [GPU]), since=came.number + 1)
    stopwatch.stop("withdrawn", went)


def test_modprobe_of_a_sound_driver_publishes_the_card_and_rmmod_withdraws_it(node: Node, stopwatch: Stopwatch) -> None:
    guest = node.machine.guest
    mark = node.published.mark()
    stopwatch.start()
    guest.run("modprobe -a snd_hda_intel snd_hda_codec_generic")
    came = node.published.wait(lambda devices: SOUND in devices, since=mark)
    stopwatch.stop("published", came)
    assert came.devices[SOUND]["allowMultipleAllocations"] is True
    stopwatch.start()
    guest.run("modprobe -r snd_hda_intel")
    went = node.published.wait(lambda devices: SOUND not in devices, since=came.number + 1)
    stopwatch.stop("withdrawn", went)


def test_modprobe_of_i2c_dev_publishes_the_buses_of_a_controller_and_rmmod_withdraws_them(
    node: Node, stopwatch: Stopwatch
) -> None:
    guest = node.machine.guest
    guest.run("modprobe i2c_i801")
    mark = node.published.mark()
    stopwatch.start()
    guest.run("modprobe i2c-dev")
    came = node.published.wait(lambda devices: SMBUS in devices, since=mark)
    stopwatch.stop("published", came)
    assert came.devices[SMBUS]["attributes"]["subsystem"] == {"string": "i2c-dev"}
    stopwatch.start()
    guest.run("modprobe -r i2c-dev")
    went = node.published.wait(lambda devices: SMBUS not in devices, since=came.number + 1)
    stopwatch.stop("withdrawn", went)
    guest.run("modprobe -r i2c_i801")


def test_modprobe_of_uhid_gives_a_bluetooth_adapters_claim_dev_uhid_and_rmmod_takes_it_back(
    node: Node, hardware: Hardware
) -> None:
    guest = node.machine.guest
    mark = node.published.mark()
    hardware.made_up("5", Bluetooth(Identity(vendor=0x0A12, product=0x0001, classes=(0xE0, 1, 1))))
    node.published.wait(lambda devices: "usb-1-5-1-0" in devices, since=mark)
    with Kubelet(node.plugin_port()) as kubelet:
        claim = allocated(node.server, "usb-1-5-1-0")
        kubelet.prepare(claim)
        assert "/dev/uhid" not in node.cdi_paths(claim.uid)
        guest.run("modprobe uhid")
        node.until(lambda: "/dev/uhid" in node.cdi_paths(claim.uid))
        assert any(path.startswith("/dev/bus/usb/") for path in node.cdi_paths(claim.uid))
        guest.run("modprobe -r uhid")
        node.until(lambda: "/dev/uhid" not in node.cdi_paths(claim.uid))
        kubelet.unprepare(claim)


def test_a_driver_that_is_unbound_and_bound_again_withdraws_and_publishes_its_device(
    node: Node, hardware: Hardware, stopwatch: Stopwatch
) -> None:
    mark = node.published.mark()
    hardware.serial_adapter("6")
    node.published.wait(lambda devices: "usb-1-6-1-0" in devices, since=mark)
    mark = node.published.mark()
    stopwatch.start()
    node.machine.guest.run("echo 1-6:1.0 >/sys/bus/usb/drivers/ftdi_sio/unbind")
    went = node.published.wait(lambda devices: "usb-1-6-1-0" not in devices, since=mark)
    stopwatch.stop("withdrawn", went)
    assert node.reason("1-6:1.0") == "NoDriver"
    stopwatch.start()
    node.machine.guest.run("echo 1-6:1.0 >/sys/bus/usb/drivers/ftdi_sio/bind")
    came = node.published.wait(lambda devices: "usb-1-6-1-0" in devices, since=went.number + 1)
    stopwatch.stop("published", came)
