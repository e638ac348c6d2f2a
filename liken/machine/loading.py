"""The loop that loads what a Machine declares: one module at a time, none in a storm, and what came of each.

It wakes for another list, for a retry whose time has come, and once a minute to see whether the kernel's module tree
changed (an upgrade, a depmod) or somebody else loaded a module. Another list and another tree forget what failed. What
it knows is read by the report; `changed` says when to read again.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Literal, Protocol

import anyio
import anyio.to_thread
import structlog

from liken.machine.modprobe import ModuleLoader, seen_modules
from liken.machine.modules import Attempt, Seen, Tried, next_attempt, plan
from liken.machine.spec import MachineSpec, canonical
from liken.state.catalog import ModuleCatalog

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

TREE_CHECK_S: Final = 60.0
SILENT: Final = "modprobe reported success and the kernel shows no such module: look at dmesg on the machine"


class Say(Protocol):
    """Says something about the Machine as an Event."""

    def __call__(self, kind: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        """One sentence."""


class Modules:
    """The modules of one machine: `want` them, `run` for ever, and read `catalog`, `seen` and `tried`."""

    def __init__(
        self, *, loader: ModuleLoader, lib_modules: Path, sysfs: Path, say: Say, changed: Callable[[], None]
    ) -> None:
        self._loader = loader
        self._lib_modules = lib_modules
        self._sysfs = sysfs
        self._say = say
        self._changed = changed
        self._spec = MachineSpec()
        self._also: frozenset[str] = frozenset()
        self._failed: dict[str, Attempt] = {}
        self._applied: dict[str, Mapping[str, str]] = {}
        self._loading: frozenset[str] = frozenset()
        self._stamp: tuple[object, ...] = ()
        self._wake = anyio.Event()
        self._looking = anyio.Lock()
        self.catalog = ModuleCatalog()
        self.seen: Mapping[str, Seen] = {}

    @property
    def tried(self) -> Tried:
        """What this daemon did so far."""
        return Tried(failed=self._failed, applied=self._applied)

    def want(self, spec: MachineSpec, also: frozenset[str]) -> None:
        """Load these; `also` are modules (names with `_`) that are only looked at."""
        if (spec.modules, spec.parameters) != (self._spec.modules, self._spec.parameters):
            self._failed.clear()
        self._spec, self._also = spec, also
        self._wake.set()

    async def prepare(self) -> None:
        """Read the module tree for the first time."""
        await self._read_tree()

    async def run(self) -> None:
        """Load until cancelled."""
        while True:
            self._wake = anyio.Event()
            await self._read_tree()
            await self.look()
            spec, now = self._spec, anyio.current_time()
            step = plan(spec, self.catalog, self.seen, self._failed, now)
            if step.load is not None:
                await self._load(step.load, spec)
                continue
            wait = TREE_CHECK_S if step.again_at is None else max(0.0, min(TREE_CHECK_S, step.again_at - now))
            with anyio.move_on_after(wait):
                await self._wake.wait()

    async def look(self) -> None:
        """See which modules the kernel has now."""
        async with self._looking:  # an older look must not be the last word
            spec = self._spec
            names = frozenset(map(canonical, spec.modules)) | self._also | self._applied.keys() | self._loading
            wanted = {
                name: spec.parameters.get(name, {}).keys() | self._applied.get(name, {}).keys()
                for name in sorted(names)
            }
            seen = await anyio.to_thread.run_sync(seen_modules, wanted, self._sysfs)
            if seen != self.seen:
                self.seen = seen
                self._changed()

    async def _load(self, name: str, spec: MachineSpec) -> None:
        key, parameters = canonical(name), spec.parameters.get(canonical(name), {})
        began = anyio.current_time()
        self._loading = frozenset({key})  # looked at even if nobody wants it any more when the load ends
        outcome = await self._loader.load(name, parameters)
        await self.look()
        self._loading = frozenset()
        took_ms = round((anyio.current_time() - began) * 1000)
        if key in self.seen:
            self._failed.pop(key, None)
            self._applied[key] = parameters
            log.info("module.loaded", module=name, took_ms=took_ms)
            self._say("Normal", "ModuleLoaded", f"loaded {name}")
        elif (spec.modules, spec.parameters) == (self._spec.modules, self._spec.parameters):
            before, words = self._failed.get(key), outcome.words or SILENT
            self._failed[key] = next_attempt(words, before, anyio.current_time())
            if before is None or before.words != words:
                log.warning("module.failed", module=name, why=words, took_ms=took_ms)
                self._say("Warning", "ModuleFailed", f"{name}: {words}")
        self._changed()

    async def _read_tree(self) -> None:
        """Read the kernel's module tree again when it changed, and forget what failed with the old one."""
        stamp = await anyio.to_thread.run_sync(_stamp, self._lib_modules)
        if stamp != self._stamp:
            self._stamp = stamp
            self.catalog = await anyio.to_thread.run_sync(ModuleCatalog.read, self._lib_modules)
            self._failed.clear()
            if self.catalog.problem:
                log.warning("module.no_tree", why=self.catalog.problem)
            self._changed()


def _stamp(folder: Path) -> tuple[object, ...]:
    """What differs once depmod ran, or the folder came or went."""
    found: list[object] = [folder]
    for path in (folder, folder / "modules.dep", folder / "modules.alias"):
        try:
            stat = path.stat()
        except OSError:
            found.append(None)
        else:
            found.append((stat.st_mtime_ns, stat.st_ino))
    return tuple(found)
