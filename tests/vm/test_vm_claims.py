"""A prepared claim follows its device on a real kernel."""

import pytest

from tests.vm.claims import allocated
from tests.vm.hardware import Hardware
from tests.vm.kubelet import Kubelet
from tests.vm.node import Node

pytestmark = [pytest.mark.vm, pytest.mark.timeout(400)]


def test_the_cdi_file_follows_a_device_that_is_replugged_under_its_claim(node: Node, hardware: Hardware) -> None:
    mark = node.published.mark()
    adapter = hardware.serial_adapter("7", serial="CLAIMED")
    node.published.wait(lambda devices: "usb-1-7-1-0" in devices, since=mark)
    with Kubelet(node.plugin_port()) as kubelet:
        claim = allocated(node.server, "usb-1-7-1-0")
        (device,) = kubelet.prepare(claim)
        assert device.device_name == "usb-1-7-1-0"
        before = node.cdi_paths(claim.uid)
        assert "/dev/ttyUSB0" in before
        hardware.unplug(adapter)
        node.until(lambda: node.cdi_paths(claim.uid) == {"/dev/liken-gone-usb-1-7-1-0"})
        hardware.serial_adapter("8", serial="IN ITS PLACE")  # takes ttyUSB0, so that the number changes
        node.machine.guest.run("until [ -e /dev/ttyUSB0 ]; do sleep 0.05; done")
        hardware.serial_adapter("7", serial="CLAIMED")
        node.until(lambda: "/dev/ttyUSB1" in node.cdi_paths(claim.uid))
        after = node.cdi_paths(claim.uid)
        assert before.isdisjoint(after), "another tty and another usbfs node"
        kubelet.unprepare(claim)
        assert f"liken.sh-{claim.uid}.json" not in node.cdi_files()
