"""What is inside a recording's file: compression undone and a tar of sysfs unpacked, both within bounds.

Only what liken reads is taken out of an archive (devices, buses, classes, the names of modules, three files of
/proc). A member that names a place outside of the archive, a link that leads there, a device file, or more bytes than
any machine has make the whole archive refused. Links are made last, so nothing is ever written through one.
"""

import bz2
import gzip
import io
import lzma
import os
import posixpath
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from liken.events.blocks import RecordingError
from liken.events.sysfs import FILES_READ

UNPACKED_LIMIT: Final = 1 << 30
TEXT_LIMIT: Final = 64 << 20
MEMBER_LIMIT: Final = 1_000_000
_FILE_LIMIT: Final = 4096
_TAR_BLOCK: Final = 512
_ENTRY: Final = 3
_SYSFS: Final = frozenset({"bus", "class", "devices", "block", "module"})
_LINKS: Final = frozenset({"subsystem", "driver"})
_KEPT: Final = frozenset({"devices", "holders"})
_PROC: Final = frozenset({"1/mountinfo", "self/mountinfo", "swaps"})
_BROKEN: Final = (tarfile.TarError, OSError, EOFError, ValueError, OverflowError, zlib.error, lzma.LZMAError)


class _Bounded(io.RawIOBase):
    """A stream that refuses to give more than `limit` bytes."""

    def __init__(self, stream: BinaryIO, limit: int) -> None:
        super().__init__()
        self._stream, self._left = stream, limit

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "memoryview") -> int:  # type: ignore[override]
        data = self._stream.read(len(buffer))
        self._left -= len(data)
        if self._left < 0:
            raise RecordingError(f"it unpacks to more than {UNPACKED_LIMIT >> 20} MiB")
        buffer[: len(data)] = data
        return len(data)


@contextmanager
def unpacked(path: Path) -> Iterator[io.BufferedReader]:
    """The file's bytes without its compression (gzip, bzip2, xz or none); raises RecordingError while it is read."""
    try:
        with path.open("rb") as raw, _decompressed(raw) as stream:
            yield io.BufferedReader(_Bounded(stream, UNPACKED_LIMIT), 1 << 16)
    except RecordingError as error:
        raise RecordingError(f"{path}: {error}") from error
    except _BROKEN as error:
        raise RecordingError(f"{path}: cannot be read as a recording: {error}") from error


def _decompressed(raw: BinaryIO) -> BinaryIO:
    magic = raw.read(6)
    raw.seek(0)
    if magic.startswith(b"\x1f\x8b"):
        return gzip.open(raw)  # type: ignore[return-value]
    if magic.startswith(b"BZh"):
        return bz2.open(raw)  # type: ignore[return-value]
    if magic == b"\xfd7zXZ\0":
        return lzma.open(raw)  # type: ignore[return-value]
    return raw


def is_tar(stream: io.BufferedReader) -> bool:
    """Whether the stream starts as a tar does; nothing is consumed."""
    head = stream.peek(_TAR_BLOCK)[:_TAR_BLOCK]
    if len(head) < _TAR_BLOCK:
        return False
    try:
        tarfile.TarInfo.frombuf(head, "utf-8", "surrogateescape")
    except tarfile.TarError:
        return False
    return True


def whole_text(stream: io.BufferedReader) -> bytes:
    """All of a text; raises RecordingError when it is longer than a recording can be."""
    text = stream.read(TEXT_LIMIT + 1)
    if len(text) > TEXT_LIMIT:
        raise RecordingError(f"its text is longer than {TEXT_LIMIT >> 20} MiB")
    return text


def extract(stream: io.BufferedReader, target: Path) -> None:
    """Unpack a tar of sysfs (`sys/…`, `machine/sys/…` or `bus/…`) to `target/sys` and `target/proc`."""
    links: dict[str, str] = {}
    with tarfile.open(fileobj=stream, mode="r|", errorlevel=1, errors="surrogateescape") as tar:
        for count, member in enumerate(tar, 1):
            if count > MEMBER_LIMIT:
                raise RecordingError(f"it has more than {MEMBER_LIMIT} members")
            place = _place(member)
            if place is None or not (member.isdir() or _read(place)):
                continue
            if member.issym():
                links[place] = member.linkname
            else:
                _write(tar, member, target / place)
    if not (target / "sys" / "devices").is_dir():
        raise RecordingError("it holds no sysfs: no folder sys/devices or devices")
    for place, linked in links.items():
        _link(target, place, linked)


def _place(member: tarfile.TarInfo) -> str | None:
    """Where a member goes below the target; None: not needed. Refuses what no recording holds."""
    shown = os.fsencode(member.name).decode("utf-8", "backslashreplace")
    parts = [part for part in member.name.split("/") if part not in ("", ".")]
    if ".." in parts or member.name.startswith("/") or any("\0" in part for part in parts):
        raise RecordingError(f"its member {shown} lies outside of it")
    if not (member.isfile() or member.isdir() or member.issym()):
        raise RecordingError(f"its member {shown} is a device, a pipe or a hard link, which no sysfs holds")
    if parts and parts[0] in _SYSFS:
        return _wanted("sys", parts)
    for index, part in enumerate(parts[:3]):
        if part in ("sys", "proc"):
            return _wanted(part, parts[index + 1 :])
    return None


def _wanted(top: str, parts: list[str]) -> str | None:
    inside = "/".join(parts)
    if top == "proc":
        return f"proc/{inside}" if inside in _PROC else None
    if not parts or parts[0] not in _SYSFS or parts[:2] == ["devices", "system"]:
        return None
    if parts[0] == "class" and len(parts) > _ENTRY and parts[:3] != ["class", "tty", "console"]:
        return None  # a copy of what stands below devices/, made by a tool that followed the link
    return f"sys/{inside}"


def _read(place: str) -> bool:
    """Whether liken reads a file or link of this place."""
    parts = place.split("/")
    if parts[0] == "proc":
        return True
    entry = parts[1] == "class" or (parts[1] == "bus" and parts[3:4] == ["devices"]) or "holders" in parts[-2:-1]
    return entry or os.fsencode(parts[-1]) in FILES_READ or parts[-1] in _LINKS


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, place: Path) -> None:
    if member.isdir():
        if place.name in _KEPT or place.parent.name == "module":
            place.mkdir(parents=True, exist_ok=True)
        return
    content = tar.extractfile(member)
    place.parent.mkdir(parents=True, exist_ok=True)
    limit = _FILE_LIMIT if "proc" not in place.parts[-3:] else TEXT_LIMIT
    with place.open("wb") as file:
        file.write(content.read(min(limit, member.size)) if content is not None else b"")


def _link(target: Path, place: str, linked: str) -> None:
    shown = os.fsencode(place).decode("utf-8", "backslashreplace")
    inside = posixpath.normpath(posixpath.join(posixpath.dirname(place), linked))
    if linked.startswith("/") or inside.startswith(".."):
        raise RecordingError(f"its link {shown} leads out of it")
    path = target / place
    if path.is_symlink() or path.exists():
        return
    for folder in [*path.relative_to(target).parents][:-1]:
        if (target / folder).is_symlink():
            raise RecordingError(f"its link {shown} lies below another link")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(linked)
