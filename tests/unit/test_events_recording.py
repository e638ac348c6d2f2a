"""Recordings: every format, what is hostile in one, and this machine as one."""

import bz2
import contextlib
import gzip
import io
import lzma
import pathlib
import tarfile

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from liken.events import archive
from liken.events.blocks import Block, blocks, escaped, unescaped
from liken.events.recording import RecordingError, record, recorded
from liken.events.sysfs import Sysfs
from liken.model.hardware import DeviceFacts, SystemFacts
from tests.fuzz.fuzz_recording import one
from tests.unit.fakes_events import CONTROLLER, RECORDINGS, controller, disk, machine, stick, usb

HUB = RECORDINGS / "usb-serial-ftdi-hub.umockdev"


def read(path: pathlib.Path) -> tuple[tuple[DeviceFacts, ...], SystemFacts]:
    with recorded(path) as found:
        sysfs = Sysfs(found.sysfs, found.proc, found.dev)
        return sysfs.everything(), sysfs.system()


def tarred(tmp_path: pathlib.Path, *members: tuple[str, str], top: str = "sys") -> pathlib.Path:
    """A tar with a small sysfs and further members: a name and a link's target, or `=device`, `=hard`, `=file`."""
    machine(tmp_path / "machine", controller(), stick())
    path = tmp_path / "machine.tar"
    with tarfile.open(path, "w") as tar:
        tar.add(tmp_path / "machine/sys", arcname=top)
        for name, target in members:
            member = tarfile.TarInfo(name)
            match target:
                case "=device":
                    member.type = tarfile.CHRTYPE
                case "=hard":
                    member.type, member.linkname = tarfile.LNKTYPE, "sys/devices"
                case "=file":
                    member.size = 3
                case _:
                    member.type, member.linkname = tarfile.SYMTYPE, target
            tar.addfile(member, io.BytesIO(b"abc"))
    return path


@pytest.mark.parametrize("suffix", ["", ".gz", ".bz2", ".xz"])
def test_a_recording_is_read_whatever_its_compression(tmp_path: pathlib.Path, suffix: str) -> None:
    text = HUB.read_bytes()
    packed = {"": text, ".gz": gzip.compress(text), ".bz2": bz2.compress(text), ".xz": lzma.compress(text)}
    path = tmp_path / f"recording{suffix}"
    path.write_bytes(packed[suffix])
    facts, _ = read(path)
    assert facts == read(HUB)[0]
    assert [node.name for device in facts for node in device.nodes] == ["ttyUSB0"]


@pytest.mark.parametrize("top", ["sys", "./sys", "a-machine/sys", "."])
def test_a_tar_of_sysfs_is_read_whatever_its_top_folder(tmp_path: pathlib.Path, top: str) -> None:
    facts, _ = read(tarred(tmp_path, top=top))
    assert facts == machine(tmp_path / "machine")[0].everything()


@pytest.mark.parametrize("inside", ["", "sys"])
def test_a_folder_is_read_in_place(tmp_path: pathlib.Path, inside: str) -> None:
    sysfs, _ = machine(tmp_path, controller(), stick())
    assert read(tmp_path / inside)[0] == sysfs.everything()


def test_the_mounts_of_a_recorded_machine_come_with_it(tmp_path: pathlib.Path) -> None:
    sysfs, _ = machine(tmp_path, disk("0000:00:17.0", "sda", 0))
    (tmp_path / "proc/1").mkdir(parents=True)
    (tmp_path / "proc/1/mountinfo").write_text("22 1 8:1 / / rw - ext4 /dev/sda1 rw\n")
    with tarfile.open(tmp_path / "machine.tar", "w") as tar:
        for name in ("sys", "proc"):
            tar.add(tmp_path / name, arcname=f"machine/{name}")
    assert read(tmp_path / "machine.tar")[1] == sysfs.system()
    assert list(sysfs.system().mounts.values()) == ["/"]


