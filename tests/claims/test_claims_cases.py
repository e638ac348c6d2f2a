"""Each case about claims: its tree as sysfs, read by the real reader, judged by the real store, prepared for real."""

import importlib
import importlib.util
import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
import yaml

from liken.claims import schema
from liken.claims.words import ClaimError
from liken.events.sysfs import Sysfs
from liken.model.api import Unavailable
from liken.model.hardware import DeviceKey
from liken.model.offers import Snapshot
from tests.conftest import SHARED
from tests.unit.fakes_claims import FakeHardware, Node, caught_up, claim_object, ref

pytestmark = [pytest.mark.anyio, pytest.mark.shared]

SHORT = {
    "lost-cdi-directory": ("test_claims_prepare", "test_after_a_reboot_the_claim_starts_afresh"),
    "node-in-the-file-is-gone": ("test_claims_refresh", "test_a_jack_that_leaves_is_no_reason_to_restart"),
    "held-by-another-claim": (
        "test_claims_prepare",
        "test_an_exclusive_device_is_refused_to_a_second_claim_by_the_first_one_s_name",
    ),
    "unprepare-of-the-unknown": (
        "test_claims_prepare",
        "test_unprepare_succeeds_for_the_unknown_the_gone_and_the_repeated",
    ),
    "same-device-twice-in-one-claim": ("test_claims_prepare", "test_two_shares_of_one_device_are_two_cdi_devices"),
    "subrequest": ("test_claims_prepare", "test_a_subrequest_is_answered_as_its_main_request"),
    "libusb-took-the-driver": (
        "test_claims_refresh",
        "test_a_program_that_takes_the_driver_keeps_the_bus_node_and_its_health",
    ),
    "killed-at-any-instant": ("test_claims_killed", "test_a_restart_after_any_kill_converges"),
}


def with_trees() -> Iterator[Any]:
    path = SHARED / "cases" / "with-trees" / "claims.yaml"
    found = yaml.safe_load(path.read_text())["cases"] if path.exists() else []
    yield from (pytest.param(case, id=case["id"]) for case in found)


def test_each_short_case_is_a_test(shared: Path) -> None:
    ids = {case["id"] for case in yaml.safe_load((shared / "cases" / "claims.yaml").read_text())}
    assert ids == SHORT.keys()
    for module, test in SHORT.values():
        assert callable(getattr(importlib.import_module(f"tests.unit.{module}"), test))


class CaseHardware(FakeHardware):
    """The kernel is a folder that the case's own loader writes."""

    def __init__(self, machine: Node, root: Path, shared: Path) -> None:
        super().__init__(machine.store)
        spec = importlib.util.spec_from_file_location("load", shared / "cases" / "with-trees" / "load.py")
        assert spec is not None
        assert spec.loader is not None
        self._load = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self._load)
        self._root = root
        self._sysfs = Sysfs(root, root / "proc", root / "dev")
        self._errors: dict[str, int] = {}

    def change(self, tree: Mapping[str, Any]) -> None:
        self._errors |= self._load.materialise(tree, self._root)

    def event(self) -> Snapshot:
        self.store.replace(self._sysfs.everything(), everything=True, complete=True)
        return self.store.snapshot

    async def refresh(self, keys: Collection[DeviceKey]) -> Snapshot:
        await anyio.lowlevel.checkpoint()
        found = {key: self._sysfs.device(key) for key in keys}
        self.store.replace(
            [facts for facts in found.values() if facts is not None],
            gone=[key for key, facts in found.items() if facts is None],
        )
        return self.store.snapshot

    async def reprobe(self, key: DeviceKey) -> str | None:
        self.probed.append(key.address)
        await anyio.lowlevel.checkpoint()
        failure = self._errors.get("bus/usb/drivers_probe")
        return os.strerror(failure) if failure else None

    def attach(self, machine: Node) -> Node:
        """Let `machine` be a process on this kernel."""
        self.store = machine.store
        machine.hardware = self
        machine.preparer._hardware = self
        return machine


