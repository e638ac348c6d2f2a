"""What the machine itself uses: mounts of pid 1, swap on partitions and in files, consoles, uhid."""

import os
import pathlib

from hypothesis import given, settings
from hypothesis import strategies as st

from liken.events.system import mountinfo, mounts_of
from liken.model.hardware import DevNumber, SystemFacts
from tests.unit.fakes_events import disk, machine

DISK = disk("0000:00:17.0", "sda", 0)


def system(root: pathlib.Path, *, mounts: str = "", swaps: str = "") -> SystemFacts:
    sysfs, _ = machine(root, DISK)
    (root / "proc/1").mkdir(parents=True, exist_ok=True)
    (root / "proc/1/mountinfo").write_text(mounts)
    (root / "proc/swaps").write_text("Filename\tType\tSize\tUsed\tPriority\n" + swaps)
    return sysfs.system()


def test_a_mount_counts_by_the_number_of_its_file_system(tmp_path: pathlib.Path) -> None:
    facts = system(tmp_path, mounts="22 1 8:1 / /mnt/a\\040b rw,relatime shared:1 - ext4 /dev/sda1 rw\n")
    assert facts.mounts == {DevNumber(8, 1): "/mnt/a b"}
    assert facts.sources == {"/dev/sda1": "/mnt/a b"}


def test_a_file_system_with_a_number_of_its_own_counts_by_its_source(tmp_path: pathlib.Path) -> None:
    facts = system(tmp_path, mounts="22 1 0:30 /root / rw - btrfs /dev/sda1 rw\n23 22 0:31 / /proc rw - proc proc rw\n")
    assert facts.mounts == {DevNumber(8, 1): "/"}


def test_a_source_that_device_mapper_named_is_found_by_that_name(tmp_path: pathlib.Path) -> None:
    machine(tmp_path, DISK)
    place = tmp_path / "sys/devices/virtual/block/dm-3"
    (place / "dm").mkdir(parents=True)
    (place / "dm/name").write_text("vg-root\n")
    (place / "dev").write_text("253:3\n")
    (tmp_path / "sys/class/block/dm-3").symlink_to("../../devices/virtual/block/dm-3")
    facts = system(tmp_path, mounts="22 1 0:30 / / rw - btrfs /dev/mapper/vg-root rw\n")
    assert facts.mounts == {DevNumber(253, 3): "/"}


def test_swap_counts_on_a_partition_and_in_a_file(tmp_path: pathlib.Path) -> None:
    mounts = "22 1 8:16 / / rw - ext4 /dev/sdb rw\n23 22 8:1 / /var rw - ext4 /dev/sda1 rw\n"
    swaps = "/dev/sda partition 1 0 -2\n/var/swap\\040file file 1 0 -3\n/nowhere file\n"
    facts = system(tmp_path, mounts=mounts, swaps=swaps)
    assert facts.swaps[DevNumber(8, 0)] == "/dev/sda"
    assert facts.swaps[DevNumber(8, 1)] == "/var/swap file"


def test_the_active_consoles_are_those_the_kernel_lists(tmp_path: pathlib.Path) -> None:
    console = "P: /devices/virtual/tty/console\nN: console\nE: SUBSYSTEM=tty\nA: active=tty0 ttyUSB0\\n\n"
    sysfs, _ = machine(tmp_path, DISK, console)
    assert sysfs.system().consoles == {"tty0", "ttyUSB0"}


def test_uhid_counts_while_its_module_is_loaded_and_its_node_is_there(tmp_path: pathlib.Path) -> None:
    sysfs, _ = machine(tmp_path, DISK)
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/null").touch()
    assert not sysfs.system().uhid
    (tmp_path / "dev/uhid").touch()
    assert not sysfs.system().uhid
    (tmp_path / "sys/module/uhid").mkdir(parents=True)
    assert sysfs.system().uhid
    (tmp_path / "dev/uhid").unlink()
    assert not sysfs.system().uhid


def test_nothing_to_read_is_nothing_in_use(tmp_path: pathlib.Path) -> None:
    sysfs, _ = machine(tmp_path, DISK)
    assert sysfs.system() == SystemFacts()


def test_mounts_are_our_own_only_where_those_of_pid_1_may_not_be_read(tmp_path: pathlib.Path) -> None:
    assert mountinfo(tmp_path) == tmp_path / "self/mountinfo"
    (tmp_path / "1").mkdir()
    (tmp_path / "1/mountinfo").touch()
    assert mountinfo(tmp_path) == tmp_path / "1/mountinfo"


def test_the_machine_this_runs_on_is_read() -> None:
    found = [mount.point for mount in mounts_of(pathlib.Path("/proc/self/mountinfo").read_bytes())]
    assert b"/" in found
    assert os.fsencode("/proc") in found


@given(st.binary(max_size=300))
@settings(max_examples=100, deadline=None)
def test_no_mountinfo_is_an_error(content: bytes) -> None:
    list(mounts_of(content))
    list(mounts_of(b"22 1 8:1 / " + content + b" - ext4 " + content + b" rw\n"))
