"""The prepared claims of this node as one thing: files, index, locks, and who must hear of changes.

In: claims to save or remove. Out: `Records` that agree with the folder, `store.set_held`, the health of the claimed
devices, and `changed` for whoever waits. File work runs in worker threads of its own, so that a slow disk never keeps
the event loop or the readers of sysfs. Writing is done only inside `writing`, which keeps every other writer away.
"""

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from typing import TypeVar

import anyio
import anyio.to_thread
import structlog

from liken.claims import records, schema, words
from liken.claims.cdi import document, text
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
_THREADS = 4
_LATEST_S = 0.05
LOCK_FILE = "claims.lock"


@dataclass(frozen=True, slots=True, kw_only=True)
class OnDisk:
    """A claim's file as it was read: its bytes, and the claim if it is a record."""

    claim: PreparedClaim | None
    content: bytes | None


class Saved(Enum):
    """How a save ended."""

    WRITTEN = auto()
    SAME = auto()
    STALE = auto()


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
        self._writes = 0
        self._expected: set[str] = set()  # every claim that may have a file, as far as this instance knows
        self._announced_at = 0.0

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
        self._learn(await self._thread(lambda: records.scan(self._directory, known)))

    async def reread(self, uid: str) -> OnDisk:
        """The claim as its file says it now, and the index with it; only inside `writing`. Raises DirectoryError."""
        known = self.records.uids()

        def both() -> tuple[records.Scan, OnDisk]:
            scanned = records.scan(self._directory, known)
            content = self._directory.read(uid)
            claim = None if content is None else records.parsed(self._directory, uid, content)
            return scanned, OnDisk(claim=claim, content=content)

        scanned, found = await self._thread(both)
        self._learn(scanned)
        if found.claim is None:
            self.records.drop(uid)
        else:
            self.records.put(found.claim)
        return found

    def remembered(self, uid: str) -> OnDisk:
        """What the claim's file says as far as this instance knows; `save` finds out whether that is so."""
        claim = self.records.get(uid)
        return OnDisk(claim=claim, content=None if claim is None else encoded(claim))

    async def save(self, claim: PreparedClaim, over: OnDisk) -> Saved:
        """Make the claim's file say this, in place of `over`; only inside `writing`.

        STALE: the folder is not what this instance believed, nothing was written; `reread` and decide again. Raises
        DirectoryError, and the old file is as it was.
        """
        content, known = encoded(claim), self.records.uids()

        def write() -> Saved:
            there = self._directory.uids()
            if not known <= there or not all(uid in self._expected for uid in there):
                return Saved.STALE
            now = self._directory.read(claim.uid) if claim.uid in there else None
            if now == content:
                return Saved.SAME
            if now != over.content:
                return Saved.STALE
            self._directory.write(claim.uid, content)
            return Saved.WRITTEN

        self._expected.add(claim.uid)  # before other threads can meet the file
        async with self._at_work():
            saved = await self._thread(write)
        if saved is Saved.STALE:
            return saved
        self.records.put(claim)
        if over.claim is not None:
            self._tell(over.claim, claim)
        self._announce_soon()
        return saved

    async def remove(self, uid: str) -> bool:
        """Remove the claim's file; False when there was none. Only inside `writing`. Raises DirectoryError."""
        async with self._at_work():
            removed = await self._thread(partial(self._directory.remove, uid))
        self.records.drop(uid)
        self._expected.discard(uid)
        self._announce_soon()
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
        self._announced_at = anyio.current_time()
        self._store.set_held(self.records.held())
        self._metrics.prepared_claims.set(len(self.records))
        self._changed.set()
        self._changed = anyio.Event()

    def _learn(self, scanned: records.Scan) -> None:
        self.records.apply(scanned)
        self._expected |= scanned.there

    @asynccontextmanager
    async def _at_work(self) -> AsyncIterator[None]:
        self._writes += 1
        try:
            yield
        finally:
            self._writes -= 1

    def _announce_soon(self) -> None:
        """Now, or with a write that is about to end: to judge the held devices again costs more than a small file."""
        if not self._writes or anyio.current_time() - self._announced_at > _LATEST_S:
            self.announce()

    async def _thread(self, work: Callable[[], _T]) -> _T:
        if self._threads is None:
            self._threads = anyio.CapacityLimiter(_THREADS)
        return await anyio.to_thread.run_sync(work, limiter=self._threads)

    def _tell(self, before: PreparedClaim, now: PreparedClaim) -> None:
        old = {device.identity: device.health for device in before.devices}
        for device in now.devices:
            if old.get(device.identity, device.health) != device.health:
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
    made = document(claim)
    if wrong := schema.problems(made):
        raise ClaimError(words.invalid_document(str(claim), wrong))
    return text(made)


def byte_locks(settings: ClaimSettings) -> ByteLocks:
    """The locks that both instances of a rolling update share."""
    return ByteLocks(settings.plugins_dir / "liken.sh" / LOCK_FILE)
