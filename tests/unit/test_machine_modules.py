"""Which module loads next, what is said of each, and what a refusal means."""

import os
import stat
from collections.abc import Mapping
from pathlib import Path

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from liken.machine.modprobe import Modprobe, refusal, seen_modules
from liken.machine.modules import (
    LAST_RETRY_S,
    Attempt,
    ModuleState,
    Plan,
    Seen,
    Tried,
    loading,
    next_attempt,
    plan,
    reports,
    same_value,
    staged_parameters,
)
from liken.machine.spec import MachineSpec, machine_spec
from liken.state.catalog import ModuleCatalog

TREE = ModuleCatalog(
    dep=b"kernel/drivers/i915.ko: kernel/drivers/drm.ko\nkernel/drivers/drm.ko:\nkernel/sound/snd-hda-intel.ko:\n"
    b"kernel/drivers/pcspkr.ko:\n",
    builtin=b"kernel/fs/ext4/ext4.ko\n",
    modprobe=b"blacklist pcspkr\n",
)
NO_TREE = ModuleCatalog(problem="/lib/modules/6.12.9 is missing: reboot")


def states(spec: MachineSpec, seen: Mapping[str, Seen], tried: Mapping[str, Attempt] | None = None) -> dict[str, str]:
    return {report.name: report.state for report in reports(spec, TREE, seen, Tried(failed=tried or {}))}


def test_modules_load_one_at_a_time_in_the_order_of_the_list() -> None:
    spec = MachineSpec(modules=("drm", "i915"))
    assert plan(spec, TREE, {}, {}, 0.0) == Plan(load="drm")
    assert plan(spec, TREE, {"drm": Seen()}, {}, 0.0) == Plan(load="i915")
    assert plan(spec, TREE, {"drm": Seen(), "i915": Seen()}, {}, 0.0) == Plan()


def test_what_is_built_in_missing_or_there_under_the_other_dash_is_never_loaded() -> None:
    spec = MachineSpec(modules=("ext4", "no-such-module", "snd-hda-intel"))
    assert plan(spec, TREE, {"snd_hda_intel": Seen()}, {}, 0.0) == Plan()
    assert states(spec, {"snd_hda_intel": Seen()}) == {
        "ext4": "Builtin",
        "no-such-module": "Missing",
        "snd-hda-intel": "Loaded",
    }


def test_an_explicit_wish_wins_over_the_blacklist() -> None:
    assert plan(MachineSpec(modules=("pcspkr",)), TREE, {}, {}, 0.0) == Plan(load="pcspkr")


def test_a_misspelling_comes_with_the_nearest_name() -> None:
    (report,) = reports(MachineSpec(modules=("i951",)), TREE, {}, Tried())
    assert report.state is ModuleState.MISSING
    assert "did you mean i915?" in report.message


def test_a_refused_module_waits_longer_each_time_and_does_not_keep_the_next_one() -> None:
    spec, tried = MachineSpec(modules=("drm", "i915")), {}
    attempt = next_attempt("no", None, 100.0)
    tried["drm"] = attempt
    assert attempt.again_at == 105.0
    assert plan(spec, TREE, {}, tried, 100.0) == Plan(load="i915")
    assert plan(spec, TREE, {"i915": Seen()}, tried, 100.0) == Plan(again_at=105.0)
    assert plan(spec, TREE, {"i915": Seen()}, tried, 105.0) == Plan(load="drm")
    for _ in range(20):
        attempt = next_attempt("no", attempt, 0.0)
    assert attempt.again_at == LAST_RETRY_S
    (report, _) = reports(spec, TREE, {"i915": Seen()}, Tried(failed={"drm": attempt}))
    assert (report.state, report.message) == (ModuleState.FAILED, "no")


def test_without_a_module_tree_nothing_is_tried_and_each_module_says_why() -> None:
    spec = MachineSpec(modules=("i915",))
    assert plan(spec, NO_TREE, {}, {}, 0.0) == Plan()
    (report,) = reports(spec, NO_TREE, {}, Tried())
    assert (report.state, report.message) == (ModuleState.MISSING, "/lib/modules/6.12.9 is missing: reboot")
    (loaded,) = reports(spec, NO_TREE, {"i915": Seen()}, Tried())
    assert loaded.state is ModuleState.LOADED


def test_a_parameter_that_differs_waits_for_a_reboot_and_one_in_force_does_not() -> None:
    spec = MachineSpec(modules=("i915",), parameters={"i915": {"enable_guc": "2", "modeset": "1", "hidden": "x"}})
    seen = {"i915": Seen(parameters={"enable_guc": "0", "modeset": "Y"})}
    (report,) = reports(spec, TREE, seen, Tried())
    assert report.parameters == {"enable_guc": "0", "modeset": "Y"}
    assert staged_parameters(spec, (report,)) == ("i915.enable_guc=2 (now 0)",)
    assert report.message == (
        "waits for a reboot: i915.enable_guc=2 (now 0); "
        "the kernel does not show hidden: is it a parameter of i915? (modinfo i915)"
    )


