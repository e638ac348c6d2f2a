"""`liken report`: modules in load order, each with what it drives, in a manifest that cannot be broken by hardware."""

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from liken.machine.hardware import report as unclaimed_report
from liken.machine.report import REPORT, report, report_json, suggestions
from liken.model.hardware import DeviceFacts
from liken.model.machine import SerioEntry, SerioProtocol
from liken.model.offers import DeviceName, DeviceNode, Offer, Rules, Snapshot
from liken.state.catalog import ModuleCatalog
from liken.state.store import Store
from liken.state.unclaimed import unclaimed
from tests.unit.fakes_machine import cec_adapter
from tests.unit.fakes_state import SomeNames, interface, node, pci, serial_stick, usb_device, usb_key

GPU_ALIAS = b"pci:v00008086d000046D2sv00008086sd00007270bc03sc00i00\n"
STICK_ALIAS = b"usb:v10C4pEA60d0100dc00dsc00dp00icFFisc00ip00in00\n"
CATALOG = ModuleCatalog(
    alias=b"alias pci:v00008086d000046D2sv*sd*bc03sc*i* xe\nalias pci:v00008086d000046D2sv*sd*bc03sc*i* i915\n"
    b"alias usb:v10C4pEA60d*dc*dsc*dp*ic*isc*ip*in* cp210x\n",
    dep=b"i915.ko:\nxe.ko:\ncp210x.ko:\nhdmi.ko:\nfirst.ko:\n",
    builtin=b"kernel/core.ko\n",
    softdep=b"softdep xe pre: hdmi core absent post: later\nsoftdep hdmi pre: first xe\n",
)
GPU = pci("0000:00:02.0", modalias=GPU_ALIAS)
STICK = (usb_device("1-10"), interface("1-10:1.0", modalias=STICK_ALIAS))


def snapshot(*devices: DeviceFacts, rules: Rules | None = None) -> Snapshot:
    store = Store(SomeNames(), rules=rules)
    store.replace(devices, complete=True)
    return store.snapshot


def modules(text: str) -> list[str]:
    return [line.split()[2] for line in text.splitlines() if line.startswith("    # - ")]


def test_soft_dependencies_come_first_and_each_module_once() -> None:
    found = suggestions(unclaimed(snapshot(GPU, *STICK), CATALOG), CATALOG)
    assert [(each.module, each.purpose) for each in found] == [
        ("first", "wanted by hdmi"),
        ("hdmi", "wanted by xe"),
        ("xe", "pci 0000:00:02.0 Alder Lake-N [UHD Graphics]"),
        ("i915", "pci 0000:00:02.0 Alder Lake-N [UHD Graphics]"),
        ("cp210x", "usb 1-10:1.0 Silicon Labs CP210x UART Bridge"),
    ]


def test_a_module_for_many_devices_names_some_and_counts_the_rest() -> None:
    many = [pci(f"0000:0{number}:02.0", modalias=GPU_ALIAS) for number in range(5)]
    purpose = suggestions(unclaimed(snapshot(*many), CATALOG), CATALOG)[-1].purpose
    assert purpose.count("Alder Lake-N") == 3
    assert purpose.endswith("; and 2 more")


def test_the_manifest_is_valid_as_it_is_and_shows_what_is_bound() -> None:
    text = report(snapshot(GPU, *serial_stick("1-2")), CATALOG, "node-a")
    assert yaml.safe_load(text) == {
        "apiVersion": "liken.sh/v1alpha1",
        "kind": "Machine",
        "metadata": {"name": "node-a"},
        "spec": {"modules": None},
    }
    assert "  #   usb 1-2:1.0 Silicon Labs CP210x UART Bridge (cp210x)\n" in text
    assert modules(text) == ["first", "hdmi", "xe", "i915"]


def test_any_choice_of_lines_uncommented_is_a_manifest() -> None:
    text = report(snapshot(GPU, *STICK), CATALOG, "node-a")
    lines = text.splitlines()
    for index, line in enumerate(lines):
        if line.startswith("    # - "):
            chosen = [*lines[:index], line.replace("# - ", "- ", 1), *lines[index + 1 :]]
            assert yaml.safe_load("\n".join(chosen))["spec"] == {"modules": [line.split()[2]]}
    everything = yaml.safe_load(text.replace("    # - ", "    - "))
    assert everything["spec"]["modules"] == modules(text)


