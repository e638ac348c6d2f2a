"""Real machines: whatever was recorded gives valid slices, unique names, and the answers that are known."""

import re
from pathlib import Path

import pytest

from liken.events.recording import recorded
from liken.events.sysfs import Sysfs
from liken.model.hardware import Bus, Reason
from liken.model.machine import SerioEntry, SerioProtocol
from liken.model.offers import Rules, Snapshot
from liken.state.delivery import delivered
from liken.state.ids import IdsFiles
from liken.state.slices import NodeRef, slices
from liken.state.store import Store
from liken.state.view import view
from tests.conftest import SHARED
from tests.unit.fakes_state import NoNames, name, paths

FILES = sorted(
    path
    for folder in ("qemu-6.12", "checkbox", "hwloc", "umockdev")
    for path in (SHARED / "recordings" / folder).glob("*")
    if path.suffix in {".umockdev", ".xz", ".bz2"}
)
FILES += [path for path in [SHARED / "recordings" / "systemd-thinkpad-sys.tar.gz"] if path.exists()]
GUIDE = Path(__file__).parents[1] / "fixtures" / "guide"
LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
ATTRIBUTE = re.compile(r"([a-z0-9.]{1,63}/)?[A-Za-z_][A-Za-z0-9_]{0,31}")


def snapshot(path: Path, *, names: IdsFiles | NoNames | None = None, rules: Rules | None = None) -> Snapshot:
    with recorded(path) as machine:
        sysfs = Sysfs(machine.sysfs, proc=machine.proc, dev=machine.dev)
        store = Store(names or NoNames(), rules=rules)
        store.replace(sysfs.everything(), everything=True, system=sysfs.system(), complete=True)
    return store.snapshot


@pytest.mark.shared
@pytest.mark.timeout(180)
@pytest.mark.parametrize("path", FILES, ids=[path.name for path in FILES])
def test_a_recorded_machine_gives_slices_that_keep_every_limit(path: Path) -> None:
    names = IdsFiles.read()
    found = snapshot(path, names=names)
    offers, verdicts = view(found.inventory, found.rules, names)
    assert (offers, verdicts) == (dict(sorted(found.offers.items())), dict(sorted(found.verdicts.items())))
    assert verdicts.keys() == found.inventory.devices.keys()
    assert all((verdict.reason is None) == bool(verdict.offers) and verdict.detail for verdict in verdicts.values())
    delivering = [offer for offer in offers.values() for item in offer.nodes if item.kind not in {"usb", "misc"}]
    assert {offer.key for offer in delivering} <= {key for key, verdict in verdicts.items() if not verdict.reason}
    exclusive = [item.path for offer in offers.values() for item in offer.nodes if item.kind != "usb"]
    assert len(exclusive) == len(set(exclusive))
    devices = [device for item in slices(offers.values(), node=NodeRef(name="n")) for device in item["spec"]["devices"]]
    assert sorted(device["name"] for device in devices) == sorted(offers)
    for device in devices:
        assert LABEL.fullmatch(device["name"])
        assert len(device["attributes"]) <= 32
        for key, value in device["attributes"].items():
            assert ATTRIBUTE.fullmatch(key)
            assert value == {"bool": True} or 0 < len(value["string"].encode()) <= 64


@pytest.mark.shared
def test_a_dgx_a100_delivers_each_node_through_its_nearest_device(shared: Path) -> None:
    found = snapshot(shared / "recordings" / "checkbox" / "NVIDIA_DGXA100.txt.xz")
    devices = found.inventory.devices.values()
    assert sum(facts.driver is not None for facts in devices) == 181
    assert sum(facts.key.bus is Bus.PCI for facts in devices) == 281
    with_nodes = [facts for facts in devices if delivered(facts.nodes) and ":" in facts.key.address]
    bound = sum(facts.driver is not None for facts in with_nodes)
    usb_devices = sum(facts.key.bus is Bus.USB and ":" not in facts.key.address for facts in devices)
    assert (bound, usb_devices, bound + usb_devices) == (27, 11, 38)  # a usb_device counted by its own usbfs node
    published = [verdict for verdict in found.verdicts.values() if verdict.reason is None]
    driverless = [facts for facts in with_nodes if found.verdicts[facts.key].reason is Reason.NO_DRIVER]
    assert (len(published), len(driverless), len(found.offers)) == (27, 1, 28)


@pytest.mark.shared
def test_the_machine_after_a_reboot_has_the_same_names(shared: Path) -> None:
    folder = shared / "recordings" / "checkbox"
    before = snapshot(folder / "SHUTTLE_DH170_WITH_USB_DISK.txt.xz")
    after = snapshot(folder / "SHUTTLE_DH170_WITH_USB_DISK_REBOOTED.txt.xz")
    assert sorted(before.offers) == sorted(after.offers)


@pytest.mark.shared
def test_a_real_cec_adapter_attached_through_serio_is_two_devices(shared: Path) -> None:
    entry = SerioEntry(protocol=SerioProtocol.PULSE8_CEC, vendor="2548", product="1002")
    path = shared / "recordings" / "qemu-6.12" / "pulse8-cec.umockdev"
    found = snapshot(path, rules=Rules(serio=(entry,)))
    (cec,) = [offer for offer in found.offers.values() if offer.name.endswith("-cec")]
    (remote,) = [offer for offer in found.offers.values() if offer.name.endswith("-input")]
    assert len(found.offers) == 2
    assert (paths(cec), cec.attributes["subsystem"]) == (["/dev/cec2"], "cec")
    assert [path.startswith("/dev/input/event") for path in paths(remote)] == [True]


def test_the_guides_machine_offers_what_the_guide_says_it_delivers() -> None:
    found = snapshot(GUIDE / "machine.umockdev", names=IdsFiles.read(GUIDE))
    assert {each: paths(offer) for each, offer in found.offers.items()} == {
        "pci-0000-00-02-0": ["/dev/dri/renderD128"],
        "pci-0000-00-02-0-display": ["/dev/dri/card0"],
        "pci-0000-00-02-0-i2c-dev": ["/dev/i2c-0", "/dev/i2c-2"],
    }
    assert found.offers[name("pci-0000-00-02-0")].attributes["name"] == "Alder Lake-N [UHD Graphics]"
