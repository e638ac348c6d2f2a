import pathlib

import pytest

from liken.cli.checks import Check, Level
from liken.cli.checks_cluster import cluster
from liken.config import Cluster
from liken.demo.apiserver import ApiServer

pytestmark = pytest.mark.anyio

NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "worker-1"}}


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return "asyncio", {"use_uvloop": True}


async def looked_at(server: ApiServer, tmp_path: pathlib.Path) -> dict[str, Check]:
    settings = Cluster(node_name="worker-1", kubeconfig=server.kubeconfig(tmp_path / "kubeconfig"))
    return {check.name: check async for check in cluster(settings)}


async def test_a_server_with_everything_is_well_but_for_the_crd(tmp_path: pathlib.Path) -> None:
    async with ApiServer.serve() as server:
        server.put(NODE)
        found = await looked_at(server, tmp_path)
        assert {name for name, check in found.items() if check.level is not Level.OK} == {"Machine"}
        assert "liken crd" in found["Machine"].remedy
        assert server.items("resourceslices") == []


async def test_a_feature_that_is_off_is_found_by_a_dry_run(tmp_path: pathlib.Path) -> None:
    async with ApiServer.serve(gates={"DRAConsumableCapacity": False}) as server:
        server.put(NODE)
        found = await looked_at(server, tmp_path)
        assert found["feature DRAConsumableCapacity"].level is Level.WARN
        assert found["feature DRADeviceTaints"].level is Level.OK


async def test_a_missing_right_is_named(tmp_path: pathlib.Path) -> None:
    async with ApiServer.serve() as server:
        server.put(NODE)
        server.deny("patch", "resourceslices")
        found = await looked_at(server, tmp_path)
        assert found["rights"].level is Level.FAIL
        assert "patch resourceslices" in found["rights"].found


async def test_an_unknown_node_fails(tmp_path: pathlib.Path) -> None:
    async with ApiServer.serve() as server:
        found = await looked_at(server, tmp_path)
        assert found["node"].level is Level.FAIL
        assert "--node-name" in found["node"].remedy


async def test_an_old_server_fails(tmp_path: pathlib.Path) -> None:
    async with ApiServer.serve(git_version="v1.33.4") as server:
        found = await looked_at(server, tmp_path)
        assert list(found) == ["API server"]
        assert "1.34 or newer" in found["API server"].remedy


async def test_a_server_that_does_not_answer_fails(tmp_path: pathlib.Path) -> None:
    async with ApiServer.serve() as server:
        path = server.kubeconfig(tmp_path / "kubeconfig")
    found = [check async for check in cluster(Cluster(kubeconfig=path, node_name="worker-1"))]
    assert [(check.name, check.level) for check in found] == [("API server", Level.FAIL)]
