"""The loop that makes the API server hold exactly the slices the newest snapshot wants.

Level-triggered: each pass compares the newest snapshot with what the server holds and writes the difference, so a
retry always carries the newest state, an hour without a server ends in one write, and a slice that somebody deleted
or edited is just another difference. What the server holds is known from an own watch and from the answers to
writes, so the way from a change to its patch has no read in it. Nothing is written before the first enumeration is
complete, and nothing while nothing changes.
"""

import contextlib
import random
import time
from collections.abc import Callable

import anyio
import structlog

from liken.metrics import Metrics
from liken.model.api import (
    ApiError,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    Json,
    Listed,
    NotFound,
    ObjectRef,
    Recorder,
    TooManyRequests,
    Unavailable,
)
from liken.model.offers import DeviceName, Snapshot
from liken.publish import plan
from liken.publish.losses import Losses
from liken.publish.offering import Offering
from liken.publish.pace import Bucket, Pause
from liken.publish.plan import Change, Create, Delete, Patch
from liken.publish.ports import NODES, SLICES, PublishSettings, SliceApi, Snapshots, selector, slice_path
from liken.publish.refused import WholeSliceRefused, refused_devices
from liken.publish.stored import Stored
from liken.publish.withdrawal import withdraw
from liken.state.slices import Composer, NodeRef

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

AT_ONCE = 3
"""Conflicts in a row that are answered without a pause."""


