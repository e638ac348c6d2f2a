"""The Machine controller: follows this node's Machine, brings the machine to what it asks for, and reports.

Level-triggered: whatever wakes it (a new spec, new hardware, a module that ended its load, a retry's time), it looks
at everything again and does the next thing. Modules load one at a time in a task of their own, so the report stays
current meanwhile. A cluster without the CRD is an ordinary state: nothing to do, said once.
"""

import time
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol

import anyio
import anyio.to_thread
import structlog

from liken.machine.crd import API_VERSION, KIND
from liken.machine.line import Discipline, SerialLine
from liken.machine.modprobe import ModuleLoader, seen_modules
from liken.machine.modules import Attempt, ModuleState, Seen, next_attempt, plan, reports, staged_parameters
from liken.machine.serio import Attachments, SerioReport, SerioState
from liken.machine.spec import MachineSpec, canonical, machine_spec
from liken.machine.status import Findings, staged_removals, status
from liken.metrics import Metrics
from liken.model.api import ApiError, Conflict, Followed, Json, Listed, NotFound, ObjectRef, Recorder, WatchKind
from liken.state.catalog import ModuleCatalog
from liken.state.store import Store
from liken.state.unclaimed import unclaimed

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

MANAGER: Final = "liken"
MACHINES: Final = f"/apis/{API_VERSION}/machines"
TREE_CHECK_S: Final = 60.0
WRITE_RETRY_S: Final = (1.0, 2.0, 5.0, 10.0, 30.0)


