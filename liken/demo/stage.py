"""Puts the demo together: folders, the API server, the bench, and the daemon with what it needs of them.

In one process, so that the daemon, the server and the bench share one clock. The daemon is `liken.daemon.run`, as
`liken run` calls it; only its module loader is pretended, since no kernel here takes a module. The bench decides where
the hardware is: in private namespaces with a real netlink socket, or in a folder with a feed.
"""

import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio

from liken import daemon
from liken.config import Claiming, Cluster, Events, Hardware, Publishing, Settings, Web
from liken.demo.apiserver import ApiServer
from liken.demo.bench import Bench
from liken.demo.hardware import TV, TV_MODULE, text
from liken.demo.story import NAMESPACE, NODE
from liken.machine.crd import crd
from liken.machine.modprobe import Outcome

BINDING_S = 0.02
RECEIVE_BUFFER = 32 << 10
"""Small, so that a flood overflows it: some 50 events."""

WRITE_BURST = 20
"""A spectator would otherwise wait for the write limiter, which a node's hardware never meets in this way."""


class PretendedLoader:
    """Says that the TV stick's module is loaded, and lets its driver bind."""

    def __init__(self, sysfs: Path, bench: Bench) -> None:
        self._modules = sysfs / "module"
        self._bench = bench

    async def load(self, name: str, parameters: Mapping[str, str]) -> Outcome:  # noqa: ARG002  (none is declared)
        """Load the one module there is."""
        if name != TV_MODULE:
            return Outcome(f"the demo pretends to load {TV_MODULE} and nothing else")
        folder = self._modules / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "initstate").write_text("live\n")
        await anyio.sleep(BINDING_S)
        self._bench.bind(TV, TV_MODULE, text("rtl28xxu"))
        return Outcome()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What the story plays on."""

    server: ApiServer
    parts: daemon.Parts
    registry: Path
    cdi: Path


def settings(root: Path, kubeconfig: Path, *, sysfs: Path, dev: Path) -> Settings:
    """The daemon's settings: everything below `root`, nothing of the machine the demo runs on."""
    return Settings(
        hardware=Hardware(sysfs=sysfs, proc=root / "proc", dev=dev, modules=root / "lib/modules/demo"),
        cluster=Cluster(node_name=NODE, kubeconfig=kubeconfig),
        events=Events(receive_buffer=RECEIVE_BUFFER),
        publishing=Publishing(write_burst=WRITE_BURST),
        claiming=Claiming(cdi_dir=root / "cdi", plugins_dir=root / "plugins", registry_dir=root / "registry"),
        web=Web(web_listen=daemon.OFF),
    )


@asynccontextmanager
async def staged(
    root: Path, bench: Bench, sockets: Sequence[socket.socket], said: Callable[[ApiServer], None]
) -> AsyncIterator[Stage]:
    """Serve and run until left; `said` hears of the server before the daemon starts.

    `sockets`: listening ones, the first for whoever watches from outside, the last for the daemon.
    """
    async with ApiServer.serve(port=-1, sockets=sockets) as server, anyio.create_task_group() as tasks:
        server.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
        server.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        server.put(crd())
        server.kubeconfig(root / "kubeconfig", _url(sockets[0]))
        inside = server.kubeconfig(root / "etc/kubeconfig", _url(sockets[-1]))
        said(server)
        there: list[daemon.Parts] = []
        ready, stop, ended = anyio.Event(), anyio.Event(), anyio.Event()

        def serving(parts: daemon.Parts) -> None:
            there.append(parts)
            ready.set()

        async def daemon_runs() -> None:
            stage = daemon.Stage(loader=PretendedLoader(bench.sysfs, bench), ready=serving, source=bench.source)
            try:
                await daemon.run(settings(root, inside, sysfs=bench.sysfs, dev=bench.dev), stage, stop)
            finally:
                ended.set()

        tasks.start_soon(daemon_runs)
        await ready.wait()
        try:
            yield Stage(server=server, parts=there[0], registry=root / "registry", cdi=root / "cdi")
        finally:
            stop.set()
            with anyio.CancelScope(shield=True), anyio.move_on_after(10):
                await ended.wait()


def _url(bound: socket.socket) -> str:
    return f"http://127.0.0.1:{bound.getsockname()[1]}"
