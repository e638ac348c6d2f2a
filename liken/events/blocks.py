"""The text of a recording: one block for each device, as umockdev writes it or `udevadm info --export-db` dumps it.

In: bytes, hostile or not. Out: `Block` values, each with a path that stays below `/devices`, and files and links that
stay below that path; anything else is a RecordingError that names the line. Lines of an unknown kind are passed over,
because every version of udev adds some.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

BLOCK_LIMIT: Final = 100_000
_ENTRY_LIMIT: Final = 500_000
_PATH_LIMIT: Final = 1024
_ESCAPE: Final = re.compile(rb"\\([0-7]{1,3}|.)", re.DOTALL)
_LETTERS: Final = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"b": b"\b", b"f": b"\f", b"v": b"\v"}


class RecordingError(Exception):
    """A recording cannot be used; the message says what is wrong with it."""


@dataclass(slots=True)
class Block:
    """One device: its path (`/devices/…`), node below /dev, udev properties, attribute files and links."""

    path: bytes
    node: bytes | None = None
    properties: dict[bytes, bytes] = field(default_factory=dict)
    files: dict[bytes, bytes] = field(default_factory=dict)
    links: dict[bytes, bytes] = field(default_factory=dict)

    @property
    def name(self) -> bytes:
        """The device's own name, last in its path."""
        return self.path.rsplit(b"/", 1)[1]

    @property
    def subsystem(self) -> bytes | None:
        """Its subsystem; None when the recording does not tell."""
        told = self.properties.get(b"SUBSYSTEM") or self.links.get(b"subsystem", b"").rsplit(b"/", 1)[-1]
        return told or None


def blocks(text: bytes) -> Iterator[Block]:
    """The devices of a recording, in its order; raises RecordingError."""
    block: Block | None = None
    found = entries = 0
    for number, line in enumerate(text.split(b"\n"), 1):
        kind, rest = line[:2], line[2:].removeprefix(b" ").removesuffix(b"\r")
        if kind == b"P:":
            if block is not None:
                yield block
            found += 1
            block = Block(_checked(rest, number))
        elif not line.strip():
            if block is not None:
                yield block
            block = None
        elif block is not None:
            entries += 1
            _take(block, kind, rest, number)
        if found > BLOCK_LIMIT or entries > _ENTRY_LIMIT:
            raise RecordingError(f"the recording holds more than {BLOCK_LIMIT} devices or {_ENTRY_LIMIT} values")
    if block is not None:
        yield block
    if not found:
        raise RecordingError("no line `P: /devices/…` in it: it is neither a umockdev recording nor a udev dump")


def _take(block: Block, kind: bytes, rest: bytes, number: int) -> None:
    name, equals, value = rest.partition(b"=")
    match kind:
        case b"N:":
            block.node = _relative(name, number)
        case b"E:" if equals:
            block.properties.setdefault(name, value)
        case b"A:" if equals:
            block.files.setdefault(_relative(name, number), unescaped(value))
        case b"H:" if equals:
            try:
                block.files.setdefault(_relative(name, number), bytes.fromhex(value.decode("ascii")))
            except ValueError:
                raise RecordingError(f"line {number}: the value is not hexadecimal") from None
        case b"L:" if equals:
            block.links.setdefault(_relative(name, number), value)
        case _:
            pass


def unescaped(value: bytes) -> bytes:
    r"""A value as it was before the C escapes (`\n`, `\\`, octal) of a recording."""

    def plain(found: re.Match[bytes]) -> bytes:
        code = found[1]
        return bytes([int(code, 8) & 0xFF]) if code[0:1].isdigit() and code.isdigit() else _LETTERS.get(code, code)

    return _ESCAPE.sub(plain, value)


def escaped(value: bytes) -> bytes:
    """A value as one line of a recording, the inverse of `unescaped`."""
    plain = {0x0A: b"\\n", 0x5C: b"\\\\"}
    return b"".join(
        plain.get(byte) or (bytes([byte]) if 0x20 <= byte < 0x7F else b"\\%03o" % byte)  # noqa: PLR2004 - ASCII
        for byte in value
    )


def _checked(path: bytes, number: int) -> bytes:
    parts = path.split(b"/")
    if parts[0] or len(parts) < 3 or not _stays(parts[1:]) or len(path) > _PATH_LIMIT:  # noqa: PLR2004 - "", devices, x
        raise RecordingError(f"line {number}: the path is not one below the root of sysfs")
    return path


def _relative(name: bytes, number: int) -> bytes:
    if not _stays(name.split(b"/")) or len(name) > _PATH_LIMIT:
        raise RecordingError(f"line {number}: the name is not one below its device")
    return name


def _stays(parts: list[bytes]) -> bool:
    return all(part not in (b"", b".", b"..") and b"\0" not in part and len(part) <= 255 for part in parts)  # noqa: PLR2004 - NAME_MAX
