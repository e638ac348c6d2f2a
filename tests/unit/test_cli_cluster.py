import json
import pathlib
from typing import Any

import anyio.to_thread
import pytest
from click.testing import CliRunner, Result

from liken.cli.app import cli
from liken.config import Claiming, Cluster, Hardware, Settings, Web
from liken.daemon import OFF, Parts, Stage, run
from liken.demo.apiserver import ApiServer
from liken.demo.kubelet import Kubelet, KubeletError
from liken.demo.story import allocated
from liken.events.feed import Feed
from liken.events.recording import recorded
from liken.model.api import Json

pytestmark = pytest.mark.anyio

GUIDE = pathlib.Path(__file__).parents[1] / "fixtures/guide"
MACHINE = ["--recording", str(GUIDE / "machine.umockdev"), "--ids", str(GUIDE)]


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return "asyncio", {"use_uvloop": True}


async def called(*arguments: str) -> Result:
    """In a thread, since a command that asks the server must not block the server's loop."""
    runner = CliRunner(env={"KUBECONFIG": None})
    return await anyio.to_thread.run_sync(runner.invoke, cli, list(arguments))


async def test_slices_with_a_kubeconfig_are_owned_by_the_node(tmp_path: pathlib.Path) -> None:
    async with ApiServer.serve() as server:
        node = server.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "worker-1"}})
        options = ["--node-name", "worker-1", "--kubeconfig", str(server.kubeconfig(tmp_path / "kubeconfig"))]
        result = await called("slices", "-o", "json", *options, *MACHINE)
    assert result.exit_code == 0, result.output
    (item,) = json.loads(result.stdout)["items"]
    (owner,) = item["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("Node", node["metadata"]["uid"])
    assert result.stderr == ""


async def test_slices_without_an_answer_are_printed_without_an_owner(tmp_path: pathlib.Path) -> None:
    async with ApiServer.serve() as server:
        kubeconfig = server.kubeconfig(tmp_path / "kubeconfig")
    result = await called("slices", "-o", "json", "--node-name", "n", "--kubeconfig", str(kubeconfig), *MACHINE)
    assert result.exit_code == 0
    assert "ownerReferences" not in json.loads(result.stdout)["items"][0]["metadata"]
    assert "without an owner" in result.stderr


async def printed_slices(server: ApiServer, kubeconfig: str) -> list[Json]:
    """What `liken slices` prints for two nodes, whose Node objects are on the server."""
    items = []
    for node in ("worker-1", "worker-2"):
        server.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}})
        printed = await called("slices", "-o", "json", "--node-name", node, "--kubeconfig", kubeconfig, *MACHINE)
        items += json.loads(printed.stdout)["items"]
    return items


async def test_what_slices_prints_is_accepted_and_withdraw_removes_it_and_no_other(tmp_path: pathlib.Path) -> None:
    async with ApiServer.serve() as server:
        kubeconfig = str(server.kubeconfig(tmp_path / "kubeconfig"))
        for item in await printed_slices(server, kubeconfig):
            server.put(item)
        result = await called("withdraw", "--node-name", "worker-1", "--kubeconfig", kubeconfig)
        assert result.exit_code == 0, result.output
        assert "Removed 1 slice of node worker-1." in result.stderr
        assert [item["spec"]["nodeName"] for item in server.items("resourceslices")] == ["worker-2"]


async def test_withdraw_of_every_node_removes_the_slices_of_liken_and_no_other_drivers(tmp_path: pathlib.Path) -> None:
    async with ApiServer.serve() as server:
        kubeconfig = str(server.kubeconfig(tmp_path / "kubeconfig"))
        for item in await printed_slices(server, kubeconfig):
            server.put(item)
            item["spec"]["driver"] = "other.example"
            item["metadata"]["name"] += "-other"
            server.put(item)
        result = await called("withdraw", "--every-node", "--kubeconfig", kubeconfig)
        assert "Removed 2 slices of every node." in result.stderr
        assert {item["spec"]["driver"] for item in server.items("resourceslices")} == {"other.example"}


async def test_withdraw_without_an_answer_is_a_failure(tmp_path: pathlib.Path) -> None:
    async with ApiServer.serve() as server:
        kubeconfig = str(server.kubeconfig(tmp_path / "kubeconfig"))
    result = await called("withdraw", "--node-name", "worker-1", "--kubeconfig", kubeconfig)
    assert result.exit_code == 1


async def test_claims_shows_what_the_daemon_prepared(tmp_path: pathlib.Path) -> None:
    for name in ("cdi", "plugins", "registry"):
        (tmp_path / name).mkdir()
    async with ApiServer.serve() as server, anyio.create_task_group() as tasks:
        for kind, name in (("Node", "demo-node"), ("Namespace", "home")):
            server.put({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}})
        uid = allocated(server, "pci-0000-00-02-0-display")
        with recorded(GUIDE / "machine.umockdev") as machine:
            settings = Settings(
                hardware=Hardware(sysfs=machine.sysfs, proc=tmp_path, dev=tmp_path, ids=GUIDE, modules=tmp_path),
                cluster=Cluster(node_name="demo-node", kubeconfig=server.kubeconfig(tmp_path / "kubeconfig")),
                claiming=Claiming(
                    cdi_dir=tmp_path / "cdi", plugins_dir=tmp_path / "plugins", registry_dir=tmp_path / "registry"
                ),
                web=Web(web_listen=OFF),
            )
            stop, ready = anyio.Event(), anyio.Event()

            def serving(_: Parts) -> None:
                ready.set()

            tasks.start_soon(run, settings, Stage(source=Feed, ready=serving), stop)
            await ready.wait()
            async with Kubelet.meeting(tmp_path / "registry") as kubelet:
                devices = await kubelet.prepare(namespace="home", name="zigbee", uid=uid)
                assert devices[0].device_name == "pci-0000-00-02-0-display"
                with pytest.raises(KubeletError):
                    await kubelet.prepare(namespace="home", name="zigbee", uid="another")
            listed: list[dict[str, Any]] = json.loads(
                (await called("claims", "-o", "json", "--cdi-dir", str(tmp_path / "cdi"))).stdout
            )
            table = (await called("claims", "--cdi-dir", str(tmp_path / "cdi"))).stdout
            stop.set()
    (claim,) = listed
    assert (claim["namespace"], claim["name"], claim["uid"]) == ("home", "zigbee", uid)
    (device,) = claim["devices"]
    assert device["nodes"] == ["/dev/dri/card0"]
    assert device["health"] == "Healthy"
    assert "home/zigbee" in table
    assert "/dev/dri/card0" in table
