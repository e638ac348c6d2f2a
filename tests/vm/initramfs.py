"""The guest's first file system: busybox, the few modules that reach the host's root over 9p, and an init script.

A cpio archive in the `newc` format (kernel: Documentation/driver-api/early-userspace/buffer-format.rst), made here so
that no tool of the distribution is needed for it.
"""

import shlex
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.vm.kernel import GuestKernel

BEFORE_ROOT = ("virtio_pci", "9p", "9pnet_virtio", "overlay", "virtio_console", "virtio_net")
EXECUTABLE = stat.S_IFREG | 0o755
FOLDER = stat.S_IFDIR | 0o755
CHARACTER = stat.S_IFCHR | 0o600


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    name: str
    mode: int
    content: bytes = b""
    number: tuple[int, int] = (0, 0)


def initramfs(kernel: GuestKernel, *, busybox: Path, init: Path, settings: Mapping[str, str]) -> bytes:
    """An uncompressed archive; `settings` is sourced by the init script as shell variables."""
    modules = kernel.insertable(*BEFORE_ROOT)
    return _archive(
        [
            *(_Entry(name=folder, mode=FOLDER) for folder in ("bin", "dev", "modules")),
            _Entry(name="dev/console", mode=CHARACTER, number=(5, 1)),
            _Entry(name="dev/null", mode=CHARACTER, number=(1, 3)),
            _Entry(name="bin/busybox", mode=EXECUTABLE, content=busybox.read_bytes()),
            *(_Entry(name=f"modules/{name}", mode=EXECUTABLE, content=content) for name, content in modules),
            _Entry(name="modules.order", mode=EXECUTABLE, content="\n".join(name for name, _ in modules).encode()),
            _Entry(name="settings", mode=EXECUTABLE, content=_shell(settings)),
            _Entry(name="init", mode=EXECUTABLE, content=init.read_bytes()),
        ]
    )


def _shell(settings: Mapping[str, str]) -> bytes:
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in settings.items()).encode()


def _archive(entries: Iterable[_Entry]) -> bytes:
    archive = bytearray()
    for inode, entry in enumerate([*entries, _Entry(name="TRAILER!!!", mode=0)], 1):
        name = entry.name.encode() + b"\0"
        fields = (inode, entry.mode, 0, 0, 1, 0, len(entry.content), 0, 0, *entry.number, len(name), 0)
        archive += b"070701" + "".join(f"{field:08X}" for field in fields).encode() + name
        archive += bytes(-len(archive) % 4) + entry.content
        archive += bytes(-len(archive) % 4)
    return bytes(archive)
