"""The controller from the Machine to the kernel and back, in virtual time; server, loader and lines are stand-ins."""

from collections.abc import AsyncIterator, Collection, Mapping
from pathlib import Path

import anyio
import pytest

from liken.machine import loading
from liken.machine.controller import MachineController, MachineSettings
from liken.machine.modprobe import seen_modules
from liken.machine.modules import Seen
from liken.metrics import Metrics
from liken.model.api import Json
from liken.model.machine import SerioEntry, SerioProtocol
from liken.state.store import Store
from tests.unit.fakes_machine import NODE, FakeDiscipline, FakeLoader, FakeServer, Heard, cec_adapter, seconds
from tests.unit.fakes_state import SomeNames, pci

pytestmark = pytest.mark.anyio

GPU_ALIAS = b"pci:v00008086d000046D2sv00008086sd00007270bc03sc00i00\n"
RELEASE = "6.12.9-lab"


class Bench:
    """One machine below a folder, with a controller to run."""

    def __init__(self, root: Path, server: FakeServer | None = None) -> None:
        self.root = root
        self.sysfs = root / "sys"
        self.tree = root / "lib/modules" / RELEASE
        self.server = server or FakeServer()
        self.loader = FakeLoader(self.sysfs)
        self.discipline = FakeDiscipline(self.sysfs)
        self.heard = Heard()
        self.metrics = Metrics()
        self.store = Store(SomeNames())
        self.wall = 1_800_000_000.0
        self.boot = "boot-1"

    def controller(self) -> MachineController:
        """A daemon's life."""
        settings = MachineSettings(
            node_name=NODE, lib_modules=self.tree, sysfs=self.sysfs, dev=self.root / "dev", boot_id=self.boot
        )
        return MachineController(
            api=self.server,
            store=self.store,
            loader=self.loader,
            settings=settings,
            metrics=self.metrics,
            recorder=self.heard,
            discipline=self.discipline,
            wall=lambda: self.wall,
        )

    def install(self, *modules: str, builtin: str = "ext4", folder: Path | None = None) -> None:
        """Write the kernel's module tree."""
        tree = folder or self.tree
        tree.mkdir(parents=True, exist_ok=True)
        (tree / "modules.dep").write_text("".join(f"kernel/{name}.ko:\n" for name in modules))
        (tree / "modules.builtin").write_text(f"kernel/{builtin}.ko\n")
        (tree / "modules.alias").write_text("alias pci:v00008086d000046D2sv*sd*bc03sc*i* i915\n")

    def states(self) -> dict[str, str]:
        return {module["name"]: module["state"] for module in self.server.status.get("modules", ())}

    def conditions(self) -> dict[str, tuple[str, str]]:
        return {c["type"]: (c["status"], c["reason"]) for c in self.server.status.get("conditions", ())}

    def metric(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(name, labels)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    made = Bench(tmp_path)
    made.install("i915", "cp210x", "snd-hda-intel", "serport", "pulse8_cec", "uhid")
    made.store.replace((pci("0000:00:02.0", modalias=GPU_ALIAS),), complete=True)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.controller().run)
        await seconds(1)
        yield made
        tasks.cancel_scope.cancel()


async def test_a_node_without_a_machine_gets_an_empty_one_with_the_hardware_report(bench: Bench) -> None:
    assert bench.server.created == 1
    assert bench.server.managers == {"liken"}
    (entry,) = bench.server.status["hardware"]["unclaimed"]
    assert entry == {
        "bus": "pci",
        "address": "0000:00:02.0",
        "name": "Alder Lake-N [UHD Graphics]",
        "class": "display",
        "modalias": GPU_ALIAS.decode().strip(),
        "modules": ["i915"],
        "message": "declare i915 in spec.modules",
    }
    assert bench.server.status["hardware"]["unclaimedCount"] == 1
    assert bench.conditions() == {
        "SpecConverged": ("True", "Converged"),
        "ModuleParametersApplied": ("True", "Applied"),
        "SerioAttached": ("True", "NothingDeclared"),
        "Ready": ("True", "Ready"),
    }
    assert bench.metric("liken_unclaimed_devices") == 1


