"""The guest's kernel: Debian's own package, unpacked into a cache and never installed.

`python -m tests.vm.kernel` downloads it with apt (70 MB once, 400 MB unpacked) and prints where it is; tests only
look into the cache, so that a run without a network is a run all the same. The cache is `$LIKEN_CACHE`, else
`~/.cache/liken`. The cloud flavour of the kernel is no use: it has no USB, no DRM and no sound.
"""

import lzma
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

METAPACKAGE = "linux-image-amd64"
READY = "unpacked"  # this file is written last


class NoKernel(Exception):
    """The kernel is not here and could not be had; the message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestKernel:
    """One unpacked kernel package: the image, its release, and the folder that `modprobe -d` takes."""

    image: Path
    release: str
    base: Path

    @property
    def modules(self) -> Path:
        """The tree the guest sees as `/lib/modules/<release>`."""
        return self.base / "lib/modules" / self.release

    def insertable(self, *names: str) -> tuple[tuple[str, bytes], ...]:
        """Modules with everything they need, in load order, as (file name, uncompressed bytes)."""
        files: dict[str, bytes] = {}
        for name in names:
            shown = _output(["modprobe", "-d", str(self.base), "-S", self.release, "--show-depends", name])
            for line in shown.splitlines():
                if not line.startswith("insmod "):
                    continue
                path = Path(line.split()[1])
                content = path.read_bytes()
                files.setdefault(
                    path.name.removesuffix(".xz"), lzma.decompress(content) if path.suffix == ".xz" else content
                )
        return tuple(files.items())


def cache() -> Path:
    """Where kernels are kept between runs, outside the checkout."""
    return Path(os.environ.get("LIKEN_CACHE") or Path.home() / ".cache/liken") / "guest-kernel"


def cached() -> GuestKernel | None:
    """The newest kernel of the cache; None when there is none."""
    ready = sorted(cache().glob(f"*/{READY}"), key=lambda marker: marker.stat().st_mtime)
    return _unpacked(ready[-1].parent) if ready else None


def prepare() -> GuestKernel:
    """Download and unpack the distribution's newest kernel unless the cache has it. Raises NoKernel."""
    try:
        package = _package()
        folder = cache() / package
        if not (folder / READY).exists():
            _unpack(package, folder)
    except (OSError, subprocess.CalledProcessError) as problem:
        if (kernel := cached()) is not None:
            return kernel
        raise NoKernel(f"no guest kernel from apt ({problem}); a Debian with apt sources is needed") from problem
    return _unpacked(folder)


def _package() -> str:
    found = re.search(r"Depends: (linux-image-\S+)", _output(["apt-cache", "depends", METAPACKAGE]))
    if found is None:
        raise NoKernel(f"apt knows no {METAPACKAGE}: run `apt-get update` on a Debian")
    return found.group(1)


def _unpack(package: str, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    subprocess.run(["apt-get", "download", "-q", package], cwd=folder, check=True, stdout=sys.stderr)
    archive = next(folder.glob("*.deb"))
    subprocess.run(["dpkg", "-x", str(archive), str(folder)], check=True)
    archive.unlink()
    kernel = _unpacked(folder)
    subprocess.run(["depmod", "-b", str(kernel.base), kernel.release], check=True)
    (folder / READY).touch()


def _unpacked(folder: Path) -> GuestKernel:
    image = next((folder / "boot").glob("vmlinuz-*"))
    release = image.name.removeprefix("vmlinuz-")
    merged = folder / "usr"  # trixie keeps modules below /usr/lib, bookworm below /lib
    base = merged if (merged / "lib/modules" / release).is_dir() else folder
    return GuestKernel(image=image, release=release, base=base)


def _output(command: Sequence[str]) -> str:
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    return subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, "PATH": path}).stdout


if __name__ == "__main__":
    sys.stdout.write(f"{prepare().image}\n")
