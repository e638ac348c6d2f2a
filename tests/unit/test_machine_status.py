"""The status: its conditions, its size, and what it never does to a stored one. And the manifest that defines it."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from liken.machine.crd import crd, crd_yaml
from liken.machine.matching import SerioReport, SerioState
from liken.machine.modules import ModuleReport, ModuleState
from liken.machine.status import Findings, conditions, entry, listed, staged_removals, status
from liken.model.api import Json
from liken.model.hardware import Bus, BusAddress
from liken.model.machine import SerioEntry, SerioProtocol
from liken.state.unclaimed import Unclaimed

NOW = "2027-01-15T08:00:00Z"
LATER = "2027-01-15T09:00:00Z"
ENTRY = SerioEntry(protocol=SerioProtocol.PULSE8_CEC, vendor="2548", product="1002")


def module(name: str, state: ModuleState, message: str = "", *, removed: bool = False) -> ModuleReport:
    return ModuleReport(name=name, state=state, message=message, removed=removed)


def driverless(number: int = 0, **more: Any) -> Unclaimed:
    known: dict[str, Any] = {
        "bus": Bus.PCI,
        "address": BusAddress(f"{number:04x}:00:02.0"),
        "name": "Alder Lake-N [UHD Graphics]",
        "class_": "display",
        "modalias": "pci:v00008086d000046D2sv00008086sd00007270bc03sc00i00",
        "modules": ("i915", "xe"),
        "message": "declare i915 in spec.modules; it may also be xe",
    }
    return Unclaimed(**known | more)


def found(**more: Any) -> Findings:
    known: dict[str, Any] = {"generation": 3, "boot_id": "b"}
    return Findings(**known | more)


def said(findings: Findings) -> dict[str, tuple[bool, str]]:
    return {condition.type: (condition.true, condition.reason) for condition in conditions(findings)}


@pytest.mark.parametrize(
    ("findings", "converged", "ready"),
    [
        (found(), (True, "Converged"), (True, "Ready")),
        (found(modules=(module("a", ModuleState.BUILTIN),)), (True, "Converged"), (True, "Ready")),
        (found(loading=("a",)), (False, "Loading"), (False, "Loading")),
        (
            found(modules=(module("a", ModuleState.FAILED, "no"),), loading=("b",)),
            (False, "ModulesFailed"),
            (False, "ModulesFailed"),
        ),
        (found(modules=(module("a", ModuleState.MISSING),)), (False, "ModulesFailed"), (False, "ModulesFailed")),
        (
            found(modules=(module("a", ModuleState.LOADED, removed=True),)),
            (False, "RebootPending"),
            (True, "Ready"),
        ),
        (found(parameters=("a.b=1 (now 0)",)), (False, "RebootPending"), (True, "Ready")),
        (found(complete=False), (True, "Converged"), (False, "Starting")),
        (
            found(serio=(SerioReport(entry=ENTRY, state=SerioState.REFUSED, message="no"),)),
            (True, "Converged"),
            (True, "Ready"),
        ),
    ],
)
def test_the_conditions_follow_from_the_findings(
    findings: Findings, converged: tuple[bool, str], ready: tuple[bool, str]
) -> None:
    assert said(findings)["SpecConverged"] == converged
    assert said(findings)["Ready"] == ready


def test_a_serial_condition_counts_what_is_open() -> None:
    attached = SerioReport(entry=ENTRY, state=SerioState.ATTACHED, tty="ttyACM0")
    missing = SerioReport(entry=ENTRY, state=SerioState.MISSING, message="the adapter is not plugged in")
    refused = SerioReport(entry=ENTRY, state=SerioState.REFUSED, message="no")
    reasons = [said(found(serio=serio))["SerioAttached"] for serio in ((), (attached,), (attached, missing))]
    assert reasons == [(True, "NothingDeclared"), (True, "Attached"), (False, "Missing")]
    assert said(found(serio=(missing, refused)))["SerioAttached"] == (False, "Refused")


def test_every_condition_has_the_standard_shape() -> None:
    for condition in status(found(loading=("a",)), None, NOW)["conditions"]:
        assert condition["status"] in {"True", "False"}
        assert re.fullmatch(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?", condition["reason"])
        assert condition["message"]
        assert (condition["observedGeneration"], condition["lastTransitionTime"]) == (3, NOW)


def test_a_status_made_again_of_the_same_findings_is_the_same() -> None:
    findings = found(modules=(module("a", ModuleState.FAILED, "no"),), unclaimed=(driverless(),))
    first = status(findings, None, NOW)
    assert status(findings, first, LATER) == first


def test_two_hundred_unclaimed_devices_are_all_shown_below_100_kib() -> None:
    many = tuple(driverless(number) for number in range(200))
    modules = tuple(module(f"module_{number}", ModuleState.FAILED, "words " * 60) for number in range(10))
    made = status(found(unclaimed=many, modules=modules), None, NOW)
    assert len(made["hardware"]["unclaimed"]) == 200
    assert "unclaimedNotShown" not in made["hardware"]
    assert len(json.dumps(made).encode()) < 100 * 1024


@settings(max_examples=20, deadline=None)
@given(
    count=st.integers(0, 1500),
    name=st.text(max_size=64),
    modules=st.lists(st.text(max_size=30), max_size=60),
    message=st.text(max_size=2000),
    words=st.text(max_size=3000),
)
def test_no_machine_makes_the_status_too_large(
    count: int, name: str, modules: list[str], message: str, words: str
) -> None:
    many = tuple(driverless(number, name=name, modules=tuple(modules), message=message) for number in range(count))
    failed = tuple(module(f"module_{number}", ModuleState.FAILED, words) for number in range(16))
    made = status(found(unclaimed=many, modules=failed), None, NOW)
    hardware = made["hardware"]
    assert len(json.dumps(made, ensure_ascii=False).encode("utf-8", "replace")) < 100 * 1024
    assert hardware["unclaimedCount"] == count
    assert len(hardware["unclaimed"]) + hardware.get("unclaimedNotShown", 0) == count


def test_what_is_not_known_of_a_device_is_absent() -> None:
    bare = Unclaimed(
        bus=Bus.USB, address=BusAddress("1-1:1.0"), name="", class_=None, modalias=None, modules=(), message="x"
    )
    assert entry(bare) == {"bus": "usb", "address": "1-1:1.0", "message": "x"}


STORED: Json = {
    "bootID": "b",
    "modules": [{"name": "snd-hda-intel", "state": "Loaded"}, {"name": "i915", "state": "Failed"}, {"name": 7}, "x"],
}


class TestStaged:
    def test_what_this_boot_loaded_and_nobody_declares_stays_loaded(self) -> None:
        assert staged_removals((), STORED, "b", {"snd_hda_intel"}) == ("snd-hda-intel",)

    def test_what_this_daemon_loaded_is_staged_without_a_stored_status_and_keeps_the_stored_spelling(self) -> None:
        assert staged_removals((), None, "b", {"uhid"}, {"uhid", "i915"}) == ("uhid",)
        assert staged_removals((), STORED, "b", {"snd_hda_intel"}, {"snd_hda_intel"}) == ("snd-hda-intel",)

    def test_what_is_declared_unloaded_or_of_another_boot_is_not_staged(self) -> None:
        assert staged_removals(("snd_hda_intel",), STORED, "b", {"snd_hda_intel"}) == ()
        assert staged_removals((), STORED, "b", ()) == ()
        assert staged_removals((), STORED, "c", {"snd_hda_intel"}) == ()
        assert staged_removals((), None, "b", {"snd_hda_intel"}) == ()

    @pytest.mark.parametrize("stored", [None, {}, {"modules": None}, {"modules": "x"}, {"modules": [{}, None]}])
    def test_a_stored_status_of_any_shape_is_read(self, stored: Json | None) -> None:
        assert listed(stored) == ()


def objects(schema: Json, at: str = "machine") -> Iterator[tuple[str, Json]]:
    yield at, schema
    for name, inner in schema.get("properties", {}).items():
        yield from objects(inner, f"{at}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from objects(schema[key], f"{at}[]")


class TestDefinition:
    (version,) = crd()["spec"]["versions"]
    schema: Json = version["schema"]["openAPIV3Schema"]

    def test_the_manifest_in_the_container_folder_is_the_generated_one(self) -> None:
        path = Path(__file__).parents[2] / "container/crd/machines.liken.sh.yaml"
        assert path.read_text(encoding="utf-8") == crd_yaml()
        assert yaml.safe_load(crd_yaml()) == crd()

    def test_every_field_has_a_description_that_is_a_sentence(self) -> None:
        fields = [item for item in objects(self.schema) if item[0] not in {"machine.apiVersion", "machine.kind"}]
        assert len(fields) > 45
        for place, field in fields:
            if place != "machine.metadata":
                assert field.get("description", "").endswith("."), place

    def test_every_list_says_how_it_merges_and_every_list_of_the_spec_has_a_limit(self) -> None:
        lists = [(place, field) for place, field in objects(self.schema) if field.get("type") == "array"]
        assert {place for place, _ in lists} >= {"machine.spec.modules", "machine.spec.serio", "machine.status.modules"}
        for place, field in lists:
            inside = place in {"machine.status.serio[].nodes", "machine.status.hardware.unclaimed[].modules"}
            assert inside or "x-kubernetes-list-type" in field, place
            assert not place.startswith("machine.spec") or "maxItems" in field, place

    def test_it_is_cluster_scoped_with_a_status_a_short_name_and_columns(self) -> None:
        spec = crd()["spec"]
        assert (spec["scope"], spec["names"]["shortNames"], self.version["subresources"]) == (
            "Cluster",
            ["mach"],
            {"status": {}},
        )
        names = [column["name"] for column in self.version["additionalPrinterColumns"]]
        assert names == ["Converged", "Unclaimed", "Modules", "Age"]

    def test_everything_the_status_can_hold_is_in_the_schema(self) -> None:
        serio = SerioReport(
            entry=SerioEntry(protocol=SerioProtocol.PULSE8_CEC, vendor="2548", product="1002", serial="x"),
            state=SerioState.ATTACHED,
            message="m",
            tty="ttyACM0",
            port="serio0",
            nodes=("/dev/cec0",),
        )
        loaded = ModuleReport(name="a", state=ModuleState.LOADED, message="m", parameters={"b": "1"})
        many = tuple(driverless(number) for number in range(2000))
        made = status(found(modules=(loaded,), serio=(serio,), unclaimed=many), None, NOW)
        assert unknown(made, self.schema["properties"]["status"]) == []


def unknown(value: Any, schema: Json, at: str = "status") -> list[str]:
    if isinstance(value, list):
        return sorted({place for item in value for place in unknown(item, schema["items"], f"{at}[]")})
    if not isinstance(value, dict) or "additionalProperties" in schema:
        return []
    known = schema["properties"]
    inner = [place for key in value.keys() & known.keys() for place in unknown(value[key], known[key], f"{at}.{key}")]
    return [f"{at}.{key}" for key in value.keys() - known.keys()] + inner