async def test_an_added_module_is_loaded_on_the_watch_event_and_never_again(bench: Bench) -> None:
    bench.server.declare(modules=["i915"], moduleParameters={"i915.enable_guc": "2"})
    await seconds(0.5)
    assert bench.loader.asked == [("i915", {"enable_guc": "2"})]
    bench.store.replace((pci("0000:00:02.0", "i915", modalias=GPU_ALIAS),))
    await seconds(0.9)
    assert bench.server.status["modules"] == [{"name": "i915", "state": "Loaded", "parameters": {"enable_guc": "2"}}]
    assert bench.server.status["hardware"] == {"unclaimed": [], "unclaimedCount": 0}
    assert bench.server.status["modulesReady"] == "1/1"
    assert bench.server.status["observedGeneration"] == 2
    assert bench.conditions()["SpecConverged"] == ("True", "Converged")
    assert ("Normal", "ModuleLoaded", "loaded i915") in bench.heard.events
    assert bench.metric("liken_modules", state="Loaded") == 1
    writes = len(bench.server.applied)
    await anyio.sleep(3600)
    assert bench.loader.names == ["i915"]
    assert len(bench.server.applied) == writes


async def test_while_a_module_loads_the_condition_says_so_and_the_report_stays_current(bench: Bench) -> None:
    bench.loader.takes_s = 30
    bench.server.declare(modules=["i915", "cp210x"])
    await seconds(1)
    assert bench.conditions()["SpecConverged"] == ("False", "Loading")
    assert bench.server.condition("SpecConverged")["message"] == "loading i915, cp210x"
    assert bench.states() == {}
    assert bench.server.status["modulesReady"] == "0/2"
    bench.store.replace((), everything=True)
    await seconds(1)
    assert bench.server.status["hardware"]["unclaimed"] == []
    await anyio.sleep(60)
    assert bench.loader.names == ["i915", "cp210x"]
    assert bench.conditions()["SpecConverged"] == ("True", "Converged")


async def test_a_refused_module_is_said_with_its_words_and_tried_less_and_less(bench: Bench) -> None:
    words = "liken may not load modules here, it lacks CAP_SYS_MODULE"
    bench.loader.refusals["i915"] = words
    bench.server.declare(modules=["i915", "cp210x"])
    await seconds(1)
    assert bench.states() == {"i915": "Failed", "cp210x": "Loaded"}
    assert bench.conditions()["SpecConverged"] == ("False", "ModulesFailed")
    assert bench.conditions()["Ready"] == ("False", "ModulesFailed")
    assert bench.server.condition("SpecConverged")["message"] == f"i915: {words}"
    await anyio.sleep(3600)
    assert 10 < bench.loader.names.count("i915") < 25
    assert bench.heard.events.count(("Warning", "ModuleFailed", f"i915: {words}")) == 1


async def test_another_list_and_another_tree_end_the_back_off_at_once(bench: Bench) -> None:
    bench.loader.refusals["i915"] = "no"
    bench.server.declare(modules=["i915"])
    await anyio.sleep(2000)
    tries = len(bench.loader.asked)
    bench.server.declare(modules=["i915", "uhid"])
    await seconds(0.5)
    assert bench.loader.names[tries:] == ["i915", "uhid"]
    await anyio.sleep(2000)
    bench.loader.refusals.clear()
    bench.install("i915", "uhid", "new")
    await anyio.sleep(61)
    assert bench.states() == {"i915": "Loaded", "uhid": "Loaded"}


async def test_a_change_of_the_serial_lines_alone_does_not_touch_the_modules(bench: Bench) -> None:
    bench.loader.refusals["i915"] = "no"
    bench.server.declare(modules=["i915"])
    await anyio.sleep(2000)
    tries = len(bench.loader.asked)
    bench.server.declare(
        modules=["i915"], serio=[{"protocol": "pulse8-cec", "usb": {"vendor": "2548", "product": "1002"}}]
    )
    await seconds(1)
    assert len(bench.loader.asked) == tries


