"""Serial attachments: which lines the entries of `spec.serio` mean, and keeping each of them attached.

Matching is by USB identity; an entry with a serial takes its adapter first, one without takes what is left of its
model. Each line is held in a thread of its own for as long as liken runs. A hang-up ends the thread; what the hardware
looks like then decides whether the line is missing (unplugged) or tried again, at once after a replug and else with a
growing wait.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Final

import anyio
import anyio.from_thread
import anyio.to_thread
import structlog

from liken.machine.line import DRIVERS, Discipline, LineError
from liken.model.hardware import Bus, DeviceFacts, DeviceKey
from liken.model.machine import SerioEntry
from liken.model.offers import Snapshot
from liken.state.graph import owner_key
from liken.state.store import Store
from liken.state.verdicts import attaches

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

BIND_S: Final = 5.0
POLL_S: Final = 0.1
FIRST_RETRY_S: Final = 1.0
LAST_RETRY_S: Final = 300.0
HUNG_UP: Final = "the line hung up"


class SerioState(StrEnum):
    """State of one attachment."""

    ATTACHED = "Attached"
    MISSING = "Missing"
    REFUSED = "Refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A line an entry means; `unit` changes with each enumeration, so a replug is another target."""

    entry: SerioEntry
    interface: DeviceKey
    tty: str
    unit: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SerioReport:
    """One attachment for the status."""

    entry: SerioEntry
    state: SerioState
    message: str = ""
    tty: str = ""
    port: str = ""
    nodes: tuple[str, ...] = ()


def targets(entries: Sequence[SerioEntry], snapshot: Snapshot) -> tuple[Target | SerioReport, ...]:
    """For each entry the lines it means, or one report of what is missing; entries with a serial choose first."""
    adapters = sorted(
        (facts for key, facts in snapshot.inventory.devices.items() if key.bus is Bus.USB and ":" not in key.address),
        key=lambda facts: facts.path,
    )
    taken: set[DeviceKey] = set()
    found: dict[int, list[Target | SerioReport]] = {}
    for index in sorted(range(len(entries)), key=lambda index: entries[index].serial is None):
        entry = entries[index]
        mine = [facts for facts in adapters if facts.key not in taken and attaches(entry, facts)]
        taken |= {facts.key for facts in mine}
        lines: list[Target | SerioReport] = [_line(entry, adapter, snapshot) for adapter in mine]
        found[index] = lines or [
            SerioReport(entry=entry, state=SerioState.MISSING, message="no adapter of this identity is plugged in")
        ]
    return tuple(line for index in range(len(entries)) for line in found[index])


def _line(entry: SerioEntry, adapter: DeviceFacts, snapshot: Snapshot) -> Target | SerioReport:
    for facts in _interfaces(adapter, snapshot):
        for node in facts.nodes:
            if node.kind == "tty":
                unit = adapter.files.get("devnum", b"")
                return Target(entry=entry, interface=facts.key, tty=node.name, unit=unit)
    message = (
        f"the adapter is plugged in at {adapter.key.address} and has no serial line: declare cdc_acm in spec.modules"
    )
    return SerioReport(entry=entry, state=SerioState.MISSING, message=message)


def _interfaces(adapter: DeviceFacts, snapshot: Snapshot) -> Iterator[DeviceFacts]:
    for key in sorted(snapshot.inventory.devices):
        if key != adapter.key and owner_key(key) == adapter.key:
            yield snapshot.inventory.devices[key]


@dataclass(slots=True, kw_only=True)
class _Held:
    """One target's task: its thread while it is attached, and what came of the last try."""

    report: SerioReport
    thread: threading.Thread | None = None
    failures: int = 0
    again_at: float = 0.0
    busy: bool = False


