"""Reads of sysfs in threads, so that one device that does not answer delays nobody.

Many devices are read by one thread, one after the other. When one keeps it waiting longer than `patience_s`, another
thread goes on with the rest; the first waits on, and what it reads comes later as an `Answer`. After `deadline_s` the
device counts as stuck. A device that is being waited for is not read again, so at most one thread waits for it. The
threads are daemons: a read that never returns does not keep the process from ending.
"""

import threading
import time
from asyncio import AbstractEventLoop, get_running_loop
from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeAlias, TypeVar

import anyio

from liken.events.sysfs import Reading
from liken.model.hardware import DeviceKey

T = TypeVar("T")
THREAD_NAME: Final = "liken-sysfs"
Read: TypeAlias = Callable[[DeviceKey], Reading | None]


@dataclass(frozen=True, slots=True)
class Answer:
    """What one read gave (None: there is no such entry), and when it began (`time.monotonic()`)."""

    reading: Reading | None
    began: float


@dataclass(slots=True)
class _Waiting:
    """A device that is being waited for."""

    since: float
    answered: anyio.Event = field(default_factory=anyio.Event)
    stuck: bool = False


class _Job:
    """One thread's work: devices in order, until it is told that another thread took over the rest."""

    def __init__(self, keys: Iterable[DeviceKey], read: Read, loop: AbstractEventLoop) -> None:
        self._read, self._loop = read, loop
        self._lock = threading.Lock()
        self._keys = deque(keys)
        self.answers: dict[DeviceKey, Answer] = {}
        self.error: BaseException | None = None
        self.done = anyio.Event()
        self.current: tuple[DeviceKey, float] | None = None
        self._late: Callable[[DeviceKey, Answer], None] | None = None

    def start(self) -> None:
        threading.Thread(target=self._run, name=THREAD_NAME, daemon=True).start()

    def _run(self) -> None:
        try:
            while self._keys:
                key, began = self._keys.popleft(), time.monotonic()
                self.current = key, began
                answer = Answer(self._read(key), began)
                with self._lock:
                    self.current = None
                    self.answers[key] = answer
                    if self._late is not None:
                        self._tell(self._late, key, answer)
                        return
        except BaseException as error:  # noqa: BLE001 - the loop raises it
            self.error = error
        self._tell(self.done.set)

    def _tell(self, what: Callable[..., None], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(what, *arguments)
        except RuntimeError:  # the loop has ended meanwhile
            return

    def handed_over(
        self, patience_s: float, late: Callable[[DeviceKey, Answer], None]
    ) -> tuple[DeviceKey, float, list[DeviceKey]] | None:
        """The device this job waits for too long, since when, and the rest, which is no longer its own; else None."""
        with self._lock:
            if self.current is None or time.monotonic() - self.current[1] < patience_s:
                return None
            rest = list(self._keys)
            self._keys.clear()
            self._late = late
            return *self.current, rest


class Readers:
    """The reads under way; belongs to one event loop."""

    def __init__(
        self,
        read: Read,
        *,
        deadline_s: float,
        patience_s: float,
        on_answer: Callable[[DeviceKey, Answer], None],
    ) -> None:
        """`on_answer` is called on the loop with what a slow read gave in the end."""
        self._read = read
        self._deadline_s, self._patience_s = deadline_s, patience_s
        self._on_answer = on_answer
        self._waiting: dict[DeviceKey, _Waiting] = {}

    @property
    def stuck(self) -> int:
        """How many devices have not answered within their deadline, and still do not."""
        return sum(waiting.stuck for waiting in self._waiting.values())

    @property
    def idle(self) -> bool:
        """Whether no device is being waited for."""
        return not self._waiting

    def awaited(self, keys: Iterable[DeviceKey]) -> set[DeviceKey]:
        """Those of these devices that are being waited for, and so are not read again."""
        return {key for key in keys if key in self._waiting}

    async def read(self, keys: Collection[DeviceKey]) -> dict[DeviceKey, Answer]:
        """Answers of those devices that answer at once; the others come to `on_answer`, or run into `expired`."""
        answers: dict[DeviceKey, Answer] = {}
        rest = [key for key in keys if key not in self._waiting]
        while rest:
            job = _Job(rest, self._read, get_running_loop())
            job.start()
            rest = await self._followed(job)
            answers |= job.answers
        return answers

    async def _followed(self, job: _Job) -> list[DeviceKey]:
        """Wait for a job; returns what it did not get to because one device keeps it waiting."""
        while not job.done.is_set():
            with anyio.move_on_after(self._patience_s):
                await job.done.wait()
                break
            taken = job.handed_over(self._patience_s, self._late)
            if taken is not None:
                key, since, rest = taken
                self._waiting[key] = _Waiting(since)
                return rest
        if job.error is not None:
            raise job.error
        return []

    def _late(self, key: DeviceKey, answer: Answer) -> None:
        waiting = self._waiting.pop(key)
        self._on_answer(key, answer)
        waiting.answered.set()

    async def answered(self, keys: Collection[DeviceKey]) -> None:
        """Wait until none of these is being waited for, or its deadline has passed."""
        for key in keys:
            waiting = self._waiting.get(key)
            if waiting is not None:
                with anyio.move_on_after(max(0.0, self._left(waiting))):
                    await waiting.answered.wait()

    @property
    def next_deadline(self) -> float | None:
        """In how many seconds the next device becomes stuck; None when none is on its way there."""
        return min((self._left(waiting) for waiting in self._waiting.values() if not waiting.stuck), default=None)

    def expired(self) -> dict[DeviceKey, float]:
        """Devices that became stuck since the last call, and for how long they have been waited for."""
        now = time.monotonic()
        found = {}
        for key, waiting in self._waiting.items():
            if not waiting.stuck and self._left(waiting) <= 0:
                waiting.stuck = True
                found[key] = now - waiting.since
        return found

    def _left(self, waiting: _Waiting) -> float:
        return waiting.since + self._deadline_s - time.monotonic()


class Call(Generic[T]):
    """One blocking call in a daemon thread, with a deadline."""

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self._result: T | None = None
        self._error: BaseException | None = None
        self._done = anyio.Event()

    async def within(self, deadline_s: float) -> T:
        """The result; raises what the call raises, and TimeoutError after the deadline."""
        loop = get_running_loop()
        threading.Thread(target=self._run, args=(loop,), name=THREAD_NAME, daemon=True).start()
        with anyio.fail_after(deadline_s):
            await self._done.wait()
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]  # a call that did not raise has set it

    def _run(self, loop: AbstractEventLoop) -> None:
        try:
            self._result = self._function()
        except BaseException as error:  # noqa: BLE001 - the loop raises it
            self._error = error
        try:
            loop.call_soon_threadsafe(self._done.set)
        except RuntimeError:  # the loop has ended meanwhile
            return
