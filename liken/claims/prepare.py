"""Prepares claims and lets them go: from the kubelet's reference to a CDI file, or to the reason why not.

In: one claim reference at a time, from many calls at once; the same claim is done in turn, different claims together.
Out: the prepared claim, or a ClaimError in words for `kubectl describe pod`. A prepared claim is never believed: each
call reads the claim, the allocated devices and the file anew, so a reboot, a replug or a lost file heals at the next
call.
"""

import time
from collections.abc import Callable, Collection, Sequence

import anyio
import anyio.to_thread
import structlog

from liken.claims import allocation, groups, words
from liken.claims.allocation import Allocation, Result
from liken.claims.directory import DirectoryError
from liken.claims.ledger import Ledger, OnDisk, Saved
from liken.claims.making import prepared_claim
from liken.claims.ports import ClaimApi, ClaimRef, ClaimSettings, Hardware, Store
from liken.claims.prepared import PreparedClaim, followed
from liken.claims.sight import above, driverless, key_of, may_be_taken, sight
from liken.claims.words import ClaimError
from liken.model.hardware import DeviceKey
from liken.model.offers import Snapshot

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

_UID_LETTERS = frozenset("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-")
_LONGEST_UID = 128
_REPROBE_S, _LOOK_S = 3.0, 2.0
_ATTEMPTS = 5


def safe_uid(uid: str) -> bool:
    """Whether a uid may become part of a file name."""
    return 0 < len(uid) <= _LONGEST_UID and set(uid) <= _UID_LETTERS and uid[0] != "-" != uid[-1]


