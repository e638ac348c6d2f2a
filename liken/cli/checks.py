"""What liken needs of the machine it runs on, each looked at on its own: found, and what to do about it.

A check never raises and never changes anything, except that the one for uevents asks the kernel to repeat the event of
`/dev/null`, which every listener ignores.
"""

import os
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from liken.config import Claiming

NETLINK_KOBJECT_UEVENT = 15
KERNEL_GROUP = 1
CAP_SYS_MODULE = 16
SOCKET_PATH_LIMIT = 107
EVENT_DEADLINE_S = 1.0
EVENT_FILE = Path("devices/virtual/mem/null/uevent")
EVERY_UID = "4294967295"


class Level(StrEnum):
    """How bad it is."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at: what was found, and what to do when it is not well."""

    name: str
    level: Level
    found: str
    remedy: str = ""


def ok(name: str, found: str) -> Check:
    """All is well."""
    return Check(name=name, level=Level.OK, found=found)


def warn(name: str, found: str, remedy: str) -> Check:
    """Something does less than it could."""
    return Check(name=name, level=Level.WARN, found=found, remedy=remedy)


def fail(name: str, found: str, remedy: str) -> Check:
    """Liken cannot do its work like this."""
    return Check(name=name, level=Level.FAIL, found=found, remedy=remedy)


def sysfs(root: Path, proc: Path) -> Check:
    """Whether `/sys` is the kernel's own."""
    kind = next((fs for place, fs in _mounts(proc / "self/mountinfo") if Path(place) == root), None)
    entries = sum(1 for bus in ("pci", "usb") for _ in _listed(root / "bus" / bus / "devices"))
    if kind == "sysfs":
        return ok("sysfs", f"{root} is the kernel's, with {entries} PCI and USB entries")
    return fail(
        "sysfs",
        f"{root} is {f'a {kind}' if kind else 'no mount of its own'}, not sysfs ({entries} PCI and USB entries)",
        "in a pod mount the host's /sys at /sys (a hostPath volume, read-only will do)",
    )


def _mounts(mountinfo: Path) -> Iterator[tuple[str, str]]:
    """Mount point and file system of each mount; later ones hide earlier ones, so the last comes first."""
    try:
        lines = mountinfo.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return
    for text in reversed(lines):
        before, _, after = text.partition(" - ")
        yield before.split()[4], after.split()[0]


def _listed(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208  (names are all that is needed)
    except OSError:
        return []


def uevents(root: Path, proc: Path) -> Check:
    """Whether the kernel's events reach this process: asks for one and waits for it."""
    name = "uevents"
    if (mapping := _read(proc / "self/uid_map").split()) and mapping[-1] != EVERY_UID:
        return fail(
            name,
            "this process is in a user namespace of its own: the kernel sends it no uevents",
            "remove `hostUsers: false` from the pod",
        )
    try:
        listener = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_KOBJECT_UEVENT)
    except OSError as error:
        return fail(name, f"no netlink socket: {error.strerror}", "allow AF_NETLINK (seccomp, RestrictAddressFamilies)")
    with listener:
        try:
            listener.bind((0, KERNEL_GROUP))
            (root / EVENT_FILE).write_text("change")
        except OSError as error:
            return warn(
                name,
                f"listening works; whether events arrive could not be tried: {error.strerror}",
                "plug something and watch it with `liken watch` (to try it here: as root with a writable /sys)",
            )
        return _awaited(listener)


def _awaited(listener: socket.socket) -> Check:
    began = time.monotonic()
    while (left := began + EVENT_DEADLINE_S - time.monotonic()) > 0:
        listener.settimeout(left)
        try:
            if b"/mem/null\0" in listener.recv(8192):
                return ok("uevents", f"an event of the kernel arrived after {(time.monotonic() - began) * 1000:.1f} ms")
        except TimeoutError:
            break
        except OSError:
            continue
    return fail(
        "uevents",
        f"an event was asked for and did not arrive within {EVENT_DEADLINE_S:g} s",
        "run in the initial user namespace; liken then still compares with /sys every 10 minutes",
    )


