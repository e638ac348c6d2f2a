"""Each case of drivers and modules: from the fake /sys and module tree to the Machine's status, in virtual time."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from liken.events.sysfs import Sysfs
from liken.machine.controller import MachineController, MachineSettings
from liken.metrics import Metrics
from liken.model.api import Json
from liken.model.hardware import DeviceFacts, Reason
from liken.state.catalog import ModuleCatalog
from liken.state.store import Store
from tests.unit.cases import Case, cases, materialise
from tests.unit.fakes_machine import NODE, FakeDiscipline, FakeLoader, FakeServer, seconds
from tests.unit.fakes_state import NoNames, interface, node, pci, usb_device

pytestmark = [pytest.mark.anyio, pytest.mark.shared]

TESTED = {
    "unclaimed-only-when-someone-can-help",
    "builtin-and-blacklisted",
    "kernel-tree-absent",
    "late-driver",
    "modules-that-did-not-load",
    "built-in-and-alias-index-unreadable",
    "module-folder-of-another-kernel",
}
GPU_ALIAS = b"pci:v00008086d000046D2sv00008086sd00007270bc03sc00i00\n"
STICK_ALIAS = b"usb:v10C4pEA60d0100dc00dsc00dp00icFFisc00ip00in00\n"


class Lab:
    """A machine below a folder, its store, and the Machine on a stand-in of a server."""

    def __init__(self, root: Path) -> None:
        self.root, self.sysfs = root, root / "sys"
        self.server = FakeServer()
        self.loader = FakeLoader(self.sysfs)
        self.store = Store(NoNames())

    def plant(self, case: Case) -> None:
        """The case's machine: its tree and its module folders."""
        materialise(case.tree, self.sysfs)
        machine: dict[str, Any] = case.input.get("machine", {})
        for release in machine.get("lib_modules", ()):
            tree = self.root / "lib/modules" / release
            tree.mkdir(parents=True)
            aliases = machine.get("modules_alias", ())
            (tree / "modules.alias").write_text("".join(f"{line}\n" for line in aliases))
            (tree / "modules.dep").write_text("".join(f"kernel/{line.split()[-1]}.ko:\n" for line in aliases))
            (tree / "modules.builtin").write_text("".join(f"{line}\n" for line in machine.get("modules_builtin", ())))

    def look(self, *devices: DeviceFacts) -> None:
        """Take these devices, or those of the tree, for the whole inventory."""
        found = devices or Sysfs(self.sysfs, proc=self.root, dev=self.root).everything()
        self.store.replace(found, everything=True, complete=True)

    @asynccontextmanager
    async def running(self, tree: Path) -> AsyncIterator[None]:
        """The controller for a kernel whose modules are in `tree`."""
        controller = MachineController(
            api=self.server,
            store=self.store,
            loader=self.loader,
            settings=MachineSettings(node_name=NODE, lib_modules=tree, sysfs=self.sysfs, dev=self.root, boot_id="b"),
            metrics=Metrics(),
            discipline=FakeDiscipline(self.sysfs),
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(controller.run)
            for _ in range(100):  # a real catalogue is read in a thread, which takes real time
                await seconds(1)
                if self.server.applied:
                    break
            await seconds(2)
            yield
            tasks.cancel_scope.cancel()

    def modules(self) -> dict[str, Json]:
        return {module["name"]: module for module in self.server.status["modules"]}

    def unclaimed(self) -> dict[str, Json]:
        return {entry["address"]: entry for entry in self.server.status["hardware"]["unclaimed"]}


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


@pytest.fixture
def case(shared: Path) -> Callable[[str], Case]:
    """A case by its id."""
    found = {case.id: case for case in cases(shared)}
    return lambda name: found[name]


@pytest.fixture
def debian(shared: Path) -> Path:
    """A real kernel's catalogue."""
    return shared / "recordings/debian"


def test_no_case_of_modules_is_left_out(shared: Path) -> None:
    ids = {case.id for case in cases(shared) if case.file.endswith("modules.yaml")}
    assert ids == TESTED


async def test_unclaimed_only_when_someone_can_help(lab: Lab, debian: Path) -> None:
    lab.look(
        pci("0000:00:02.0", modalias=GPU_ALIAS),
        pci("0000:00:16.3", modalias=b"pci:v00008086d0000FFFFsv0sd0bc07sc00i00\n"),
        usb_device("1-1"),
        interface("1-1:1.0", modalias=STICK_ALIAS),
    )
    async with lab.running(debian):
        found = lab.unclaimed()
    assert set(found) == {"0000:00:02.0", "1-1:1.0"}
    assert found["0000:00:02.0"]["modules"][0] == "i915"
    assert "declare i915 in spec.modules" in found["0000:00:02.0"]["message"]
    assert found["1-1:1.0"]["modules"] == ["cp210x"]
    assert found["1-1:1.0"]["message"] == "declare cp210x in spec.modules"
    reasons = {str(key.address): verdict.reason for key, verdict in lab.store.snapshot.verdicts.items()}
    assert reasons["0000:00:16.3"] is Reason.NO_DRIVER


async def test_builtin_and_blacklisted(lab: Lab, debian: Path) -> None:
    builtin = next(name for name in ("ext4", "unix") if ModuleCatalog.read(debian).is_builtin(name))
    lab.look(pci("0000:00:02.0", modalias=GPU_ALIAS))
    lab.loader.appear("snd_hda_intel")
    lab.server.declare(modules=[builtin, "snd-hda-intell", "snd-hda-intel", "pcspkr"])
    async with lab.running(debian):
        await anyio.sleep(3600)
        found = lab.modules()
    assert {name: module["state"] for name, module in found.items()} == {
        builtin: "Builtin",
        "snd-hda-intell": "Missing",
        "snd-hda-intel": "Loaded",
        "pcspkr": "Loaded",
    }
    assert "did you mean snd_hda_intel?" in found["snd-hda-intell"]["message"]
    assert lab.loader.names == ["pcspkr"]


@pytest.mark.parametrize(
    ("folders", "words"),
    [
        (["6.12.10"], ["6.12.9 is missing", "6.12.10", "reboot"]),
        ([], ["6.12.9 is missing", "mount the host's /lib/modules"]),
    ],
)
async def test_kernel_tree_absent(lab: Lab, folders: list[str], words: list[str]) -> None:
    modules = lab.root / "lib/modules"
    for folder in folders:
        (modules / folder).mkdir(parents=True)
        (modules / folder / "modules.dep").write_text("i915.ko:\n")
        (modules / folder / "modules.alias").write_text("alias pci:* i915\n")
    lab.look(pci("0000:00:02.0", modalias=GPU_ALIAS), usb_device("1-1"), interface("1-1:1.0", "cp210x", [TTY]))
    lab.server.declare(modules=["i915"])
    async with lab.running(modules / "6.12.9"):
        await anyio.sleep(3600)
        assert set(lab.store.snapshot.offers) == {"usb-1-1-1-0"}
        condition = lab.server.condition("SpecConverged")
        assert (condition["status"], condition["reason"]) == ("False", "ModulesFailed")
        assert all(word in condition["message"] for word in words)
        assert "no module can be named" in lab.unclaimed()["0000:00:02.0"]["message"]
        assert lab.loader.names == []
        writes = len(lab.server.applied)
        (modules / "6.12.9").mkdir(parents=True)
        (modules / "6.12.9/modules.dep").write_text("i915.ko:\n")
        (modules / "6.12.9/modules.alias").write_text("alias pci:* i915\n")
        await anyio.sleep(61)
        assert lab.modules()["i915"]["state"] == "Loaded"
    assert writes == 1


TTY = node("ttyUSB0", "tty", "188:0")


async def test_late_driver(lab: Lab, debian: Path) -> None:
    lab.look(pci("0000:00:02.0", modalias=GPU_ALIAS))
    async with lab.running(debian):
        assert set(lab.unclaimed()) == {"0000:00:02.0"}
        await anyio.sleep(90)
        nodes = [node("dri/card0", "drm"), node("dri/renderD128", "drm"), node("i2c-3", "i2c-dev")]
        writes = len(lab.server.applied)
        lab.look(pci("0000:00:02.0", "i915", nodes, modalias=GPU_ALIAS))
        await seconds(1)
        assert lab.unclaimed() == {}
        assert len(lab.server.applied) == writes + 1
        assert len(lab.store.snapshot.offers) == 3


async def test_modules_that_did_not_load(lab: Lab, case: Callable[[str], Case], tmp_path: Path) -> None:
    wanted = case("modules-that-did-not-load")
    lab.plant(wanted)
    tree = tmp_path / "lib/modules/any"
    tree.mkdir(parents=True)
    aliases = wanted.input["machine"]["modules_alias"]
    (tree / "modules.alias").write_text("".join(f"{line}\n" for line in aliases))
    (tree / "modules.dep").write_text("".join(f"{line.split()[-1]}.ko:\n" for line in aliases))
    lab.look()
    async with lab.running(tree):
        found = lab.unclaimed()
    expected = {address: entry["candidates"] for address, entry in wanted.expect["unclaimed"].items()}
    assert {address: entry["modules"] for address, entry in found.items()} == expected
    for entry in found.values():
        assert entry["message"] == f"declare {entry['modules'][0]} in spec.modules"


@pytest.mark.parametrize("name", ["built-in-and-alias-index-unreadable", "module-folder-of-another-kernel"])
async def test_states_of_modules(lab: Lab, case: Callable[[str], Case], name: str) -> None:
    wanted = case(name)
    lab.plant(wanted)
    machine = wanted.input["machine"]
    lab.look()
    lab.server.declare(modules=machine["modules_spec"])
    running: AbstractAsyncContextManager[None] = lab.running(lab.root / "lib/modules" / machine["release"])
    async with running:
        await anyio.sleep(3600)
        found = lab.modules()
    expected = wanted.expect["status"]
    assert {n: m["state"] for n, m in found.items()} == {m["name"]: m["state"] for m in expected["modules"]}
    for kind, reason in expected.get("conditions", {}).items():
        condition = lab.server.condition(kind)
        assert condition["reason"] == reason
        failed = [m["name"] for m in expected["modules"] if m["state"] == "Missing"]
        assert condition["message"].startswith(f"{failed[0]}: ")
        assert condition["message"].count("; ") <= 1
    if machine["release"] not in machine["lib_modules"]:
        assert machine["release"] in found[machine["modules_spec"][0]]["message"]
        assert set(lab.store.snapshot.offers) == set(wanted.expect["published"])
    assert lab.loader.names == []
    assert len(lab.server.applied) == 1