class Publisher:
    """Publishes one node's devices; `run` for ever, `withdraw` at the end if the slices shall go."""

    def __init__(
        self,
        *,
        api: SliceApi,
        store: Snapshots,
        node_name: str,
        metrics: Metrics,
        recorder: Recorder | None = None,
        settings: PublishSettings | None = None,
        wall: Callable[[], float] = time.time,
        dice: random.Random | None = None,
    ) -> None:
        self._api = api
        self._store = store
        self._node_name = node_name
        self._metrics = metrics
        self._recorder = recorder
        self._settings = settings or PublishSettings()
        self._wall = wall
        self._pause = Pause(self._settings.first_pause_s, self._settings.last_pause_s, dice or random.Random())  # noqa: S311
        self._stored = Stored(node_name)
        self._offering = Offering()
        self._losses = Losses(self._offering.without, self._event)
        self._composer: Composer | None = None
        self._node_uid = ""
        self._wake = anyio.Event()
        self._bucket: Bucket | None = None
        self._not_before = float("-inf")
        self._asked_to_wait = float("-inf")
        self._conflicts = 0
        self._said = ""
        self._measured = -1
        self.revision = -1

    @property
    def published(self) -> bool:
        """Whether the server holds what some snapshot of the store wanted, and nothing has failed since."""
        return self.revision >= 0 and not self._said

    @property
    def trouble(self) -> str:
        """What keeps the slices from being as they should be, in words; empty: nothing."""
        return self._said

    @property
    def held_back(self) -> frozenset[DeviceName]:
        """Devices that flap or that the server refused: offered, but not in the slices now."""
        return self._offering.held_back

    async def run(self) -> None:
        """Publish until cancelled. The slices stay when it ends."""
        self._bucket = Bucket(self._settings.burst, self._settings.refill_s, anyio.current_time())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._follow_server)
            tasks.start_soon(self._follow_store)
            await self._publish()

    async def withdraw(self) -> int:
        """Delete this node's slices; how many there were. Call it after `run` has ended."""
        return await withdraw(self._api, node_name=self._node_name)

    async def _follow_server(self) -> None:
        following = self._api.follow(SLICES, field_selector=selector(self._node_name))
        async with contextlib.aclosing(following):
            async for seen in following:
                if isinstance(seen, Listed):
                    gone = self._stored.listed(seen)
                    self._losses.reconnected()
                    self._not_before = min(self._not_before, self._asked_to_wait)  # no need to sit the pause out
                else:
                    gone = self._stored.changed(seen)
                if gone:
                    self._forget_node()
                self._losses.shown(self._stored.items)
                self._wake.set()

    async def _follow_store(self) -> None:
        revision = -1
        while True:
            snapshot = await self._store.settled(after=revision)
            revision = snapshot.revision
            self._offering.note(snapshot, anyio.current_time())
            self._wake.set()

    async def _publish(self) -> None:
        while True:
            self._wake = anyio.Event()
            wait = await self._step()
            with anyio.move_on_after(wait if wait is not None else float("inf")):
                await self._wake.wait()

    async def _step(self) -> float | None:
        """Do what is due; seconds after which to look again without a change, None: only after one."""
        now = anyio.current_time()
        if not self._stored.known:
            return None
        if now < self._not_before:
            return self._not_before - now
        try:
            composer = self._composer or await self._learn_node()
            if self._losses.wants_version and await self._losses.learn_version(self._api):
                self._offering.refused.clear()
            snapshot = self._store.snapshot
            if not snapshot.complete:
                return None
            due = self._due(composer, snapshot)
            if not due:
                return self._rest(snapshot)
            if self._bucket is not None and (wait := self._bucket.delay(anyio.current_time())) > 0:
                return wait
            await self._write(due, snapshot)
        except ApiError as error:
            self._later(error)
        return 0.0

    def _due(self, composer: Composer, snapshot: Snapshot) -> tuple[Change, ...]:
        stored = self._stored.items
        offers = self._offering.now(snapshot, anyio.current_time())
        self._metrics.devices_offered.set(len(offers))
        self._metrics.devices_held_back.set(self._offering.flapping)
        return plan.changes(composer.slices(offers, previous=stored), stored, self._losses.tolerated)

    def _rest(self, snapshot: Snapshot) -> float | None:
        """Everything is as it should be."""
        self.revision = snapshot.revision
        self._said = ""
        self._pause.reset()
        self._conflicts = 0
        self._metrics.slices.set(len(self._stored.items))
        self._metrics.last_publish.set(self._wall())
        release = self._offering.release()
        return None if release is None else max(0.0, release - anyio.current_time())

    async def _write(self, due: tuple[Change, ...], snapshot: Snapshot) -> None:
        """Write the changes of one pass; the first that fails ends it, and the next pass begins with what is new."""
        repair = snapshot.revision == self.revision
        for change in due:
            verb = type(change).__name__.lower()
            try:
                answer = await self._send(change)
            except ApiError as error:
                self._metrics.slice_writes.labels(verb, _result(error)).inc()
                await self._failed(change, error, snapshot)
                return
            if answer is None:
                continue
            self._metrics.slice_writes.labels(verb, "ok").inc()
            if repair and not isinstance(change, Patch):
                log.info("publish.repaired", slice=change.name, verb=verb)
            if repair:
                self._metrics.slice_repairs.inc()
            self._written(snapshot)

    async def _send(self, change: Change) -> Json | None:
        """Make one change; None: it turned out that nothing needed writing."""
        if isinstance(change, Delete):
            with contextlib.suppress(NotFound):
                await self._api.delete(slice_path(change.name))
            self._stored.forget(change.name)
            return {}
        if isinstance(change, Create):
            answer = await self._api.create(SLICES, change.body)
        else:
            path = slice_path(change.name)
            if self._losses.doubtful(change):
                tried = await self._api.json_patch(path, change.ops, dry_run=True)
                if self._losses.compare(change.body, tried):
                    return None
            answer = await self._api.json_patch(path, change.ops)
        self._stored.answered(answer)
        self._losses.compare(change.body, answer)
        return answer

    def _written(self, snapshot: Snapshot) -> None:
        now = anyio.current_time()
        if self._bucket is not None:
            self._bucket.take(now)
        if snapshot.revision > self._measured and snapshot.changed_at is not None:
            self._metrics.publish_seconds.observe(max(0.0, now - snapshot.changed_at))
        self._measured = snapshot.revision

    async def _failed(self, change: Change, error: ApiError, snapshot: Snapshot) -> None:
        """Answer one refused or lost write."""
        match error:
            case Conflict() | Gone():
                self._conflicts += 1
                await self._read_again(change.name)
                if self._conflicts > AT_ONCE:
                    raise error
            case NotFound() if not isinstance(change, Create):
                self._stored.forget(change.name)
                self._forget_node()
            case Invalid() if not isinstance(change, Delete):
                await self._hold_back(change, error, snapshot)
            case _:
                raise error

    async def _read_again(self, name: str) -> None:
        try:
            item = await self._api.get(slice_path(name))
        except NotFound:
            self._stored.forget(name)
            return
        if not self._stored.mine(item):
            spec = item.get("spec") or {}
            owner = f"driver {spec.get('driver')!r}, node {spec.get('nodeName')!r}"
            raise Invalid(f"cannot create resourceslices {name}: the name is taken by a slice of {owner}: delete it")
        self._stored.answered(item)

    async def _hold_back(self, change: Create | Patch, error: Invalid, snapshot: Snapshot) -> None:
        """Find the devices the server refuses and publish the rest."""
        try:
            found = await refused_devices(self._api, change.body)
        except WholeSliceRefused:
            await self._read_again(change.name)
            raise error from None
        held = {name: offer for name, _ in found if (offer := snapshot.offers.get(DeviceName(name))) is not None}
        if not held:
            raise error
        self._offering.refused.update({offer.name: offer for offer in held.values()})
        for name, words in found:
            log.error("publish.held_back", device=name, error=words)
            message = f"Device {name} is not published until it changes or liken restarts: the API server says {words}"
            self._event("DeviceRefused", message)

    def _later(self, error: ApiError) -> None:
        """Wait before the next try, and say why once."""
        now = anyio.current_time()
        wait = self._pause.next(error.retry_after)
        self._not_before = now + wait
        if error.retry_after is not None:
            self._asked_to_wait = self._not_before
        said = str(error)
        if said != self._said:
            transient = isinstance(error, Unavailable | TooManyRequests | Conflict | Gone)
            report = log.warning if transient else log.error
            report("publish.waiting" if transient else "publish.refused", error=said, retry_s=round(wait, 1))
        self._said = said

    async def _learn_node(self) -> Composer:
        """Read the Node's uid, which owns the slices."""
        try:
            node = await self._api.get(f"{NODES}/{self._node_name}")
        except NotFound:
            name = self._node_name
            said = f"there is no Node {name!r} to own the slices: is --node-name the name of `kubectl get nodes`?"
            raise Unavailable(said) from None
        self._node_uid = str(node["metadata"]["uid"])
        self._composer = Composer(NodeRef(name=self._node_name, uid=self._node_uid))
        return self._composer

    def _forget_node(self) -> None:
        """A slice went: perhaps because its Node did, and a slice owned by an old uid is collected at once."""
        self._composer = None

    def _event(self, reason: str, message: str) -> None:
        if self._recorder is not None:
            about = ObjectRef(api_version="v1", kind="Node", name=self._node_name, uid=self._node_uid)
            self._recorder.record(about, kind="Warning", reason=reason, message=message)


def _result(error: ApiError) -> str:
    """The label of a failed write."""
    match error:
        case Conflict() | Gone():
            return "conflict"
        case Invalid():
            return "invalid"
        case Forbidden():
            return "forbidden"
        case TooManyRequests():
            return "throttled"
        case NotFound():
            return "missing"
        case _:
            return "unavailable"