def test_a_parameter_of_a_built_in_module_is_said_to_belong_to_the_kernels_command_line() -> None:
    spec = MachineSpec(modules=("ext4",), parameters={"ext4": {"mode": "2"}})
    (report,) = reports(spec, TREE, {"ext4": Seen(builtin=True, parameters={"mode": "1"})}, Tried())
    assert report.message == "built in, so only the kernel's command line sets: ext4.mode=2 (now 1)"


def test_a_parameter_that_was_applied_and_then_removed_is_staged() -> None:
    seen = {"i915": Seen(parameters={"enable_guc": "2"})}
    tried = Tried(applied={"i915": {"enable_guc": "2", "write_only": "1"}})
    (report,) = reports(MachineSpec(modules=("i915",)), TREE, seen, tried)
    assert report.staged == ("i915.enable_guc was removed (now 2)",)


def test_a_parameter_that_a_load_put_in_force_and_the_kernel_hides_is_believed() -> None:
    spec = MachineSpec(modules=("i915",), parameters={"i915": {"write_only": "1"}})
    (report,) = reports(spec, TREE, {"i915": Seen()}, Tried(applied={"i915": {"write_only": "1"}}))
    assert (report.message, report.staged) == ("", ())


def test_a_module_whose_first_load_has_not_ended_has_no_state_yet() -> None:
    spec = MachineSpec(modules=("drm", "i915"))
    found = reports(spec, TREE, {"drm": Seen()}, Tried())
    assert [report.name for report in found] == ["drm"]
    assert loading(spec, found) == ("i915",)


def test_a_parameter_of_a_module_nobody_declared_says_what_to_do() -> None:
    spec = MachineSpec(parameters={"i915": {"enable_guc": "2"}})
    assert staged_parameters(spec, ()) == ("i915.enable_guc (declare i915 in spec.modules)",)


@pytest.mark.parametrize(
    ("wanted", "shown", "same"), [("1", "Y", True), ("0x10", "16", True), ("a", "b", False), ("off", "N", True)]
)
def test_a_value_is_compared_as_the_kernel_writes_it(wanted: str, shown: str, same: bool) -> None:  # noqa: FBT001
    assert same_value(wanted, shown) is same


def test_a_removed_module_stays_listed_until_the_next_boot() -> None:
    (report,) = reports(MachineSpec(), TREE, {"i915": Seen()}, Tried(), ("i915",))
    assert (report.state, report.removed) == (ModuleState.LOADED, True)
    assert "stays loaded until the next boot" in report.message


@pytest.mark.parametrize(
    ("said", "expected", "flags"),
    [
        ("ERROR: could not insert 'x': Operation not permitted", "CAP_SYS_MODULE", {"capable": False}),
        ("Operation not permitted", "lockdown (integrity)", {"capable": True, "lockdown": "integrity"}),
        ("Operation not permitted", "modules_disabled", {"capable": True, "disabled": True}),
        ("Operation not permitted", "the kernel refused it", {"capable": True}),
        ("Key was rejected by service", "Secure Boot", {"capable": True}),
        ("Exec format error", "another kernel", {"capable": True}),
        ("Unknown symbol in module", "depmod", {"capable": True}),
        ("FATAL: Module x not found in directory /lib/modules/6", "mount the host's /lib/modules", {"capable": True}),
        ("No such device", "no device it can drive", {"capable": True}),
        ("something else\nentirely", "something else entirely", {"capable": True}),
        ("", "without a word", {"capable": True}),
    ],
)
def test_each_refusal_has_its_remedy(said: str, expected: str, flags: dict[str, object]) -> None:
    assert expected in refusal(said, **flags)  # type: ignore[arg-type]


@settings(deadline=None)
@given(
    item=st.recursive(
        st.none() | st.booleans() | st.text() | st.integers(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(["spec", "modules", "moduleParameters", "serio", "usb", "protocol", "vendor"]), inner
            )
        ),
    )
)
def test_any_stored_object_is_read_without_an_error(item: object) -> None:
    spec = machine_spec({"spec": item})
    assert len(spec.modules) <= 64


def test_a_spec_is_read_with_names_that_differ_in_dashes_once() -> None:
    item = {
        "spec": {
            "modules": ["snd-hda-intel", "snd_hda_intel", "i915", "../x", 7],
            "moduleParameters": {"snd-hda-intel.power-save": "0", "bad": "x", "i915.a": 'b" c="d'},
            "serio": [
                {"protocol": "pulse8-cec", "usb": {"vendor": "2548", "product": "1002"}},
                {"protocol": "unknown", "usb": {"vendor": "2548", "product": "1002"}},
            ],
        }
    }
    spec = machine_spec(item)
    assert spec.modules == ("snd-hda-intel", "i915")
    assert spec.parameters == {"snd_hda_intel": {"power_save": "0"}}
    assert [entry.product for entry in spec.serio] == ["1002"]


