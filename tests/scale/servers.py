"""The API server of a simulation: the real one where `KUBEBUILDER_ASSETS` has it, else the in-memory one.

Both are reached by `dial` (a connection that speaks HTTP/1.1) and stopped and started by the scenario. `outside` is a
client of an administrator that does not pass the meter.
"""

import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol

import anyio
from anyio.abc import ByteStream
from anyio.to_thread import run_sync

from liken.demo.apiserver import ApiServer
from liken.kube.client import Kube
from tests.contract.control_plane import TOKEN, ControlPlane


class Server(Protocol):
    """What a scenario needs of an API server."""

    name: str
    token: str
    outside: Kube

    async def dial(self) -> ByteStream:
        """A new connection. Raises OSError."""

    async def stop(self) -> None:
        """Go away, as at an upgrade."""

    async def start(self) -> None:
        """Come back with the same objects; returns when it serves."""


class InMemory:
    """The demo's server, in this process: for few nodes."""

    name = "the in-memory server"
    token = "nobody"

    def __init__(self, server: ApiServer, outside: Kube) -> None:
        self._server = server
        self.outside = outside

    @classmethod
    @contextlib.asynccontextmanager
    async def serve(cls, folder: Path) -> AsyncIterator["InMemory"]:
        """Serve until the block ends."""
        async with (
            ApiServer.serve() as server,
            Kube.connect(kubeconfig=server.kubeconfig(folder / "outside")) as outside,
        ):
            yield cls(server, outside)

    async def dial(self) -> ByteStream:
        """Plain TCP."""
        return await anyio.connect_tcp("127.0.0.1", self._server.port)

    async def stop(self) -> None:
        """End every connection and refuse new ones."""
        await self._server.stop()

    async def start(self) -> None:
        """Listen again."""
        await self._server.start()


class Real:
    """kube-apiserver and etcd as processes."""

    name = "kube-apiserver and etcd"
    token = TOKEN

    def __init__(self, plane: ControlPlane, outside: Kube) -> None:
        self._plane = plane
        self._tls = ssl.create_default_context(cafile=str(plane.root / "ca.crt"))
        self._port = int(plane.server.rsplit(":", 1)[1])
        self.outside = outside

    @classmethod
    @contextlib.asynccontextmanager
    async def serve(cls, folder: Path, assets: Path) -> AsyncIterator["Real"]:
        """Start both, and end them with the block."""
        plane = ControlPlane(folder / "plane", assets)
        await run_sync(plane.__enter__)
        try:
            async with Kube.connect(kubeconfig=plane.kubeconfig) as outside:
                yield cls(plane, outside)
        finally:
            with anyio.CancelScope(shield=True):
                await run_sync(plane.stop)

    async def dial(self) -> ByteStream:
        """TLS, which the meter takes off."""
        try:
            return await anyio.connect_tcp("127.0.0.1", self._port, tls=True, ssl_context=self._tls)
        except ssl.SSLError as error:
            raise ConnectionError(str(error)) from error

    async def stop(self) -> None:
        """End kube-apiserver; etcd stays."""
        await run_sync(self._plane.end, "kube-apiserver")

    async def start(self) -> None:
        """Start it on the same port and wait until it is ready."""
        await run_sync(self._plane.start_api_server)
