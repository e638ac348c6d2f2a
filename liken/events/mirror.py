"""Keeps the store equal to the kernel: subscribe, enumerate, then look wherever something is said to have changed.

In: a source of changes and the reader of sysfs. Out: facts into the store, a log line for every device that appeared,
left or changed. An event only marks entries dirty; after the settle window exactly those are read again, so a lost or
doubled event cannot make the view drift. Whatever may have been missed ends in one comparison with everything. State
is a set of entries at most as large as the machine: nothing here queues.
"""

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
import structlog
from anyio.abc import TaskStatus

from liken.events.journal import Journal
from liken.events.kernel import RECEIVE_BUFFER, Heard, KernelEvents, KernelEventsError, Resync, Source
from liken.events.mounts import mount_changes
from liken.events.places import Places, unit
from liken.events.readers import Answer, Call, Readers
from liken.events.settle import Settle
from liken.events.sysfs import Reading, Sysfs, SysfsError
from liken.metrics import Metrics
from liken.model.api import ObjectRef, Recorder
from liken.model.hardware import DeviceFacts, DeviceKey, DevPath, Problem, Reason, SystemFacts
from liken.model.offers import Snapshot
from liken.state.graph import Delta, owner_key
from liken.state.store import Store

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

PATIENCE_S: Final = 0.05
"""How long one device may keep a thread before another goes on with the rest."""

AGAIN_S: Final = (0.5, 2.0, 8.0)
"""When a device that changed while it was read is looked at again, unless an event comes first."""

SYSTEM_PLACES: Final = frozenset({"/module/uhid", "/devices/virtual/misc/uhid"})
"""Places whose events change what the machine has besides its devices."""

REOPEN_S: Final = 1.0
_NEVER: Final = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorSettings:
    """Times in seconds, the receive buffer in bytes."""

    quiet_s: float = 0.05
    limit_s: float = 0.5
    resync_s: float = 600.0
    read_deadline_s: float = 2.0
    receive_buffer: int = RECEIVE_BUFFER


