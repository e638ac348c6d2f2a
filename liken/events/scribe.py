"""Write a machine's inventory as a recording in umockdev's format, fit for a bug report.

In: a sysfs reader. Out: a block for every PCI and USB device and every device in its own subtree, with exactly the
files liken reads, so that `--recording` gives the same answer as the machine. Unless told otherwise serial numbers,
MAC addresses and the host's name become stand-ins: the same value the same stand-in throughout one recording, and
nothing by which it could be guessed back.
"""

import os
import posixpath
import re
from collections.abc import Iterator
from typing import BinaryIO, Final

from liken.events.blocks import Block, escaped
from liken.events.numbers import properties
from liken.events.sysfs import FILES_READ, Sysfs, descend
from liken.model.hardware import DeviceFacts, Holder

_MAC: Final = re.compile(rb"(?<![0-9A-Fa-f:])(?:[0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}(?![0-9A-Fa-f:])")
_SLOT: Final = re.compile(rb"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_SERIAL_FILES: Final = frozenset({b"serial", b"serial_number"})
_SERIAL_KEYS: Final = frozenset({b"UNIQ", b"HID_UNIQ"})
_BLANK: Final = b' \t\r\n\0"'
_TOLD_APART: Final = 6
"""A serial of this many bytes is looked for in other values too; a shorter one (`0001`) would match anything."""


def record(sysfs: Sysfs, out: BinaryIO, *, keep_identifiers: bool) -> None:
    """Write the recording; raises SysfsError when this is no sysfs. What leaves meanwhile is left out."""
    devices = list(_devices(sysfs))
    masked = _Mask(_host_name(sysfs)) if not keep_identifiers else None
    if masked is not None:
        for block in devices:
            masked.learn(block)
    for block in devices:
        out.write(_text(masked.applied(block) if masked is not None else block))


def _devices(sysfs: Sysfs) -> Iterator[Block]:
    stacked: dict[str, Holder] = {}
    for key in sysfs.keys():  # noqa: SIM118 - no mapping
        facts = sysfs.device(key)
        if facts is None or not facts.path:
            continue
        stacked |= {holder.name: holder for node in facts.nodes for holder in node.holders}
        yield from _subtree(sysfs, facts)
    for holder in stacked.values():
        yield _virtual(holder)
    yield Block(b"/devices/virtual")  # so that a machine without any device is a recording too
    for path in (b"/devices/virtual/tty/console", b"/devices/virtual/misc/uhid"):
        if (block := _block(sysfs, path)) is not None:
            yield block


def _subtree(sysfs: Sysfs, facts: DeviceFacts) -> Iterator[Block]:
    """The device and every device of its own subtree; what is stacked on its block devices stands with them."""
    above = {os.fsencode(node.path): node.holders for node in facts.nodes}
    top = os.fsencode(facts.path)
    waiting = [top]
    while waiting:
        path = waiting.pop()
        block = _block(sysfs, path)
        if block is None:
            continue
        if path != top and block.subsystem in (b"pci", b"usb"):
            continue
        for holder in above.get(path, ()):
            name = os.fsencode(holder.name)
            block.links[b"holders/" + name] = posixpath.relpath(b"/devices/virtual/block/" + name, path + b"/holders")
        if block.subsystem is not None:
            yield block
        if block.subsystem != b"bluetooth":
            try:
                waiting += sorted((path + b"/" + name for name in descend(sysfs.tree.listing(path))), reverse=True)
            except OSError:
                continue


def _block(sysfs: Sysfs, path: bytes) -> Block | None:
    """One folder of sysfs as a block, without a subsystem when it is no device; None when it left."""
    tree, block = sysfs.tree, Block(path)
    try:
        listing = tree.listing(path)
        for name in sorted(listing.files & FILES_READ):
            try:
                block.files[name] = tree.read(path + b"/" + name)
            except OSError:
                continue
        if b"subsystem" in listing.links:
            block.properties[b"SUBSYSTEM"] = posixpath.basename(tree.link(path + b"/subsystem"))
        if b"driver" in listing.links:
            driver = posixpath.basename(tree.link(path + b"/driver"))
            bus = b"/bus/%s/drivers/" % block.properties.get(b"SUBSYSTEM", b"none")
            block.links[b"driver"] = posixpath.relpath(bus + driver, path)
    except OSError:
        return None
    told = properties(block.files.pop(b"uevent", b""))
    block.properties |= told
    if b"dev" in block.files and b"DEVNAME" in told:
        block.node = told[b"DEVNAME"]
    return block


def _virtual(holder: Holder) -> Block:
    name = os.fsencode(holder.name)
    block = Block(b"/devices/virtual/block/" + name, node=name, properties={b"DEVNAME": name, b"SUBSYSTEM": b"block"})
    if holder.number is not None:
        block.properties |= {b"MAJOR": b"%d" % holder.number.major, b"MINOR": b"%d" % holder.number.minor}
        block.files[b"dev"] = b"%s\n" % str(holder.number).encode()
    return block


class _Mask:
    """Replaces what identifies this very machine, the same value by the same stand-in."""

    def __init__(self, host: bytes) -> None:
        self._host = re.compile(rb"(?<![\w-])" + re.escape(host) + rb"(?![\w-])") if host else None
        self._serials: dict[bytes, bytes] = {}
        self._macs: dict[bytes, bytes] = {}

    def learn(self, block: Block) -> None:
        """Note the block's serial numbers, so that they are found in other values too."""
        values = [value for name, value in block.files.items() if name in _SERIAL_FILES]
        values += [value for name, value in block.properties.items() if name in _SERIAL_KEYS]
        for value in values:
            serial = value.strip(_BLANK)
            if serial and not _SLOT.fullmatch(serial) and not _MAC.fullmatch(serial):
                self._serials.setdefault(serial, b"serial-%d" % (len(self._serials) + 1))

    def applied(self, block: Block) -> Block:
        """The block with stand-ins."""
        return Block(
            path=self._mac(block.path),
            node=block.node,
            properties={name: self._value(value, name in _SERIAL_KEYS) for name, value in block.properties.items()},
            files={name: self._value(value, name in _SERIAL_FILES) for name, value in block.files.items()},
            links={name: self._mac(target) for name, target in block.links.items()},
        )

    def _value(self, value: bytes, serial: bool) -> bytes:  # noqa: FBT001 - which of two kinds of value
        whole = value.strip(_BLANK)
        if serial and whole in self._serials:
            return value.replace(whole, self._serials[whole])
        for known in sorted(self._serials, key=len, reverse=True):
            if len(known) >= _TOLD_APART:
                value = value.replace(known, self._serials[known])
        value = self._mac(value)
        return self._host.sub(b"host", value) if self._host is not None else value

    def _mac(self, value: bytes) -> bytes:
        def stand_in(found: re.Match[bytes]) -> bytes:
            known = found[0].lower().replace(b"-", b":")
            number = self._macs.setdefault(known, b"%04x" % (len(self._macs) + 1))
            return b"02:00:00:00:%s:%s" % (number[:2], number[2:])

        return _MAC.sub(stand_in, value)


def _host_name(sysfs: Sysfs) -> bytes:
    try:
        name = (sysfs.proc / "sys/kernel/hostname").read_bytes().strip()
    except OSError:
        return b""
    return name if name not in (b"localhost", b"(none)") else b""


def _text(block: Block) -> bytes:
    lines = [b"P: " + block.path]
    if block.node is not None:
        lines.append(b"N: " + block.node)
    lines += [b"E: %s=%s" % (name, value) for name, value in sorted(block.properties.items())]
    lines += [b"A: %s=%s" % (name, escaped(value)) for name, value in sorted(block.files.items())]
    lines += [b"L: %s=%s" % (name, target) for name, target in sorted(block.links.items())]
    return b"\n".join(lines) + b"\n\n"
