"""The Machine controller: follows this node's Machine, brings the machine to what it asks for, and reports.

Level-triggered: whatever wakes it (a new spec, new hardware, a module that ended its load), it looks at everything
again and writes the status if that differs from the stored one. It creates an empty Machine where there is none, so
that the hardware report has a place, and never writes a spec. A cluster without the CRD is ordinary, and said once.
"""

import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal, Protocol

import anyio
import anyio.to_thread
import structlog
from anyio.abc import TaskStatus

from liken.machine import hardware
from liken.machine.crd import API_VERSION, KIND
from liken.machine.line import Discipline, SerialLine
from liken.machine.loading import Modules
from liken.machine.matching import DISCIPLINE, DRIVERS, SerioState
from liken.machine.modprobe import ModuleLoader
from liken.machine.modules import ModuleState, loading, reports, staged_parameters
from liken.machine.serio import Attachments, with_modules
from liken.machine.spec import MachineSpec, canonical, machine_spec
from liken.machine.status import Findings, listed, staged_removals, status
from liken.metrics import Metrics
from liken.model.api import ApiError, Conflict, Followed, Json, Listed, NotFound, ObjectRef, Recorder, WatchKind
from liken.state.store import Store
from liken.state.unclaimed import Unclaimed

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

MANAGER: Final = "liken"
MACHINES: Final = f"/apis/{API_VERSION}/machines"
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
SETTLE_S: Final = 0.2
RECREATE_S: Final = 5.0
KNOWN_S: Final = 2.0
WRITE_RETRY_S: Final = (1.0, 2.0, 5.0, 10.0, 30.0)
SERIO_MODULES: Final = frozenset({DISCIPLINE, *DRIVERS.values()})


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
    """Where this machine's modules, sysfs and nodes are.

    `lib_modules` is the running kernel's folder, `boot_id` the running kernel's own unless it is given.
    """

    node_name: str
    lib_modules: Path
    sysfs: Path = Path("/sys")
    dev: Path = Path("/dev")
    boot_id: str = ""