def test_a_udev_dump_gets_the_attributes_that_it_tells_otherwise(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "dump.txt"
    path.write_text(
        f"P: {CONTROLLER}/usb1/1-8\nN: bus/usb/001/002\nL: 0\nS: serial/by-id/x\nE: DEVNAME=/dev/bus/usb/001/002\n"
        "E: SUBSYSTEM=usb\nE: DEVTYPE=usb_device\nE: DRIVER=usb\nE: PRODUCT=bda/2838/100\nE: TYPE=0/0/0\n"
        "E: BUSNUM=001\nE: DEVNUM=002\nE: MAJOR=189\nE: MINOR=1\n"
        "E: ID_VENDOR_ENC=Realtek\\x20Co\nE: ID_MODEL_ENC=2838\n"
        "E: ID_MODEL_ID=2838\nE: ID_SERIAL_SHORT=77\nE: TAGS=:seat:\n\n"
        f"P: {CONTROLLER}\nE: SUBSYSTEM=pci\nE: PCI_CLASS=C0330\nE: PCI_ID=8086:A36D\nE: MODALIAS=pci:v8086\n\n"
        f"P: {CONTROLLER}/usb1/1-8/1-8:1.2\nE: SUBSYSTEM=usb\nE: DEVTYPE=usb_interface\nE: INTERFACE=255/1/2\n\n"
        "P: /module/uhid\nE: SUBSYSTEM=module\n"
    )
    facts, system = read(path)
    found = {str(device.key.address): device.files for device in facts}
    assert found["1-8"] == {
        "idVendor": b"0bda\n",
        "idProduct": b"2838\n",
        "busnum": b"1\n",
        "devnum": b"2\n",
        "bDeviceClass": b"00\n",
        "manufacturer": b"Realtek Co\n",
        "serial": b"77\n",
    }
    assert found["1-8:1.2"]["bInterfaceClass"] == b"ff\n"
    assert found["1-8:1.2"]["bInterfaceNumber"] == b"02\n"
    assert found["0000:00:14.0"]["class"] == b"0x0c0330\n"
    assert found["0000:00:14.0"]["vendor"] == b"0x8086\n"
    assert system.uhid


@pytest.mark.shared
def test_every_recorded_machine_is_read_and_gives_each_node_one_owner(shared: pathlib.Path) -> None:
    paths = [
        path
        for path in sorted((shared / "recordings").rglob("*"))
        if path.suffix in {".umockdev", ".xz", ".gz", ".bz2"} and path.parent.name != "debian"
    ]
    assert len(paths) > 40
    for path in paths:
        facts, _ = read(path)
        assert not [device.problem for device in facts if device.problem], path
        owned = [node.path for device in facts for node in device.nodes]
        assert len(owned) == len(set(owned)), path


@pytest.mark.shared
def test_the_nodes_of_a_big_server_belong_to_the_nearest_device(shared: pathlib.Path) -> None:
    facts, _ = read(shared / "recordings/checkbox/NVIDIA_DGXA100.txt.xz")
    bound = [device for device in facts if device.driver]
    assert len(bound) == 181
    assert len([device for device in bound if device.nodes]) == 27


@pytest.mark.parametrize(
    "members",
    [
        [("../outside", "=file")],
        [("/etc/passwd", "=file")],
        [("sys/devices/../../../outside", "=file")],
        [("sys/devices/null", "=device")],
        [("sys/devices/hard", "=hard")],
        [("sys/bus/usb/devices/1-9", "/etc")],
        [("sys/bus/usb/devices/1-9", "../../../../../etc")],
        [("sys/class/tty/console", ".."), ("sys/class/tty/console/active", "../../etc")],
    ],
)
def test_a_tar_with_what_no_machine_has_is_refused_in_words(
    tmp_path: pathlib.Path, members: list[tuple[str, str]]
) -> None:
    with pytest.raises(RecordingError, match=r"machine\.tar: its (member|link) "):
        read(tarred(tmp_path, *members))


def test_nothing_is_written_through_a_link_of_a_tar(tmp_path: pathlib.Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    path = tarred(tmp_path, ("sys/class/block", "../../../" + victim.name), ("sys/class/block/x", "=file"))
    with contextlib.suppress(RecordingError):
        read(path)
    assert not list(victim.iterdir())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "neither a umockdev recording nor a udev dump"),
        ("hello\n", "neither a umockdev recording nor a udev dump"),
        ("P: /devices/../../etc\n", "line 1: the path is not one below the root of sysfs"),
        ("P: devices/x\n", "line 1: the path"),
        ("P: /devices//x\n", "line 1: the path"),
        ("P: /devices/x\nA: ../../y=1\n", "line 2: the name is not one below its device"),
        ("P: /devices/x\nN: ../../y\n", "line 2: the name"),
        ("P: /devices/x\nH: config=zz\n", "line 2: the value is not hexadecimal"),
        ("P: /devices/x\nE: SUBSYSTEM=usb\nL: driver=/etc/passwd\n", "a link in the recording leads out of it"),
        ("P: /devices/x\nE: SUBSYSTEM=usb\nL: driver=../../../../../etc\n", "a link in the recording leads out of it"),
        ("P: /devices/x\nE: SUBSYSTEM=usb/..\n", "neither|contradicts|no name"),
        ("P: /devices/x\nE: SUBSYSTEM=usb\nA: vendor=1\nA: vendor/name=1\n", "is both a file and a folder"),
        ("P: /devices/x/vendor\nE: SUBSYSTEM=usb\nN: x\n\nP: /devices/x\nE: SUBSYSTEM=usb\nA: vendor=1\n", "is both"),
    ],
)
def test_a_text_that_is_no_recording_is_refused_in_words(tmp_path: pathlib.Path, text: str, words: str) -> None:
    path = tmp_path / "text"
    path.write_text(text)
    if "usb/.." in text:
        assert read(path)[0] == ()  # a subsystem that is none: the device is on no bus
        return
    with pytest.raises(RecordingError, match=words):
        read(path)


