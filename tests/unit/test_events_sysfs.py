"""Reading sysfs: whole devices or a problem, and an error that costs no more than it must."""

import os
import pathlib
import shutil
import time

import pytest

from liken.events.sysfs import Stray, Sysfs, SysfsError
from liken.events.tree import Tree
from liken.model.hardware import DevNumber, DevPath, Holder, Reason
from liken.model.offers import Snapshot
from liken.state.store import Store
from tests.unit.fakes_events import (
    CONTROLLER,
    IO_ERROR,
    NO_DEVICE,
    NO_PERMISSION,
    RECORDINGS,
    FaultyTree,
    built,
    controller,
    disk,
    machine,
    pci,
    stick,
    tree_cases,
    usb,
)
from tests.unit.fakes_state import NoNames

STICK = f"{CONTROLLER}/usb1/1-4"
TTY = f"{STICK}/1-4:1.0/ttyUSB0/tty/ttyUSB0"


def judged(sysfs: Sysfs) -> Snapshot:
    store = Store(NoNames())
    store.replace(sysfs.everything(), system=sysfs.system(), complete=True, everything=True)
    return store.snapshot


def test_an_interface_is_read_with_its_node(tmp_path: pathlib.Path) -> None:
    sysfs, _ = machine(tmp_path, controller(), stick())
    facts = sysfs.device(usb("1-4:1.0"))
    assert facts is not None
    assert (facts.path, facts.driver, facts.devtype) == (f"{STICK}/1-4:1.0", "cp210x", "usb_interface")
    [node] = facts.nodes
    assert (node.path, node.name, node.kind, node.number) == (TTY, "ttyUSB0", "tty", DevNumber(188, 0))
    assert facts.files["bInterfaceClass"] == b"ff\n"
    assert facts.problem is None


def test_a_usb_device_keeps_its_own_node_and_those_of_its_interfaces_out(tmp_path: pathlib.Path) -> None:
    sysfs, _ = machine(tmp_path, controller(), stick())
    reading = sysfs.reading(usb("1-4"))
    assert reading is not None
    assert reading.facts.nodes == ()
    assert reading.below == (usb("1-4:1.0"),)
    assert reading.facts.files["serial"] == b"A1\n"


def test_an_entry_that_is_not_there_is_no_facts(tmp_path: pathlib.Path) -> None:
    sysfs, _ = machine(tmp_path, controller())
    assert sysfs.device(usb("1-4")) is None


def test_a_machine_without_one_of_the_buses_is_fine_and_without_both_is_none(tmp_path: pathlib.Path) -> None:
    sysfs, _ = machine(tmp_path, controller())
    shutil.rmtree(tmp_path / "sys/bus/usb")
    assert sysfs.keys() == (pci("0000:00:14.0"),)
    shutil.rmtree(tmp_path / "sys/bus/pci")
    with pytest.raises(SysfsError, match=r"has neither bus/pci/devices nor bus/usb/devices.*--sysfs"):
        sysfs.keys()


def test_an_empty_sys_is_an_error_and_no_empty_machine(tmp_path: pathlib.Path) -> None:
    with pytest.raises(SysfsError):
        Sysfs(tmp_path).everything()


def test_a_bus_folder_that_may_not_be_listed_names_the_right(tmp_path: pathlib.Path) -> None:
    sysfs, _ = machine(tmp_path, controller(), errors={"/bus/pci/devices": NO_PERMISSION})
    with pytest.raises(SysfsError, match=r"Permission denied.*CAP_DAC_READ_SEARCH"):
        sysfs.keys()


@pytest.mark.parametrize("number", [NO_DEVICE, IO_ERROR, NO_PERMISSION])
@pytest.mark.parametrize("name", ["serial", "bConfigurationValue"])
def test_an_optional_attribute_that_fails_costs_that_attribute(tmp_path: pathlib.Path, name: str, number: int) -> None:
    sysfs, _ = machine(tmp_path, controller(), stick(), errors={f"{STICK}/{name}": number})
    facts = sysfs.device(usb("1-4"))
    assert facts is not None
    assert facts.problem is None
    assert name not in facts.files
    assert facts.files["idVendor"] == b"10c4\n"


