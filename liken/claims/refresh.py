"""Keeps the files of prepared claims true: each follows its hardware at the event, and no other is written.

In: the store's snapshots. Out: rewritten files. The runtime keeps the numbers behind a path until it sees a file
written, so what counts is not the text but whether a node came, went or changed its numbers; both are in the record,
and a replug writes the file twice (gone, back). A file that cannot be written is tried again until it can.
"""

from dataclasses import dataclass, replace
from typing import Self

import anyio
import anyio.to_thread
import structlog
from anyio.abc import TaskGroup

from liken.claims import groups
from liken.claims.directory import DirectoryError
from liken.claims.ledger import Ledger, Saved
from liken.claims.ports import ClaimSettings, Store
from liken.claims.prepared import Health, PreparedClaim, PreparedDevice, followed
from liken.claims.sight import above, sight
from liken.claims.words import ClaimError
from liken.metrics import Metrics
from liken.model.api import ObjectRef, Recorder
from liken.model.offers import Snapshot

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0


@dataclass(frozen=True, slots=True)
class _Mark:
    """What a comparison of a claim with a snapshot depends on: unchanged offers and facts keep their identity."""

    claim: PreparedClaim
    hardware: tuple[object, ...]

    @classmethod
    def of(cls, claim: PreparedClaim, snapshot: Snapshot) -> Self:
        devices = snapshot.inventory.devices
        offers = [snapshot.offers.get(device.name) for device in claim.devices]
        return cls(claim, (*offers, *(devices.get(above(device.offer.key)) for device in claim.devices)))

    def same_as(self, other: Self | None) -> bool:
        """Never for a device that is gone: what stands at its address now may change."""
        return (
            other is not None
            and other.claim is self.claim
            and all(
                now is not None and now is before for now, before in zip(self.hardware, other.hardware, strict=True)
            )
        )


class Refresher:
    """Compares every prepared claim with every snapshot, and rewrites what differs."""

    def __init__(
        self,
        *,
        store: Store,
        ledger: Ledger,
        settings: ClaimSettings,
        metrics: Metrics,
        recorder: Recorder | None = None,
    ) -> None:
        self._store = store
        self._ledger = ledger
        self._settings = settings
        self._metrics = metrics
        self._recorder = recorder
        self._at_work: set[str] = set()
        self._compared: dict[str, _Mark] = {}
        self._served: Snapshot | None = None

    async def run(self) -> None:
        """Follow the snapshots until cancelled; a claim that waits for its lock keeps no other one."""
        served = -1
        async with anyio.create_task_group() as tasks:
            while True:
                snapshot = await self._store.settled(after=served)
                served = snapshot.revision
                if snapshot.complete:  # before, everything would seem to be gone
                    self._catch_up(tasks, snapshot)

    def _catch_up(self, tasks: TaskGroup, snapshot: Snapshot) -> None:
        before, compared = self._compared, {}
        same = _same_hardware(snapshot, self._served)
        for claim in self._ledger.records:
            mark = before.get(claim.uid)
            if mark is None or mark.claim is not claim or not same:
                mark = _Mark.of(claim, snapshot)
                if not mark.same_as(before.get(claim.uid)):
                    self._compare(tasks, claim, snapshot)
            compared[claim.uid] = mark
        self._compared, self._served = compared, snapshot

    def _compare(self, tasks: TaskGroup, claim: PreparedClaim, snapshot: Snapshot) -> None:
        if claim.uid not in self._at_work and brought_up(claim, snapshot) != claim:
            self._at_work.add(claim.uid)
            tasks.start_soon(self._refresh, claim.uid)

    async def _refresh(self, uid: str) -> None:
        pause = _FIRST_PAUSE_S
        try:
            while not await self._refreshed(uid):
                await anyio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE_S)
        finally:
            self._at_work.discard(uid)

    async def _refreshed(self, uid: str) -> bool:
        """Write the claim's file until it agrees with the newest snapshot; False: it cannot be written now."""
        try:
            while True:
                async with self._ledger.writing(uid, patience_s=self._settings.lock_s):
                    known = await self._ledger.reread(uid)
                    claim = known.claim
                    if claim is None:  # unprepared meanwhile, or removed by hand: the next prepare writes it
                        self._ledger.announce()
                        return True
                    now = brought_up(claim, self._store.snapshot)
                    if now == claim:
                        return True
                    if groups.asked(now):
                        now = await anyio.to_thread.run_sync(groups.with_groups, now, self._settings.dev)
                    if await self._ledger.save(now, known) is Saved.WRITTEN:
                        self._metrics.claim_refreshes.inc()
                        self._tell(claim, now)
        except (ClaimError, DirectoryError) as error:
            log.warning("claims.refresh_failed", uid=uid, error=str(error))
            return False

    def _tell(self, before: PreparedClaim, now: PreparedClaim) -> None:
        log.info(
            "claims.refreshed", claim=str(now), nodes=[node.path for device in now.devices for node in device.nodes]
        )
        if self._recorder is None:
            return
        about = ObjectRef(
            api_version="resource.k8s.io/v1",
            kind="ResourceClaim",
            namespace=now.namespace,
            name=now.name,
            uid=now.uid,
        )
        for old, new in zip(before.devices, now.devices, strict=True):
            if new.health is Health.UNHEALTHY and new.message != old.message:
                reason = "DeviceGone" if new.gone else "DeviceReplugged"
                self._recorder.record(about, kind="Warning", reason=reason, message=f"{new.name}: {new.message}")


def brought_up(claim: PreparedClaim, snapshot: Snapshot) -> PreparedClaim:
    """The claim as the hardware of `snapshot` makes it; the very claim when nothing changed."""
    devices = tuple(_followed(device, snapshot) for device in claim.devices)
    return claim if devices == claim.devices else replace(claim, devices=devices)


def _followed(device: PreparedDevice, snapshot: Snapshot) -> PreparedDevice:
    return followed(device, sight(device.name, snapshot, device.offer))


def _same_hardware(one: Snapshot, other: Snapshot | None) -> bool:
    """Whether only rules lie between them: held devices change with every claim."""
    return (
        other is not None
        and one.inventory is other.inventory
        and one.offers is other.offers
        and one.verdicts is other.verdicts
        and one.departed is other.departed
    )
