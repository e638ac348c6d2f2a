import json
import pathlib
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

import anyio
import pytest

from liken import daemon
from liken.claims.server import SocketError
from liken.config import Claiming, Cluster, Hardware, Mode, Publishing, Settings, Web
from liken.demo.apiserver import ApiServer
from liken.events.feed import Feed
from liken.events.recording import recorded
from liken.events.sysfs import SysfsError
from liken.web.server import ListenError

pytestmark = pytest.mark.anyio

GUIDE = pathlib.Path(__file__).parents[1] / "fixtures/guide"
NODE = "worker-1"
NAMES = ["pci-0000-00-02-0", "pci-0000-00-02-0-display", "pci-0000-00-02-0-i2c-dev"]


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return "asyncio", {"use_uvloop": True}


@pytest.fixture
def sysfs() -> Iterator[pathlib.Path]:
    with recorded(GUIDE / "machine.umockdev") as machine:
        yield machine.sysfs


def made(sysfs: pathlib.Path, root: pathlib.Path, kubeconfig: pathlib.Path | None = None, **more: object) -> Settings:
    for name in ("cdi", "plugins", "registry", "modules"):
        (root / name).mkdir(exist_ok=True)
    groups: dict[str, object] = {
        "hardware": Hardware(sysfs=sysfs, proc=root, dev=root, ids=GUIDE, modules=root / "modules"),
        "cluster": Cluster(node_name=NODE, kubeconfig=kubeconfig),
        "claiming": Claiming(cdi_dir=root / "cdi", plugins_dir=root / "plugins", registry_dir=root / "registry"),
        "web": Web(web_listen="127.0.0.1:0"),
    }
    return Settings(**{**groups, **more})  # type: ignore[arg-type]


async def until(true: Callable[[], bool]) -> None:
    with anyio.fail_after(40):
        while not true():
            await anyio.sleep(0.01)


@asynccontextmanager
async def running(settings: Settings) -> AsyncIterator[daemon.Parts]:
    stop, ready = anyio.Event(), anyio.Event()
    there: list[daemon.Parts] = []

    def serving(parts: daemon.Parts) -> None:
        there.append(parts)
        ready.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(daemon.run, settings, daemon.Stage(source=Feed, ready=serving), stop)
        with anyio.fail_after(40):
            await ready.wait()
        yield there[0]
        stop.set()


def devices(server: ApiServer) -> list[str]:
    return [device["name"] for item in server.items("resourceslices") for device in item["spec"].get("devices") or ()]


def node(server: ApiServer) -> None:
    server.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})


