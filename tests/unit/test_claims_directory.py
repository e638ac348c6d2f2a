import errno
import os
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from liken.claims.directory import DirectoryError, FileSystem, SpecDirectory
from liken.claims.words import ClaimError
from tests.unit.fakes_claims import Node, ref, stick

pytestmark = pytest.mark.anyio


class Failing(FileSystem):
    """One call fails with an error number while `on`."""

    def __init__(self, call: str, number: int) -> None:
        self.call, self.number, self.on = call, number, True

    def fail(self, call: str) -> None:
        if self.on and call == self.call:
            raise OSError(self.number, os.strerror(self.number))

    def make(self, folder: Path) -> None:
        self.fail("make")
        super().make(folder)

    def create(self, path: Path, mode: int) -> int:
        self.fail("create")
        return super().create(path, mode)

    def write(self, file: int, content: bytes) -> None:
        super().write(file, content[:10] if self.on and self.call == "write" else content)
        self.fail("write")

    def sync(self, file: int) -> None:
        self.fail("sync")
        super().sync(file)

    def rename(self, old: Path, new: Path) -> None:
        self.fail("rename")
        super().rename(old, new)

    def remove(self, path: Path) -> None:
        self.fail("remove")
        super().remove(path)

    def sync_folder(self, folder: Path) -> None:
        self.fail("sync_folder")
        super().sync_folder(folder)


FAULTS = [
    ("make", errno.EROFS, "read-only"),
    ("create", errno.EROFS, "read-only"),
    ("create", errno.EACCES, "permission denied"),
    ("create", errno.ENOSPC, "disk is full"),
    ("write", errno.ENOSPC, "disk is full"),
    ("write", errno.EDQUOT, "quota"),
    ("sync", errno.EIO, "I/O errors"),
    ("rename", errno.EROFS, "read-only"),
]


@pytest.mark.parametrize(("call", "number", "words"), FAULTS)
def test_what_cannot_be_written_leaves_the_old_file_and_no_other(
    tmp_path: Path, call: str, number: int, words: str
) -> None:
    files = Failing(call, number)
    files.on = False
    directory = SpecDirectory(tmp_path, files)
    directory.write("c1", b"old")
    files.on = True
    with pytest.raises(DirectoryError, match=words) as caught:
        directory.write("c1", b"new and longer than before")
    assert str(tmp_path) in str(caught.value)
    assert directory.read("c1") == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["liken.sh-c1.json"]
    files.on = False
    directory.write("c1", b"new")
    assert directory.read("c1") == b"new"


async def test_a_full_disk_is_the_claim_s_error_and_the_next_call_succeeds(tmp_path: Path) -> None:
    files = Failing("write", errno.ENOSPC)
    machine = Node(tmp_path, files=files)
    machine.api.put(ref())
    with pytest.raises(ClaimError, match=r"CDI file of claim home/zigbee.*disk is full.*tries again"):
        await machine.preparer.prepare(ref())
    assert machine.files() == []
    assert len(machine.ledger.records) == 0
    files.on = False
    await machine.preparer.prepare(ref())


async def test_a_refresh_that_cannot_be_written_is_tried_until_it_can(tmp_path: Path) -> None:
    files = Failing("write", errno.ENOSPC)
    files.on = False
    machine = Node(tmp_path, files=files)
    await machine.preparer.prepare(machine.api.put(ref()))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(machine.refresher.run)
        files.on = True
        machine.hardware.plug(stick(tty="ttyUSB1", number=9))
        machine.hardware.event()
        await anyio.sleep(20)
        assert machine.nodes("c1") == ["/dev/bus/usb/001/007", "/dev/ttyUSB0"]
        files.on = False
        await anyio.sleep(40)
        assert machine.nodes("c1") == ["/dev/bus/usb/001/009", "/dev/ttyUSB1"]
        tasks.cancel_scope.cancel()


async def test_a_file_that_cannot_be_removed_is_told_and_kept(tmp_path: Path) -> None:
    files = Failing("remove", errno.EROFS)
    machine = Node(tmp_path, files=files)
    await machine.preparer.prepare(machine.api.put(ref()))
    with pytest.raises(ClaimError, match=r"cannot remove.*read-only"):
        await machine.preparer.unprepare(ref())
    assert len(machine.ledger.records) == 1
    files.on = False
    await machine.preparer.unprepare(ref())


async def test_a_folder_that_is_missing_is_made(tmp_path: Path) -> None:
    machine = Node(tmp_path / "not" / "yet")
    machine.locks.close()
    machine.folder.mkdir(parents=True)
    await machine.recovery.load()
    await machine.preparer.prepare(machine.api.put(ref()))
    assert machine.files() == ["liken.sh-c1.json"]


def link(path: Path) -> None:
    path.symlink_to("/etc/hostname")


def folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize(("obstacle", "words"), [(link, "symbolic link"), (folder, "a folder stands")])
async def test_a_trap_in_the_place_of_a_file_is_not_followed(
    tmp_path: Path, obstacle: Callable[[Path], None], words: str
) -> None:
    machine = Node(tmp_path)
    machine.settings.cdi_dir.mkdir()
    obstacle(machine.directory.path("c1"))
    machine.api.put(ref())
    with pytest.raises(ClaimError, match=words):
        await machine.preparer.prepare(ref())


def test_a_temporary_file_of_a_predecessor_with_our_number_is_no_obstacle(tmp_path: Path) -> None:
    directory = SpecDirectory(tmp_path)
    (tmp_path / f".liken.sh-c1.{os.getpid()}").write_text("half")
    directory.write("c1", b"whole")
    assert [path.name for path in tmp_path.iterdir()] == ["liken.sh-c1.json"]


def test_what_stands_in_the_place_of_the_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "cdi").write_text("")
    with pytest.raises(DirectoryError):
        SpecDirectory(tmp_path / "cdi").write("c1", b"")
    with pytest.raises(DirectoryError, match="not a folder"):
        SpecDirectory(tmp_path / "cdi").uids()
