"""An asyncio loop whose clock jumps to the next timer when nothing is ready, so that no test sleeps.

Worker threads need real time: while one of anyio's is at work the loop waits for it before it jumps (a thread that
blocks for ever is given up after `PATIENCE_S`).
"""

import asyncio
import selectors
import threading
import time

from anyio._backends._asyncio import WorkerThread

STEP_S = 0.002
PATIENCE_S = 4.0


class _JumpingSelector(selectors.DefaultSelector):
    """Returns what is ready now; else moves the loop's clock by the time it was asked to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.offset = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            return super().select(None)
        ready = super().select(0)
        until = time.monotonic() + PATIENCE_S
        while not ready and timeout > 0 and _working() and time.monotonic() < until:
            ready = super().select(STEP_S)
        if not ready and timeout > 0:
            self.offset += timeout
        return ready


def _working() -> bool:
    workers = [thread for thread in threading.enumerate() if isinstance(thread, WorkerThread)]
    return any(worker not in worker.idle_workers for worker in workers)


class VirtualLoop(asyncio.SelectorEventLoop):
    """A selector loop in virtual time; use it as anyio's `loop_factory`."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return super().time() + self._jumping.offset