class Preparer:
    """Prepares and unprepares claims against one ledger."""

    def __init__(
        self,
        *,
        api: ClaimApi,
        hardware: Hardware,
        store: Store,
        ledger: Ledger,
        settings: ClaimSettings,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._api = api
        self._hardware = hardware
        self._store = store
        self._ledger = ledger
        self._settings = settings
        self._wall = wall

    # --- prepare ------------------------------------------------------------------------------------------------------
    async def prepare(self, ref: ClaimRef) -> PreparedClaim:
        """Make the claim's devices ready; the answer after its file is on the disk. Raises ClaimError."""
        if not safe_uid(ref.uid):
            raise ClaimError(words.strange_uid(ref.uid), refused=True)
        until = anyio.current_time() + self._settings.call_s
        async with self._ledger.in_turn(ref.uid, patience_s=self._settings.lock_s):
            await self._inventory_read(until)
            claim = await allocation.fetched(
                self._api,
                ref,
                within_s=min(self._settings.api_s, _left(until)),
                try_s=self._settings.api_try_s,
            )
            allocated = allocation.allocation(claim, ref, self._settings.node_name)
            try:
                return await self._given(ref, allocated, until)
            except DirectoryError as error:
                raise ClaimError(words.unwritable(str(ref), str(error))) from error

    async def _given(self, ref: ClaimRef, allocated: Allocation, until: float) -> PreparedClaim:
        """Write the claim's file for the hardware as it is; again when the hardware changed meanwhile."""
        attempts = 0
        while True:
            snapshot = await self._fresh(allocated.results, until)
            claim = await self._written(ref, allocated, snapshot, until)
            attempts += 1
            if attempts == _ATTEMPTS or self._still(claim, snapshot):
                return claim  # what changes faster than that is followed as any change

    def _still(self, claim: PreparedClaim, then: Snapshot) -> bool:
        now = self._store.snapshot
        return (now.offers is then.offers and now.inventory is then.inventory) or all(
            followed(device, sight(device.name, now, device.offer)) == device for device in claim.devices
        )

    async def _written(self, ref: ClaimRef, allocated: Allocation, snapshot: Snapshot, until: float) -> PreparedClaim:
        alone = [result.device for result in allocated.results if _exclusive(result, snapshot)]
        patience = min(self._settings.lock_s, _left(until))
        async with self._ledger.writing(ref.uid, devices=alone, patience_s=patience):
            known, certain = self._ledger.remembered(ref.uid), False
            for _ in range(_ATTEMPTS):
                try:
                    claim, saved = await self._tried(ref, allocated, snapshot, known)
                except ClaimError:
                    if certain:
                        raise  # else the index may be older than the folder
                else:
                    if saved is not Saved.STALE:
                        return claim
                known, certain = await self._ledger.reread(ref.uid), True
        raise ClaimError(words.restless(str(ref)))

    async def _tried(
        self, ref: ClaimRef, allocated: Allocation, snapshot: Snapshot, known: OnDisk
    ) -> tuple[PreparedClaim, Saved]:
        claim = await self._made(ref, allocated, snapshot, known.claim)
        self._refuse_held(claim, snapshot)
        saved = await self._ledger.save(claim, known)
        if saved is Saved.WRITTEN:
            log.info("claims.prepared", claim=str(ref), uid=ref.uid, devices=[d.name for d in claim.devices])
        return claim, saved

    async def _inventory_read(self, until: float) -> None:
        """Wait for the first inventory: before it every device would seem to be gone."""
        snapshot = self._store.snapshot
        if snapshot.complete:
            return
        wait = min(self._settings.inventory_s, _left(until))
        with anyio.move_on_after(wait):
            while not snapshot.complete:
                snapshot = await self._store.settled(after=snapshot.revision)
            return
        raise ClaimError(words.not_ready(wait))

    async def _fresh(self, results: Sequence[Result], until: float) -> Snapshot:
        """A snapshot that knows the allocated devices as they are now."""
        wait = min(self._settings.hardware_s, _left(until))
        with anyio.move_on_after(wait):
            return await self._hardware.refresh(self._keys(results))
        raise ClaimError(words.not_answering(sorted({result.device for result in results}), wait))

    def _keys(self, results: Sequence[Result]) -> set[DeviceKey]:
        offers = self._store.snapshot.offers
        keys = {
            key
            for result in results
            if (key := offers[result.device].key if result.device in offers else key_of(result.device)) is not None
        }
        return keys | {above(key) for key in keys}

    async def _made(
        self, ref: ClaimRef, allocated: Allocation, snapshot: Snapshot, known: PreparedClaim | None
    ) -> PreparedClaim:
        if known is not None and known.boot != self._settings.boot_id:
            known = None  # no container of an earlier boot runs
        fresh = PreparedClaim(
            uid=ref.uid,
            namespace=ref.namespace,
            name=ref.name,
            since=self._wall(),
            boot=self._settings.boot_id,
            devices=(),
        )
        claim = prepared_claim(known if known is not None else fresh, allocated, snapshot)
        if not groups.asked(claim):
            return claim
        return await anyio.to_thread.run_sync(groups.with_groups, claim, self._settings.dev)

    def _refuse_held(self, claim: PreparedClaim, snapshot: Snapshot) -> None:
        """The last defence against double allocation."""
        for device in claim.devices:
            if device.admin or snapshot.offers[device.name].shareable:
                continue
            for holder, _ in self._ledger.records.holders(device.name):
                if holder.uid != claim.uid:
                    raise ClaimError(words.held(device.name, str(holder)), refused=True)

    # --- unprepare ----------------------------------------------------------------------------------------------------
    async def unprepare(self, ref: ClaimRef) -> None:
        """Let the claim go; succeeds for what is unknown or gone. Raises ClaimError when its file cannot be removed."""
        if not safe_uid(ref.uid):
            return  # such a claim was never prepared
        patience = self._settings.lock_s
        async with self._ledger.in_turn(ref.uid, patience_s=patience):
            try:
                known = await self._ledger.reread(ref.uid)
                if known.claim is not None:
                    await self._give_back(known.claim)
                async with self._ledger.writing(ref.uid, patience_s=patience):
                    if await self._ledger.remove(ref.uid):
                        log.info("claims.unprepared", claim=str(ref), uid=ref.uid)
            except DirectoryError as error:
                raise ClaimError(words.unremovable(str(ref), str(error))) from error

    async def _give_back(self, claim: PreparedClaim) -> None:
        """Bind the kernel's driver again where a program in the pod took it; a failure is only logged.

        It stands before the removal of the file: after a kill between the two the kubelet repeats the call, and a
        file that is gone would leave nothing that says there is something to bind.
        """
        keys = {
            device.offer.key
            for device in claim.devices
            if not device.admin
            and may_be_taken(device.offer.key)
            and "driver" in device.offer.attributes
            and all(holder.uid == claim.uid for holder, _ in self._ledger.records.holders(device.name))
        }
        snapshot = await self._seen(keys) if keys else self._store.snapshot
        for key in sorted(key for key in keys if driverless(key, snapshot)):
            said: str | None = f"no end within {_REPROBE_S:.0f} s"
            with anyio.move_on_after(_REPROBE_S):
                try:
                    said = await self._hardware.reprobe(key)
                except Exception as error:  # noqa: BLE001 - whatever it is, the pod must be able to end
                    said = f"{type(error).__name__}: {error}"
            if said:
                log.warning("claims.driver_not_back", claim=str(claim), address=key.address, error=said)
            else:
                log.info("claims.driver_back", claim=str(claim), address=key.address)

    async def _seen(self, keys: Collection[DeviceKey]) -> Snapshot:
        """A fresh look at these devices, or the newest snapshot when they do not answer."""
        with anyio.move_on_after(_LOOK_S):
            try:
                return await self._hardware.refresh(keys)
            except Exception:
                log.warning("claims.not_read", devices=[key.address for key in keys], exc_info=True)
        return self._store.snapshot


def _left(until: float) -> float:
    return max(until - anyio.current_time(), 0.0)


def _exclusive(result: Result, snapshot: Snapshot) -> bool:
    offer = snapshot.offers.get(result.device)
    return not result.admin and offer is not None and not offer.shareable
