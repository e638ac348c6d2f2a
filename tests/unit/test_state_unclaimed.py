"""The unclaimed report: only what a person can do something about, with the words of the fix."""

from dataclasses import replace
from pathlib import Path

import pytest

from liken.model.hardware import DeviceFacts, Reason
from liken.model.machine import SerioEntry, SerioProtocol
from liken.model.offers import Rules, Snapshot
from liken.state.catalog import ModuleCatalog
from liken.state.slices import NodeRef, json_patch, slices
from liken.state.store import Store
from liken.state.unclaimed import Unclaimed, unclaimed
from tests.unit.fakes_state import NoNames, SomeNames, interface, node, pci, serial_stick, usb_device

GPU_ALIAS = b"pci:v00008086d000046D2sv00008086sd00007270bc03sc00i00\n"
STICK_ALIAS = b"usb:v10C4pEA60d0100dc00dsc00dp00icFFisc00ip00in00\n"
CATALOG = ModuleCatalog(
    alias=b"alias pci:v00008086d000046D2sv*sd*bc03sc*i* i915\nalias pci:v00008086d000046D2sv*sd*bc03sc*i* xe\n"
    b"alias usb:v10C4pEA60d*dc*dsc*dp*ic*isc*ip*in* cp210x\nalias usb:v2548p*d*dc*dsc*dp*ic02isc*ip*in* cdc_acm\n",
    dep=b"i915.ko:\nxe.ko:\ncp210x.ko:\ncdc-acm.ko:\n",
    modprobe=b"blacklist xe\n",
)
GPU = pci("0000:00:02.0", modalias=GPU_ALIAS)
STICK = (usb_device("1-10"), interface("1-10:1.0", modalias=STICK_ALIAS))


def snapshot(*devices: DeviceFacts, rules: Rules | None = None) -> Snapshot:
    store = Store(SomeNames(), rules=rules)
    store.replace(devices)
    return store.snapshot


def report(
    *devices: DeviceFacts, rules: Rules | None = None, catalog: ModuleCatalog = CATALOG
) -> tuple[Unclaimed, ...]:
    return unclaimed(snapshot(*devices, rules=rules), catalog)


def test_an_entry_says_what_the_hardware_is_and_which_module_to_declare() -> None:
    (gpu, stick) = report(*STICK, GPU)
    assert gpu == Unclaimed(
        bus=GPU.key.bus,
        address=GPU.key.address,
        name="Alder Lake-N [UHD Graphics]",
        class_="display",
        modalias=GPU_ALIAS.decode().strip(),
        modules=("i915", "xe"),
        message="declare i915 in spec.modules; it may also be xe; "
        "xe is blacklisted on this machine, and declared by name it loads all the same",
    )
    assert (stick.modules, stick.message) == (("cp210x",), "declare cp210x in spec.modules")


def test_what_no_module_fits_or_has_no_modalias_is_not_listed() -> None:
    assert report(pci("0000:00:16.3", modalias=b"pci:v00008086d0000FFFFsv0sd0bc07sc00i00\n"), pci("0000:00:17.0")) == ()


def test_what_has_a_driver_or_is_held_by_a_program_is_not_listed() -> None:
    driven = replace(GPU, driver="i915")
    taken = (STICK[0], replace(STICK[1], driver="usbfs"))
    assert report(driven, *taken) == ()


def test_entries_are_sorted_by_port_and_none_is_twice() -> None:
    ports = ["1-10", "1-2", "1-9"]
    devices = [facts for port in ports for facts in (usb_device(port), interface(f"{port}:1.0", modalias=STICK_ALIAS))]
    assert [entry.address for entry in report(*devices, GPU)] == ["0000:00:02.0", "1-2:1.0", "1-9:1.0", "1-10:1.0"]


def test_modules_that_are_not_on_this_machine_are_said_to_be_missing() -> None:
    (entry,) = report(GPU, catalog=ModuleCatalog(alias=b"alias pci:v00008086d000046D2sv*sd*bc03sc*i* i915\n"))
    assert "none of them is on this machine" in entry.message