@pytest.mark.parametrize(("number", "words"), [(IO_ERROR, "Input/output error"), (NO_PERMISSION, "Permission denied")])
@pytest.mark.parametrize("path", [STICK, f"{STICK}/idVendor", f"{STICK}/uevent"])
def test_what_is_there_and_cannot_be_read_is_unreadable_and_names_the_file(
    tmp_path: pathlib.Path, path: str, number: int, words: str
) -> None:
    sysfs, _ = machine(tmp_path, controller(), stick(), stick("1-5", 9, 1), errors={path: number})
    found = {facts.key: facts for facts in sysfs.everything()}
    problem = found[usb("1-4")].problem
    assert problem is not None
    assert problem.reason is Reason.UNREADABLE
    assert problem.detail == f"/sys{path}: {words}"
    assert found[usb("1-5:1.0")].problem is None
    assert found[usb("1-5:1.0")].nodes


def test_a_node_whose_uevent_cannot_be_read_keeps_the_whole_device_back(tmp_path: pathlib.Path) -> None:
    sysfs, _ = machine(tmp_path, controller(), stick(), errors={f"{TTY}/uevent": IO_ERROR})
    facts = sysfs.device(usb("1-4:1.0"))
    assert facts is not None
    assert facts.nodes == ()
    assert facts.problem is not None
    assert TTY in facts.problem.detail


def test_a_bus_entry_that_dangles_is_vanished(tmp_path: pathlib.Path) -> None:
    sysfs, _ = machine(tmp_path, controller())
    (tmp_path / "sys/bus/usb/devices/1-9").symlink_to("../../../devices/pci0000:00/0000:00:14.0/usb1/1-9")
    facts = sysfs.device(usb("1-9"))
    assert facts is not None
    assert facts.problem is not None
    assert facts.problem.reason is Reason.VANISHED


@pytest.mark.parametrize("target", ["/etc", "../../../../../../etc", "../../../class/tty"])
def test_a_bus_entry_that_leads_out_of_the_devices_is_not_followed(tmp_path: pathlib.Path, target: str) -> None:
    sysfs, _ = machine(tmp_path, controller())
    (tmp_path / "sys/bus/usb/devices/1-9").symlink_to(target)
    facts = sysfs.device(usb("1-9"))
    assert facts is not None
    assert facts.problem is not None
    assert facts.problem.detail == "/bus/usb/devices/1-9 leads out of sysfs"


def test_a_driver_that_lets_go_while_the_device_is_read_makes_it_read_again(tmp_path: pathlib.Path) -> None:
    sysfs, tree = machine(tmp_path, controller(), stick())
    place = tmp_path / f"sys{STICK}/1-4:1.0"

    def unbind() -> None:
        (place / "driver").unlink()
        shutil.rmtree(place / "ttyUSB0")

    tree.on_read[f"{STICK}/1-4:1.0/modalias".encode()] = unbind
    facts = sysfs.device(usb("1-4:1.0"))
    assert facts is not None
    assert (facts.driver, facts.nodes, facts.problem) == (None, (), None)


def test_a_device_that_another_takes_the_place_of_is_read_anew(tmp_path: pathlib.Path) -> None:
    sysfs, tree = machine(tmp_path, controller(), stick())

    def replug() -> None:
        shutil.rmtree(tmp_path / f"sys{STICK}")
        machine(tmp_path, stick(devnum=9, tty=1, serial="B2"))

    tree.on_read[f"{STICK}/serial".encode()] = replug
    facts = sysfs.device(usb("1-4"))
    assert facts is not None
    assert facts.files["devnum"] == b"9\n"
    assert facts.files["serial"] == b"B2\n"


def test_a_node_that_keeps_vanishing_makes_the_device_vanished_and_never_half(tmp_path: pathlib.Path) -> None:
    sysfs, _ = machine(tmp_path, controller(), stick(), errors={f"{TTY}/uevent": NO_DEVICE})
    facts = sysfs.device(usb("1-4:1.0"))
    assert facts is not None
    assert facts.problem is not None
    assert facts.problem.reason is Reason.VANISHED
    assert facts.nodes == ()


def test_a_device_unplugged_while_it_is_read_is_gone(tmp_path: pathlib.Path) -> None:
    sysfs, tree = machine(tmp_path, controller(), stick())

    def unplug() -> None:
        (tmp_path / "sys/bus/usb/devices/1-4:1.0").unlink()
        shutil.rmtree(tmp_path / f"sys{STICK}/1-4:1.0")

    tree.on_read[f"{STICK}/1-4:1.0/bInterfaceClass".encode()] = unplug
    assert sysfs.device(usb("1-4:1.0")) is None


