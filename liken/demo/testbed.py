"""A recorded machine that can be plugged: a fake sysfs, and the kernel's own netlink to say what changed in it.

In private user, network and mount namespaces (no root needed) a process sees a folder of ours as its `/sys`, and a
datagram sent to the kernel's port is broadcast by the kernel to every listener of that network namespace: real
sockets, real overflows, no hardware. The order of events is the one measured on a real kernel. Where namespaces are
forbidden the same testbed tells its events to a callable instead.
"""

import ctypes
import errno
import fcntl
import os
import shutil
import socket
import struct
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp
from typing import Final, Protocol

from liken.events.blocks import Block, blocks
from liken.events.plant import BUSES, plant, uevent

_CLONE_NEWNS: Final = 0x00020000
_CLONE_NEWUSER: Final = 0x10000000
_CLONE_NEWNET: Final = 0x40000000
_MS_BIND: Final = 4096
_MS_REC: Final = 16384
_MS_PRIVATE: Final = 1 << 18
_SIOCSIFFLAGS: Final = 0x8914
_IFF_UP_RUNNING: Final = 0x41
_NETLINK_KOBJECT_UEVENT: Final = 15
_NLM_F_REQUEST: Final = 1
_NLMSG_MIN_TYPE: Final = 0x10


class NamespacesForbidden(Exception):
    """Private namespaces may not be made here; the message says what forbids them."""


class Announcer(Protocol):
    """Where the testbed says what happened."""

    def __call__(self, action: str, path: str, properties: Mapping[bytes, bytes]) -> None:
        """Say that `action` happened at `path` (`/devices/…`)."""


def enter_namespaces(sys_root: Path) -> None:
    """Move this process into namespaces of its own, with `sys_root` as `/sys` and the loopback interface up.

    For a process without threads; children made afterwards share the namespaces. Raises NamespacesForbidden.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    uid, gid = os.getuid(), os.getgid()
    own = 0 if uid == 0 else _CLONE_NEWUSER
    if libc.unshare(own | _CLONE_NEWNS | _CLONE_NEWNET) and (
        own or libc.unshare((own := _CLONE_NEWUSER) | _CLONE_NEWNS | _CLONE_NEWNET)
    ):
        raise NamespacesForbidden(_forbidden(ctypes.get_errno()))
    if own:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
        Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
    for source, target, flags in ((None, b"/", _MS_PRIVATE | _MS_REC), (sys_root, b"/sys", _MS_BIND | _MS_REC)):
        if libc.mount(os.fsencode(source) if source else None, target, None, flags, None):
            raise NamespacesForbidden(f"cannot mount {target.decode()}: {os.strerror(ctypes.get_errno())}")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        fcntl.ioctl(probe, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP_RUNNING))
    os.environ["SYSTEMD_DEVICE_VERIFY_SYSFS"] = "0"  # libudev would see that our /sys is none


def _forbidden(number: int) -> str:
    hints = {
        "/proc/sys/kernel/unprivileged_userns_clone": "0",
        "/proc/sys/user/max_user_namespaces": "0",
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1",
    }
    for path, value in hints.items():
        try:
            if Path(path).read_text().strip() == value:
                return f"private namespaces are switched off here ({path} is {value})"
        except OSError:
            continue
    if number == errno.EINVAL:
        return "private namespaces need a process without threads"
    return f"private namespaces are not permitted here ({os.strerror(number)}): a container's seccomp profile, perhaps"


class Netlink:
    """Has the kernel broadcast uevents in this process's network namespace; open it after `enter_namespaces`."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_KOBJECT_UEVENT)

    def __call__(self, action: str, path: str, properties: Mapping[bytes, bytes]) -> None:
        """Send one event."""
        self._socket.sendto(_message(datagram(action, path, properties)), (0, 0))

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


def datagram(action: str, path: str, properties: Mapping[bytes, bytes]) -> bytes:
    """A uevent as the kernel writes it, without the SEQNUM that it appends itself."""
    place = os.fsencode(path)
    told = {b"ACTION": action.encode(), b"DEVPATH": place, **properties}
    lines = [action.encode() + b"@" + place, *(key + b"=" + value for key, value in told.items())]
    return b"\0".join(lines) + b"\0"