class Story:
    """Plays a case's steps."""

    def __init__(self, case: Mapping[str, Any], folder: Path, shared: Path) -> None:
        self.case = case
        self.answers: list[dict[str, Any]] = []
        self.machine = Node(folder)
        self.hardware = CaseHardware(self.machine, folder / "sys", shared)
        self.machine.store.replace([], everything=True, complete=False)
        self.hardware.change(case["input"]["tree"])
        self.hardware.attach(self.machine)
        self.hardware.event()

    async def play(self, step: Mapping[str, Any]) -> None:
        match step["call"]:
            case "prepare" | "unprepare":
                await self._call(step)
            case "tree_change":
                self.hardware.change(step["tree_change"])
                if "event" in step:
                    self.hardware.event()
            case "restart_daemon":
                self.machine = self.hardware.attach(await self.machine.again())
                self.hardware.event()
                if "refuses every connection" in str(self.case["input"].get("api")):
                    self.machine.api.fail = lambda: Unavailable("connection refused")
            case "empty_cdi_directory":
                for path in self.machine.settings.cdi_dir.iterdir():
                    path.unlink()
            case "stop_daemon" | "container_start":
                return
        if step["call"] in {"tree_change", "restart_daemon"}:
            await self._follow()

    async def _call(self, step: Mapping[str, Any]) -> None:
        claim = ref(step["claim"]["uid"], step["claim"]["name"], step["claim"]["namespace"])
        api = self.machine.api
        if step.get("object") == "deleted":
            api.delete(claim)
        elif "allocation" in step:
            api.claims[claim.namespace, claim.name] = claim_object(claim, step["allocation"]["devices"]["results"])
        try:
            if step["call"] == "prepare":
                await self.machine.preparer.prepare(claim)
            else:
                await self.machine.preparer.unprepare(claim)
        except ClaimError as error:
            self.answers.append({"ok": False, "error": str(error)})
        else:
            self.answers.append({"ok": True, "nodes": self.machine.nodes(claim.uid)})

    async def _follow(self) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.machine.refresher.run)
            await caught_up(self.machine)
            tasks.cancel_scope.cancel()

    def check(self, expected: Mapping[str, Any]) -> None:
        for uid, nodes in expected.get("spec_files", {}).items():
            document = self.machine.document(uid)
            assert document is None or schema.problems(document) == ()
            assert "major" not in str(document)
            if nodes == "gone":
                nodes = [f"/dev/liken-gone-{self._device(uid)}"]  # noqa: PLW2901
            assert self.machine.nodes(uid) == nodes
        if "published" in expected:
            offers = self.machine.store.snapshot.offers
            assert {name: [node.path for node in offer.nodes] for name, offer in offers.items()} == {
                name: entry["nodes"] for name, entry in expected["published"].items()
            }
            for name, entry in expected["published"].items():
                for attribute, value in entry.get("attributes", {}).items():
                    assert offers[name].attributes[attribute] == value
        for address, reason in expected.get("withheld", {}).items():
            verdicts = {key.address: verdict for key, verdict in self.machine.store.snapshot.verdicts.items()}
            assert verdicts[address].reason == reason

    def _device(self, uid: str) -> str:
        for step in self.case["input"]["claims"]:
            if step["call"] == "prepare" and step["claim"]["uid"] == uid:
                found: str = step["allocation"]["devices"]["results"][0]["device"]
                return found
        raise AssertionError(uid)


@pytest.mark.parametrize("case", list(with_trees()))
async def test_a_case_with_a_tree(case: dict[str, Any], tmp_path: Path, shared: Path) -> None:
    story = Story(case, tmp_path, shared)
    steps = {step["after"]: step for step in case["expect"].get("steps", [])}
    for index, step in enumerate(case["input"]["claims"]):
        await story.play(step)
        if index in steps:
            story.check(steps[index])
    story.check({key: value for key, value in case["expect"].items() if key in {"published", "withheld"}})
    expected = case["expect"]["answers"]
    assert [answer["ok"] for answer in story.answers] == [answer["ok"] for answer in expected]
    for said, answer in zip(story.answers, expected, strict=True):
        if "nodes" in answer:
            assert said["nodes"] == answer["nodes"]
        for words in answer.get("error_says", []):
            assert words in said["error"]
    probed = {
        "program-takes-the-kernel-driver": ["1-4:1.0"],
        "kernel-refuses-the-driver-back": ["1-4:1.0"],
    }
    assert story.hardware.probed == probed.get(case["id"], [])
