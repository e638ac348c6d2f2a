"""Runs each contract test against the in-memory API server, as new and as 1.34, and against a real one.

The real one is started once a session from the binaries of `KUBEBUILDER_ASSETS`; without them it is skipped.
"""

import pathlib
import re
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import pytest

from liken.demo.apiserver import ApiServer
from liken.kube.client import Kube
from tests.contract.control_plane import HOW_TO_GET, ControlPlane, assets

OLD_GATES = {"DRAConsumableCapacity": False, "DRADeviceTaints": False}
GATES_ON_SINCE = 36


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """One API server under test; `kube` is an administrator's client, `node` a name nobody else uses."""

    kube: Kube
    kubeconfig: pathlib.Path
    node: str
    minor: int
    memory: ApiServer | None = None

    @property
    def drops(self) -> bool:
        """Whether it drops the fields whose gates are on by default from 1.36."""
        return self.minor < GATES_ON_SINCE

    @property
    def slice_name(self) -> str:
        """The node's first slice."""
        return f"{self.node}-liken.sh"


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    """Real sockets: real time."""
    return "asyncio", {"use_uvloop": True}


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A real API server with its etcd."""
    folder = assets()
    if folder is None:
        pytest.skip(HOW_TO_GET)
    with ControlPlane(tmp_path_factory.mktemp("plane"), folder) as plane:
        yield plane


@pytest.fixture(params=["memory", "memory-1.34", pytest.param("real", marks=pytest.mark.contract)])
async def server(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> AsyncIterator[Server]:
    """The API server under test."""
    node = f"n{uuid.uuid4().hex[:8]}"
    if request.param == "real":
        plane: ControlPlane = request.getfixturevalue("control_plane")
        async with Kube.connect(kubeconfig=plane.kubeconfig) as kube:
            minor = re.sub(r"\D", "", (await kube.version())["minor"])
            yield Server(kube=kube, kubeconfig=plane.kubeconfig, node=node, minor=int(minor))
        return
    old = request.param == "memory-1.34"
    version, gates = ("v1.34.4", OLD_GATES) if old else ("v1.37.2", {})
    async with ApiServer.serve(git_version=version, gates=gates, bookmark_s=1.0) as memory:
        kubeconfig = memory.kubeconfig(tmp_path / "kubeconfig")
        async with Kube.connect(kubeconfig=kubeconfig) as kube:
            minor = version.split(".")[1]
            yield Server(kube=kube, kubeconfig=kubeconfig, node=node, minor=int(minor), memory=memory)
