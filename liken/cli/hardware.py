"""What a command sees of a machine: this one, another sysfs tree, or a recording, read once and judged.

The only place of the command line that knows how the parts that read and judge are put together.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from liken.config import Hardware
from liken.events.sysfs import Sysfs
from liken.model.offers import Snapshot
from liken.state.ids import IdsFiles
from liken.state.store import Store

if TYPE_CHECKING:
    from liken.state.catalog import ModuleCatalog

SYSFS = Path("/sys")
PROC = Path("/proc")
DEV = Path("/dev")


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """A machine as it was when the command asked; `live`: it is the one this runs on."""

    sysfs: Sysfs
    store: Store
    live: bool
    modules: Path

    @property
    def snapshot(self) -> Snapshot:
        """The judged inventory."""
        return self.store.snapshot

    def catalog(self) -> "ModuleCatalog":
        """The kernel modules of the machine, of this machine's kernel for a recording without `--modules`."""
        from liken.state.catalog import ModuleCatalog  # noqa: PLC0415  (megabytes that few commands need)

        return ModuleCatalog.read(self.modules)


def modules_folder(hardware: Hardware) -> Path:
    """Where the kernel's modules are."""
    return hardware.modules or Path("/lib/modules") / os.uname().release


@contextmanager
def opened(hardware: Hardware) -> Iterator[tuple[Sysfs, bool]]:
    """The reader of the machine, and whether it is the live one; a recording is unpacked while this is open."""
    if hardware.recording is not None:
        from liken.events.recording import recorded  # noqa: PLC0415  (only a recording pays for it)

        with recorded(hardware.recording) as machine:
            proc, dev = hardware.proc or machine.proc, hardware.dev or machine.dev
            yield Sysfs(machine.sysfs, proc, dev), False
        return
    root = hardware.sysfs or SYSFS
    if root.resolve() == SYSFS:
        yield Sysfs(root, hardware.proc or PROC, hardware.dev or DEV), True
    else:
        beside = root.resolve().parent
        yield Sysfs(root, hardware.proc or beside / "proc", hardware.dev or beside / "dev"), False


@contextmanager
def survey(hardware: Hardware) -> Iterator[Survey]:
    """Read everything once; raises SysfsError or RecordingError with the words for a person."""
    with opened(hardware) as (sysfs, live):
        store = Store(IdsFiles.read(hardware.ids))
        store.replace(sysfs.everything(), system=sysfs.system(), complete=True, everything=True)
        yield Survey(sysfs=sysfs, store=store, live=live, modules=modules_folder(hardware))
