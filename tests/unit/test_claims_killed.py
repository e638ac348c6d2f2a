"""The process ends at any one step that leaves a trace: a file operation, a call of the API or of the kernel."""

import json
import tempfile
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from liken.claims import annotations, schema
from liken.claims.directory import FileSystem
from liken.model.api import Json
from liken.model.hardware import DeviceKey
from liken.model.offers import Snapshot
from tests.unit.fakes_claims import GPU, Node, caught_up, ref, result, stick
from tests.unit.fakes_state import usb_key

pytestmark = pytest.mark.anyio

OLD = ["/dev/bus/usb/001/007", "/dev/ttyUSB0"]
NEW = ["/dev/bus/usb/001/009", "/dev/ttyUSB1"]
GONE = ["/dev/liken-gone-usb-1-4-1-0"]
FOREIGN = {"nvidia.json": "{}", ".other.tmp": "x", "liken.shx.json": "y"}


class Killed(BaseException):
    """No code of the dead process runs on: a handler of errors must not mistake it for one."""


class Fate:
    """Ends the process at step `at`, either just before it takes effect or just after."""

    def __init__(self, at: int, *, after: bool) -> None:
        self.steps = 0
        self.dead = False
        self._at, self._after = at, after

    def step(self, work: Callable[[], Any]) -> Any:
        if self.dead:
            raise Killed
        self.steps += 1
        if self.steps != self._at:
            return work()
        self.dead = True
        if self._after:
            with suppress(OSError):
                work()
        raise Killed

    async def call(self, work: Callable[[], Awaitable[Any]]) -> Any:
        self.step(lambda: None)
        answer = await work()
        self.step(lambda: None)
        return answer


class DyingFiles(FileSystem):
    def __init__(self, fate: Fate) -> None:
        self._fate = fate

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name.startswith("_"):
            return found
        return lambda *arguments: self._fate.step(lambda: found(*arguments))


