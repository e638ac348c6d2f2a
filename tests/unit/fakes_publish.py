"""A SliceApi on the in-memory server's objects without HTTP, so that publishing is tested in virtual time.

Refusals become the errors of `liken.model.api` as `liken.kube` makes them; `faults` break requests as on the wire.
"""

import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import anyio

from liken.demo.apiserver_refusals import Refusal
from liken.demo.apiserver_types import SLICES, TypeKey
from liken.demo.apiserver_verbs import Options, Target, Verbs
from liken.kube import failures
from liken.model.api import ApiError, Followed, Json, Listed, ObjectRef, Unavailable, WatchEvent, WatchKind
from liken.model.hardware import Bus, BusAddress, DeviceKey, Inventory
from liken.model.offers import DeviceName, Offer, Rules, Snapshot

NODE = "node-a"


@dataclass(slots=True)
class Asked:
    """One request as the server saw it."""

    at: float
    verb: str
    name: str
    dry_run: bool = False
    ops: tuple[Json, ...] = ()
    ok: bool = False


@dataclass(slots=True)
class DirectApi:
    """The API server, called directly. `faults`: verb -> answers that the next requests get (None: as usual).
    `lost`: the next write is done, but its answer is this error."""

    verbs: Verbs = field(default_factory=Verbs)
    git_version: str = "v1.37.2"
    latency_s: float = 0.0
    away: bool = False
    watch_broken: bool = False
    asked: list[Asked] = field(default_factory=list)
    faults: dict[str, list[int | Exception | None]] = field(default_factory=dict)
    retry_after: int | None = None
    lost: Exception | None = None
    before_write: Callable[[str], None] | None = None
    _epoch: int = 0

    def __post_init__(self) -> None:
        self.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})

    @property
    def writes(self) -> list[Asked]:
        """The accepted writes of slices, without dry runs."""
        writes = ("create", "patch", "delete")
        return [asked for asked in self.asked if asked.ok and asked.verb in writes and not asked.dry_run]

    def slices(self) -> dict[str, Json]:
        """The stored slices by name."""
        listing = self.verbs.list(Target(kind=self.verbs.type_of(SLICES)))
        return {item["metadata"]["name"]: item for item in listing["items"]}

    def devices(self) -> list[str]:
        """The names of all devices in all slices."""
        return [device["name"] for item in self.slices().values() for device in item["spec"].get("devices") or ()]

    def put(self, item: Json) -> Json:
        """Create or replace an object as somebody else."""
        target = self._target(item)
        if self.verbs.objects.get(target.key) is not None:
            return self.verbs.replace(target, item, Options(manager="somebody"))
        return self.verbs.create(target, item, Options(manager="somebody"))

    def remove(self, name: str) -> None:
        """Delete a slice as somebody else."""
        self.verbs.delete(self._slice(name), None, Options())

    def remove_node(self) -> None:
        """Delete the Node."""
        kind = self.verbs.type_of(TypeKey("", "v1", "nodes"))
        self.verbs.delete(Target(kind=kind, name=NODE), None, Options())

    def break_watch(self) -> None:
        """End every watch; they begin again with a list."""
        self._epoch += 1
        self.verbs.objects.wake()

    async def get(self, path: str) -> Json:
        name = path.rpartition("/")[2]
        kind = TypeKey("", "v1", "nodes") if "/nodes/" in path else SLICES
        return await self._do("get", name, lambda: self.verbs.get(Target(kind=self.verbs.type_of(kind), name=name)))

    async def list(self, path: str, *, field_selector: str = "") -> Json:
        del path
        return await self._do("list", "", lambda: self.verbs.list(self._slice(""), fields=field_selector))

    async def create(self, path: str, body: Json, *, dry_run: bool = False) -> Json:
        del path
        name = body["metadata"].get("name", "")
        options = Options(dry_run=dry_run, manager="liken")
        work = lambda: self.verbs.create(self._slice(""), body, options)  # noqa: E731
        return await self._do("create", name, work, dry_run=dry_run)

    async def json_patch(self, path: str, ops: Sequence[Json], *, dry_run: bool = False) -> Json:
        name = path.rpartition("/")[2]
        options = Options(dry_run=dry_run, manager="liken")
        body = json.loads(json.dumps(list(ops)))
        work = lambda: self.verbs.patch(self._slice(name), "application/json-patch+json", body, options)  # noqa: E731
        return await self._do("patch", name, work, dry_run=dry_run, ops=tuple(body))

    async def delete(self, path: str) -> Json:
        name = path.rpartition("/")[2]
        return await self._do("delete", name, lambda: self.verbs.delete(self._slice(name), None, Options()))

    async def version(self) -> Json:
        return await self._do("version", "", lambda: {"gitVersion": self.git_version})

    async def follow(self, path: str, *, field_selector: str = "") -> AsyncGenerator[Followed, None]:
        while True:
            try:
                listing = await self.list(path, field_selector=field_selector)
                version = listing["metadata"]["resourceVersion"]
                yield Listed(items=tuple(listing["items"]), version=version)
                async for event in self._watch(int(version), field_selector):
                    yield event
            except ApiError:
                pass
            await anyio.sleep(0.1)

    async def _watch(self, at: int, selector: str) -> AsyncGenerator[WatchEvent, None]:
        chosen = self.verbs.selected(self._slice(""), fields=selector)
        epoch = self._epoch
        while epoch == self._epoch:
            for change in list(self.verbs.objects.since(at)):
                at = change.version
                before = change.before is not None and chosen(change.key, change.before)
                after = change.after is not None and chosen(change.key, change.after)
                kinds = {(False, True): "ADDED", (True, True): "MODIFIED", (True, False): "DELETED"}
                if (kind := kinds.get((before, after))) is not None:
                    yield WatchEvent(kind=WatchKind(kind), item=json.loads(json.dumps(change.last)))
            await self.verbs.objects.changed(at)

    async def _do(
        self, verb: str, name: str, work: Callable[[], Json], *, dry_run: bool = False, ops: tuple[Json, ...] = ()
    ) -> Json:
        asked = Asked(anyio.current_time(), verb, name, dry_run, ops)
        self.asked.append(asked)
        await anyio.sleep(self.latency_s)
        if self.away:
            raise Unavailable(f"cannot {verb} {name}: connection refused")
        waiting = self.faults.get(verb) or []
        fault = waiting.pop(0) if waiting else None
        if isinstance(fault, Exception):
            raise fault
        headers: Mapping[str, str] = {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}
        if fault is not None:
            raise failures.refusal(verb, f"/apis/resource.k8s.io/v1/resourceslices/{name}", fault, b"", headers)
        if self.before_write is not None and verb in ("create", "patch") and not dry_run:
            self.before_write(name)
        try:
            answer = work()
        except Refusal as refusal:
            body = json.dumps(refusal.status()).encode()
            path = f"/apis/resource.k8s.io/v1/resourceslices/{name}"
            raise failures.refusal(verb, path, refusal.code, body, refusal.headers()) from None
        asked.ok = True
        if self.lost is not None and verb in ("create", "patch", "delete"):
            lost, self.lost = self.lost, None
            raise lost
        return json.loads(json.dumps(answer))  # type: ignore[no-any-return]

    def _slice(self, name: str) -> Target:
        return Target(kind=self.verbs.type_of(SLICES), name=name)

    def _target(self, item: Json) -> Target:
        kind = next(kind for kind in self.verbs.types() if kind.kind == item["kind"])
        metadata = item["metadata"]
        return Target(kind=kind, name=metadata["name"], namespace=metadata.get("namespace", ""))