def test_more_modules_than_a_machine_declares_are_listed_with_a_word() -> None:
    names = [f"module_{number}" for number in range(70)]
    lines = "".join(f"alias pci:v00008086d000046D2sv*sd*bc03sc*i* {name}\n" for name in names)
    many = ModuleCatalog(alias=lines.encode(), dep="".join(f"{name}.ko:\n" for name in names).encode())
    text = report(snapshot(GPU), many, "node-a")
    assert modules(text) == names
    assert "(a Machine declares at most 64 of these)" in text


def test_a_name_that_yaml_would_read_as_something_else_stays_a_name() -> None:
    for name in ("123", "1e3", "null", "no"):
        assert yaml.safe_load(report(snapshot(), CATALOG, name))["metadata"]["name"] == name


def test_without_a_module_tree_it_says_why_and_lists_the_hardware() -> None:
    absent = ModuleCatalog(problem="/lib/modules/6.12.9 is missing: reboot")
    text = report(snapshot(GPU), absent, "node-a")
    assert "    # no module can be named: /lib/modules/6.12.9 is missing: reboot\n" in text
    assert "  #   pci 0000:00:02.0 Alder Lake-N [UHD Graphics]: no module can be named" in text
    assert yaml.safe_load(text)["spec"] == {"modules": None}


def test_a_machine_that_needs_nothing_says_so() -> None:
    text = report(snapshot(), CATALOG, "node-a")
    assert "    # no hardware needs one\n" in text
    assert "# No device here is offered yet." in text


def test_a_cec_adapter_is_named_with_its_two_uses() -> None:
    text = report(snapshot(*cec_adapter("1-4")), CATALOG, "node-a")
    assert "add it to spec.serio with protocol pulse8-cec" in text


def test_json_is_a_manifest_too_with_the_suggestions_in_an_annotation() -> None:
    made = report_json(snapshot(GPU), CATALOG, "node-a")
    assert made["spec"] == {"modules": []}
    annotation = made["metadata"]["annotations"][REPORT]
    assert annotation.splitlines()[-1] == "i915: pci 0000:00:02.0 Alder Lake-N [UHD Graphics]"
    assert "annotations" not in report_json(snapshot(), CATALOG, "node-a")["metadata"]


@settings(max_examples=60, deadline=None)
@given(words=st.binary(max_size=200), module=st.text(max_size=20))
def test_no_text_from_hardware_or_a_catalogue_leaves_its_comment(words: bytes, module: str) -> None:
    alias = f"alias usb:v10C4pEA60d*dc*dsc*dp*ic*isc*ip*in* {module}\n".encode("utf-8", "replace")
    catalog = ModuleCatalog(alias=alias, dep=f"{module}.ko:\n".encode("utf-8", "replace"))
    stick = usb_device("1-10", manufacturer=words, product=words)
    driven = interface("1-11:1.0", "x", [node("ttyUSB0", "tty")])
    devices = (stick, STICK[1], usb_device("1-11", manufacturer=words, product=words), driven)
    spec = yaml.safe_load(report(snapshot(*devices), catalog, "node-a"))["spec"]
    assert spec == {"modules": None}


def test_the_short_way_to_the_unclaimed_report_says_the_same() -> None:
    name = DeviceName("usb-1-12-1-0")
    nodes = (DeviceNode(path="/dev/bus/usb/001/002", kind="usb", number=None),)
    attributes = {"driver": "cp210x", "vendor": "10c4", "product": "ea60"}
    held = {name: Offer(name=name, key=usb_key("1-12:1.0"), nodes=nodes, attributes=attributes)}
    devices = (
        GPU,
        *STICK,
        *cec_adapter("1-4"),
        *serial_stick("1-2"),
        usb_device("1-12", number=2),
        interface("1-12:1.0", "usbfs", modalias=STICK_ALIAS),
        interface("1-12:1.1", None, modalias=STICK_ALIAS),
    )
    serio = (SerioEntry(protocol=SerioProtocol.PULSE8_CEC, vendor="2548", product="1002"),)
    for rules in (Rules(), Rules(held=held), Rules(serio=serio)):
        found = snapshot(*devices, rules=rules)
        assert unclaimed_report(found, CATALOG) == unclaimed(found, CATALOG)
    assert len(unclaimed(snapshot(*devices), CATALOG)) == 4