def mounts(proc: Path) -> Check:
    """Whether the machine's mounts can be seen, so that a disk in use is never offered."""
    table = proc / "1/mountinfo"
    try:
        table.read_bytes()
    except OSError as error:
        return fail(
            "mounts", f"{table}: {error.strerror}", "a mounted disk would be offered: run as root, or give --proc"
        )
    root = next((fs for place, fs in _mounts(table) if place == "/"), "nothing")
    if root == "overlay":
        return warn(
            "mounts",
            f"{table} shows a container's mounts (its root is an overlay)",
            "mount the host's /proc into the pod and name it with --proc, so that disks in use are seen",
        )
    return ok("mounts", f"{table} shows the machine's mounts (its root is {root})")


def ids(folder: Path | None) -> Check:
    """Whether names of hardware can be looked up."""
    places = [folder] if folder else [Path("/usr/share/misc"), Path("/usr/share/hwdata")]
    missing = [file for file in ("pci.ids", "usb.ids") if not any((place / file).is_file() for place in places)]
    if not missing:
        return ok("ids", "pci.ids and usb.ids are there")
    remedy = "install the packages pci.ids and usb.ids (or hwdata), or give --ids; until then names are numbers"
    return warn("ids", f"{' and '.join(missing)} not found in {', '.join(map(str, places))}", remedy)


def modules(folder: Path) -> Check:
    """Whether this kernel's modules are there."""
    if (folder / "modules.alias").is_file() or (folder / "modules.alias.xz").is_file():
        return ok("modules", f"{folder} lists this kernel's modules")
    return warn(
        "modules",
        f"{folder} holds no modules.alias",
        "in a pod mount the host's /lib/modules; without it nothing is unclaimed and no module can be loaded",
    )


def loading(root: Path, proc: Path) -> Check:
    """Whether this process may load modules."""
    name = "module loading"
    found = [
        (
            shutil.which("modprobe", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") is None,
            "no modprobe here",
            KMOD,
        ),
        (_read(proc / "sys/kernel/modules_disabled").strip() == "1", "the kernel takes no module any more", REBOOT),
        (not _capabilities(proc) >> CAP_SYS_MODULE & 1, "this process lacks CAP_SYS_MODULE", CAPABILITY),
        ("[none]" not in _read(root / "kernel/security/lockdown", "[none]"), "the kernel is locked down", SIGNED),
        (_read(root / "module/module/parameters/sig_enforce").strip() == "Y", "only signed modules are loaded", SIGNED),
    ]
    for wrong, words, remedy in found:
        if wrong:
            return warn(name, words, remedy)
    return ok(name, "modprobe is here, with the right to load")


KMOD = "install kmod; until then spec.modules of a Machine cannot be loaded"
REBOOT = "kernel.modules_disabled is 1 until the next boot: load modules at boot instead (/etc/modules-load.d)"
CAPABILITY = "run as root or add the capability SYS_MODULE (the overlay `modules`); publishing works without it"
SIGNED = "unsigned modules will be refused; those of the distribution are signed"


def _capabilities(proc: Path) -> int:
    lines = _read(proc / "self/status").splitlines()
    return next((int(text.split()[1], 16) for text in lines if text.startswith("CapEff:")), 0)


def folders(claiming: Claiming) -> Iterator[Check]:
    """The folders shared with the kubelet and the container runtime."""
    yield folder("CDI folder", claiming.cdi_dir, "the container runtime reads it; mount the host's folder into the pod")
    yield folder("plugins folder", claiming.plugins_dir, KUBELET)
    yield folder("registry folder", claiming.registry_dir, KUBELET)
    longest = claiming.registry_dir / f"liken.sh-{claiming.pod_uid or ''}-reg.sock"
    if len(os.fsencode(longest)) > SOCKET_PATH_LIMIT:
        yield fail("socket path", f"{longest} is longer than {SOCKET_PATH_LIMIT} bytes", "choose a shorter folder")


KUBELET = "the kubelet makes it: is this a node, and is the host's folder mounted into the pod?"


def folder(name: str, place: Path, remedy: str) -> Check:
    """Whether a folder is there and can be written, or can be made."""
    there = next(path for path in (place, *place.parents) if path.exists())
    if not there.is_dir():
        return fail(name, f"{there} is no folder", remedy)
    if not os.access(there, os.W_OK | os.X_OK):
        return fail(name, f"{there} cannot be written", remedy)
    if there != place:
        level: Callable[[str, str, str], Check] = warn
        return level(name, f"{place} is not there yet", remedy)
    return ok(name, f"{place} can be written")


def _read(path: Path, otherwise: str = "") -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return otherwise