def _message(payload: bytes) -> bytes:
    header = struct.pack("IHHII", 16 + len(payload), _NLMSG_MIN_TYPE, _NLM_F_REQUEST, 0, 0)
    return header + payload


class Testbed:
    """A sysfs tree below `root/sys` to which devices are added and from which they are taken, with their events."""

    __test__ = False  # no test case, whatever its name says

    def __init__(self, root: Path, announce: Announcer) -> None:
        self.root = root
        self.sys = root / "sys"
        self._announce = announce
        self._blocks: dict[bytes, Block] = {}
        plant(self.sys, ())

    def load(self, recording: bytes) -> None:
        """Put a recording's devices there without any event: the machine as it was at boot."""
        for block in plant(self.sys, blocks(recording)):
            self._blocks[block.path] = block

    def devices(self, path: str) -> list[Block]:
        """The device at `path` and everything below it, parents first."""
        top = os.fsencode(path)
        found = [block for place, block in self._blocks.items() if place == top or place.startswith(top + b"/")]
        return sorted(found, key=lambda block: block.path)

    def plug(self, what: bytes | Iterable[Block]) -> None:
        """Add devices (a recording's text, or blocks) with the events of a plug; what is there already stays."""
        fresh = [
            block for block in (blocks(what) if isinstance(what, bytes) else what) if block.path not in self._blocks
        ]
        order = sorted(fresh, key=lambda block: block.path)
        paths = {block.path for block in order}
        for block in order:
            if not any(block.path.startswith(other + b"/") for other in paths):
                self._appear(block, order)

    def unplug(self, path: str) -> list[Block]:
        """Take a device and everything below it away, with the events; returns it for a later `plug`."""
        subtree = self.devices(path)
        if subtree:
            self._disappear(subtree[0], subtree[1:])
        return subtree

    def replug(self, path: str, *, devnum: int, renamed: Mapping[str, str] | None = None) -> None:
        """Unplug a USB device and plug it in again: it gets another number, and its nodes perhaps other names.

        `renamed`: what the kernel numbers anew below it, as `{"ttyUSB0": "ttyUSB1"}`.
        """
        again = [_renamed(block, renamed or {}) for block in self.unplug(path)]
        self.plug([_numbered(block, devnum) if block.path == os.fsencode(path) else block for block in again])

    def bind(self, path: str, driver: str, children: bytes = b"") -> None:
        """A driver takes a device, and its children appear."""
        block = self._blocks[os.fsencode(path)]
        self._set_driver(block, driver.encode())
        if children:
            self.plug(children)
        self.announce("bind", path)

    def unbind(self, path: str) -> list[Block]:
        """The driver lets go of a device, and its children disappear; returns those."""
        subtree = self.devices(path)
        block, below = subtree[0], subtree[1:]
        self._clear_driver(block)
        for child in _top(below):
            self._disappear(child, [other for other in below if other.path.startswith(child.path + b"/")])
        self.announce("unbind", path)
        return below

    def write(self, path: str, name: str, content: bytes | None) -> None:
        """Put other content into an attribute file, or remove it, at once and without an event."""
        place = self.sys / path.lstrip("/") / name
        if content is None:
            place.unlink(missing_ok=True)
            return
        spare = self.root / ".spare"
        spare.write_bytes(content)
        spare.replace(place)

    def announce(self, action: str, path: str) -> None:
        """Send one event about a device, whatever happened to it."""
        self._say(action, self._blocks.get(os.fsencode(path)) or Block(os.fsencode(path)))

    def flood(self, count: int, path: str) -> None:
        """Send so many `change` events that a reader with a small buffer overflows."""
        for _ in range(count):
            self.announce("change", path)

    # -- in the kernel's order ---------------------------------------------------------------------------------------

    def _appear(self, block: Block, all_: list[Block]) -> None:
        """Add, then what its driver makes below it, then bind."""
        driver = _driver(block)
        bare = _unbound(block)
        plant(self.sys, [bare])
        self._blocks[block.path] = bare
        self._say("add", bare)
        if driver is not None:
            self._set_driver(bare, driver)
        below = [other for other in all_ if other.path.startswith(block.path + b"/")]
        for child in _top(below):
            self._appear(child, below)
        if driver is not None:
            self._say("bind", self._blocks[block.path])

    def _disappear(self, block: Block, below: list[Block]) -> None:
        """The driver lets go, what it made disappears, then the device itself."""
        bound = _driver(block) is not None
        if bound:
            block = self._clear_driver(block)
        for child in _top(below):
            self._disappear(child, [other for other in below if other.path.startswith(child.path + b"/")])
        if bound:
            self._say("unbind", block)
        self._take_away(block)
        self._say("remove", block)

    def _take_away(self, block: Block) -> None:
        subsystem = block.subsystem
        if subsystem is not None:
            home = b"bus/" + subsystem + b"/devices" if subsystem in BUSES else b"class/" + subsystem
            (self.sys / os.fsdecode(home + b"/" + block.name)).unlink(missing_ok=True)
        trash = Path(mkdtemp(prefix=".gone-", dir=self.root))
        (self.sys / os.fsdecode(block.path.lstrip(b"/"))).rename(trash / "device")
        shutil.rmtree(trash)
        del self._blocks[block.path]

    def _set_driver(self, block: Block, driver: bytes) -> None:
        bound = replace(block, properties=block.properties | {b"DRIVER": driver})
        self._blocks[block.path] = bound
        self.write(os.fsdecode(block.path), "uevent", uevent(bound))
        place = self.sys / os.fsdecode(block.path.lstrip(b"/"))
        home = (b"bus/" if block.subsystem in BUSES else b"class/") + (block.subsystem or b"none")
        folder = self.sys / os.fsdecode(home) / "drivers" / os.fsdecode(driver)
        folder.mkdir(parents=True, exist_ok=True)
        (place / "driver").symlink_to(os.path.relpath(folder, place))

    def _clear_driver(self, block: Block) -> Block:
        bare = self._blocks[block.path] = _unbound(block)
        place = self.sys / os.fsdecode(block.path.lstrip(b"/"))
        (place / "driver").unlink(missing_ok=True)
        self.write(os.fsdecode(block.path), "uevent", uevent(bare))
        return bare

    def _say(self, action: str, block: Block) -> None:
        told = dict(line.split(b"=", 1) for line in uevent(block).split(b"\n") if b"=" in line)
        if block.subsystem is not None:
            told = {b"SUBSYSTEM": block.subsystem} | told
        self._announce(action, os.fsdecode(block.path), told)


