"""A day of a cluster in a minute: cold start, quiet, a rack without power, an API server that restarts, slices deleted.

Each phase ends when a watch of all slices, as a scheduler has one, shows what every node's hardware says, and the
server has been calm for a while; then what the server saw of the nodes is read off the meter.
"""

import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from liken.kube import paths
from liken.model.api import Listed, WatchKind
from tests.scale.fleet import SimulatedNode, fleet
from tests.scale.meter import Meter, Reading
from tests.scale.servers import InMemory, Real, Server

WRITES = ("create", "update", "patch", "delete")
WINDOW_S = 0.1
CALM_S = 2.0
PATIENCE_S = 180.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """What the server saw of one phase, and the seconds until its state was right."""

    name: str
    seconds: float
    reading: Reading

    @property
    def writes(self) -> int:
        """Requests that write."""
        return sum(self.reading.requests[verb] for verb in WRITES)

    def numbers(self) -> dict[str, Any]:
        """Plain figures for JSON."""
        return {
            "phase": self.name,
            "seconds": round(self.seconds, 2),
            "requests": dict(sorted(self.reading.requests.items())),
            "writes": self.writes,
            "received_bytes": self.reading.received,
            "sent_bytes": self.reading.sent,
            "watch_events": self.reading.events,
            "connections": self.reading.connections,
            "busiest_100ms": self.reading.busiest(WINDOW_S),
        }


class Observer:
    """Follows every slice of the cluster, and knows which nodes' slices are right."""

    def __init__(self, nodes: tuple[SimulatedNode, ...]) -> None:
        self._nodes = {node.name: node for node in nodes}
        self.slices: dict[str, dict[str, frozenset[str]]] = {name: {} for name in self._nodes}
        self.right: set[str] = set()

    async def follow(self, server: Server) -> None:
        """Watch until cancelled."""
        async for seen in server.outside.follow(paths.slices()):
            if isinstance(seen, Listed):
                self.slices = {name: {} for name in self._nodes}
                for item in seen.items:
                    self._take(item, present=True)
            else:
                self._take(seen.item, present=seen.kind is not WatchKind.DELETED)

    def _take(self, item: dict[str, Any], *, present: bool) -> None:
        name, found = item["metadata"]["name"], self.slices.get(item["spec"]["nodeName"])
        if found is None:
            return
        if present:
            found[name] = frozenset(device["name"] for device in item["spec"].get("devices") or ())
        else:
            found.pop(name, None)

    def all_right(self) -> bool:
        """Whether every node has its slices with exactly the devices it offers."""
        return all(
            found and frozenset().union(*found.values()) == self._nodes[name].store.snapshot.offers.keys()
            for name, found in self.slices.items()
        )


class Simulation:
    """The running nodes, the server and the meter between them."""

    def __init__(self, server: Server, meter: Meter, nodes: tuple[SimulatedNode, ...]) -> None:
        self.server = server
        self.meter = meter
        self.nodes = nodes
        self.observer = Observer(nodes)
        self.phases: list[Phase] = []

    @asynccontextmanager
    async def phase(self, name: str, also: Callable[[], bool] = lambda: True) -> AsyncIterator[None]:
        """Do something in the block; the phase ends when all is right (and `also`) and the server is calm."""
        before, began = self.meter.reading.copy(), anyio.current_time()
        yield
        with anyio.fail_after(PATIENCE_S):
            while not (also() and self.observer.all_right()):
                await anyio.sleep(0.05)
            seconds = anyio.current_time() - began
            await self._calm()
        self.phases.append(Phase(name=name, seconds=seconds, reading=self.meter.reading.since(before)))

    async def _calm(self) -> None:
        seen = -1
        while seen != len(self.meter.reading.times):
            seen = len(self.meter.reading.times)
            await anyio.sleep(CALM_S)

    async def run(self, *, rack: int, down_s: float, quiet_s: float) -> None:
        """Every phase in turn."""
        async with anyio.create_task_group() as running:
            running.start_soon(self.observer.follow, self.server)
            async with self.phase("cold start of all"):
                for node in self.nodes:
                    running.start_soon(node.publisher.run)
            async with self.phase(f"{quiet_s:g} s of nothing"):
                await anyio.sleep(quiet_s)
            await self._power(self.nodes[:rack])
            await self._restart(down_s)
            async with self.phase("every slice deleted by a hand", lambda: self._writes() >= wanted):
                wanted = self._writes() + len(self.nodes)
                for name in [name for found in self.observer.slices.values() for name in found]:
                    await self.server.outside.delete(paths.slice(name))
            running.cancel_scope.cancel()

    async def _power(self, rack: tuple[SimulatedNode, ...]) -> None:
        async with self.phase(f"a rack of {len(rack)} loses its USB hubs"):
            for node in rack:
                node.lose_power()
        async with self.phase("and has them back"):
            for node in rack:
                node.regain_power()

    async def _restart(self, down_s: float) -> None:
        watching = self.meter.reading.requests["watch"] + len(self.nodes)
        async with self.phase(
            f"API server away for {down_s:g} s and its start",
            lambda: self.meter.reading.requests["watch"] >= watching,
        ):
            await self.server.stop()
            await anyio.sleep(down_s)
            await self.server.start()

    def _writes(self) -> int:
        return sum(self.meter.reading.requests[verb] for verb in WRITES)


async def simulate(
    *, nodes: int, rack: int, down_s: float, quiet_s: float = 10.0, assets: Path | None = None
) -> tuple[Phase, ...]:
    """Run the whole scenario in real time, against the real server when its binaries are in `assets`."""
    names = [f"node-{number:04d}" for number in range(nodes)]
    with tempfile.TemporaryDirectory() as folder:
        async with _server(Path(folder), assets) as server, Meter.serve(server.dial) as meter:
            for name in names:
                node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
                await server.outside.create("/api/v1/nodes", node)
            async with fleet(f"http://127.0.0.1:{meter.port}", server.token, names) as made:
                simulation = Simulation(server, meter, made)
                await simulation.run(rack=rack, down_s=down_s, quiet_s=quiet_s)
                return tuple(simulation.phases)


def _server(folder: Path, assets: Path | None) -> AbstractAsyncContextManager[Server]:
    return InMemory.serve(folder) if assets is None else Real.serve(folder, assets)