@pytest.mark.parametrize("content", [b"\x1f\x8b\x08\0broken", b"BZh9broken", b"\xfd7zXZ\0broken", b"\0" * 4096])
def test_a_broken_file_is_refused_in_words(tmp_path: pathlib.Path, content: bytes) -> None:
    path = tmp_path / "broken"
    path.write_bytes(content)
    with pytest.raises(RecordingError, match="broken"):
        read(path)


def test_a_text_that_unpacks_without_end_is_refused(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(b"#" * (archive.TEXT_LIMIT + 1)))
    assert path.stat().st_size < 100_000
    with pytest.raises(RecordingError, match="longer than"):
        read(path)


def test_a_tar_of_one_endless_file_is_read_to_a_page(tmp_path: pathlib.Path) -> None:
    machine(tmp_path / "machine", controller(), stick())
    place = tmp_path / f"machine/sys{CONTROLLER}/usb1/1-4/serial"
    place.write_bytes(b"7" * 3_000_000)
    with tarfile.open(tmp_path / "machine.tar.gz", "w:gz") as tar:
        tar.add(tmp_path / "machine/sys", arcname="sys")
    facts = {device.key: device for device in read(tmp_path / "machine.tar.gz")[0]}
    assert len(facts[usb("1-4")].files["serial"]) == 4096


@pytest.mark.parametrize("what", ["nothing-there", "empty-folder"])
def test_what_is_no_file_and_no_sysfs_is_said(tmp_path: pathlib.Path, what: str) -> None:
    (tmp_path / "empty-folder").mkdir()
    with pytest.raises(RecordingError, match=what):
        read(tmp_path / what)


@given(st.binary(max_size=400))
@settings(max_examples=100, deadline=None)
def test_a_value_survives_its_escapes(value: bytes) -> None:
    assert unescaped(escaped(value)) == value
    assert b"\n" not in escaped(value)


LINES = st.sampled_from(
    rb"""P: /devices/pci0000:00/0000:00:14.0
P: /devices/a/b
P: /devices/a
E: SUBSYSTEM=usb
E: SUBSYSTEM=pci
E: DRIVER=..
E: DRIVER=a/b
N: x=00
A: dev=1:2\n
A: vendor=\777\xff
L: driver=../x
H: serial=ff00
E: DEVNAME=/dev/../x
E: MAJOR=1
E: INTERFACE=a/b/c
E: DEVTYPE=usb_interface
""".split(b"\n")
)


@given(st.one_of(st.binary(max_size=300), st.lists(LINES, max_size=12).map(b"\n".join)))
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_hostile_text_is_a_machine_or_an_error_in_words(data: bytes) -> None:
    one(data)