def _top(among: list[Block]) -> list[Block]:
    """Those that lie below none of the others; `among` has parents first."""
    found: list[Block] = []
    for block in among:
        if not any(block.path.startswith(other.path + b"/") for other in found):
            found.append(block)
    return found


def _driver(block: Block) -> bytes | None:
    linked = block.links.get(b"driver", b"").rpartition(b"/")[2]
    return block.properties.get(b"DRIVER") or linked or None


def _unbound(block: Block) -> Block:
    return replace(
        block,
        properties={name: value for name, value in block.properties.items() if name != b"DRIVER"},
        links={name: target for name, target in block.links.items() if name != b"driver"},
    )


def _renamed(block: Block, replacing: Mapping[str, str]) -> Block:
    def new(value: bytes) -> bytes:
        for old, other in replacing.items():
            value = value.replace(old.encode(), other.encode())
        return value

    return Block(
        path=new(block.path),
        node=new(block.node) if block.node is not None else None,
        properties={name: new(value) for name, value in block.properties.items()},
        files={name: new(value) for name, value in block.files.items()},
        links={name: new(target) for name, target in block.links.items()},
    )


def _numbered(block: Block, devnum: int) -> Block:
    """A usb_device with another device number, wherever that number shows."""
    bus = int(block.properties.get(b"BUSNUM") or block.files.get(b"busnum", b"1"))
    node, minor = b"bus/usb/%03d/%03d" % (bus, devnum), (bus - 1) * 128 + devnum - 1
    numbers = {b"DEVNUM": b"%03d" % devnum, b"MINOR": b"%d" % minor, b"DEVNAME": node}
    files = {b"devnum": b"%d\n" % devnum, b"dev": b"189:%d\n" % minor}
    return replace(block, node=node, properties=block.properties | numbers, files=block.files | files)