class Mirror:
    """The kernel's devices as the store has them, and questions out of turn."""

    def __init__(
        self,
        *,
        sysfs: Sysfs,
        store: Store,
        settings: MirrorSettings | None = None,
        metrics: Metrics,
        recorder: Recorder | None = None,
        node: ObjectRef | None = None,
        source: Callable[[], Source] | None = None,
        on_change: Callable[[Delta, Snapshot], None] | None = None,
    ) -> None:
        """`source` opens a subscription (default: the kernel's); `on_change` hears of every change of the store."""
        self._sysfs, self._store, self._metrics = sysfs, store, metrics
        self._settings = settings if settings is not None else MirrorSettings()
        self._source = source if source is not None else self._kernel
        self._on_change = on_change
        self._journal = Journal(store, metrics, recorder, node)
        self._places = Places()
        self._readers = Readers(
            sysfs.reading,
            deadline_s=self._settings.read_deadline_s,
            patience_s=min(PATIENCE_S, self._settings.read_deadline_s / 2),
            on_answer=self._answer,
        )
        self._settle = Settle(self._settings.quiet_s, self._settings.limit_s)
        self._dirty: set[DeviceKey] = set()
        self._compare: set[str] = set()
        self._system = False
        self._late: dict[DeviceKey, Answer] = {}
        self._once_more: set[DeviceKey] = set()
        self._again: dict[DeviceKey, tuple[int, float]] = {}
        self._began: dict[DeviceKey, float] = {}
        self._reading = 0
        self._not_before = 0.0
        self._safety = 0.0
        self._wake = anyio.Event()

    # -- what others call --------------------------------------------------------------------------------------------

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Mirror until cancelled; started once the first enumeration is in the store.

        Raises KernelEventsError or SysfsError when this machine's events or sysfs cannot be had at all.
        """
        source = self._source()  # before anything is read: what happens from here on waits in the socket
        try:
            began = time.monotonic()
            await self._enumerate({"start"})
            self._journal.enumerated(self._store.snapshot, time.monotonic() - began)
        except BaseException:
            source.close()
            raise
        self._safety = anyio.current_time() + self._settings.resync_s
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._listen, source)
            tasks.start_soon(self._watch_mounts)
            task_status.started()
            await self._follow()

    async def refresh(self, keys: Collection[DeviceKey]) -> Snapshot:
        """Read just these devices now, without waiting for events to settle, and return the newest snapshot.

        A device that does not answer within its deadline is in it as Unreadable.
        """
        wanted = {other for key in keys for other in unit(self._places, key)}
        await self._look(wanted)
        await self._readers.answered(wanted)
        self._overdue()
        self._take_late()
        return self._store.snapshot

    async def rescan(self) -> None:
        """Ask for a comparison with everything."""
        self._compare.add("asked")
        self._changed()

    async def reprobe(self, key: DeviceKey) -> str | None:
        """Ask the kernel to bind a driver to a USB interface; what went wrong in words, None when nothing did."""
        probe = self._sysfs.root / "bus" / key.bus / "drivers_probe"
        try:
            await Call(lambda: _written(probe, key.address)).within(self._settings.read_deadline_s)
        except TimeoutError:
            problem = f"{probe} did not answer within {self._settings.read_deadline_s:g} s for {key.address}"
        except OSError as error:
            problem = f"writing {key.address} to {probe}: {error.strerror}"
        else:
            log.info("device.reprobed", bus=key.bus, address=key.address)
            return None
        log.warning("device.reprobe_failed", bus=key.bus, address=key.address, problem=problem)
        return problem

    # -- what is heard -----------------------------------------------------------------------------------------------

    def _kernel(self) -> Source:
        return KernelEvents(metrics=self._metrics, receive_buffer=self._settings.receive_buffer)

    async def _listen(self, source: Source) -> None:
        while True:
            try:
                async for batch in source.batches():
                    self._hear(batch)
            except OSError as error:
                log.warning("uevents.broken", error=str(error), advice="the socket is opened anew")
            else:
                return
            finally:
                source.close()
            source = await self._reopened()
            self._hear((Resync("reader"),))

    async def _reopened(self) -> Source:
        while True:
            await anyio.sleep(REOPEN_S)
            try:
                return self._source()
            except KernelEventsError as error:
                log.warning("uevents.not_heard", error=str(error), advice="tried again every second")

    def _hear(self, batch: Iterable[Heard]) -> None:
        relevant = False
        for heard in batch:
            if isinstance(heard, Resync):
                self._compare.add(heard.cause)
                relevant = True
            elif heard.path in SYSTEM_PLACES:
                self._system = relevant = True
            elif keys := self._places.concerned(heard.path):
                self._dirty |= keys
                relevant = True
        if relevant:
            self._changed()

    def _changed(self) -> None:
        self._settle.note(anyio.current_time())
        self._wake.set()

    async def _watch_mounts(self) -> None:
        async for _ in mount_changes(self._sysfs.proc):
            self._system = True
            self._changed()

    def _answer(self, key: DeviceKey, answer: Answer) -> None:
        self._late[key] = answer
        self._wake.set()

    # -- when it is looked at ----------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        while True:
            self._wake = anyio.Event()
            self._take_late()
            self._overdue()
            due = self._due()
            if due > 0:
                with anyio.move_on_after(due):
                    await self._wake.wait()
                continue
            await self._look_again()

    def _due(self) -> float:
        """Seconds until there is something to do."""
        now = anyio.current_time()
        times = [self._safety, *(at for _, at in self._again.values())]
        if self._settle.due is not None:
            times.append(self._settle.due)
        if self._compare:
            times.append(max(self._settle.due or now, self._not_before))
        left = min(times) - now
        deadline = self._readers.next_deadline
        return left if deadline is None else min(left, deadline)

    async def _look_again(self) -> None:
        """Do what is due: the safety comparison, a second look, and what the settle window has gathered."""
        now = anyio.current_time()
        if now >= self._safety:
            self._safety = now + self._settings.resync_s
            await self._enumerate({"safety"})
        dirty = {key for key, (_, at) in self._again.items() if at <= now}
        self._again |= {key: (self._again[key][0], _NEVER) for key in dirty}
        first, system = None, False
        if self._settle.due is None or self._settle.due <= now:
            first = self._settle.close()
            system, self._system = self._system, False
            dirty, self._dirty = dirty | self._dirty, set()
            if self._compare and now >= self._not_before:
                causes, self._compare = self._compare, set()
                await self._enumerate(causes)
        if dirty or system:
            await self._look({other for key in dirty for other in unit(self._places, key)}, first, system=system)
        if first is not None:
            self._metrics.settle_seconds.observe(max(0.0, now - first))

    # -- looking -----------------------------------------------------------------------------------------------------

    async def _look(self, keys: Iterable[DeviceKey], first: float | None = None, *, system: bool = True) -> None:
        """Read entries, and what turned out to hang below them or no longer to, and take the answers over."""
        with self._at_work():
            answers: dict[DeviceKey, Answer] = {}
            asked: set[DeviceKey] = set()
            waiting = set(keys)
            while waiting:
                asked |= waiting
                self._once_more |= self._readers.awaited(waiting)
                found = await self._readers.read(sorted(waiting))
                answers |= found
                waiting = {other for key, answer in found.items() for other in self._next(key, answer)} - asked
            facts = await self._system_facts() if system else None
            self._commit(answers, first=first, system=facts)

    def _next(self, key: DeviceKey, answer: Answer) -> set[DeviceKey]:
        """What one answer makes worth reading: entries that are new below it, and those no longer there."""
        before = set(self._places.below(key))
        if answer.reading is None:
            return before
        if answer.reading.facts.problem is not None:
            return set()
        below = answer.reading.below
        return before.difference(below) | {other for other in below if other not in self._places}

    async def _enumerate(self, causes: Collection[str]) -> None:
        """Read everything and compare; `causes` say why, for the metrics and the log."""
        began = time.monotonic()
        with self._at_work():
            try:
                listed = await Call(self._sysfs.keys).within(self._settings.read_deadline_s * 5)
            except (SysfsError, TimeoutError) as error:
                if "start" in causes:
                    raise SysfsError(str(error) or f"{self._sysfs.root} does not answer") from error
                log.error("sysfs.not_listed", error=str(error), advice="the last view stays; tried again in 10 minutes")  # noqa: TRY400
                return
            before = frozenset(self._places)
            answers = await self._readers.read(listed)
            answers |= {key: Answer(None, began) for key in before.difference(listed)}
            delta = self._commit(answers, system=await self._system_facts(), complete=True)
        if "start" not in causes:  # a machine that overflows all the time is not compared all the time
            self._not_before = anyio.current_time() + 2 * (time.monotonic() - began)
        known = {owner_key(key) for key in self._dirty}
        noticed = [key for key in delta.keys if owner_key(key) not in known]
        self._journal.compared(causes, delta, noticed, self._store.snapshot)

    async def _system_facts(self) -> SystemFacts | None:
        try:
            return await Call(self._sysfs.system).within(self._settings.read_deadline_s)
        except TimeoutError:
            log.error("system.not_read", advice="/proc or /dev does not answer; what was known of mounts stays")  # noqa: TRY400
            return None

    # -- taking over -------------------------------------------------------------------------------------------------

    def _commit(
        self,
        answers: Mapping[DeviceKey, Answer],
        *,
        first: float | None = None,
        system: SystemFacts | None = None,
        complete: bool | None = None,
    ) -> Delta:
        """Put answers into the store, except where a read that began later is there already."""
        facts: list[DeviceFacts] = []
        gone: list[DeviceKey] = []
        for key, answer in answers.items():
            if self._began.get(key, 0.0) > answer.began:
                continue
            self._began[key] = answer.began
            if answer.reading is None:
                gone.append(key)
                self._places.drop(key)
                self._again.pop(key, None)
            else:
                facts.append(answer.reading.facts)
                self._places.put(key, answer.reading)
                self._note_again(key, answer.reading.facts)
        before = self._store.snapshot
        delta = self._store.replace(facts, gone=gone, system=system, complete=complete, changed_at=first)
        self._metrics.sysfs_stuck.set(self._readers.stuck)
        if delta:
            self._journal.changed(before, self._store.snapshot, delta)
            if self._on_change is not None:
                self._on_change(delta, self._store.snapshot)
        return delta

    def _note_again(self, key: DeviceKey, facts: DeviceFacts) -> None:
        if facts.problem is None or facts.problem.reason is not Reason.VANISHED:
            self._again.pop(key, None)
            return
        tries, _ = self._again.get(key, (0, 0.0))
        wait = AGAIN_S[tries] if tries < len(AGAIN_S) else _NEVER
        self._again[key] = tries + 1, anyio.current_time() + wait

    def _take_late(self) -> None:
        """Take over what slow devices answered in the end, and look at what turned out to hang below them."""
        late, self._late = self._late, {}
        if late:
            more = {other for key, answer in late.items() for other in self._next(key, answer)}
            self._commit(late)
            for key in late:
                log.info("device.answered", bus=key.bus, address=key.address)
            more |= self._once_more & late.keys()
            self._once_more.difference_update(late)
            self._dirty |= more
            if more:
                self._changed()

    def _overdue(self) -> None:
        """Say of devices past their deadline that they do not answer."""
        for key, waited in self._readers.expired().items():
            detail = f"it has not answered for {waited:.1f} s: reading its files in sysfs blocks"
            log.warning("device.stuck", bus=key.bus, address=key.address, waited_s=round(waited, 1))
            problem = Problem(reason=Reason.UNREADABLE, detail=detail)
            path = self._places.path(key) or DevPath("")
            reading = Reading(DeviceFacts(key=key, path=path, problem=problem))
            self._commit({key: Answer(reading, time.monotonic() - waited)})

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        """While looks are under way it is known which read of an entry is the newest; after the last it may be lost."""
        self._reading += 1
        try:
            yield
        finally:
            self._reading -= 1
            if not self._reading and self._readers.idle:
                self._began.clear()


def _written(path: Path, text: str) -> None:
    """Write to a file of sysfs, which is never created."""
    with open(os.open(path, os.O_WRONLY | os.O_CLOEXEC), "w") as file:  # noqa: PTH123 - a descriptor
        file.write(text)