class MachineController:
    """One node's Machine; `status` is the newest one, None before the first. Make it in the main thread."""

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
        self._settings = settings
        self._metrics = metrics
        self._recorder = recorder
        self._wall = wall
        self._boot_id = settings.boot_id or _boot_id()
        self._item: Json | None = None
        self._spec = MachineSpec()
        self._known = anyio.Event()
        self._served = False
        self._create_at = 0.0
        self._said = ""
        self._wake = anyio.Event()
        self._sent: Json | None = None
        self._kept: Json | None = None
        self._serio_said: dict[str, SerioState] = {}
        self._there: frozenset[str] = frozenset()
        self.status: Json | None = None
        self._modules = Modules(
            loader=loader,
            lib_modules=settings.lib_modules,
            sysfs=settings.sysfs,
            say=self._say,
            changed=self._changed,
        )
        self._attachments = Attachments(
            store=store,
            discipline=discipline or SerialLine(),
            sysfs=settings.sysfs,
            dev=settings.dev,
            changed=self._changed,
        )

    def _changed(self) -> None:
        self._wake.set()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Follow, load, attach and report until cancelled.

        Started when `spec.serio` is in force in the store, so that no line is offered that shall be held; without an
        answer of the API server, after two seconds.
        """
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._follow)
            with anyio.move_on_after(KNOWN_S):
                await self._known.wait()
            task_status.started()
            await self._modules.prepare()
            tasks.start_soon(self._follow_hardware)
            tasks.start_soon(self._attachments.run)
            tasks.start_soon(self._modules.run)
            await self._report()

    async def _follow(self) -> None:
        selector = f"metadata.name={self._settings.node_name}"
        async for change in self._api.follow(MACHINES, field_selector=selector, on_error=self._not_followed):
            self._served, self._said = True, ""
            if isinstance(change, Listed):
                mine = [item for item in change.items if item["metadata"]["name"] == self._settings.node_name]
                self._take(mine[0] if mine else None)
            elif change.item["metadata"]["name"] == self._settings.node_name:
                gone = change.kind is WatchKind.DELETED
                if gone:
                    self._create_at = anyio.current_time() + RECREATE_S  # whoever deleted it may bring another
                self._take(None if gone else change.item)

    def _not_followed(self, error: ApiError) -> None:
        """The Machine cannot be read: what it asked for stays, unless the server has no Machines at all."""
        absent = isinstance(error, NotFound)
        said = "absent" if absent else str(error)
        if said != self._said:
            self._said = said
            if absent:
                log.info("machine.not_served", advice="`liken crd | kubectl apply -f -` installs the resource")
                self._served = False
                self._take(None)
            else:
                log.warning("machine.not_read", error=said)
        self._known.set()

    def _take(self, item: Json | None) -> None:
        """Put a Machine's wishes in force."""
        self._item = item
        self._spec = machine_spec(item)
        also = frozenset(canonical(name) for name, _ in self._listed()) | (SERIO_MODULES if self._spec.serio else set())
        self._modules.want(self._spec, also)
        self._attachments.want(self._spec.serio)
        self._store.set_serio(self._attachments.entries)
        self._known.set()
        self._changed()

    def _listed(self) -> tuple[tuple[str, object], ...]:
        return listed(self.status or (self._item or {}).get("status"))

    async def _follow_hardware(self) -> None:
        revision = -1
        while True:
            revision = (await self._store.settled(after=revision)).revision
            self._changed()

    async def _report(self) -> None:
        """Write the status whenever it differs from the stored one, at most a few times a second."""
        failures, said = 0, ""
        while True:
            self._wake = anyio.Event()
            wait: float | None = None
            try:
                if self._item is None and self._served:
                    wait = await self._create()
                await self._write()
                failures, said = 0, ""
            except ApiError as error:
                wait = WRITE_RETRY_S[min(failures, len(WRITE_RETRY_S) - 1)]
                failures += 1
                if str(error) != said and not isinstance(error, NotFound | Conflict):  # of those the watch tells
                    log.warning("machine.not_written", error=str(error), again_in_s=wait)
                said = str(error)
            with anyio.move_on_after(wait):
                await self._wake.wait()
            await anyio.sleep(SETTLE_S)

    async def _create(self) -> float | None:
        """Make an empty Machine; seconds until that may be done."""
        wait = self._create_at - anyio.current_time()
        if wait > 0:
            return wait
        body: Json = {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {"name": self._settings.node_name},
            "spec": {},
        }
        item = await self._api.create(MACHINES, body)
        log.info("machine.created", machine=self._settings.node_name)
        if self._item is None:
            self._take(item)
        return None

    async def _write(self) -> None:
        item = self._item
        await self._modules.look()
        stored = (item or {}).get("status")
        snapshot, catalog = self._store.snapshot, self._modules.catalog
        driverless = await anyio.to_thread.run_sync(hardware.report, snapshot, catalog)  # thousands of entries
        findings = self._findings(item, stored, driverless)
        now = datetime.fromtimestamp(self._wall(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.status = wanted = status(findings, stored, now)
        self._measure(findings)
        as_we_left_it = wanted == self._sent and stored == self._kept  # a field may be lost to an older CRD
        if item is None or not findings.complete or wanted == stored or as_we_left_it:
            return
        name = self._settings.node_name
        body: Json = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}, "status": wanted}
        answer = await self._api.apply(f"{MACHINES}/{name}/status", body, manager=MANAGER)
        self._sent, self._kept = wanted, answer.get("status")
        if self._item is item:
            self._item = answer

    def _findings(self, item: Json | None, stored: Json | None, driverless: tuple[Unclaimed, ...]) -> Findings:
        spec, seen, catalog = self._spec, self._modules.seen, self._modules.catalog
        there = frozenset(seen)
        if there != self._there:
            self._there = there
            self._attachments.retry()
        removed = staged_removals(spec.modules, self.status or stored, self._boot_id, seen, self._modules.tried.applied)
        modules = reports(spec, catalog, seen, self._modules.tried, removed)
        return Findings(
            generation=int((item or {}).get("metadata", {}).get("generation", 0)),
            boot_id=self._boot_id,
            modules=modules,
            loading=loading(spec, modules),
            parameters=staged_parameters(spec, modules),
            serio=tuple(with_modules(report, there) for report in self._attachments.reports),
            unclaimed=driverless,
            complete=self._store.snapshot.complete,
        )

    def _measure(self, found: Findings) -> None:
        for state in ModuleState:
            self._metrics.modules.labels(state=str(state)).set(sum(r.state is state for r in found.modules))
        for attached in SerioState:
            self._metrics.serio.labels(state=str(attached)).set(sum(r.state is attached for r in found.serio))
        self._metrics.unclaimed.set(len(found.unclaimed))
        said = dict(self._serio_said)
        self._serio_said = {report.tty: report.state for report in found.serio if report.tty}
        for report in found.serio:
            if report.tty and said.get(report.tty) is not report.state:
                if report.state is SerioState.ATTACHED:
                    self._say("Normal", "SerioAttached", f"attached {report.tty} as {report.port}")
                elif report.state is SerioState.REFUSED:
                    self._say("Warning", "SerioRefused", f"{report.tty}: {report.message}")

    def _say(self, kind: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        if self._recorder is None or self._item is None:
            return
        metadata = self._item["metadata"]
        about = ObjectRef(api_version=API_VERSION, kind=KIND, name=metadata["name"], uid=metadata.get("uid", ""))
        self._recorder.record(about, kind=kind, reason=reason, message=message)


def _boot_id() -> str:
    try:
        return BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""
