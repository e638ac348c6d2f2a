"""A recorded machine as a sysfs tree, and this machine as a recording.

Accepted: umockdev's text, a `udevadm info --export-db` dump, a folder that holds `sys/` or is one, a tar of sysfs;
files optionally compressed with gzip, bzip2 or xz. What is unpacked lies in a temporary folder while the recording is
open. A recording comes from a stranger: everything in it is checked and bounded, and what is wrong is said in words.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from liken.events.archive import extract, is_tar, unpacked, whole_text
from liken.events.blocks import Block, RecordingError, blocks
from liken.events.plant import found, plant, uevent
from liken.events.scribe import record
from liken.events.sysfs import FILES_READ

__all__ = ["RecordedMachine", "RecordingError", "record", "recorded"]

_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - a folder of our own is made in it
_ENOUGH: Final = 512 << 20
_SUBSYSTEMS: Final = frozenset({b"pci", b"usb", b"bluetooth", b"block"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedMachine:
    """Where a recorded machine's folders are; `proc` and `dev` need not exist."""

    sysfs: Path
    proc: Path
    dev: Path


@contextmanager
def recorded(path: Path) -> Iterator[RecordedMachine]:
    """A recording as folders, for as long as it is open; raises RecordingError."""
    if path.is_dir():
        yield _folder(path)
        return
    if not path.is_file():
        raise RecordingError(f"{path}: there is no such file or folder")
    with TemporaryDirectory(prefix="liken-recording-", dir=_scratch()) as name:
        root = Path(name)
        machine = RecordedMachine(sysfs=root / "sys", proc=root / "proc", dev=root / "dev")
        with unpacked(path) as stream:
            if is_tar(stream):
                extract(stream, root)
            else:
                plant(machine.sysfs, _needed(blocks(whole_text(stream))))
        found(machine.sysfs)
        yield machine


def _scratch() -> Path | None:
    """Memory instead of a disk, where there is enough of it: thousands of tiny files are made and removed."""
    try:
        free = os.statvfs(_MEMORY)
    except OSError:
        return None
    return _MEMORY if free.f_bavail * free.f_frsize >= _ENOUGH and os.access(_MEMORY, os.W_OK) else None


def _folder(path: Path) -> RecordedMachine:
    for sysfs, beside in ((path / "sys", path), (path, path.resolve().parent)):
        if (sysfs / "devices").is_dir() or (sysfs / "bus").is_dir():
            return RecordedMachine(sysfs=sysfs, proc=beside / "proc", dev=beside / "dev")
    raise RecordingError(f"{path}: the folder holds neither sys/ nor devices/, so it is no recorded sysfs")


def _needed(devices: Iterable[Block]) -> list[Block]:
    """The devices that tell anything about a PCI or USB device or a node, with those above them, and what is read."""
    everything = list(devices)
    paths: set[bytes] = set()
    for block in everything:
        if (
            block.subsystem in _SUBSYSTEMS
            or block.path == b"/module/uhid"
            or block.node
            or b"DEVNAME" in block.properties
        ):
            path = block.path
            while path not in paths and path.count(b"/") > 1:
                paths.add(path)
                path = path.rpartition(b"/")[0]
    kept = [block for block in everything if block.path in paths]
    for block in kept:
        real = bool(block.files)
        block.files = {name: content for name, content in block.files.items() if name.rpartition(b"/")[2] in FILES_READ}
        if real:
            block.files.setdefault(b"uevent", uevent(block))
    return kept