class Attachments:
    """Keeps the wanted lines attached; `changed` is called whenever a report may differ."""

    def __init__(
        self, *, store: Store, discipline: Discipline, sysfs: Path, dev: Path, changed: Callable[[], None]
    ) -> None:
        self._store = store
        self._discipline = discipline
        self._sysfs = sysfs
        self._dev = dev
        self._changed = changed
        self._entries: tuple[SerioEntry, ...] = ()
        self._missing: tuple[SerioReport, ...] = ()
        self._held: dict[Target, _Held] = {}
        self._wake = anyio.Event()

    def want(self, entries: Sequence[SerioEntry]) -> None:
        """Attach these; what is attached and no longer wanted stays so, and stays withheld, until liken ends."""
        if tuple(entries) != self._entries:
            self._entries = tuple(entries)
            for held in self._held.values():
                held.again_at = 0.0
            self._wake.set()

    @property
    def reports(self) -> tuple[SerioReport, ...]:
        """Every attachment, attached or not."""
        return (*(held.report for held in self._held.values()), *self._missing)

    def _in_force(self) -> tuple[SerioEntry, ...]:
        kept = [target.entry for target, held in self._held.items() if held.thread is not None]
        return tuple(dict.fromkeys((*self._entries, *kept)))

    async def run(self) -> None:
        """Follow the hardware and the wishes until cancelled; every thread has ended then."""
        try:
            async with anyio.create_task_group() as tasks:
                while True:
                    self._wake = anyio.Event()
                    entries = self._in_force()
                    self._store.set_serio(entries)
                    snapshot = self._store.snapshot
                    if snapshot.complete:
                        self._match(entries, snapshot, tasks)
                    await self._rest(snapshot.revision)
        finally:
            for held in self._held.values():
                if held.thread is not None:
                    self._discipline.release(held.thread)

    def _match(self, entries: Sequence[SerioEntry], snapshot: Snapshot, tasks: anyio.abc.TaskGroup) -> None:
        found = targets(entries, snapshot)
        wanted = {line for line in found if isinstance(line, Target)}
        missing = tuple(line for line in found if isinstance(line, SerioReport))
        for target in [target for target, held in self._held.items() if target not in wanted and not held.busy]:
            del self._held[target]
            self._changed()
        if missing != self._missing:
            self._missing = missing
            self._changed()
        now = anyio.current_time()
        for target in sorted(wanted, key=lambda target: (target.interface, target.tty)):
            held = self._held.setdefault(target, _Held(report=_refused(target, "not attached yet")))
            if not held.busy and held.again_at <= now:
                held.busy = True
                tasks.start_soon(self._attach, target, held)

    async def _rest(self, revision: int) -> None:
        """Until the hardware or the wishes change, or a refused line may be tried again."""
        until = min((held.again_at for held in self._held.values() if not held.busy and held.again_at), default=None)
        timeout = None if until is None else max(0.0, until - anyio.current_time())
        with anyio.move_on_after(timeout):
            async with anyio.create_task_group() as waiting:

                async def first(wait: Callable[[], object]) -> None:
                    await wait()  # type: ignore[misc]
                    waiting.cancel_scope.cancel()

                waiting.start_soon(first, self._wake.wait)
                waiting.start_soon(first, lambda: self._store.settled(after=revision))

    async def _attach(self, target: Target, held: _Held) -> None:
        """One life of an attachment: hold the line in a thread, see the driver bind, wait for the hang-up."""
        attached, ended = anyio.Event(), anyio.Event()
        words: list[str] = []
        token = anyio.lowlevel.current_token()

        def hold() -> None:
            try:
                self._discipline.hold(
                    self._dev / target.tty,
                    target.entry.protocol,
                    lambda: anyio.from_thread.run_sync(attached.set, token=token),
                )
            except LineError as error:
                words.append(str(error))
            finally:
                try:
                    anyio.from_thread.run_sync(ended.set, token=token)
                except RuntimeError:
                    return  # the loop has ended before us

        thread = threading.Thread(target=hold, name=f"serio {target.tty}", daemon=True)
        held.thread = thread
        thread.start()
        try:
            await self._follow(target, held, attached, ended)
            await ended.wait()
        finally:
            held.thread = None
        self._over(target, held, words[0] if words else HUNG_UP)

    async def _follow(self, target: Target, held: _Held, attached: anyio.Event, ended: anyio.Event) -> None:
        """Wait for the port and its driver, at most five seconds."""
        async with anyio.create_task_group() as waiting:

            async def stop_at_the_end() -> None:
                await ended.wait()
                waiting.cancel_scope.cancel()

            waiting.start_soon(stop_at_the_end)
            await attached.wait()
            end = anyio.current_time() + BIND_S
            port = ""
            while anyio.current_time() < end:
                port, bound = await anyio.to_thread.run_sync(self._port, target)
                if bound:
                    self._bound(target, held, port)
                    break
                await anyio.sleep(POLL_S)
            else:
                driver = DRIVERS[target.entry.protocol]
                message = f"{port or 'the port'} has no driver after {BIND_S:.0f} s: declare {driver} in spec.modules"
                held.report = replace(_refused(target, message), port=port)
                self._changed()
                if held.thread is not None:
                    self._discipline.release(held.thread)
            waiting.cancel_scope.cancel()

    def _bound(self, target: Target, held: _Held, port: str) -> None:
        held.failures = 0
        held.report = SerioReport(entry=target.entry, state=SerioState.ATTACHED, tty=target.tty, port=port)
        log.info("serio.attached", tty=target.tty, port=port, protocol=str(target.entry.protocol))
        self._changed()

    def _over(self, target: Target, held: _Held, words: str) -> None:
        """The hold ended: say why, and when it is tried again."""
        held.busy = False
        held.failures += 1
        wait = min(LAST_RETRY_S, FIRST_RETRY_S * 2 ** (held.failures - 1))
        held.again_at = anyio.current_time() + wait
        refused = held.report.state is SerioState.REFUSED and words == HUNG_UP
        kept = held.report.message if refused else words
        held.report = _refused(target, kept)
        log.warning("serio.ended", tty=target.tty, why=kept, again_in_s=wait)
        self._changed()
        self._wake.set()

    def _port(self, target: Target) -> tuple[str, bool]:
        """Name of the serio port below the tty, and whether a driver bound it; blocking."""
        folder = self._sysfs / "class" / "tty" / target.tty
        try:
            ports = sorted(entry.name for entry in folder.iterdir() if entry.name.startswith("serio"))
        except OSError:
            return "", False
        return (ports[0], (folder / ports[0] / "driver").exists()) if ports else ("", False)


def _refused(target: Target, message: str) -> SerioReport:
    return SerioReport(entry=target.entry, state=SerioState.REFUSED, message=message, tty=target.tty)
