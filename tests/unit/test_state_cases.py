"""Faults that people met elsewhere: each case's machine, read from a fake /sys, comes out as the case says.

Covers what a case says of `published`, `withheld`, `unclaimed` and its states in between, and the tables of strings.
Claims, writes and kernel events are the subject of other tests.
"""

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from liken.events.sysfs import Sysfs
from liken.events.tree import Tree
from liken.model.hardware import Reason, SystemFacts
from liken.model.offers import Offer, Snapshot
from liken.state.attributes import text
from liken.state.catalog import ModuleCatalog
from liken.state.ids import IdsFiles
from liken.state.slices import device_body
from liken.state.store import Store
from liken.state.unclaimed import unclaimed
from tests.conftest import SHARED
from tests.unit.cases import Case, cases, materialise
from tests.unit.fakes_state import name, usb_key

pytestmark = pytest.mark.shared

ALL = list(cases(SHARED)) if SHARED.is_dir() else []
SPEC_WINS = {("uevent-read-fails-on-a-node", "1-4:1.0"): Reason.UNREADABLE}  # an I/O error has its own reason since
BLOCKS = {"string-read-that-blocks"}  # what waits for a stuck read is the reader's own test
TREES = [case for case in ALL if case.tree and "claims" not in case.input and case.id not in BLOCKS]
STRINGS = [(case.id, row) for case in ALL for row in case.text.get("strings", ())]
VALUES = {
    "x * 64": "x" * 64,
    "x * 65": "x" * 65,
    "x * 63 + é": "x" * 63 + "é",
    "é * 40": "é" * 40,
    "x * 61 + 😀": "x" * 61 + "😀",
    "x * 126": "x" * 126,
    "x * 63 + blank + yyy": "x" * 63 + " yyy",
}


class FailingTree(Tree):
    """Sysfs of which some files cannot be read."""

    def __init__(self, root: Path, errors: Mapping[str, int]) -> None:
        super().__init__(root)
        self._errors = {f"/{path}".encode(): number for path, number in errors.items()}

    def read(self, path: bytes, limit: int = 4096) -> bytes:
        if path in self._errors:
            raise OSError(self._errors[path], "as the case says")
        return super().read(path, limit)


class Machine:
    """A case's machine on disk, and the store that follows it."""

    def __init__(self, case: Case, root: Path) -> None:
        machine = case.input.get("machine", {})
        self.root = root
        self.tree = case.tree
        self.system = SystemFacts(uhid="uhid" in machine.get("loaded", ()))
        self.store = Store(IdsFiles(pci="\n".join([*machine.get("pci_ids", ()), ""]).encode()))
        alias = "\n".join(machine.get("modules_alias", ())).encode()
        modules = "".join(f"kernel/{line.split()[-1]}.ko:\n" for line in machine.get("modules_alias", ()))
        self.catalog = ModuleCatalog(alias=alias, dep=modules.encode())

    def read(self) -> Snapshot:
        shutil.rmtree(self.root, ignore_errors=True)
        sysfs = Sysfs(self.root, tree=FailingTree(self.root, materialise(self.tree, self.root)))
        self.store.replace(sysfs.everything(), everything=True, system=self.system, complete=True)
        return self.store.snapshot

    def change(self, changes: Mapping[str, Any]) -> None:
        for path, value in changes.items():
            if value is None:
                self.tree = {at: kept for at, kept in self.tree.items() if at != path and not at.startswith(f"{path}/")}
            else:
                self.tree[path] = value


def states(case: Case, machine: Machine) -> Iterator[tuple[int, Snapshot]]:
    """The machine at the start (-1) and after each step of its sequence."""
    yield -1, machine.read()
    for index, event in enumerate(case.input.get("events", ())):
        machine.change(event.get("tree_change", {}))
        yield index, machine.read()