def test_an_attribute_is_read_to_one_page_only(tmp_path: pathlib.Path) -> None:
    sysfs, _ = machine(tmp_path, controller(), stick())
    (tmp_path / f"sys{STICK}/serial").write_bytes(b"x" * 100_000)
    facts = sysfs.device(usb("1-4"))
    assert facts is not None
    assert len(facts.files["serial"]) == 4096


def test_an_attribute_that_is_a_link_or_a_folder_is_none(tmp_path: pathlib.Path) -> None:
    sysfs, _ = machine(tmp_path, controller(), stick())
    place = tmp_path / f"sys{STICK}"
    (place / "serial").unlink()
    (place / "serial").symlink_to("/etc/passwd")
    (place / "product").mkdir()
    facts = sysfs.device(usb("1-4"))
    assert facts is not None
    assert not {"serial", "product"} & facts.files.keys()


def test_the_walk_follows_no_link_and_ends_in_a_ring(tmp_path: pathlib.Path) -> None:
    sysfs, _ = machine(tmp_path, controller(), stick())
    place = tmp_path / f"sys{STICK}/1-4:1.0"
    (place / "ring").symlink_to("..")
    (place / "other").symlink_to(tmp_path / "sys/devices")
    facts = sysfs.device(usb("1-4:1.0"))
    assert facts is not None
    assert [node.name for node in facts.nodes] == ["ttyUSB0"]


def test_a_bluetooth_adapter_is_told_by_its_child_and_its_links_are_not_walked(tmp_path: pathlib.Path) -> None:
    sysfs, _ = machine(tmp_path, (RECORDINGS / "btusb.umockdev").read_text())
    adapters = {facts.key.address for facts in sysfs.everything() if facts.hci}
    assert adapters == {"1-4:1.0"}


def test_a_node_without_a_subsystem_has_no_kind(tmp_path: pathlib.Path) -> None:
    sysfs, _ = machine(tmp_path, controller(), stick())
    (tmp_path / f"sys{TTY}/subsystem").unlink()
    facts = sysfs.device(usb("1-4:1.0"))
    assert facts is not None
    assert [(node.name, node.kind) for node in facts.nodes] == [("ttyUSB0", None)]


@pytest.mark.parametrize("name", [b"../../etc/shadow", b"a\xffb", b"\x1b[2J", b"/dev/ttyUSB0", b"bus/usb/001/007"])
def test_a_node_keeps_its_name_as_the_kernel_wrote_it_for_others_to_judge(tmp_path: pathlib.Path, name: bytes) -> None:
    sysfs, _ = machine(tmp_path, controller(), stick())
    (tmp_path / f"sys{TTY}/uevent").write_bytes(b"MAJOR=188\nMINOR=0\nDEVNAME=" + name + b"\n")
    facts = sysfs.device(usb("1-4:1.0"))
    assert facts is not None
    assert [os.fsencode(node.name) for node in facts.nodes] == [name.removeprefix(b"/dev/")]


@pytest.mark.parametrize("uevent", [b"", b"DEVNAME=\n", b"\xff\xfe\x00", b"MAJOR=188\nMINOR=0\n"])
def test_a_folder_whose_uevent_names_no_node_delivers_none(tmp_path: pathlib.Path, uevent: bytes) -> None:
    sysfs, _ = machine(tmp_path, controller(), stick())
    (tmp_path / f"sys{TTY}/uevent").write_bytes(uevent)
    facts = sysfs.device(usb("1-4:1.0"))
    assert facts is not None
    assert facts.nodes == ()


@pytest.mark.parametrize(
    ("major", "dev", "number"),
    [("x", b"188:3\n", DevNumber(188, 3)), ("999999999", b"\xff", None), ("", b"1:2:3", None), ("-1", b"", None)],
)
def test_numbers_that_are_none_are_left_out(
    tmp_path: pathlib.Path, major: str, dev: bytes, number: DevNumber | None
) -> None:
    sysfs, _ = machine(tmp_path, controller(), stick())
    (tmp_path / f"sys{TTY}/uevent").write_text(f"MAJOR={major}\nMINOR=0\nDEVNAME=ttyUSB0\n")
    (tmp_path / f"sys{TTY}/dev").write_bytes(dev)
    facts = sysfs.device(usb("1-4:1.0"))
    assert facts is not None
    assert facts.nodes[0].number == number


