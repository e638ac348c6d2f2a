"""Everything about claims as one part of the daemon: start, serve the kubelet, follow the hardware, stop.

In: API, hardware, store. Out: two sockets, CDI files, health. A kubelet's deadline or death cancels a handler at once
and nothing shields it; so each claim's work runs in a task group of its own, which also outlives the order to stop:
what was begun is finished (within the grace), and only then the sockets' connections end.
"""

import time
from collections.abc import Awaitable, Callable, Iterable

import anyio
import structlog
from anyio.abc import TaskGroup, TaskStatus

from liken.claims import registration, words
from liken.claims.directory import DirectoryError, SpecDirectory
from liken.claims.dra import Answers, DraV1, DraV1Beta1
from liken.claims.health import HealthBoard, HealthV1, HealthV1Alpha1
from liken.claims.ledger import Ledger, byte_locks
from liken.claims.ports import ClaimApi, ClaimRef, ClaimSettings, Hardware, Store
from liken.claims.prepare import Preparer
from liken.claims.prepared import PreparedClaim
from liken.claims.recovery import Recovery
from liken.claims.refresh import Refresher
from liken.claims.server import Endpoint
from liken.claims.words import ClaimError
from liken.metrics import Metrics
from liken.model.api import Recorder

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class Claims:
    """Prepared claims of one node, for one daemon."""

    def __init__(
        self,
        *,
        api: ClaimApi,
        hardware: Hardware,
        store: Store,
        settings: ClaimSettings,
        metrics: Metrics,
        recorder: Recorder | None = None,
        wall: Callable[[], float] = time.time,
        directory: SpecDirectory | None = None,
    ) -> None:
        self._settings = settings
        self._metrics = metrics
        self._locks = byte_locks(settings)
        self._ledger = Ledger(
            directory=directory if directory is not None else SpecDirectory(settings.cdi_dir),
            locks=self._locks,
            store=store,
            metrics=metrics,
        )
        self._preparer = Preparer(
            api=api, hardware=hardware, store=store, ledger=self._ledger, settings=settings, wall=wall
        )
        self._refresher = Refresher(
            store=store, ledger=self._ledger, settings=settings, metrics=metrics, recorder=recorder
        )
        self._recovery = Recovery(api=api, ledger=self._ledger, preparer=self._preparer, settings=settings)
        self._board = HealthBoard(ledger=self._ledger, lease_s=settings.lease_s, repeat_s=settings.repeat_s, wall=wall)
        plugin = registration.plugin_path(settings.plugins_dir, settings.pod_uid)
        self._registration = registration.Registration(plugin)
        handlers = [DraV1(self), DraV1Beta1(self), HealthV1(self._board), HealthV1Alpha1(self._board)]
        # The plugin first: the kubelet dials it as soon as it has heard of it.
        self._endpoints = (
            Endpoint(plugin, handlers),
            Endpoint(registration.registration_path(settings.registry_dir, settings.pod_uid), [self._registration]),
        )
        self._work: TaskGroup | None = None

    @property
    def registered(self) -> bool:
        """Whether a kubelet has taken us."""
        return bool(self._registration.registered)

    def prepared(self) -> tuple[PreparedClaim, ...]:
        """The prepared claims, by namespace and name."""
        return tuple(sorted(self._ledger.records, key=lambda claim: (claim.namespace, claim.name, claim.uid)))

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled. Raises SocketError when the sockets cannot be had."""
        await self._recovery.load()
        async with anyio.create_task_group() as tasks:
            ending = anyio.Event()
            await tasks.start(self._keep_working, ending)
            try:
                registration.clear_stale(self._settings.plugins_dir, self._settings.registry_dir)
                for endpoint in self._endpoints:
                    await endpoint.open()
                log.info("claims.serving", socket=str(self._endpoints[0].path), prepared=len(self._ledger.records))
                task_status.started()
                tasks.start_soon(self._refresher.run)
                tasks.start_soon(self._recovery.drop_ended)
                await registration.kept_open(self._endpoints)
            finally:
                with anyio.CancelScope(shield=True):
                    await self._stop()
                    ending.set()

    async def _stop(self) -> None:
        """Leave the kubelet's registry first, end the streams, let the calls at work end."""
        for endpoint in reversed(self._endpoints):
            endpoint.withdraw()
        self._board.close()
        for endpoint in reversed(self._endpoints):
            await endpoint.close(self._settings.stop_s)

    async def _keep_working(
        self, ending: anyio.Event, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        """The home of work that no caller may cancel; ends with its last task, at the latest after the grace."""
        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as self._work:
                task_status.started()
                await ending.wait()
                self._work.cancel_scope.deadline = anyio.current_time() + self._settings.stop_s
        self._locks.close()

    # --- calls of the kubelet -----------------------------------------------------------------------------------------
    async def prepare(self, refs: Iterable[ClaimRef]) -> Answers:
        """Each claim by its uid: prepared, or why not."""
        return await self._each(refs, self._prepared)

    async def unprepare(self, refs: Iterable[ClaimRef]) -> Answers:
        """Each claim by its uid: an empty text, or why not."""
        return await self._each(refs, self._unprepared)

    async def _each(
        self, refs: Iterable[ClaimRef], work: Callable[[ClaimRef], Awaitable[PreparedClaim | str]]
    ) -> Answers:
        """Do the work for every claim at once, in the group that outlives the call; wait for all of it."""
        assert self._work is not None, "calls come while run() serves"
        claims = {ref.uid: ref for ref in refs}
        answers: Answers = {}
        done = anyio.Event()

        async def one(ref: ClaimRef) -> None:
            try:
                answers[ref.uid] = await work(ref)
            finally:
                answers.setdefault(ref.uid, words.failed_inside(str(ref)))
                if len(answers) == len(claims):
                    done.set()

        for ref in claims.values():
            self._work.start_soon(one, ref)
        if claims:
            await done.wait()
        return {uid: answers[uid] for uid in claims}

    async def _prepared(self, ref: ClaimRef) -> PreparedClaim | str:
        with self._metrics.prepare_seconds.time():
            answer = await self._answered(ref, self._preparer.prepare)
        self._metrics.prepares.labels(result=_result(answer)).inc()
        return answer[0]

    async def _unprepared(self, ref: ClaimRef) -> PreparedClaim | str:
        async def work(ref: ClaimRef) -> str:
            await self._preparer.unprepare(ref)
            return ""

        answer = await self._answered(ref, work)
        self._metrics.unprepares.labels(result=_result(answer)).inc()
        return answer[0]

    async def _answered(
        self, ref: ClaimRef, work: Callable[[ClaimRef], Awaitable[PreparedClaim | str]]
    ) -> tuple[PreparedClaim | str, bool]:
        """The claim's answer, and whether it is a refusal; the boundary at which every failure becomes words."""
        try:
            return await work(ref), False
        except ClaimError as error:
            event = "claims.refused" if error.refused else "claims.failed"
            log.warning(event, claim=words.shown(ref, 300), uid=words.shown(ref.uid), error=str(error))
            return str(error), error.refused
        except DirectoryError as error:
            log.warning("claims.failed", claim=words.shown(ref, 300), uid=words.shown(ref.uid), error=str(error))
            return words.unwritable(str(ref), str(error)), False
        except Exception:
            log.exception("claims.failed", claim=words.shown(ref, 300), uid=words.shown(ref.uid))
            return words.failed_inside(words.shown(ref, 300)), False


def _result(answer: tuple[PreparedClaim | str, bool]) -> str:
    said, refused = answer
    if isinstance(said, PreparedClaim) or not said:
        return "ok"
    return "refused" if refused else "failed"
