"""Stand-ins of what the Machine controller works with: an API server with one Machine, a loader, a line discipline."""

import copy
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import anyio

from liken.machine.line import Hold, LineError
from liken.machine.modprobe import Outcome
from liken.model.api import (
    ApiError,
    Conflict,
    Followed,
    Json,
    Listed,
    NotFound,
    ObjectRef,
    Unavailable,
    WatchEvent,
    WatchKind,
)
from liken.model.hardware import DeviceFacts, DevPath, NodeFact
from liken.model.machine import SerioProtocol
from tests.unit.fakes_state import CONTROLLER, dev, interface, usb_device

NODE = "node-a"


@dataclass(slots=True)
class FakeServer:
    """The MachineApi: at most one Machine, whose spec tests write and whose status the controller applies."""

    item: Json | None = None
    served: bool = True
    away: bool = False
    created: int = 0
    applied: list[Json] = field(default_factory=list)
    managers: set[str] = field(default_factory=set)
    pruned: tuple[str, ...] = ()
    _versions: int = 0
    _changed: anyio.Event = field(default_factory=anyio.Event)

    @property
    def status(self) -> Json:
        """The stored status, empty while there is none."""
        return (self.item or {}).get("status") or {}

    def condition(self, kind: str) -> Json:
        """A stored condition, empty while there is none."""
        return next((found for found in self.status.get("conditions", ()) if found["type"] == kind), {})

    def declare(self, **spec: object) -> None:
        """Write the spec as a person does."""
        metadata = (self.item or {}).get("metadata") or {"name": NODE, "uid": f"u{self._versions}", "generation": 0}
        metadata = metadata | {"generation": metadata["generation"] + 1}
        self._store((self.item or {}) | {"metadata": metadata, "spec": spec})

    def delete(self) -> None:
        """Delete the Machine as a person does."""
        self._store(None)

    def serve(self, *, machines: bool) -> None:
        """Install or remove the CRD."""
        self.served = machines
        self._store(None)

    def overwrite_status(self, status: Json) -> None:
        """Write the status as nobody should."""
        assert self.item is not None
        self._store(self.item | {"status": status})

    def _store(self, item: Json | None) -> None:
        self.item = item
        self._versions += 1
        event, self._changed = self._changed, anyio.Event()
        event.set()

    async def follow(
        self,
        path: str,
        *,
        field_selector: str = "",
        label_selector: str = "",
        on_error: Callable[[ApiError], None] | None = None,
    ) -> AsyncGenerator[Followed, None]:
        assert (path, label_selector) == ("/apis/liken.sh/v1alpha1/machines", "")
        assert field_selector == f"metadata.name={NODE}"
        while True:
            if self.away or not self.served:
                assert on_error is not None
                on_error(Unavailable("connection refused") if self.away else NotFound("no such resource", status=404))
                with anyio.move_on_after(10):
                    await self._changed.wait()
                continue
            yield Listed(items=(copy.deepcopy(self.item),) if self.item else (), version="1")
            before, version = self.item, self._versions
            while self._answers():
                if version == self._versions:
                    await self._changed.wait()
                    continue
                version, last, before = self._versions, before, self.item
                if before is not None:
                    yield WatchEvent(kind=WatchKind.MODIFIED, item=copy.deepcopy(before))
                elif last is not None:
                    yield WatchEvent(kind=WatchKind.DELETED, item=copy.deepcopy(last))

    async def create(self, path: str, body: Json) -> Json:
        assert path == "/apis/liken.sh/v1alpha1/machines"
        self._answer()
        if self.item is not None:
            raise Conflict("already exists", status=409)
        assert body["spec"] == {}
        self.created += 1
        metadata = {"name": body["metadata"]["name"], "uid": f"u{self._versions}", "generation": 1}
        made: Json = {"metadata": metadata, "spec": {}}
        self._store(made)
        return copy.deepcopy(made)

    async def apply(self, path: str, body: Json, *, manager: str, force: bool = True) -> Json:
        assert path == f"/apis/liken.sh/v1alpha1/machines/{NODE}/status"
        assert force
        self._answer()
        if self.item is None:
            raise NotFound("no such machine", status=404)
        assert set(body) == {"apiVersion", "kind", "metadata", "status"}
        self.managers.add(manager)
        self.applied.append(copy.deepcopy(body["status"]))
        kept = {key: value for key, value in copy.deepcopy(body["status"]).items() if key not in self.pruned}
        self._store(self.item | {"status": kept})
        return copy.deepcopy(self.item)

    def _answers(self) -> bool:
        return self.served and not self.away

    def _answer(self) -> None:
        if self.away:
            raise Unavailable("connection refused")
        if not self.served:
            raise NotFound("no such resource", status=404)