async def test_it_publishes_serves_sockets_and_leaves_the_slices_when_it_ends(
    sysfs: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    async with ApiServer.serve() as server:
        node(server)
        async with running(made(sysfs, tmp_path, server.kubeconfig(tmp_path / "kubeconfig"))):
            await until(lambda: devices(server) == NAMES)
            assert (tmp_path / "plugins/liken.sh/dra.sock").is_socket()
            assert (tmp_path / "registry/liken.sh-reg.sock").is_socket()
        assert devices(server) == NAMES
        assert not (tmp_path / "registry/liken.sh-reg.sock").exists()


async def test_with_withdraw_the_slices_go_at_the_end(sysfs: pathlib.Path, tmp_path: pathlib.Path) -> None:
    async with ApiServer.serve() as server:
        node(server)
        kubeconfig = server.kubeconfig(tmp_path / "kubeconfig")
        async with running(made(sysfs, tmp_path, kubeconfig, publishing=Publishing(withdraw=True))):
            await until(lambda: devices(server) == NAMES)
        assert server.items("resourceslices") == []


async def test_an_api_server_that_does_not_answer_stops_nothing_but_publishing(
    sysfs: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    async with ApiServer.serve() as server:
        node(server)
        kubeconfig = server.kubeconfig(tmp_path / "kubeconfig")
        await server.stop()
        async with running(made(sysfs, tmp_path, kubeconfig)) as parts:
            assert (tmp_path / "plugins/liken.sh/dra.sock").is_socket()
            assert len(parts.store.snapshot.offers) == 3
            await server.start()
            await until(lambda: devices(server) == NAMES)


async def test_the_web_says_what_every_part_does(sysfs: pathlib.Path, tmp_path: pathlib.Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    async with ApiServer.serve() as server:
        node(server)
        kubeconfig = server.kubeconfig(tmp_path / "kubeconfig")
        async with running(made(sysfs, tmp_path, kubeconfig, web=Web(web_listen=f"127.0.0.1:{port}"))):
            await until(lambda: devices(server) == NAMES)
            async with await anyio.connect_tcp("127.0.0.1", port) as stream:
                await stream.send(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                answer = b"".join([chunk async for chunk in stream]).decode()
    assert "[+] hardware" in answer
    assert "[+] slices" in answer
    assert "[+] claims" in answer


async def test_a_web_address_that_is_taken_keeps_it_from_starting(sysfs: pathlib.Path, tmp_path: pathlib.Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        async with ApiServer.serve() as server:
            kubeconfig = server.kubeconfig(tmp_path / "kubeconfig")
            settings = made(sysfs, tmp_path, kubeconfig, web=Web(web_listen=address))
            with pytest.RaisesGroup(ListenError, flatten_subgroups=True):
                await daemon.run(settings, daemon.Stage(source=Feed), anyio.Event())


async def test_a_sysfs_that_is_none_keeps_it_from_starting(tmp_path: pathlib.Path) -> None:
    async with ApiServer.serve() as server:
        settings = made(tmp_path / "nothing", tmp_path, server.kubeconfig(tmp_path / "kubeconfig"))
        with pytest.RaisesGroup(SysfsError, flatten_subgroups=True):
            await daemon.run(settings, daemon.Stage(source=Feed), anyio.Event())


async def test_a_missing_plugins_folder_keeps_it_from_starting(sysfs: pathlib.Path, tmp_path: pathlib.Path) -> None:
    async with ApiServer.serve() as server:
        settings = made(sysfs, tmp_path, server.kubeconfig(tmp_path / "kubeconfig"))
        (tmp_path / "registry").rmdir()
        (tmp_path / "registry").write_text("a file")
        with pytest.RaisesGroup(SocketError, flatten_subgroups=True):
            await daemon.run(settings, daemon.Stage(source=Feed), anyio.Event())


async def test_standalone_keeps_one_cdi_file_and_asks_no_server(sysfs: pathlib.Path, tmp_path: pathlib.Path) -> None:
    settings = made(sysfs, tmp_path, mode=Mode(standalone=True))
    async with running(settings):
        (path,) = (tmp_path / "cdi").glob("*.json")
        names = [device["name"] for device in json.loads(path.read_bytes())["devices"]]
        assert names == NAMES


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_the_process_in_order(
    sysfs: pathlib.Path, tmp_path: pathlib.Path, number: signal.Signals
) -> None:
    async with ApiServer.serve() as server:
        node(server)
        settings = made(sysfs, tmp_path, server.kubeconfig(tmp_path / "kubeconfig"))
        command = [sys.executable, "-m", "liken", "run", "--node-name", NODE, "--web-listen", "off"]
        command += ["--kubeconfig", str(tmp_path / "kubeconfig"), "--sysfs", str(sysfs), "--proc", str(tmp_path)]
        command += ["--cdi-dir", str(settings.claiming.cdi_dir), "--plugins-dir", str(settings.claiming.plugins_dir)]
        command += ["--registry-dir", str(settings.claiming.registry_dir), "--log-format", "json"]
        async with await anyio.open_process(command, stdout=-1, stderr=-1) as process:
            await until(lambda: bool(devices(server)))
            process.send_signal(number)
            assert process.stderr is not None
            said = b"".join([chunk async for chunk in process.stderr]).decode()
            assert await process.wait() == 0
        events = [json.loads(line)["event"] for line in said.splitlines()]
        assert events[0] == "liken.starting"
        assert events[-1] == "liken.ended"
        assert devices(server)