@given(st.data())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_damaged_archive_is_a_machine_or_an_error_in_words(data: st.DataObject) -> None:
    whole = bytearray(ARCHIVE)
    for _ in range(data.draw(st.integers(1, 6))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    one(bytes(whole[: data.draw(st.integers(0, len(whole)))]))


def _archive() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, content in (("sys/devices/a/uevent", b"DEVNAME=x\n"), ("sys/devices/a/dev", b"1:2\n")):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
        link = tarfile.TarInfo("sys/bus/usb/devices/1-1")
        link.type, link.linkname = tarfile.SYMTYPE, "../../../devices/a"
        tar.addfile(link)
    return out.getvalue()


ARCHIVE = _archive()


def written(sysfs: Sysfs, *, keep: bool) -> bytes:
    out = io.BytesIO()
    record(sysfs, out, keep_identifiers=keep)
    return out.getvalue()


@pytest.mark.parametrize("path", sorted(RECORDINGS.glob("*.umockdev")), ids=lambda path: path.stem)
def test_a_written_recording_gives_the_same_machine(tmp_path: pathlib.Path, path: pathlib.Path) -> None:
    with recorded(path) as found:
        sysfs = Sysfs(found.sysfs, found.proc, found.dev)
        text = written(sysfs, keep=True)
        facts = sysfs.everything()
    (tmp_path / "again").write_bytes(text)
    assert read(tmp_path / "again")[0] == facts


def test_what_is_stacked_on_a_disk_is_recorded_with_it(tmp_path: pathlib.Path) -> None:
    sysfs, _ = machine(tmp_path, disk("0000:00:17.0", "sda", 0))
    block = tmp_path / "sys/devices/pci0000:00/0000:00:17.0/ata1/host0/target0:0:0/0:0:0:0/block/sda/sda1"
    for name, minor, below in (
        ("dm-0", "253:0", block),
        ("dm-1", "253:1", tmp_path / "sys/devices/virtual/block/dm-0"),
    ):
        place = tmp_path / f"sys/devices/virtual/block/{name}"
        place.mkdir(parents=True)
        (place / "dev").write_text(f"{minor}\n")
        (below / "holders").mkdir()
        (below / "holders" / name).symlink_to("anywhere")
    (tmp_path / "again").write_bytes(written(sysfs, keep=True))
    again = {node.name: node.holders for device in read(tmp_path / "again")[0] for node in device.nodes}
    assert again == {node.name: node.holders for device in sysfs.everything() for node in device.nodes}
    assert [holder.name for holder in again["sda1"]] == ["dm-0", "dm-1"]


def test_identifiers_become_stand_ins_the_same_for_the_same_value(tmp_path: pathlib.Path) -> None:
    sysfs, _ = machine(tmp_path, controller(), stick(serial="SECRET77"), stick("1-5", 9, 1, serial="SECRET77"))
    machine(tmp_path, stick("1-6", 11, 2, serial="0001"))
    place = tmp_path / f"sys{CONTROLLER}/usb1"
    (place / "1-4/product").write_text("Bridge SECRET77 of web-42\n")
    (place / "1-4/manufacturer").write_text("ab:cd:ef:01:23:45 and AB-CD-EF-01-23-46\n")
    (tmp_path / "proc/sys/kernel").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/hostname").write_text("web-42\n")
    text = written(sysfs, keep=False)
    for secret in (b"SECRET77", b"web-42", b"ab:cd:ef", b"AB-CD-EF", b"serial=0001"):
        assert secret not in text
        assert secret in written(sysfs, keep=True)
    (tmp_path / "again").write_bytes(text)
    files = {str(device.key.address): device.files for device in read(tmp_path / "again")[0]}
    assert files["1-4"]["serial"] == files["1-5"]["serial"] == b"serial-1\n"
    assert files["1-6"]["serial"] == b"serial-2\n"
    assert files["1-4"]["product"] == b"Bridge serial-1 of host\n"
    assert files["1-4"]["manufacturer"] == b"02:00:00:00:00:01 and 02:00:00:00:00:02\n"
    assert files["1-4"]["idVendor"] == b"10c4\n"


def test_a_machine_without_devices_is_a_recording_too(tmp_path: pathlib.Path) -> None:
    sysfs, _ = machine(tmp_path)
    (tmp_path / "again").write_bytes(written(sysfs, keep=False))
    assert read(tmp_path / "again")[0] == ()


def test_blocks_come_in_the_recordings_order() -> None:
    found = list(blocks(b"# a comment\nP: /devices/b\r\nE: A=1\r\n\nP: /devices/a\nP: /devices/c\n"))
    assert found == [Block(b"/devices/b", properties={b"A": b"1"}), Block(b"/devices/a"), Block(b"/devices/c")]