async def test_a_success_that_brings_no_module_is_a_failure(bench: Bench) -> None:
    bench.loader.silent.add("i915")
    bench.server.declare(modules=["i915"])
    await seconds(1)
    assert bench.states() == {"i915": "Failed"}
    assert "the kernel shows no such module" in bench.server.status["modules"][0]["message"]


async def test_a_module_that_somebody_else_loads_is_noticed_within_a_minute(bench: Bench) -> None:
    bench.loader.refusals["i915"] = "no"
    bench.server.declare(modules=["i915"])
    await anyio.sleep(2000)
    bench.loader.appear("i915")
    await anyio.sleep(61)
    assert bench.states() == {"i915": "Loaded"}


async def test_a_removed_module_is_staged_until_the_next_boot(bench: Bench) -> None:
    bench.server.declare(modules=["i915", "uhid"])
    await seconds(1)
    bench.server.declare(modules=["uhid"])
    await seconds(1)
    assert bench.conditions()["SpecConverged"] == ("False", "RebootPending")
    assert bench.conditions()["Ready"] == ("True", "Ready")
    assert "i915 stays loaded" in bench.server.condition("SpecConverged")["message"]
    assert bench.states() == {"uhid": "Loaded", "i915": "Loaded"}
    bench.server.declare(modules=["uhid", "i915"])
    await seconds(1)
    assert bench.conditions()["SpecConverged"] == ("True", "Converged")
    assert bench.loader.names == ["i915", "uhid"]


async def test_a_module_removed_while_it_loads_is_staged_too(bench: Bench) -> None:
    bench.loader.takes_s = 30
    bench.server.declare(modules=["i915"])
    await seconds(1)
    bench.server.declare(modules=[])
    await anyio.sleep(60)
    assert bench.states() == {"i915": "Loaded"}
    assert bench.conditions()["SpecConverged"] == ("False", "RebootPending")


async def test_a_changed_parameter_waits_for_a_reboot(bench: Bench) -> None:
    bench.server.declare(modules=["i915"], moduleParameters={"i915.enable_guc": "2"})
    await seconds(1)
    bench.server.declare(modules=["i915"], moduleParameters={"i915.enable_guc": "3"})
    await seconds(1)
    assert bench.conditions()["SpecConverged"] == ("False", "RebootPending")
    assert bench.conditions()["ModuleParametersApplied"] == ("False", "RebootPending")
    assert "i915.enable_guc=3 (now 2)" in bench.server.condition("ModuleParametersApplied")["message"]
    assert bench.server.status["modules"][0]["parameters"] == {"enable_guc": "2"}
    assert len(bench.loader.asked) == 1


async def test_a_time_of_transition_moves_with_the_status_alone(bench: Bench) -> None:
    bench.wall += 100
    before = bench.server.condition("Ready")
    bench.server.declare(modules=["no-such-module"])
    await seconds(1)
    assert bench.server.condition("SpecConverged")["lastTransitionTime"] == "2027-01-15T08:01:40Z"
    assert before["lastTransitionTime"] == "2027-01-15T08:00:00Z"
    bench.wall += 100
    bench.server.declare(modules=["no-such-module-either"])
    await seconds(1)
    found = bench.server.condition("SpecConverged")
    assert (found["lastTransitionTime"], found["observedGeneration"]) == ("2027-01-15T08:01:40Z", 3)
    assert bench.server.condition("SerioAttached")["lastTransitionTime"] == "2027-01-15T08:00:00Z"


async def test_a_deleted_machine_comes_back_empty_after_a_while_and_the_staged_stay_known(bench: Bench) -> None:
    bench.server.declare(modules=["i915"])
    await seconds(1)
    bench.server.delete()
    await seconds(4)
    assert bench.server.item is None
    await seconds(3)
    assert bench.server.created == 2
    assert bench.states() == {"i915": "Loaded"}
    assert bench.conditions()["SpecConverged"] == ("False", "RebootPending")
    bench.server.declare(modules=["i915"])
    await seconds(1)
    assert bench.conditions()["SpecConverged"] == ("True", "Converged")
    assert bench.loader.names == ["i915"]


async def test_a_machine_brought_after_a_deletion_is_taken_as_it_is(bench: Bench) -> None:
    bench.server.delete()
    await seconds(1)
    bench.server.declare(modules=["uhid"])
    await anyio.sleep(10)
    assert bench.server.created == 1
    assert bench.states() == {"uhid": "Loaded"}