def shown(offer: Offer, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """What a case says of a published device, as this offer has it."""
    found: dict[str, Any] = {"nodes": [node.path for node in offer.nodes]}
    if "shared" in wanted:
        found["shared"] = offer.shareable
    if "attributes" in wanted:
        found["attributes"] = {key: offer.attributes.get(key) for key in wanted["attributes"]}
    if "absent" in wanted:
        found["absent"] = [key for key in wanted["absent"] if key not in offer.attributes]
    return found


def check(snapshot: Snapshot, published: Mapping[str, Any]) -> None:
    assert sorted(snapshot.offers) == sorted(published)
    for device, wanted in published.items():
        assert shown(snapshot.offers[name(device)], wanted) == wanted, device


@pytest.mark.parametrize("case", TREES, ids=[f"{case.file}:{case.id}" for case in TREES])
def test_a_case_comes_out_as_it_says(case: Case, tmp_path: Path) -> None:
    machine = Machine(case, tmp_path / "sys")
    steps = {step["after"]: step["published"] for step in case.expect.get("steps", ()) if "published" in step}
    snapshot = machine.store.snapshot
    for index, snapshot in states(case, machine):
        if index in steps:
            check(snapshot, steps[index])
    if "published" in case.expect:
        check(snapshot, case.expect["published"])
    withheld = {str(key.address): verdict.reason for key, verdict in snapshot.verdicts.items() if verdict.reason}
    for address, reason in case.expect.get("withheld", {}).items():
        assert withheld.get(address) == SPEC_WINS.get((case.id, address), reason), address
    if "unclaimed" in case.expect:
        wanted = {address: tuple(entry["candidates"]) for address, entry in case.expect["unclaimed"].items()}
        report = unclaimed(snapshot, machine.catalog)
        assert {entry.address: entry.modules for entry in report} == wanted
        assert all(entry.message == f"declare {entry.modules[0]} in spec.modules" for entry in report)
    names = [offer.name for offer in snapshot.offers.values()]
    assert len(names) == len(set(names))
    for offer in snapshot.offers.values():
        kinds = {kind for value in device_body(offer)["attributes"].values() for kind in value}
        assert kinds <= {"string", "bool"}


@pytest.mark.parametrize(("case", "row"), STRINGS, ids=[f"{case}-{index}" for index, (case, _) in enumerate(STRINGS)])
def test_a_string_of_hardware_comes_out_as_its_table_says(case: str, row: Mapping[str, Any], tmp_path: Path) -> None:
    raw = bytes.fromhex(row["hex"]) if "hex" in row else VALUES.get(row["text"], row["text"]).encode() + b"\n"
    controller = "pci0000:00/0000:00:14.0"
    stick = {"at": f"{controller}/usb1/1-4", "vendor": "10c4", "product": "ea60", "bus": 1, "number": 7}
    hardware = [
        {"usb": stick},
        {"interface": {"at": f"{controller}/usb1/1-4/1-4:1.0", "class": "ff", "driver": "cp210x"}},
        {
            "node": {
                "at": f"{controller}/usb1/1-4/1-4:1.0/ttyUSB0/tty/ttyUSB0",
                "subsystem": "tty",
                "dev": "188:0",
                "devname": "ttyUSB0",
            }
        },
    ]
    machine = Machine(Case(id=case, file="", text={"hardware": hardware, "expect": {}}), tmp_path / "sys")
    machine.tree[f"devices/{controller}/usb1/1-4/{row['file']}"] = {"hex": raw.hex()}
    offer = machine.read().offers[name("usb-1-4-1-0")]
    named = {"product", "manufacturer"}
    if row["file"] not in named | {"serial"}:
        assert {"bcdDevice", "version"}.isdisjoint(offer.attributes)
        return
    found = offer.attributes.get("name" if row["file"] in named else "serial")
    if "attribute_bytes" in row:
        assert isinstance(found, str)
        assert len(found.encode()) == row["attribute_bytes"]
        assert found == found.rstrip()
    else:
        wanted = row["attribute"] or ("10c4:ea60" if row["file"] in named else None)
        assert found == wanted
        assert text(raw) == row["attribute"]


def test_a_device_that_may_not_be_used_says_so(tmp_path: Path) -> None:
    case = next(case for case in ALL if case.id == "device-that-is-not-authorised")
    verdict = Machine(case, tmp_path / "sys").read().verdicts[usb_key("1-3")]
    assert "not authorised" in verdict.detail
    assert "/sys/bus/usb/devices/1-3/authorized" in verdict.advice