def test_sysfs_tells_loaded_from_built_in_and_shows_what_may_be_read(tmp_path: Path) -> None:
    for name, state in (("i915", "live\n"), ("ext4", None), ("dying", "going\n")):
        folder = tmp_path / "module" / name / "parameters"
        folder.mkdir(parents=True)
        (folder / "flag").write_bytes(b"Y\xff\n")
        if state:
            (folder.parent / "initstate").write_text(state)
        (folder / "other").write_bytes(b"1\n")
    wanted = dict.fromkeys(("i915", "ext4", "dying", "absent"), ("flag", "no_such"))
    seen = seen_modules(wanted, tmp_path)
    assert {name: found.builtin for name, found in seen.items()} == {"i915": False, "ext4": True}
    assert seen["i915"].parameters == {"flag": "Y\\xff"}


class TestModprobe:
    pytestmark = pytest.mark.anyio

    @pytest.fixture
    def anyio_backend(self) -> tuple[str, dict[str, object]]:
        return "asyncio", {"use_uvloop": True}

    @staticmethod
    def program(tmp_path: Path, body: str) -> str:
        file = tmp_path / "modprobe"
        file.write_text(f"#!/bin/sh\n{body}\n")
        file.chmod(file.stat().st_mode | stat.S_IXUSR)
        return os.fspath(file)

    async def test_it_is_given_the_name_and_the_parameters_and_nothing_else(self, tmp_path: Path) -> None:
        program = self.program(tmp_path, f'for word in "$@"; do echo "$word" >> {tmp_path}/arguments; done')
        outcome = await Modprobe(program).load("i915", {"enable_guc": "2", "text": "a b"})
        assert outcome.words == ""
        assert (tmp_path / "arguments").read_text() == '--\ni915\nenable_guc=2\ntext="a b"\n'

    async def test_a_name_that_is_none_runs_nothing(self, tmp_path: Path) -> None:
        program = self.program(tmp_path, f"touch {tmp_path}/ran")
        for name in ("--show-depends", "x;touch y", "../x", ""):
            assert "is no module name" in (await Modprobe(program).load(name, {})).words
        assert not (tmp_path / "ran").exists()

    async def test_the_kernels_words_reach_the_reader(self, tmp_path: Path) -> None:
        program = self.program(
            tmp_path, "echo \"modprobe: ERROR: could not insert 'x': Key was rejected by service\" >&2; exit 1"
        )
        words = (await Modprobe(program).load("x", {})).words
        assert "Secure Boot" in words
        assert "Key was rejected by service" in words

    async def test_one_that_takes_too_long_is_ended_with_all_it_started(self, tmp_path: Path) -> None:
        program = self.program(tmp_path, f"sleep 60 & echo $! > {tmp_path}/child; sleep 60")
        words = (await Modprobe(program, deadline_s=0.3).load("x", {})).words
        assert words == "modprobe did not end within 0.3 s and was stopped: look at dmesg on the machine"
        child = Path("/proc", (tmp_path / "child").read_text().strip(), "status")
        for _ in range(100):
            if not child.exists() or "State:\tZ" in child.read_text():
                break
            await anyio.sleep(0.02)
        else:
            pytest.fail("the process that modprobe started still runs")

    async def test_the_capability_and_the_kernels_switches_are_read_from_proc(self, tmp_path: Path) -> None:
        program = self.program(tmp_path, "echo Operation not permitted >&2; exit 1")
        (tmp_path / "self").mkdir()
        (tmp_path / "self/status").write_text("CapEff:\t00000000a80425fb\n")
        here = Modprobe(program, proc=tmp_path, sysfs=tmp_path)
        assert "lacks CAP_SYS_MODULE" in (await here.load("x", {})).words
        (tmp_path / "self/status").write_text("CapEff:\t000001ffffffffff\n")
        (tmp_path / "kernel/security").mkdir(parents=True)
        (tmp_path / "kernel/security/lockdown").write_text("none [integrity] confidentiality\n")
        assert "lockdown (integrity)" in (await here.load("x", {})).words
        (tmp_path / "sys/kernel").mkdir(parents=True)
        (tmp_path / "sys/kernel/modules_disabled").write_text("1\n")
        assert "modules_disabled is 1" in (await here.load("x", {})).words

    async def test_an_absent_modprobe_is_said(self) -> None:
        assert "not installed" in (await Modprobe("/nonexistent/modprobe").load("x", {})).words