@dataclass(slots=True)
class FakeLoader:
    """A ModuleLoader whose modules appear below `sysfs/module`; `refusals`: module -> words instead."""

    sysfs: Path
    refusals: dict[str, str] = field(default_factory=dict)
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    takes_s: float = 0.0
    silent: set[str] = field(default_factory=set)

    @property
    def names(self) -> list[str]:
        """The modules asked for, in order."""
        return [name for name, _ in self.asked]

    async def load(self, name: str, parameters: Mapping[str, str]) -> Outcome:
        self.asked.append((name, dict(parameters)))
        await anyio.sleep(self.takes_s)
        if name in self.refusals:
            return Outcome(self.refusals[name])
        if name not in self.silent:
            self.appear(name, **parameters)
        return Outcome()

    def appear(self, name: str, **parameters: str) -> None:
        """A module is in the kernel now, whoever loaded it."""
        folder = self.sysfs / "module" / name.replace("-", "_")
        (folder / "parameters").mkdir(parents=True, exist_ok=True)
        for key, value in parameters.items():
            (folder / "parameters" / key).write_text(f"{value}\n")
        (folder / "initstate").write_text("live\n")


@dataclass(slots=True)
class FakeDiscipline:
    """A Discipline whose port appears below `sysfs/class/tty`; `refusals`: tty -> words of the kernel instead."""

    sysfs: Path
    refusals: dict[str, str] = field(default_factory=dict)
    binds: bool = True
    tries: list[tuple[float, str, SerioProtocol]] = field(default_factory=list)
    lines: dict[str, anyio.Event] = field(default_factory=dict)
    ports: int = 0

    @asynccontextmanager
    async def hold(self, tty: Path, protocol: SerioProtocol) -> AsyncIterator[Hold]:
        self.tries.append((anyio.current_time(), tty.name, protocol))
        if tty.name in self.refusals:
            raise LineError(self.refusals[tty.name])
        assert tty.name not in self.lines, f"{tty} is attached twice"
        port = self.sysfs / "class/tty" / tty.name / f"serio{self.ports}"
        port.mkdir(parents=True)
        bound = self.binds
        if bound:
            (port / "driver").mkdir()
        self.ports += 1
        self.lines[tty.name] = anyio.Event()
        try:
            yield Held(self.lines[tty.name])
        finally:
            del self.lines[tty.name]
            if bound:
                (port / "driver").rmdir()
            port.rmdir()

    def hang_up(self, tty: str) -> None:
        """The line is gone."""
        self.lines[tty].set()


@dataclass(slots=True)
class Held:
    over: anyio.Event

    async def ended(self) -> None:
        await self.over.wait()


@dataclass(slots=True)
class Heard:
    """A Recorder that remembers."""

    events: list[tuple[str, str, str]] = field(default_factory=list)

    def record(self, about: ObjectRef, *, kind: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        assert (about.kind, about.name) == ("Machine", NODE)
        self.events.append((kind, reason, message))


def cec_adapter(
    port: str, *, number: int = 7, tty: str | None = "ttyACM0", serial: bytes = b"", made: tuple[str, ...] = ()
) -> tuple[DeviceFacts, ...]:
    """A Pulse-Eight adapter; `made` are nodes of its serio driver: `cec0`, `input/event3`."""
    line = [place(port, tty, "tty", "166:0")] if tty else []
    below = [place(port, f"{tty}/serio0/{name}", name.split("/")[0].rstrip("0123456789")) for name in made]
    nodes = [
        NodeFact(path=fact.path, name=fact.name.split("/serio0/")[-1], kind=fact.kind, number=None) for fact in below
    ]
    return (
        usb_device(port, number=number, ids="2548:1002", serial=serial),
        interface(f"{port}:1.0", "cdc_acm" if tty else None, [*line, *nodes], code="02"),
        interface(f"{port}:1.1", "cdc_acm" if tty else None, code="0a"),
    )


def place(port: str, name: str, kind: str, number: str = "") -> NodeFact:
    path = f"{CONTROLLER}/usb1/{port}/{port}:1.0/tty/{name}"
    return NodeFact(path=DevPath(path), name=name, kind=kind, number=dev(number))


async def seconds(count: float) -> None:
    """Let virtual time pass in steps, so that a worker thread on a busy machine has real time for each."""
    for _ in range(round(count / 0.1)):
        await anyio.sleep(0.1)