class HalfWritten(DyingFiles):
    """Dies in the middle of a write."""

    def write(self, file: int, content: bytes) -> None:
        super().write(file, content[: len(content) // 2])
        self._fate.step(lambda: None)
        super().write(file, content[len(content) // 2 :])


def doom(machine: Node, fate: Fate) -> Node:
    """Let the machine's ports share its fate."""
    get_claim, refresh, reprobe = machine.api.get_claim, machine.hardware.refresh, machine.hardware.reprobe

    async def dying_get(namespace: str, name: str) -> Json:
        found: Json = await fate.call(lambda: get_claim(namespace, name))
        return found

    async def dying_refresh(keys: Collection[DeviceKey]) -> Snapshot:
        found: Snapshot = await fate.call(lambda: refresh(keys))
        return found

    async def dying_reprobe(key: DeviceKey) -> str | None:
        said: str | None = await fate.call(lambda: reprobe(key))
        return said

    machine.api.get_claim = dying_get  # type: ignore[method-assign]
    machine.hardware.refresh = dying_refresh  # type: ignore[method-assign]
    machine.hardware.reprobe = dying_reprobe  # type: ignore[method-assign]
    return machine


async def follow(machine: Node) -> None:
    """What the refresher does about the newest snapshot."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(machine.refresher.run)
        await caught_up(machine)
        tasks.cancel_scope.cancel()


async def prepare_stick(machine: Node) -> None:
    await machine.preparer.prepare(machine.api.put(ref()))


async def prepare_gpu(machine: Node) -> None:
    await machine.preparer.prepare(machine.api.put(ref("g", "gpu"), result(GPU, shareID="s")))


async def unplug(machine: Node) -> None:
    machine.hardware.unplug(stick())
    machine.hardware.event()
    await follow(machine)


async def plug(machine: Node) -> None:
    machine.hardware.plug(stick(tty="ttyUSB1", number=9))
    machine.hardware.event()
    await follow(machine)


async def detach(machine: Node) -> None:
    machine.hardware.plug(stick(driver=None, number=9))
    machine.hardware.event()
    await follow(machine)


async def unprepare_stick(machine: Node) -> None:
    machine.hardware.probe = lambda _: machine.hardware.plug(stick(tty="ttyUSB1", number=9))
    await machine.preparer.unprepare(ref())


async def unprepare_gpu(machine: Node) -> None:
    await machine.preparer.unprepare(ref("g", "gpu"))


RENDER = ["/dev/dri/renderD128"]
LIFE: list[tuple[Callable[[Node], Awaitable[None]], dict[str, list[str]]]] = [
    (prepare_stick, {"c1": OLD}),
    (prepare_gpu, {"c1": OLD, "g": RENDER}),
    (unplug, {"c1": GONE, "g": RENDER}),
    (plug, {"c1": NEW, "g": RENDER}),
    (detach, {"c1": NEW[:1], "g": RENDER}),
    (unprepare_stick, {"g": RENDER}),
    (unprepare_gpu, {}),
]


def check(machine: Node, expected: dict[str, list[str]]) -> None:
    folder = machine.settings.cdi_dir
    files = {f"liken.sh-{uid}.json" for uid in expected}
    assert set(machine.files()) == files | set(FOREIGN)
    assert {name: (folder / name).read_text() for name in FOREIGN} == FOREIGN
    for uid, nodes in expected.items():
        assert machine.nodes(uid) == nodes
        document = json.loads((folder / f"liken.sh-{uid}.json").read_bytes())
        assert schema.problems(document) == ()
        assert annotations.claim(document).uid == uid


def killed(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(killed(inner) for inner in error.exceptions)
    return isinstance(error, Killed)


async def life(folder: Path, fate: Fate, files: type[DyingFiles]) -> bool:
    """One life of a node with at most one death in it; True when it died."""
    folder.joinpath("cdi").mkdir(parents=True)
    for name, content in FOREIGN.items():
        (folder / "cdi" / name).write_text(content)
    machine = doom(Node(folder, files=files(fate)), fate)
    died = False
    for act, expected in LIFE:
        try:
            await act(machine)
        except BaseException as error:
            if not killed(error):
                raise
            died = True
            machine = await machine.again()
            await act(machine)  # the kubelet, or the kernel's state, says it again
        check(machine, expected)
        if not died:
            assert machine.ledger.records.uids() == set(expected)
    assert machine.hardware.devices[usb_key("1-4:1.0")].driver == "cp210x"
    return died


@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder that costs no disk: there are hundreds of lives."""
    shm = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shm if shm.is_dir() else None) as folder:
        yield Path(folder)


@pytest.mark.parametrize(("files", "after"), [(DyingFiles, False), (DyingFiles, True), (HalfWritten, False)])
async def test_a_restart_after_any_kill_converges(memory: Path, files: type[DyingFiles], *, after: bool) -> None:
    steps = 0
    for at in range(1, 1000):
        if not await life(memory / str(at), Fate(at, after=after), files):
            break
        steps = at
    assert 60 < steps < 999


async def test_a_second_start_finds_nothing_to_sweep(tmp_path: Path) -> None:
    machine = Node(tmp_path)
    await prepare_stick(machine)
    leak = machine.settings.cdi_dir / ".liken.sh-c1.99999"
    leak.write_text("half a file")
    after = await machine.again()
    assert after.files() == ["liken.sh-c1.json"]
    assert after.nodes("c1") == OLD


async def test_a_file_another_instance_is_writing_is_not_swept(tmp_path: Path) -> None:
    machine = Node(tmp_path)
    await prepare_stick(machine)
    (machine.settings.cdi_dir / ".liken.sh-c1.99999").write_text("half a file")
    other = Node(tmp_path)
    async with machine.ledger.writing("c1", patience_s=1):
        await other.recovery.load()
    assert len(other.files()) == 2
    await other.recovery.load()
    assert len(other.files()) == 1