@dataclass(slots=True)
class Shelf:
    """A store that is told its offers: what the publisher sees of `liken.state.store.Store`."""

    snapshot: Snapshot = Snapshot(  # noqa: RUF009  (frozen)
        revision=0, complete=False, inventory=Inventory(), rules=Rules(), offers={}, verdicts={}
    )
    _changed: anyio.Event = field(default_factory=anyio.Event)

    async def settled(self, after: int) -> Snapshot:
        while self.snapshot.revision <= after:
            await self._changed.wait()
        return self.snapshot

    def offer(self, *offers: Offer, complete: bool = True, changed_at: float | None = None) -> None:
        """Make the next snapshot of these offers alone."""
        self.snapshot = Snapshot(
            revision=self.snapshot.revision + 1,
            complete=complete,
            inventory=Inventory(),
            rules=Rules(),
            offers={offer.name: offer for offer in offers},
            verdicts={},
            changed_at=changed_at,
        )
        event, self._changed = self._changed, anyio.Event()
        event.set()


@dataclass(slots=True)
class Heard:
    """A Recorder that remembers."""

    events: list[tuple[str, str, str]] = field(default_factory=list)

    def record(self, about: ObjectRef, *, kind: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        self.events.append((f"{about.kind}/{about.name}", f"{kind} {reason}", message))


def offer(name: str, *, shareable: bool = False, **attributes: str | bool) -> Offer:
    """One device on offer."""
    address = name.removeprefix("usb-").replace("-", ".")
    return Offer(
        name=DeviceName(name),
        key=DeviceKey(Bus.USB, BusAddress(address)),
        nodes=(),
        attributes={"bus": "usb", **attributes},
        shareable=shareable,
    )
