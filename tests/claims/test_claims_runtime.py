"""A real container runtime reads what standalone mode writes: podman with runc and an image of busybox alone."""

import io
import os
import shutil
import stat
import subprocess
import tarfile
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from liken.claims.standalone import Standalone
from liken.metrics import Metrics
from liken.state.store import Store
from tests.unit.fakes_claims import ZIGBEE, FakeHardware
from tests.unit.fakes_state import NoNames, interface, node, usb_device

pytestmark = [pytest.mark.anyio, pytest.mark.runtime]

IMAGE = "localhost/liken-busybox:1"
NODE_NAME = f"liken-test-{os.getpid()}"
NODE = Path("/dev") / NODE_NAME
# Numbers that the device cgroup gives to nobody by itself.
FIRST, SECOND = (10, 229), (10, 200)


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"use_uvloop": True}


class Podman:
    """Podman with a store of its own, which sees `cdi` as /etc/cdi in a mount namespace of its own.

    The /etc of that namespace is a folder of links to the real one, so that neither a test that runs beside this one
    nor the machine ever sees an /etc/cdi come or go.
    """

    def __init__(self, folder: Path) -> None:
        etc, real = folder / "etc", folder / "real"
        etc.mkdir()
        real.mkdir()
        for entry in Path("/etc").iterdir():
            if entry.name != "cdi":
                (etc / entry.name).symlink_to(real / entry.name)
        self.cdi = etc / "cdi"
        self.cdi.mkdir()
        mounts = f'mount --bind /etc {real} && mount --bind {etc} /etc && exec "$@"'
        self._base = [
            *("unshare", "--mount", "sh", "-c", mounts, "sh"),
            *("podman", "--root", str(folder / "root"), "--runroot", str(folder / "run")),
            *("--cgroup-manager", "cgroupfs", "--runtime", "runc"),
        ]

    def call(self, *arguments: str, given: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
        environment = os.environ | {"STORAGE_DRIVER": "vfs"}
        return subprocess.run(
            [*self._base, *arguments], input=given, capture_output=True, check=False, env=environment, timeout=50
        )

    async def run(self, *command: str, devices: Sequence[str] = (ZIGBEE,)) -> tuple[int, str]:
        """A container with these devices; its exit code and everything it said."""
        limits = ["--ulimit", "nofile=1024:2048", "--ulimit", "nproc=1024:2048", "--network=none"]
        asked = [word for device in devices for word in ("--device", f"liken.sh/device={device}")]
        done = await anyio.to_thread.run_sync(lambda: self.call("run", "--rm", *limits, *asked, IMAGE, *command))
        return done.returncode, (done.stdout + done.stderr).decode(errors="replace")


def busybox_image() -> bytes:
    """A tar with a static busybox and its names."""
    path = shutil.which("busybox")
    assert path is not None
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        tar.add(Path(path).resolve(), "bin/busybox")
        for name in ("sh", "ls", "dd", "cat", "stat"):
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
    return packed.getvalue()


@pytest.fixture(scope="module")
def podman() -> Iterator[Podman]:
    missing = [tool for tool in ("podman", "runc", "busybox", "unshare") if shutil.which(tool) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"needs root and {', '.join(missing) or 'nothing else'}")
    folder = Path(tempfile.mkdtemp(prefix="lp", dir="/tmp"))  # podman refuses a runroot of more than 50 characters
    runtime = Podman(folder)
    try:
        done = runtime.call("import", "-", IMAGE, given=busybox_image())
        assert done.returncode == 0, done.stderr.decode()
        yield runtime
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def make_node(numbers: tuple[int, int]) -> None:
    NODE.unlink(missing_ok=True)
    os.mknod(NODE, 0o600 | stat.S_IFCHR, os.makedev(*numbers))


@pytest.fixture
def host_node() -> Iterator[None]:
    make_node(FIRST)
    yield
    NODE.unlink(missing_ok=True)


@asynccontextmanager
async def standalone(cdi: Path) -> AsyncIterator[FakeHardware]:
    hardware = FakeHardware(Store(NoNames()))
    adapter(hardware, FIRST)
    async with anyio.create_task_group() as tasks:
        await tasks.start(Standalone(store=hardware.store, cdi_dir=cdi, metrics=Metrics()).run)
        yield hardware
        tasks.cancel_scope.cancel()


def adapter(hardware: FakeHardware, numbers: tuple[int, int]) -> None:
    """Plugged into port 1-4; its bus node cannot be named, so that only our own node is handed out."""
    line = node(NODE_NAME, "tty", "{}:{}".format(*numbers))
    device = usb_device("1-4", number=7)
    files = {name: content for name, content in device.files.items() if name not in {"busnum", "devnum"}}
    hardware.plug(type(device)(key=device.key, path=device.path, driver="usb", devtype="usb_device", files=files))
    hardware.plug(interface("1-4:1.0", "cp210x", [line]))
    hardware.event()


@pytest.mark.usefixtures("host_node")
async def test_a_container_gets_the_adapter_in_that_port_and_may_open_it(podman: Podman) -> None:
    async with standalone(podman.cdi):
        code, said = await podman.run("stat", "-c", "%F %t:%T", str(NODE))
        assert (code, said.strip()) == (0, "character special file a:e5")
        code, said = await podman.run("dd", f"if={NODE}", "of=/dev/null", "count=0")
        assert "Operation not permitted" not in said
        code, said = await podman.run("ls", str(NODE), devices=())
        assert code != 0


@pytest.mark.usefixtures("host_node")
async def test_a_replug_under_the_same_path_gives_the_next_container_the_new_numbers(podman: Podman) -> None:
    async with standalone(podman.cdi) as hardware:
        assert (await podman.run("stat", "-c", "%t:%T", str(NODE)))[1].strip() == "a:e5"
        hardware.devices.clear()
        hardware.event()
        await anyio.sleep(0.2)
        code, said = await podman.run("true")
        assert code != 0
        assert "unresolvable CDI devices" in said
        make_node(SECOND)
        adapter(hardware, SECOND)
        await anyio.sleep(0.2)
        assert (await podman.run("stat", "-c", "%t:%T", str(NODE)))[1].strip() == "a:c8"
    assert (await podman.run("true"))[0] != 0  # a liken that has stopped promises nothing
