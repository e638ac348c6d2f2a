"""The composition root: makes every part of the daemon, hands each what it needs, and ends them in order.

One task group for what serves (claims, publishing, the Machine) inside one for what they stand on (the mirror of the
kernel, Events, the web). To stop is to cancel the inner one first: claims at work are finished and the kubelet's
registry is left while the mirror still lives; the slices stay unless `withdraw` is set. A part that cannot start ends
the daemon with its own words.
"""

import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import structlog
from anyio.abc import TaskStatus

from liken import __version__
from liken.claims.ports import ClaimSettings
from liken.claims.service import Claims
from liken.claims.standalone import Standalone
from liken.config import Claiming, Events, Hardware, Settings, node_name
from liken.events.kernel import Source
from liken.events.mirror import Mirror, MirrorSettings
from liken.events.sysfs import Sysfs
from liken.kube import paths
from liken.kube.client import Kube
from liken.kube.events import EventRecorder
from liken.machine.controller import MachineController, MachineSettings
from liken.machine.modprobe import Modprobe, ModuleLoader
from liken.metrics import Metrics
from liken.model.api import ApiError, Json, ObjectRef
from liken.publish.ports import PublishSettings
from liken.publish.publisher import Publisher
from liken.state.ids import IdsFiles
from liken.state.store import Store

if TYPE_CHECKING:
    from liken.web.server import Web
    from liken.web.status import ClaimRow, MachineRows, Part

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

SYSFS = Path("/sys")
PROC = Path("/proc")
DEV = Path("/dev")
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
WITHDRAW_S = 8.0
OFF = "off"


class ClaimReader:
    """What claims need of the API server."""

    def __init__(self, api: Kube) -> None:
        self._api = api

    async def get_claim(self, namespace: str, name: str) -> Json:
        """The ResourceClaim as the server has it; raises ApiError."""
        return await self._api.get(paths.claim(namespace, name))


@dataclass(slots=True, kw_only=True)
class Parts:
    """What the daemon is made of; a part this mode does without is None."""

    settings: Settings
    node: str
    metrics: Metrics
    store: Store
    mirror: Mirror
    publisher: Publisher | None = None
    claims: Claims | None = None
    machine: MachineController | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What the demo and tests put in the place of the machine's own; None: the real one."""

    loader: ModuleLoader | None = None
    source: Callable[[], Source] | None = None
    ready: Callable[[Parts], None] | None = None


LIVE = Stage()


async def run(settings: Settings, stage: Stage = LIVE, stop: anyio.Event | None = None) -> None:
    """Be the daemon until `stop` is set, without one until SIGTERM or SIGINT; raises what kept a part from starting."""
    ending = stop if stop is not None else anyio.Event()
    async with anyio.create_task_group() as tasks:
        if stop is None:
            await tasks.start(_signals, ending)
        log.info("liken.starting", version=__version__, standalone=settings.mode.standalone)
        serve = _standalone if settings.mode.standalone else _node
        await serve(settings, stage, ending)
        log.info("liken.ended")
        tasks.cancel_scope.cancel()


async def _signals(ending: anyio.Event, *, task_status: TaskStatus[None]) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as received:
        task_status.started()
        async for number in received:
            if ending.is_set():
                log.warning("liken.still_ending", signal=number.name)
            ending.set()


def _parts(settings: Settings, stage: Stage, recorder: EventRecorder | None = None) -> Parts:
    """What every mode has: the store and the mirror that keeps it equal to the kernel."""
    name = node_name(settings.cluster.node_name)
    metrics = Metrics()
    metrics.build.labels(version=__version__).set(1)
    store = Store(IdsFiles.read(settings.hardware.ids))
    store.set_taint_gone(settings.claiming.taint_gone)
    mirror = Mirror(
        sysfs=reader(settings.hardware),
        store=store,
        settings=mirror_settings(settings.events),
        metrics=metrics,
        recorder=recorder,
        node=ObjectRef(api_version="v1", kind="Node", name=name),
        source=stage.source,
    )
    return Parts(settings=settings, node=name, metrics=metrics, store=store, mirror=mirror)


