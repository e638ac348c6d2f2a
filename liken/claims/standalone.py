"""The inventory as CDI devices named by slot, without Kubernetes: `podman run --device liken.sh/device=usb-2-1-1-0`.

In: the store's snapshots. Out: one spec file that is always current, readable by everybody, since a container runtime
may run without root. It is written again when a node's numbers changed though no path did, because a runtime keeps
the numbers it once looked up until it sees the folder change. It goes when liken goes: a stale file would hand out
whatever took the number.
"""

from pathlib import Path

import anyio
import anyio.to_thread
import structlog
from anyio.abc import TaskStatus

from liken.claims import cdi
from liken.claims.directory import READABLE, STANDALONE, SUFFIX, DirectoryError, SpecDirectory
from liken.claims.ports import Store
from liken.metrics import Metrics
from liken.model.offers import DeviceName, DeviceNode, Snapshot

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

_AGAIN_S = 5.0


class Standalone:
    """Keeps one CDI file equal to what the machine offers."""

    def __init__(
        self, *, store: Store, cdi_dir: Path, metrics: Metrics, directory: SpecDirectory | None = None
    ) -> None:
        self._store = store
        self._directory = directory if directory is not None else SpecDirectory(cdi_dir)
        self._metrics = metrics
        self.path = self._directory.folder / f"{STANDALONE}{SUFFIX}"

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Follow the snapshots until cancelled; started when the first file is written or could not be."""
        served, written = -1, None
        started = False
        try:
            await anyio.to_thread.run_sync(self._sweep)
            while True:
                snapshot = await self._store.settled(after=served)
                if not snapshot.complete:
                    served = snapshot.revision
                    continue
                nodes = _nodes(snapshot)
                if nodes == written or await self._wrote(snapshot):
                    served, written = snapshot.revision, nodes
                else:
                    await anyio.sleep(_AGAIN_S)
                if not started:
                    task_status.started()
                    started = True
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(self._remove)

    async def _wrote(self, snapshot: Snapshot) -> bool:
        document = cdi.inventory(snapshot.offers.values())
        try:
            if document is None:
                await anyio.to_thread.run_sync(self._directory.discard, self.path)
            else:
                await anyio.to_thread.run_sync(self._directory.replace, self.path, cdi.text(document), READABLE)
        except DirectoryError as error:
            log.error("standalone.not_written", file=str(self.path), error=str(error))  # noqa: TRY400 - says it all
            return False
        self._metrics.claim_refreshes.inc()
        log.info("standalone.written", file=str(self.path), devices=len(document["devices"]) if document else 0)
        return True

    def _sweep(self) -> None:
        try:
            for name, path in self._directory.leftovers():
                if name.startswith(STANDALONE):
                    self._directory.discard(path)
        except DirectoryError as error:
            log.warning("standalone.not_swept", error=str(error))

    def _remove(self) -> None:
        try:
            self._directory.discard(self.path)
        except DirectoryError as error:
            log.warning("standalone.not_removed", file=str(self.path), error=str(error))


def _nodes(snapshot: Snapshot) -> dict[DeviceName, tuple[DeviceNode, ...]]:
    return {name: offer.nodes for name, offer in snapshot.offers.items() if offer.nodes}