def test_without_a_catalogue_the_hardware_is_listed_and_the_report_says_why_it_names_nothing() -> None:
    (entry,) = report(GPU, catalog=ModuleCatalog(problem="/lib/modules/6.12.9 is missing"))
    assert entry.modules == ()
    assert entry.message == "no module can be named: /lib/modules/6.12.9 is missing"


def test_an_adapter_that_a_claims_program_took_from_its_driver_is_left_out_with_its_siblings() -> None:
    second = interface("2-1:1.1", modalias=STICK_ALIAS)
    before = serial_stick("2-1")
    rules = Rules(held=snapshot(*before).offers)
    now = (before[0], replace(before[1], driver=None, nodes=(), files={"modalias": STICK_ALIAS}), second)
    assert report(*now, rules=rules) == ()
    assert [entry.address for entry in report(*now)] == ["2-1:1.0", "2-1:1.1"]
    assert [entry.address for entry in report(second, usb_device("2-1"), rules=rules)] == ["2-1:1.1"]


def cec(driver: str | None, *, code: str = "02") -> tuple[DeviceFacts, ...]:
    modalias = b"usb:v2548p1002d1000dc00dsc00dp00ic02isc02ip01in00\n"
    nodes = [node("ttyACM0", "tty")] if driver else []
    return (
        usb_device("1-6", ids="2548:1002"),
        interface("1-6:1.0", driver, nodes, code=code, modalias=modalias),
        interface("1-6:1.1", driver, code="0a"),
    )


def test_a_cec_adapter_is_listed_with_both_its_uses() -> None:
    (entry,) = report(*cec("cdc_acm"))
    assert entry.address == "1-6:1.0"
    assert "a claim receives its serial line" in entry.message
    assert "spec.serio with protocol pulse8-cec" in entry.message
    (unbound,) = report(*cec(None))
    assert unbound.message.startswith("declare cdc_acm in spec.modules; as it is")


def test_a_cec_adapter_that_an_entry_attaches_is_not_listed() -> None:
    entry = SerioEntry(protocol=SerioProtocol.PULSE8_CEC, vendor="2548", product="1002")
    assert report(*cec("cdc_acm"), rules=Rules(serio=(entry,))) == ()


def test_a_cec_adapter_whose_other_driver_no_module_names_is_left_to_explain() -> None:
    assert report(*cec(None), catalog=ModuleCatalog()) == ()


def test_the_report_of_an_incomplete_machine_does_not_fail() -> None:
    store = Store(NoNames())
    store.replace([interface("1-6:1.0", "cdc_acm", [node("ttyACM0", "tty")])])
    assert unclaimed(store.snapshot, CATALOG) == ()


@pytest.mark.shared
def test_with_debians_catalogue_the_report_lists_what_somebody_can_help(shared: Path) -> None:
    nobodys = pci("0000:00:16.3", code="070000", modalias=b"pci:v00008086d0000FFFFsv00000000sd00000000bc07sc00i00\n")
    found = snapshot(GPU, nobodys, *STICK)
    report = unclaimed(found, ModuleCatalog.read(shared / "recordings" / "debian"))
    assert [(entry.address, entry.modules, entry.message) for entry in report] == [
        ("0000:00:02.0", ("i915",), "declare i915 in spec.modules"),
        ("1-10:1.0", ("cp210x",), "declare cp210x in spec.modules"),
    ]
    assert found.verdicts[nobodys.key].reason is Reason.NO_DRIVER


def test_a_driver_that_binds_late_takes_the_card_from_the_report_to_the_slice_in_one_change() -> None:
    store = Store(NoNames())
    store.replace([GPU])
    (before,) = slices(store.snapshot.offers, node=NodeRef(name="n"))
    assert [entry.address for entry in unclaimed(store.snapshot, CATALOG)] == ["0000:00:02.0"]
    nodes = (node("dri/renderD128", "drm"), node("dri/card0", "drm"), node("i2c-1", "i2c-dev"))
    delta = store.replace([replace(GPU, driver="i915", nodes=nodes)])
    assert len(delta.offered) == 3
    (after,) = slices(store.snapshot.offers, node=NodeRef(name="n"), previous=[before])
    assert [operation["path"] for operation in json_patch(before, after)] == ["/spec/devices"]
    assert unclaimed(store.snapshot, CATALOG) == ()