async def test_a_server_without_the_resource_and_one_that_gets_it_later(tmp_path: Path) -> None:
    bench = Bench(tmp_path, FakeServer(served=False))
    bench.install("i915")
    bench.store.replace((pci("0000:00:02.0", modalias=GPU_ALIAS),), complete=True)
    async with anyio.create_task_group() as tasks:
        controller = bench.controller()
        await tasks.start(lambda *, task_status: controller.run(task_status=task_status))
        await anyio.sleep(60)
        assert bench.server.created == 0
        assert controller.status is not None
        assert len(controller.status["hardware"]["unclaimed"]) == 1
        bench.server.serve(machines=True)
        await seconds(1)
        assert bench.server.created == 1
        bench.server.declare(modules=["i915"])
        await seconds(1)
        assert bench.states() == {"i915": "Loaded"}
        bench.server.serve(machines=False)
        await anyio.sleep(60)
        bench.server.serve(machines=True)
        await anyio.sleep(10)
        assert bench.conditions()["SpecConverged"] == ("False", "RebootPending")
        tasks.cancel_scope.cancel()


async def test_a_server_without_the_resource_costs_an_idle_machine_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path, FakeServer(served=False))
    bench.store.replace((), complete=True)
    looks: list[object] = []

    def counted(wanted: Mapping[str, Collection[str]], sysfs: Path) -> Mapping[str, Seen]:
        looks.append(wanted)
        return seen_modules(wanted, sysfs)

    monkeypatch.setattr(loading, "seen_modules", counted)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(bench.controller().run)
        await anyio.sleep(30)
        looks.clear()
        await anyio.sleep(600)
        assert len(looks) == 10  # once a minute for what others load, however often the server says "not found"
        tasks.cancel_scope.cancel()


async def test_an_absent_server_keeps_what_was_asked_for_and_is_written_to_when_it_is_back(bench: Bench) -> None:
    bench.server.declare(modules=["uhid"])
    await seconds(1)
    bench.server.away = True
    bench.store.replace((), everything=True)
    await anyio.sleep(120)
    bench.server.away = False
    await anyio.sleep(40)
    assert bench.server.status["hardware"]["unclaimed"] == []
    assert bench.states() == {"uhid": "Loaded"}


async def test_a_status_that_somebody_changed_is_put_right(bench: Bench) -> None:
    right = bench.server.status
    bench.server.overwrite_status({"conditions": right["conditions"], "modules": [{"name": "x", "state": "Loaded"}]})
    await seconds(1)
    assert bench.server.status == right


async def test_a_field_that_an_older_resource_drops_is_not_fought_for(tmp_path: Path) -> None:
    bench = Bench(tmp_path, FakeServer(pruned=("bootID",)))
    bench.install("i915")
    bench.store.replace((), complete=True)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(bench.controller().run)
        await anyio.sleep(600)
        assert len(bench.server.applied) == 1
        tasks.cancel_scope.cancel()


