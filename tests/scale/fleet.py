"""Simulated nodes: the publishing half of the daemon, many in one process, each with its own recorded machine.

A node is a store with a machine's facts, a client of its own (its own connections, as on a real node) and a publisher.
Machines differ in their serial numbers. In: recordings. Out: running nodes that take hardware changes.
"""

import contextlib
import os
import tempfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import anyio

from liken.events.recording import recorded
from liken.events.sysfs import Sysfs
from liken.kube.client import Kube
from liken.metrics import Metrics
from liken.model.hardware import Bus, DeviceFacts, DeviceKey
from liken.publish.publisher import Publisher
from liken.state.ids import IdsFiles
from liken.state.store import Store

OURS = Path(__file__).parents[2] / "liken/demo/machines/mini-pc.umockdev"
SHARED = Path(os.environ.get("LIKEN_SHARED", Path(__file__).parents[3] / "shared")) / "recordings/checkbox"
RECORDINGS = ("HP_ELITEBOOK_835_13_INCH_G10", "ELEMENT_BIOSCIENCES_INSTRUMENT", "LENOVO_T430S", "RPI4B4G", "HOME_MADE")


@dataclass(slots=True)
class SimulatedNode:
    """One node: its name, what its machine is made of, and the store that its publisher follows."""

    name: str
    machine: tuple[DeviceFacts, ...]
    store: Store
    publisher: Publisher

    @property
    def behind_hubs(self) -> tuple[DeviceKey, ...]:
        """Every USB device below a root hub: what goes when the hubs lose power."""
        return tuple(
            facts.key for facts in self.machine if facts.key.bus is Bus.USB and not facts.key.address.startswith("usb")
        )

    def lose_power(self) -> None:
        """All USB devices go at once."""
        self.store.replace((), gone=self.behind_hubs, changed_at=anyio.current_time())

    def regain_power(self) -> None:
        """They are all back."""
        self.store.replace(self.machine, changed_at=anyio.current_time())


def machines() -> tuple[tuple[DeviceFacts, ...], ...]:
    """Inventories of recorded machines: those beside the project where they are, and the demo's own."""
    paths = [path for name in RECORDINGS if (path := SHARED / f"{name}.txt.xz").exists()]
    found = []
    for path in [*paths, OURS]:
        with recorded(path) as machine:
            found.append(Sysfs(machine.sysfs, proc=machine.proc, dev=machine.dev).everything())
    return tuple(found)


@contextlib.asynccontextmanager
async def fleet(server: str, token: str, names: Sequence[str]) -> AsyncIterator[tuple[SimulatedNode, ...]]:
    """One node for each name, logged in and ready to `run`; no request was made yet."""
    made, ids = machines(), IdsFiles.read(None)
    with tempfile.TemporaryDirectory() as folder:
        kubeconfig = _kubeconfig(Path(folder) / "kubeconfig", server, token)
        async with contextlib.AsyncExitStack() as clients:
            nodes = []
            for number, name in enumerate(names):
                machine = tuple(_numbered(facts, number) for facts in made[number % len(made)])
                store = Store(ids)
                store.replace(machine, everything=True, complete=True)
                kube = await clients.enter_async_context(Kube.connect(kubeconfig=kubeconfig))
                publisher = Publisher(api=kube, store=store, node_name=name, metrics=Metrics())
                nodes.append(SimulatedNode(name=name, machine=machine, store=store, publisher=publisher))
            yield tuple(nodes)


def _numbered(facts: DeviceFacts, number: int) -> DeviceFacts:
    if "serial" not in facts.files:
        return facts
    return replace(facts, files={**facts.files, "serial": b"%s-%05d\n" % (facts.files["serial"].strip()[:40], number)})


def _kubeconfig(path: Path, server: str, token: str) -> Path:
    path.write_text(
        f"""
apiVersion: v1
kind: Config
clusters: [{{name: simulated, cluster: {{server: "{server}"}}}}]
users: [{{name: node, user: {{token: {token}}}}}]
contexts: [{{name: simulated, context: {{cluster: simulated, user: node}}}}]
current-context: simulated
""",
        encoding="utf-8",
    )
    return path