def reader(hardware: Hardware) -> Sysfs:
    """The reader of the machine this runs on, or of the tree that `--sysfs` names."""
    return Sysfs(hardware.sysfs or SYSFS, hardware.proc or PROC, hardware.dev or DEV)


def mirror_settings(events: Events) -> MirrorSettings:
    """The mirror's settings from the options."""
    return MirrorSettings(
        quiet_s=events.quiet_window,
        limit_s=events.limit,
        resync_s=events.resync,
        read_deadline_s=events.read_deadline,
        receive_buffer=events.receive_buffer,
    )


def claim_settings(claiming: Claiming, hardware: Hardware, node: str) -> ClaimSettings:
    """The settings of claims from the options."""
    return ClaimSettings(
        node_name=node,
        cdi_dir=claiming.cdi_dir,
        plugins_dir=claiming.plugins_dir,
        registry_dir=claiming.registry_dir,
        pod_uid=claiming.pod_uid,
        dev=hardware.dev or DEV,
        boot_id=_boot_id(),
    )


async def _standalone(settings: Settings, stage: Stage, ending: anyio.Event) -> None:
    """The inventory as CDI devices, and nothing else."""
    parts = _parts(settings, stage)
    standalone = Standalone(store=parts.store, cdi_dir=settings.claiming.cdi_dir, metrics=parts.metrics)
    async with _standing(parts), anyio.create_task_group() as serving:
        await serving.start(standalone.run)
        _ready(parts, stage)
        await ending.wait()
        serving.cancel_scope.cancel()


async def _node(settings: Settings, stage: Stage, ending: anyio.Event) -> None:
    """The node daemon: sockets, slices and the Machine, on the mirror, Events and the web."""
    cluster = settings.cluster
    async with Kube.connect(kubeconfig=cluster.kubeconfig, context=cluster.context) as api:
        recorder = EventRecorder(api, node_name=node_name(cluster.node_name))
        parts = _parts(settings, stage, recorder)
        publisher = parts.publisher = _publisher(parts, api, recorder)
        claims = parts.claims = _claims(parts, api, recorder)
        if settings.machines.machine:
            parts.machine = _machine(parts, stage, api, recorder)
        async with _standing(parts, recorder), anyio.create_task_group() as serving:
            await serving.start(claims.run)
            if parts.machine is not None:
                await serving.start(parts.machine.run)  # first: a serial line it holds is never offered
            serving.start_soon(publisher.run)
            _ready(parts, stage)
            await ending.wait()
            log.info("liken.ending", slices="withdrawn" if settings.publishing.withdraw else "kept")
            serving.cancel_scope.cancel()
        if settings.publishing.withdraw:
            await _withdrawn(publisher)


async def _withdrawn(publisher: Publisher) -> None:
    try:
        with anyio.fail_after(WITHDRAW_S):
            await publisher.withdraw()
    except (ApiError, TimeoutError) as error:
        log.warning("publish.not_withdrawn", error=str(error), advice="`liken withdraw` removes the slices later")


@asynccontextmanager
async def _standing(parts: Parts, recorder: EventRecorder | None = None) -> AsyncIterator[None]:
    """What the others stand on: the first inventory is complete when this is entered, and lives until they ended."""
    async with anyio.create_task_group() as standing:
        await standing.start(parts.mirror.run)
        if recorder is not None:
            standing.start_soon(recorder.run)
        if parts.settings.web.web_listen != OFF:
            await standing.start(_web(parts).run)
        yield
        standing.cancel_scope.cancel()


def _ready(parts: Parts, stage: Stage) -> None:
    log.info("liken.serving", devices=len(parts.store.snapshot.offers), node=parts.node)
    if stage.ready is not None:
        stage.ready(parts)


def _publisher(parts: Parts, api: Kube, recorder: EventRecorder) -> Publisher:
    publishing = parts.settings.publishing
    return Publisher(
        api=api,
        store=parts.store,
        node_name=parts.node,
        metrics=parts.metrics,
        recorder=recorder,
        settings=PublishSettings(burst=publishing.write_burst, refill_s=publishing.write_refill),
    )