async def test_nothing_is_written_before_the_first_look_is_over(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.install("i915")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(bench.controller().run)
        await anyio.sleep(10)
        assert bench.server.applied == []
        bench.store.replace((), complete=True)
        await seconds(1)
        assert len(bench.server.applied) == 1
        tasks.cancel_scope.cancel()


async def test_after_a_reboot_everything_is_loaded_again_and_nothing_is_staged(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.install("i915", "uhid")
    bench.store.replace((), complete=True)
    bench.server.declare(modules=["i915", "uhid"])
    for boot in ("boot-1", "boot-2"):
        bench.boot = boot
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bench.controller().run)
            await seconds(1)
            if boot == "boot-1":
                bench.server.declare(modules=["i915"])
                await seconds(1)
                assert bench.conditions()["SpecConverged"] == ("False", "RebootPending")
            tasks.cancel_scope.cancel()
        for module in ("i915", "uhid"):
            (bench.sysfs / "module" / module / "initstate").unlink(missing_ok=True)
            for folder in ("parameters", ""):
                place = bench.sysfs / "module" / module / folder
                if boot == "boot-1":
                    place.rmdir()
    assert bench.loader.names == ["i915", "uhid", "i915"]
    assert bench.states() == {"i915": "Loaded"}
    assert bench.conditions()["SpecConverged"] == ("True", "Converged")


async def test_a_restart_of_the_daemon_still_knows_what_is_staged(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.install("i915", "uhid")
    bench.store.replace((), complete=True)
    bench.server.declare(modules=["i915"])
    for modules in (["i915"], [], []):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bench.controller().run)
            bench.server.declare(modules=modules)
            await seconds(1)
            tasks.cancel_scope.cancel()
    assert bench.conditions()["SpecConverged"] == ("False", "RebootPending")
    assert bench.loader.names == ["i915"]


PULSE8: Json = {"protocol": "pulse8-cec", "usb": {"vendor": "2548", "product": "1002"}}


async def test_a_serial_attachment_is_reported_with_its_modules_and_never_makes_the_machine_unready(
    bench: Bench,
) -> None:
    bench.discipline.refusals["ttyACM0"] = "the kernel has no serio line discipline: declare serport in spec.modules"
    bench.server.declare(serio=[PULSE8])
    await seconds(1)
    (found,) = bench.server.status["serio"]
    assert found == {**PULSE8, "state": "Missing", "message": "the adapter is not plugged in"}
    assert bench.conditions()["SerioAttached"] == ("False", "Missing")
    bench.store.replace(cec_adapter("1-4"))
    await seconds(1)
    assert bench.conditions()["SerioAttached"] == ("False", "Refused")
    assert bench.conditions()["Ready"] == ("True", "Ready")
    assert "declare serport and pulse8_cec in spec.modules" in bench.server.status["serio"][0]["message"]
    bench.discipline.refusals.clear()
    bench.server.declare(modules=["serport", "pulse8_cec"], serio=[PULSE8])
    await seconds(1)
    bench.store.replace(cec_adapter("1-4", made=("cec0", "input/event3")))
    await seconds(1)
    (found,) = bench.server.status["serio"]
    nodes = ["/dev/cec0", "/dev/input/event3"]
    assert found == {**PULSE8, "state": "Attached", "tty": "ttyACM0", "port": "serio0", "nodes": nodes}
    assert bench.conditions()["SerioAttached"] == ("True", "Attached")
    assert [event[1] for event in bench.heard.events if event[1].startswith("Serio")] == [
        "SerioRefused",
        "SerioAttached",
    ]
    assert bench.metric("liken_serio_attachments", state="Attached") == 1


async def test_a_loaded_module_lets_a_refused_line_be_tried_at_once(bench: Bench) -> None:
    bench.discipline.refusals["ttyACM0"] = "the kernel has no serio line discipline"
    bench.server.declare(serio=[PULSE8])
    bench.store.replace(cec_adapter("1-4"))
    await anyio.sleep(2000)
    bench.discipline.refusals.clear()
    bench.server.declare(modules=["serport"], serio=[PULSE8])
    await seconds(1)
    assert bench.conditions()["SerioAttached"] == ("True", "Attached")


async def test_the_lines_to_hold_are_in_force_before_the_controller_counts_as_started(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.install("i915")
    bench.server.declare(serio=[PULSE8])
    async with anyio.create_task_group() as tasks:
        controller = bench.controller()
        await tasks.start(lambda *, task_status: controller.run(task_status=task_status))
        entry = SerioEntry(protocol=SerioProtocol.PULSE8_CEC, vendor="2548", product="1002")
        assert bench.store.snapshot.rules.serio == (entry,)
        tasks.cancel_scope.cancel()


async def test_without_an_answer_of_the_server_it_starts_after_two_seconds(tmp_path: Path) -> None:
    bench = Bench(tmp_path, FakeServer(away=True))
    bench.install("i915")
    async with anyio.create_task_group() as tasks:
        controller = bench.controller()
        began = anyio.current_time()
        await tasks.start(lambda *, task_status: controller.run(task_status=task_status))
        assert anyio.current_time() - began <= 2.1
        tasks.cancel_scope.cancel()
