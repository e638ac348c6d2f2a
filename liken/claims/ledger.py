"""The prepared claims of this node as one thing: files, index, locks, and who must hear of changes.

In: claims to save or remove. Out: `Records` that agree with the folder, `store.set_held`, the health of the claimed
devices, and `changed` for whoever waits. File work runs in worker threads of its own, so that a slow disk never keeps
the event loop or the readers of sysfs. Writing is done only inside `writing`, which keeps every other writer away.
"""

import json
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

import anyio
import anyio.to_thread
import structlog

from liken.claims import cdi, records, schema, words
from liken.claims.directory import SpecDirectory
from liken.claims.locks import Busy, ByteLocks, Locks
from liken.claims.ports import ClaimSettings, Store
from liken.claims.prepared import PreparedClaim
from liken.claims.records import Records
from liken.claims.words import ClaimError
from liken.metrics import Metrics
from liken.model.offers import DeviceName

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

_T = TypeVar("_T")
_THREADS = 8
LOCK_FILE = "claims.lock"


class Ledger:
    """Reads and writes the claims' files; one for each daemon."""

    def __init__(self, *, directory: SpecDirectory, locks: ByteLocks, store: Store, metrics: Metrics) -> None:
        self.records = Records()
        self._directory = directory
        self._locks = Locks(locks)
        self._store = store
        self._metrics = metrics
        self._threads: anyio.CapacityLimiter | None = None
        self._changed = anyio.Event()

    @asynccontextmanager
    async def in_turn(self, uid: str, *, patience_s: float) -> AsyncIterator[None]:
        """No other prepare or unprepare of this claim runs; its file may be refreshed meanwhile. Raises ClaimError."""
        async with self._held([f"call/{uid}"], patience_s):
            yield

    @asynccontextmanager
    async def writing(self, uid: str, *, devices: Iterable[DeviceName] = (), patience_s: float) -> AsyncIterator[None]:
        """Nobody else writes this claim's file, nor decides who gets one of these devices. Raises ClaimError."""
        async with self._held([f"claim/{uid}", *(f"device/{name}" for name in devices)], patience_s):
            yield

    @asynccontextmanager
    async def _held(self, names: list[str], patience_s: float) -> AsyncIterator[None]:
        try:
            held = self._locks.holding(names, patience_s=patience_s)
            await held.__aenter__()
        except Busy as error:
            raise ClaimError(words.busy(str(error).partition("/")[2], patience_s)) from error
        except OSError as error:
            raise ClaimError(words.unlockable(f"{error.filename}: {error.strerror}")) from error
        try:
            yield
        finally:
            await held.__aexit__(None, None, None)

    async def synchronize(self) -> None:
        """Learn what another instance wrote or removed since. Raises DirectoryError."""
        known = self.records.uids()
        self.records.apply(await self._thread(lambda: records.scan(self._directory, known)))

    async def reread(self, uid: str) -> PreparedClaim | None:
        """The claim as its file says it now, and the index with it; only inside `writing`. Raises DirectoryError."""
        known = self.records.uids()

        def both() -> tuple[records.Scan, PreparedClaim | None]:
            return records.scan(self._directory, known), records.read(self._directory, uid)

        scanned, claim = await self._thread(both)
        self.records.apply(scanned)
        if claim is None:
            self.records.drop(uid)
        else:
            self.records.put(claim)
        return claim

    async def save(self, claim: PreparedClaim) -> bool:
        """Make the claim's file say this; False when it said so already. Only inside `writing`.

        Raises DirectoryError, and the old file is as it was.
        """
        content = encoded(claim)

        def write() -> bool:
            if self._directory.read(claim.uid) == content:
                return False
            self._directory.write(claim.uid, content)
            return True

        wrote = await self._thread(write)
        before = self.records.get(claim.uid)
        self.records.put(claim)
        self._tell(before, claim)
        self.announce()
        return wrote

    async def remove(self, uid: str) -> bool:
        """Remove the claim's file; False when there was none. Only inside `writing`. Raises DirectoryError."""
        removed = await self._thread(lambda: self._directory.remove(uid))
        self.records.drop(uid)
        self.announce()
        return removed

    async def sweep(self) -> None:
        """Remove temporary files that a killed process left; one of a living instance is under its lock."""
        for uid, path in await self._thread(lambda: list(self._directory.leftovers())):
            try:
                async with self.writing(uid, patience_s=0.0):
                    if await self._thread(partial(self._directory.discard, path)):
                        log.info("claims.swept", file=str(path))
            except ClaimError:
                continue  # it belongs to an instance that is writing it

    async def announced(self) -> None:
        """Return at the next `announce`; look at the records before and after, for several may become one."""
        await self._changed.wait()

    def announce(self) -> None:
        """Tell everybody what the index holds: held devices, gauge, waiters."""
        self._store.set_held(self.records.held())
        self._metrics.prepared_claims.set(len(self.records))
        self._changed.set()
        self._changed = anyio.Event()

    async def _thread(self, work: Callable[[], _T]) -> _T:
        if self._threads is None:
            self._threads = anyio.CapacityLimiter(_THREADS)
        return await anyio.to_thread.run_sync(work, limiter=self._threads)

    def _tell(self, before: PreparedClaim | None, now: PreparedClaim) -> None:
        old = (
            {(device.name, device.request, device.share_id): device.health for device in before.devices}
            if before
            else {}
        )
        for device in now.devices:
            was = old.get((device.name, device.request, device.share_id))
            if was is not None and was != device.health:
                self._metrics.health_transitions.labels(to=device.health).inc()
                log.info(
                    "claims.health",
                    claim=str(now),
                    device=device.name,
                    health=device.health.value,
                    message=device.message,
                )


def encoded(claim: PreparedClaim) -> bytes:
    """The bytes of a claim's file. Raises ClaimError for a document that a runtime would refuse."""
    document = cdi.document(claim)
    if wrong := schema.problems(document):
        raise ClaimError(words.invalid_document(str(claim), wrong))
    return json.dumps(document, indent=1).encode() + b"\n"


def byte_locks(settings: ClaimSettings) -> ByteLocks:
    """The locks that both instances of a rolling update share."""
    return ByteLocks(settings.plugins_dir / "liken.sh" / LOCK_FILE)