class MachineApi(Protocol):
    """What is asked of the API server; raises the errors of `liken.model.api`."""

    def follow(
        self,
        path: str,
        *,
        field_selector: str = "",
        label_selector: str = "",
        on_error: Callable[[ApiError], None] | None = None,
    ) -> AsyncGenerator[Followed, None]:
        """List and watch for ever."""

    async def create(self, path: str, body: Json) -> Json:
        """Create an object."""

    async def apply(self, path: str, body: Json, *, manager: str, force: bool = True) -> Json:
        """Server-side apply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSettings:
    """Where this machine's modules, sysfs and nodes are; `lib_modules` is the running kernel's folder."""

    node_name: str
    lib_modules: Path
    sysfs: Path = Path("/sys")
    dev: Path = Path("/dev")
    boot_id: str = ""


class MachineController:
    """One node's Machine; `status` is the newest one, None before the first."""

    def __init__(
        self,
        *,
        api: MachineApi,
        store: Store,
        loader: ModuleLoader,
        settings: MachineSettings,
        metrics: Metrics,
        recorder: Recorder | None = None,
        discipline: Discipline | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._api = api
        self._store = store
        self._loader = loader
        self._settings = settings
        self._metrics = metrics
        self._recorder = recorder
        self._wall = wall
        self._item: Json | None = None
        self._served = True
        self._wake = anyio.Event()
        self._again = anyio.Event()
        self._catalog = ModuleCatalog()
        self._tree: tuple[int, int] | None = None
        self._tried: dict[str, Attempt] = {}
        self._spec_seen: MachineSpec | None = None
        self._written: Json | None = None
        self.status: Json | None = None
        self._attachments = Attachments(
            store=store,
            discipline=discipline or SerialLine(),
            sysfs=settings.sysfs,
            dev=settings.dev,
            changed=self._changed,
        )
        self._said: dict[str, SerioState] = {}

    def _changed(self) -> None:
        self._wake.set()

    async def run(self) -> None:
        """Follow, load, attach and report until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._follow)
            tasks.start_soon(self._hardware)
            tasks.start_soon(self._attachments.run)
            tasks.start_soon(self._load)
            await self._report()

    # -- what wakes it -------------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        selector = f"metadata.name={self._settings.node_name}"
        async for change in self._api.follow(MACHINES, field_selector=selector, on_error=self._not_served):
            self._served = True
            if isinstance(change, Listed):
                mine = [item for item in change.items if item["metadata"]["name"] == self._settings.node_name]
                self._item = mine[0] if mine else None
                if self._item is None:
                    await self._create()
            elif change.item["metadata"]["name"] == self._settings.node_name:
                self._item = None if change.kind is WatchKind.DELETED else change.item
                if self._item is None:
                    await self._create()
            self._again.set()
            self._changed()

    def _not_served(self, error: ApiError) -> None:
        if isinstance(error, NotFound):
            if self._served:
                log.info("machine.not_served", advice="apply the output of `liken crd`", node=self._settings.node_name)
            self._served = False
            self._item = None
        else:
            log.warning("machine.unreachable", error=str(error))

    async def _create(self) -> None:
        """An empty Machine, so that the hardware report has a place; liken writes its status and never its spec."""
        self._written = None
        body = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": self._settings.node_name}, "spec": {}}
        try:
            self._item = await self._api.create(MACHINES, body)
            log.info("machine.created", machine=self._settings.node_name)
        except Conflict:
            return
        except ApiError as error:
            log.warning("machine.not_created", error=str(error))

    async def _hardware(self) -> None:
        revision = -1
        while True:
            revision = (await self._store.settled(after=revision)).revision
            self._changed()

    # -- modules -------------------------------------------------------------------------------------------------

    def _spec(self) -> MachineSpec:
        return machine_spec(self._item)

    async def _load(self) -> None:
        """Load one module after the other; what failed is tried again later, and at once when the list changes."""
        while True:
            self._again = anyio.Event()
            spec, now = self._spec(), anyio.current_time()
            await self._read_tree()
            if spec != self._spec_seen:
                self._spec_seen = spec
                self._tried.clear()
                self._attachments.want(spec.serio)
            seen = await self._seen(spec)
            step = plan(spec, self._catalog, seen, self._tried, now)
            if step.load is not None:
                await self._load_one(step.load, spec)
                continue
            wait = TREE_CHECK_S if step.again_at is None else max(0.0, min(TREE_CHECK_S, step.again_at - now))
            with anyio.move_on_after(wait):
                await self._again.wait()

    async def _load_one(self, name: str, spec: MachineSpec) -> None:
        key = canonical(name)
        began = anyio.current_time()
        outcome = await self._loader.load(name, spec.parameters.get(key, {}))
        there = key in await self._seen(spec)
        took_ms = round((anyio.current_time() - began) * 1000)
        if there:
            self._tried.pop(key, None)
            log.info("module.loaded", module=name, took_ms=took_ms)
            self._say("Normal", "ModuleLoaded", f"loaded {name}")
        else:
            words = outcome.words or "modprobe reported success and the kernel shows no such module: look at dmesg"
            self._tried[key] = next_attempt(words, self._tried.get(key), anyio.current_time())
            log.warning("module.failed", module=name, why=words, took_ms=took_ms)
            self._say("Warning", "ModuleFailed", f"{name}: {words}")
        self._changed()

    async def _seen(self, spec: MachineSpec) -> Mapping[str, Seen]:
        names = frozenset(map(canonical, spec.modules)) | frozenset(self._listed())
        return await anyio.to_thread.run_sync(seen_modules, names, self._settings.sysfs)

    def _listed(self) -> list[str]:
        stored = (self._item or {}).get("status") or {}
        return [
            canonical(str(module.get("name"))) for module in stored.get("modules") or [] if isinstance(module, dict)
        ]

    async def _read_tree(self) -> None:
        """Read the kernel's module tree again when it changed; a change forgets what failed."""
        stamp = await anyio.to_thread.run_sync(_stamp, self._settings.lib_modules)
        if stamp != self._tree:
            self._tree = stamp
            self._catalog = await anyio.to_thread.run_sync(ModuleCatalog.read, self._settings.lib_modules)
            self._tried.clear()
            self._changed()

    # -- the report ----------------------------------------------------------------------------------------------

    async def _report(self) -> None:
        """Write the status whenever it differs from the stored one."""
        failures = 0
        while True:
            self._wake = anyio.Event()
            try:
                await self._write()
                failures = 0
                wait = None
            except ApiError as error:
                wait = WRITE_RETRY_S[min(failures, len(WRITE_RETRY_S) - 1)]
                failures += 1
                log.warning("machine.status_not_written", error=str(error), again_in_s=wait)
            with anyio.move_on_after(wait):
                await self._wake.wait()

    async def _write(self) -> None:
        item = self._item
        spec = machine_spec(item)
        seen = await self._seen(spec)
        stored = (item or {}).get("status")
        removed = staged_removals(spec.modules, stored, self._settings.boot_id, frozenset(seen))
        modules = reports(spec, self._catalog, seen, self._tried, removed)
        serio = tuple(self._with_nodes(report) for report in self._attachments.reports)
        snapshot = self._store.snapshot
        found = Findings(
            generation=int((item or {}).get("metadata", {}).get("generation", 0)),
            boot_id=self._settings.boot_id,
            modules=modules,
            removed=removed,
            parameters=staged_parameters(spec, modules),
            serio=serio,
            unclaimed=unclaimed(snapshot, self._catalog),
            complete=snapshot.complete,
        )
        wanted = status(found, stored, datetime.fromtimestamp(self._wall(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
        self.status = wanted
        self._measure(found)
        if item is None or not snapshot.complete or wanted in (stored, self._written):
            return
        body = {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {"name": self._settings.node_name},
            "status": wanted,
        }
        answer = await self._api.apply(f"{MACHINES}/{self._settings.node_name}/status", body, manager=MANAGER)
        self._written = wanted
        if self._item is item:
            self._item = answer

    def _with_nodes(self, report: SerioReport) -> SerioReport:
        if report.state is not SerioState.ATTACHED:
            return report
        made = f"/{report.tty}/{report.port}/"
        nodes = [
            f"/dev/{node.name}"
            for facts in self._store.snapshot.inventory.devices.values()
            for node in facts.nodes
            if made in f"{node.path}/"
        ]
        return replace(report, nodes=tuple(sorted(nodes)))

    def _measure(self, found: Findings) -> None:
        for state in ModuleState:
            self._metrics.modules.labels(state=str(state)).set(sum(r.state is state for r in found.modules))
        for attached in SerioState:
            self._metrics.serio.labels(state=str(attached)).set(sum(r.state is attached for r in found.serio))
        self._metrics.unclaimed.set(len(found.unclaimed))
        for report in found.serio:
            key = f"{report.entry.vendor}:{report.entry.product} {report.tty}"
            if report.state is not self._said.get(key) and report.state is not SerioState.MISSING:
                self._said[key] = report.state
                attached_now = report.state is SerioState.ATTACHED
                words = f"attached {report.tty} as {report.port}" if attached_now else f"{report.tty}: {report.message}"
                self._say("Normal" if attached_now else "Warning", f"Serio{report.state}", words)

    def _say(self, kind: str, reason: str, message: str) -> None:
        if self._recorder is None or self._item is None:
            return
        metadata = self._item["metadata"]
        about = ObjectRef(api_version=API_VERSION, kind=KIND, name=metadata["name"], uid=metadata.get("uid", ""))
        self._recorder.record(about, kind="Normal" if kind == "Normal" else "Warning", reason=reason, message=message)


def _stamp(folder: Path) -> tuple[int, int] | None:
    """What changes when depmod ran; None while there is no tree."""
    try:
        found = (folder / "modules.dep").stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino
