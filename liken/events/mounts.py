"""Says when the machine's mounts or swaps changed, so that a device is judged anew the moment it is mounted.

`/proc/1/mountinfo` and `/proc/swaps` report a change as an exceptional condition. An event loop waits for readable
descriptors only, and both files always are; so an epoll of their own waits for the condition, and the loop waits for
that epoll.
"""

import select
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path

import anyio
import structlog

from liken.events.system import mountinfo

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


async def mount_changes(proc: Path) -> AsyncIterator[None]:
    """Yields after each change; ends at once where the files cannot be watched (a recording's, say)."""
    with ExitStack() as stack:
        watched = stack.enter_context(select.epoll())
        count = 0
        for path in (mountinfo(proc), proc / "swaps"):
            try:
                watched.register(stack.enter_context(path.open("rb")), select.EPOLLPRI)
                count += 1
            except OSError as error:
                log.debug("mounts.not_watched", file=str(path), error=error.strerror)
        watched.poll(0)
        while count:
            await anyio.wait_readable(watched)
            watched.poll(0)
            yield
