"""Keeping serial lines attached: one task for each line that an entry of `spec.serio` means.

A line is held for as long as liken runs, also when its entry is removed. A hang-up or a refusal ends the task's try;
what the hardware looks like then decides whether the line is missing (unplugged), or is tried again: at once after a
replug or when a module was loaded, else with a growing wait.
"""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import structlog
from anyio.abc import TaskGroup

from liken.machine.line import Discipline, Hold, LineError
from liken.machine.matching import DRIVERS, Line, SerioReport, SerioState, matching, needs
from liken.model.machine import SerioEntry
from liken.model.offers import Snapshot
from liken.state.store import Store

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

BIND_S: Final = 5.0
POLL_S: Final = 0.1
FIRST_RETRY_S: Final = 1.0
LAST_RETRY_S: Final = 300.0
HUNG_UP: Final = "the line hung up"
REMOVED: Final = "removed from spec.serio; it stays attached until liken restarts"


@dataclass(slots=True, kw_only=True)
class _Attachment:
    """What is known of one line: whether a task works on it, what came of it, and when it is tried again."""

    state: SerioState = SerioState.REFUSED
    message: str = "not attached yet"
    port: str = ""
    busy: bool = False
    failures: int = 0
    again_at: float = 0.0


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
        self._wanted: tuple[SerioEntry, ...] = ()
        self._kept: dict[SerioEntry, None] = {}
        self._lines: dict[Line, SerioEntry] = {}
        self._others: tuple[SerioReport, ...] = ()
        self._attachments: dict[Line, _Attachment] = {}
        self._wake = anyio.Event()

    def want(self, entries: Sequence[SerioEntry]) -> None:
        """Attach these. What was attached before stays in force, and withheld, until liken ends."""
        if tuple(entries) != self._wanted:
            self._wanted = tuple(entries)
            self.retry()

    def retry(self) -> None:
        """Something changed that may help: try refused lines now."""
        for attachment in self._attachments.values():
            attachment.again_at = 0.0
        self._wake.set()

    @property
    def entries(self) -> tuple[SerioEntry, ...]:
        """The entries in force: those wanted, and those attached before in this life of liken."""
        return tuple(dict.fromkeys((*self._wanted, *self._kept)))

    @property
    def reports(self) -> tuple[SerioReport, ...]:
        """Every line and every entry without one; lines by their place, then the others in the order of entries."""
        found = sorted(self._lines.items(), key=lambda item: (item[0].interface, item[0].tty))
        lines = (self._report(line, entry, self._attachments[line]) for line, entry in found)
        return (*lines, *self._others)

    def _report(self, line: Line, entry: SerioEntry, attachment: _Attachment) -> SerioReport:
        attached = attachment.state is SerioState.ATTACHED
        message = REMOVED if attached and entry not in self._wanted else attachment.message
        offers = self._store.snapshot.offers.values() if attached else ()
        nodes = [node.path for offer in offers if offer.key == line.interface for node in offer.nodes]
        return SerioReport(
            entry=entry,
            state=attachment.state,
            message=message,
            tty=line.tty,
            port=attachment.port,
            nodes=tuple(sorted(nodes)),
        )

    async def run(self) -> None:
        """Follow the hardware and the wishes until cancelled; every line has been let go then."""
        async with anyio.create_task_group() as tasks:
            while True:
                self._wake = anyio.Event()
                self._store.set_serio(self.entries)
                snapshot = self._store.snapshot
                if snapshot.complete:
                    self._match(snapshot, tasks)
                await self._rest(snapshot.revision)

    def _match(self, snapshot: Snapshot, tasks: TaskGroup) -> None:
        """Compare what the entries mean now with what is attached, and begin what is due."""
        busy = {line: attachment for line, attachment in self._attachments.items() if attachment.busy}
        found = matching(self.entries, snapshot, {line.adapter: line.protocol for line in busy})
        before = self.reports
        now = anyio.current_time()
        attachments = {line: self._attachments.get(line) or _Attachment() for line in found.lines} | busy
        self._lines = {line: found.lines.get(line) or self._lines[line] for line in attachments}
        self._attachments, self._others = attachments, found.others
        for line in found.lines:
            attachment = attachments[line]
            if not attachment.busy and attachment.again_at <= now:
                attachment.busy = True
                tasks.start_soon(self._attach, line, attachment)
        if self.reports != before:
            self._changed()

    async def _rest(self, revision: int) -> None:
        """Until the hardware or the wishes change, or a line may be tried again."""
        waiting = [attachment.again_at for attachment in self._attachments.values() if not attachment.busy]
        timeout = max(0.0, min(waiting) - anyio.current_time()) if waiting else None
        with anyio.move_on_after(timeout):
            async with anyio.create_task_group() as either:

                async def hardware() -> None:
                    await self._store.settled(after=revision)
                    either.cancel_scope.cancel()

                either.start_soon(hardware)
                await self._wake.wait()
                either.cancel_scope.cancel()

    async def _attach(self, line: Line, attachment: _Attachment) -> None:
        """One try, and all of the life that follows when it works out."""
        try:
            async with self._discipline.hold(self._dev / line.tty, line.protocol) as hold:
                words = await self._life(line, attachment, hold)
        except LineError as error:
            words = str(error)
        hung_up = words == HUNG_UP
        attachment.failures = 1 if hung_up else attachment.failures + 1
        wait = min(LAST_RETRY_S, FIRST_RETRY_S * 2 ** min(attachment.failures - 1, 10))
        attachment.again_at = anyio.current_time() + wait
        if attachment.message != words:
            log.warning("serio.ended", tty=line.tty, why=words, again_in_s=wait)
        attachment.state = SerioState.MISSING if hung_up else SerioState.REFUSED
        attachment.message, attachment.port, attachment.busy = words, "", False
        self._changed()
        self._wake.set()

    async def _life(self, line: Line, attachment: _Attachment, hold: Hold) -> str:
        """Wait for the port and its driver, at most five seconds, then for the hang-up; says what ended it."""
        port, bound, over = "", False, False
        with anyio.move_on_after(BIND_S):
            async with anyio.create_task_group() as either:

                async def follow() -> None:
                    nonlocal over
                    with contextlib.suppress(LineError):  # asked again below
                        await hold.ended()
                    over = True
                    either.cancel_scope.cancel()

                either.start_soon(follow)
                while not bound:
                    port, bound = await anyio.to_thread.run_sync(self._port, line.tty)
                    if not bound:
                        await anyio.sleep(POLL_S)
                either.cancel_scope.cancel()
        if over:
            await hold.ended()
            return HUNG_UP
        if not bound:
            return await anyio.to_thread.run_sync(self._unbound, line, port)
        self._kept[self._lines[line]] = None
        attachment.state, attachment.message, attachment.port = SerioState.ATTACHED, "", port
        log.info("serio.attached", tty=line.tty, port=port, protocol=str(line.protocol))
        self._changed()
        await hold.ended()
        return HUNG_UP

    def _port(self, tty: str) -> tuple[str, bool]:
        """Name of the serio port below the tty, and whether a driver bound it; blocking."""
        folder = self._sysfs / "class" / "tty" / tty
        try:
            ports = sorted(entry.name for entry in folder.iterdir() if entry.name.startswith("serio"))
        except OSError:
            return "", False
        return (ports[0], (folder / ports[0] / "driver").exists()) if ports else ("", False)

    def _unbound(self, line: Line, port: str) -> str:
        """Why no driver bound the port; blocking."""
        loaded = frozenset(name for name in DRIVERS.values() if (self._sysfs / "module" / name).is_dir())
        lacks = needs(line.protocol, loaded | {"serport"})
        driver = DRIVERS[line.protocol]
        refused = f"{driver} is there and did not bind {port or 'the port'} within {BIND_S:g} s: look at dmesg"
        return lacks or refused


def with_modules(report: SerioReport, loaded: frozenset[str]) -> SerioReport:
    """A refused line's report, naming the modules that are not there."""
    lacks = needs(report.entry.protocol, loaded) if report.state is SerioState.REFUSED and report.tty else ""
    return replace(report, message=f"{lacks} ({report.message})") if lacks and lacks not in report.message else report
