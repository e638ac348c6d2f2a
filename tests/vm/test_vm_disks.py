"""A USB disk that the machine itself uses is never offered: mount and unmount on a real kernel."""

from pathlib import Path

import pytest

from tests.vm.conftest import Stopwatch
from tests.vm.disks import stick
from tests.vm.hardware import Hardware
from tests.vm.node import Node

pytestmark = [pytest.mark.vm, pytest.mark.timeout(400)]
MOUNT_POINT = "/run/stick"


def test_machine_depends_on_it_comes_with_a_mount_and_goes_with_the_unmount(
    node: Node, hardware: Hardware, stopwatch: Stopwatch, tmp_path: Path
) -> None:
    guest = node.machine.guest
    mark, events = node.published.mark(), guest.mark()
    hardware.storage("1", stick(tmp_path))
    node.published.wait(lambda devices: "usb-2-1-1-0" in devices, since=mark)
    disk = guest.uevent(events, ACTION="add", SUBSYSTEM="block", DEVTYPE="disk").fields["DEVNAME"]
    node.agree()
    mark = node.published.mark()
    stopwatch.start()
    guest.run(f"mkdir -p {MOUNT_POINT} && mount -t ext4 /dev/{disk} {MOUNT_POINT}")
    went = node.published.wait(lambda devices: "usb-2-1-1-0" not in devices, since=mark)
    stopwatch.stop("withdrawn after the mount", went)
    assert node.reason("2-1:1.0") == "MachineDependsOnIt"
    stopwatch.start()
    guest.run(["umount", MOUNT_POINT])
    came = node.published.wait(lambda devices: "usb-2-1-1-0" in devices, since=went.number + 1)
    stopwatch.stop("published after the unmount", came)