def test_holders_are_followed_to_the_end_with_their_partitions_and_a_ring_ends(tmp_path: pathlib.Path) -> None:
    sysfs, _ = machine(tmp_path, disk("0000:00:17.0", "sda", 0))
    block = tmp_path / "sys/devices/pci0000:00/0000:00:17.0/ata1/host0/target0:0:0/0:0:0:0/block/sda/sda1"
    virtual = tmp_path / "sys/devices/virtual/block"
    classes = tmp_path / "sys/class/block"
    for name, minor in (("md0", "9:0"), ("dm-0", "253:0"), ("dm-1", "253:1")):
        (virtual / name / "holders").mkdir(parents=True)
        (virtual / name / "dev").write_text(f"{minor}\n")
        (classes / name).symlink_to(f"../../devices/virtual/block/{name}")
    (virtual / "md0/md0p1/holders").mkdir(parents=True)
    (virtual / "md0/md0p1/dev").write_text("259:0\n")
    (virtual / "md0/md0p1/partition").write_text("1\n")
    (classes / "md0p1").symlink_to("../../devices/virtual/block/md0/md0p1")
    (block / "holders").mkdir()
    (block / "holders/md0").symlink_to("anywhere")
    (virtual / "md0/md0p1/holders/dm-0").symlink_to("anywhere")
    (virtual / "dm-0/holders/dm-1").symlink_to("anywhere")
    (virtual / "dm-1/holders/dm-0").symlink_to("anywhere")
    facts = sysfs.device(pci("0000:00:17.0"))
    assert facts is not None
    part = next(node for node in facts.nodes if node.name == "sda1")
    assert part.holders == (
        Holder(name="md0", number=DevNumber(9, 0)),
        Holder(name="md0p1", number=DevNumber(259, 0)),
        Holder(name="dm-0", number=DevNumber(253, 0)),
        Holder(name="dm-1", number=DevNumber(253, 1)),
    )


def test_the_control_node_of_a_multipath_disk_names_the_disk_and_what_is_on_it(tmp_path: pathlib.Path) -> None:
    top = "/devices/pci0000:00/0000:01:00.0"
    nvme = (
        f"P: {top}\nE: SUBSYSTEM=pci\nE: DRIVER=nvme\nA: vendor=0x144d\\n\n"
        f"P: {top}/nvme/nvme0\nN: nvme0\nE: SUBSYSTEM=nvme\nE: MAJOR=241\nE: MINOR=0\n\n"
        f"P: {top}/nvme/nvme0/nvme0c1n1\nE: SUBSYSTEM=block\nE: DEVTYPE=disk\n\n"
        "P: /devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1\nN: nvme0n1\nE: SUBSYSTEM=block\n"
        "E: MAJOR=259\nE: MINOR=0\n\n"
        "P: /devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1/nvme0n1p1\nN: nvme0n1p1\nE: SUBSYSTEM=block\n"
        "E: MAJOR=259\nE: MINOR=1\nA: partition=1\\n\n"
    )
    sysfs, _ = machine(tmp_path, nvme)
    facts = sysfs.device(pci("0000:01:00.0"))
    assert facts is not None
    [node] = facts.nodes
    assert node.name == "nvme0"
    assert node.holders == (
        Holder(name="nvme0n1", number=DevNumber(259, 0)),
        Holder(name="nvme0n1p1", number=DevNumber(259, 1)),
    )


def test_one_usb_device_costs_few_files(tmp_path: pathlib.Path) -> None:
    sysfs, tree = machine(tmp_path, (RECORDINGS / "usb-audio.umockdev").read_text())
    tree.opened.clear()
    for key in (usb("1-3"), usb("1-3:1.0")):
        assert sysfs.device(key) is not None
    assert len(tree.opened) < 80


def test_a_tree_of_a_hundred_thousand_entries_is_read(tmp_path: pathlib.Path) -> None:
    class Vast(FaultyTree):
        def listing(self, path: bytes) -> "object":  # type: ignore[override]
            found = super().listing(path if b"/vast/" not in path else path.partition(b"/vast/")[0] + b"/vast")
            if path.endswith(b"/vast"):
                found.folders += [b"%05d" % number for number in range(100_000)]
            elif b"/vast/" in path:
                found.folders.clear()
            return found

    machine(tmp_path, controller(), stick())
    (tmp_path / f"sys{STICK}/1-4:1.0/vast").mkdir()
    began = time.monotonic()
    facts = Sysfs(tmp_path / "sys", tree=Vast(tmp_path / "sys")).device(usb("1-4:1.0"))
    assert facts is not None
    assert [node.name for node in facts.nodes] == ["ttyUSB0"]
    assert time.monotonic() - began < 30


