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
        self._closed = False

    def tell(self, action: str, path: str) -> None:
        """Something happened at `path` (`/devices/…`) just now."""
        self._put(Changed(DevPath(path), action))

    def overflow(self, cause: str = "overflow") -> None:
        """Something was missed."""
        self._put(Resync(cause))

    def _put(self, heard: Heard) -> None:
        self._told.append(heard)
        self._event.set()

    async def batches(self) -> AsyncIterator[Sequence[Heard]]:
        """What was told, in order."""
        while not self._closed:
            await self._event.wait()
            self._event = anyio.Event()
            told, self._told = self._told, []
            if told:
                yield told

    def close(self) -> None:
        """End the batches."""
        self._closed = True
        self._event.set()
