"""Changes told by a caller instead of the kernel: for tests, and for a demo where private namespaces are forbidden.

The same shapes as `kernel.KernelEvents`, without a socket. Told changes wait in a list that is handed over whole.
"""

from collections.abc import AsyncIterator, Sequence

import anyio

from liken.events.kernel import Changed, Heard, Resync
from liken.model.hardware import DevPath


class Feed:
    """A source of changes; `tell` and `overflow` may be called from the event loop only."""

    def __init__(self) -> None:
        self._told: list[Heard] = []
        self._event = anyio.Event()
        self._error: OSError | None = None
        self._closed = False

    def tell(self, action: str, path: str) -> None:
        """Something happened at `path` (`/devices/…`) just now."""
        self._put(Changed(DevPath(path), action))

    def overflow(self, cause: str = "overflow") -> None:
        """Something was missed."""
        self._put(Resync(cause))

    def fail(self, error: OSError) -> None:
        """Break once, as a socket does."""
        self._error = error
        self._event.set()

    def _put(self, heard: Heard) -> None:
        self._told.append(heard)
        self._event.set()

    async def batches(self) -> AsyncIterator[Sequence[Heard]]:
        """What was told, in order; after it was closed, what is told from then on."""
        self._closed = False
        while not self._closed:
            await self._event.wait()
            self._event = anyio.Event()
            error, self._error = self._error, None
            if error is not None:
                raise error
            told, self._told = self._told, []
            if told:
                yield told

    def close(self) -> None:
        """End the batches."""
        self._closed = True
        self._event.set()