def test_the_owner_of_a_path_is_the_nearest_device_that_is_there(tmp_path: pathlib.Path) -> None:
    sysfs, _ = machine(tmp_path, controller(), stick())
    assert sysfs.owner(DevPath(TTY)) == usb("1-4:1.0")
    assert sysfs.owner(DevPath(f"{STICK}/gone/below")) == usb("1-4")
    assert sysfs.owner(DevPath("/devices/virtual/mem/null")) is None
    assert sysfs.owner(DevPath("/sdb")) is None


def test_a_node_on_no_bus_of_ours_is_a_stray_and_says_where_it_hangs(tmp_path: pathlib.Path) -> None:
    serial = "P: /devices/platform/serial8250/tty/ttyS1\nN: ttyS1\nE: SUBSYSTEM=tty\nE: MAJOR=4\nE: MINOR=65\n\n"
    virtual = "P: /devices/virtual/misc/uhid\nN: uhid\nE: SUBSYSTEM=misc\nE: MAJOR=10\nE: MINOR=239\n\n"
    card = (
        "P: /devices/platform/gpu/drm/renderD128\nN: dri/renderD128\nE: SUBSYSTEM=drm\nE: MAJOR=226\nE: MINOR=128\n\n"
    )
    sysfs, _ = machine(tmp_path, controller(), stick(), serial, virtual, card)
    path = DevPath("/devices/platform/serial8250/tty/ttyS1")
    assert sysfs.stray("/dev/ttyS1") == Stray(path=path, kind="tty", anchor="platform")
    uhid = sysfs.stray("uhid")
    assert uhid is not None
    assert uhid.anchor == "virtual"
    render = sysfs.stray("dri/renderD128")
    assert render is not None
    assert render.kind == "drm"
    assert sysfs.stray("ttyUSB0") is None
    assert sysfs.stray("nothing") is None


@pytest.mark.shared
def test_each_shared_fault_costs_what_it_should(shared: pathlib.Path, tmp_path: pathlib.Path) -> None:
    checked = 0
    for case in tree_cases(shared, "faults.yaml"):
        if case["id"] in {"string-read-that-blocks", "unplugged-while-read"}:
            continue  # they need time and events: the mirror's tests have them
        sysfs, _ = built(shared, case, tmp_path / case["id"])
        snapshot = judged(sysfs)
        published = case["expect"].get("published", {})
        assert {str(name) for name in snapshot.offers} == set(published), case["id"]
        for name, wanted in published.items():
            offer = next(offer for offer in snapshot.offers.values() if offer.name == name)
            assert [node.path for node in offer.nodes] == wanted["nodes"], case["id"]
            assert wanted.get("attributes", {}).items() <= offer.attributes.items(), case["id"]
            assert not set(wanted.get("absent", ())) & offer.attributes.keys(), case["id"]
        reasons = {verdict.key.address: verdict.reason for verdict in snapshot.verdicts.values()}
        for address, reason in case["expect"].get("withheld", {}).items():
            wanted = "Unreadable" if case["id"] == "uevent-read-fails-on-a-node" else reason  # the spec's later word
            assert reasons[address] == wanted, case["id"]
        checked += 1
    assert checked >= 5


@pytest.mark.shared
def test_each_shared_machine_gives_each_node_one_owner(shared: pathlib.Path, tmp_path: pathlib.Path) -> None:
    checked = 0
    for case in tree_cases(shared, "ownership.yaml"):
        if "tree" not in case["input"]:
            continue
        sysfs, _ = built(shared, case, tmp_path / case["id"])
        paths = [node.path for facts in sysfs.everything() for node in facts.nodes]
        assert len(paths) == len(set(paths)), case["id"]
        checked += 1
    assert checked >= 5


def test_a_read_leaves_no_descriptor_open(tmp_path: pathlib.Path) -> None:
    machine(tmp_path, controller(), stick())
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    tree = Tree(tmp_path / "sys")
    for _ in range(20):
        Sysfs(tmp_path / "sys", tree=tree).everything()
        with pytest.raises(IsADirectoryError):
            tree.read(b"/devices")
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