def _claims(parts: Parts, api: Kube, recorder: EventRecorder) -> Claims:
    return Claims(
        api=ClaimReader(api),
        hardware=parts.mirror,
        store=parts.store,
        settings=claim_settings(parts.settings.claiming, parts.settings.hardware, parts.node),
        metrics=parts.metrics,
        recorder=recorder,
    )


def _machine(parts: Parts, stage: Stage, api: Kube, recorder: EventRecorder) -> MachineController:
    hardware = parts.settings.hardware
    return MachineController(
        api=api,
        store=parts.store,
        loader=stage.loader if stage.loader is not None else Modprobe(),
        settings=MachineSettings(
            node_name=parts.node,
            lib_modules=hardware.modules or Path("/lib/modules") / os.uname().release,
            sysfs=hardware.sysfs or SYSFS,
            dev=hardware.dev or DEV,
            boot_id=_boot_id(),
        ),
        metrics=parts.metrics,
        recorder=recorder,
    )


def _boot_id() -> str:
    return BOOT_ID.read_text(encoding="ascii").strip()


def _web(parts: Parts) -> "Web":
    """The web server over what the parts say of themselves; imported only where it is wanted (aiohttp's server)."""
    from liken.web.server import Web  # noqa: PLC0415
    from liken.web.status import Outlook  # noqa: PLC0415

    def outlook() -> Outlook:
        return Outlook(
            node=parts.node,
            version=__version__,
            parts=tuple(_lines(parts)),
            claims=tuple(_claim_rows(parts)),
            machine=_machine_rows(parts),
            held_back=frozenset(parts.publisher.held_back) if parts.publisher else frozenset(),
        )

    return Web(listen=parts.settings.web.web_listen, metrics=parts.metrics, store=parts.store, outlook=outlook)


def _lines(parts: Parts) -> "Iterator[Part]":
    from liken.web.status import Part  # noqa: PLC0415

    snapshot = parts.store.snapshot
    said = f"{len(snapshot.inventory.devices)} bus entries, {len(snapshot.offers)} devices"
    yield Part(name="hardware", ok=snapshot.complete, line=said if snapshot.complete else "the first look is not over")
    if parts.publisher is not None:
        line = parts.publisher.trouble or ("slices are as they should be" if parts.publisher.published else "not yet")
        yield Part(name="slices", ok=parts.publisher.published, line=line)
    if parts.claims is not None:
        registered = "registered with the kubelet" if parts.claims.registered else "waiting for the kubelet"
        yield Part(name="claims", ok=True, line=f"{len(parts.claims.prepared())} prepared, {registered}")
    if parts.machine is not None:
        conditions = (parts.machine.status or {}).get("conditions", ())
        words = [f"{c['type']} {c['status']} ({c['reason']})" for c in conditions]
        yield Part(name="machine", ok=True, line=", ".join(words) or "no Machine of this node is known")


def _claim_rows(parts: Parts) -> "Iterator[ClaimRow]":
    from liken.web.status import ClaimedDevice, ClaimRow  # noqa: PLC0415

    for claim in parts.claims.prepared() if parts.claims else ():
        devices = tuple(
            ClaimedDevice(
                name=device.name,
                nodes=tuple(node.path for node in device.nodes),
                health=str(device.health),
                message=device.message,
            )
            for device in claim.devices
        )
        yield ClaimRow(namespace=claim.namespace, name=claim.name, uid=claim.uid, since=claim.since, devices=devices)


def _machine_rows(parts: Parts) -> "MachineRows | None":
    from liken.web.status import ConditionRow, MachineRows  # noqa: PLC0415

    status = parts.machine.status if parts.machine else None
    if not status:
        return None
    conditions = tuple(
        ConditionRow(type=c["type"], status=c["status"], reason=c["reason"], message=c["message"])
        for c in status.get("conditions", ())
    )
    entries = status.get("hardware", {}).get("unclaimed", ())
    unclaimed = tuple(f"{entry['bus']} {entry['address']}: {entry['message']}" for entry in entries)
    return MachineRows(conditions=conditions, unclaimed=unclaimed)
