"""The start: learn from the folder what is prepared, sweep up after a killed process, let ended claims go.

In: the spec directory and the API. Out: a ledger that agrees with the folder before the first call is served;
afterwards and in the background the claims that the API server says are gone (404, or another uid under the name) are
let go. One that merely cannot be asked about is kept, and asked about again.
"""

import anyio
import anyio.to_thread
import structlog

from liken.claims.directory import DirectoryError
from liken.claims.ledger import Ledger
from liken.claims.ports import ClaimApi, ClaimRef, ClaimSettings
from liken.claims.prepare import Preparer
from liken.claims.words import ClaimError
from liken.model.api import ApiError, NotFound

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

KUBELET_STATE = "dra_manager_state"
"""The kubelet's checkpoint of prepared claims, in its root folder."""

_TOGETHER = 8
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0


class Recovery:
    """Brings a daemon that starts to where the one before it was."""

    def __init__(self, *, api: ClaimApi, ledger: Ledger, preparer: Preparer, settings: ClaimSettings) -> None:
        self._api = api
        self._ledger = ledger
        self._preparer = preparer
        self._settings = settings

    async def load(self) -> None:
        """Read every record and remove leaked temporary files; a folder that cannot be read is only reported."""
        try:
            await self._ledger.sweep()
            await self._ledger.synchronize()
        except DirectoryError as error:
            log.error("claims.folder_unreadable", error=str(error))  # noqa: TRY400 - the message says it all
        self._ledger.announce()

    async def drop_ended(self) -> None:
        """Let go what has no claim any more; ends when the API server has told of each claim found at the start."""
        unsure = [ClaimRef(namespace=c.namespace, name=c.name, uid=c.uid) for c in self._ledger.records]
        pause = _FIRST_PAUSE_S
        while True:
            unsure = await self._asked(unsure)
            if not unsure:
                return
            await anyio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE_S)

    async def _asked(self, refs: list[ClaimRef]) -> list[ClaimRef]:
        """Ask about each, let the ended go; those that must be asked about again."""
        again: list[ClaimRef] = []
        together = anyio.Semaphore(_TOGETHER)

        async def one(ref: ClaimRef) -> None:
            async with together:
                if not await self._settled(ref):
                    again.append(ref)

        async with anyio.create_task_group() as tasks:
            for ref in refs:
                tasks.start_soon(one, ref)
        return again

    async def _settled(self, ref: ClaimRef) -> bool:
        try:
            with anyio.fail_after(self._settings.api_try_s):
                claim = await self._api.get_claim(ref.namespace, ref.name)
        except NotFound:
            found = None
        except (ApiError, TimeoutError) as error:
            log.info("claims.not_asked_yet", claim=str(ref), error=str(error) or "no answer in time")
            return False
        else:
            found = (claim.get("metadata") or {}).get("uid")
        if found == ref.uid:
            return True
        if await self._kubelet_holds(ref):
            log.info("claims.kept_for_kubelet", claim=str(ref), uid=ref.uid)
            return False
        try:
            await self._preparer.unprepare(ref)
        except ClaimError as error:
            log.warning("claims.not_let_go", claim=str(ref), error=str(error))
            return False
        log.info("claims.ended_while_away", claim=str(ref), uid=ref.uid)
        return True

    async def _kubelet_holds(self, ref: ClaimRef) -> bool:
        """Whether the kubelet has the claim in its own state: then a pod of it may run, and it will unprepare it."""
        state = self._settings.plugins_dir.parent / KUBELET_STATE
        try:
            return ref.uid.encode() in await anyio.to_thread.run_sync(state.read_bytes)
        except OSError:
            return False
