"""Verdicts: each reason of the vocabulary when it is due, and what siblings do to each other."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from liken.model.hardware import (
    DeviceFacts,
    DeviceKey,
    DevNumber,
    DevPath,
    Inventory,
    NodeFact,
    Problem,
    Reason,
    SystemFacts,
)
from liken.model.machine import SerioEntry, SerioProtocol
from liken.model.offers import DeviceName, Offer, Rules, Verdict
from liken.state.view import view
from tests.unit.fakes_state import (
    NoNames,
    interface,
    inventory,
    name,
    node,
    paths,
    pci,
    pci_key,
    serial_stick,
    usb_device,
    usb_key,
)

PULSE8 = SerioEntry(protocol=SerioProtocol.PULSE8_CEC, vendor="2548", product="1002")
STICK = name("usb-2-1-1-0")


def judged(
    *devices: DeviceFacts, system: SystemFacts | None = None, rules: Rules | None = None
) -> tuple[dict[str, list[str]], dict[str, Verdict]]:
    """Nodes of each offer, and verdicts by address."""
    offers, verdicts = view(inventory(*devices, system=system), rules or Rules(), NoNames())
    return {found: paths(offer) for found, offer in offers.items()}, {
        str(key.address): verdict for key, verdict in verdicts.items()
    }


def offered(*devices: DeviceFacts) -> Offer:
    offers, _ = view(inventory(*devices), Rules(), NoNames())
    (offer,) = offers.values()
    return offer


@pytest.mark.parametrize(
    ("device", "reason", "words"),
    [
        (pci("0000:00:1f.0"), Reason.NO_DRIVER, "no driver is bound"),
        (pci("0000:00:1c.0", "pcieport", code="060400"), Reason.BUS_STRUCTURE, "PCI bridge"),
        (pci("0000:00:1c.0", "shpchp", code="060400"), Reason.BUS_STRUCTURE, "PCI bridge"),
        (pci("0000:00:14.0", "xhci_hcd", code="0c0330"), Reason.NOTHING_TO_DELIVER, "offered by itself"),
        (pci("0000:02:00.0", "e1000e", code="020000"), Reason.NOTHING_TO_DELIVER, "network interface"),
        (pci("0000:02:00.0", "mei_me", code="078000"), Reason.NOTHING_TO_DELIVER, "mei_me made no /dev node"),
        (pci("0000:02:00.0", "vfio-pci"), Reason.NOTHING_TO_DELIVER, "outside the device"),
        (pci("0000:02:00.0", "nvidia"), Reason.NOTHING_TO_DELIVER, "/dev/nvidia*"),
        (pci("0000:02:00.0", "x", [node("../etc/passwd", "misc")]), Reason.UNREADABLE, "leaves /dev"),
        (pci("0000:02:00.0", "x", [node("bad\udcff", "misc")]), Reason.UNREADABLE, "no text"),
        (usb_device("1-4"), Reason.BUS_STRUCTURE, "it has none"),
        (usb_device("1-4", authorized=b"0\n"), Reason.BUS_STRUCTURE, "not authorised"),
        (usb_device("1-4", bConfigurationValue=b""), Reason.BUS_STRUCTURE, "not configured"),
    ],
)
def test_what_is_withheld_has_its_reason_and_says_why(device: DeviceFacts, reason: Reason, words: str) -> None:
    offers, verdicts = judged(device)
    verdict = verdicts[device.key.address]
    assert not offers
    assert verdict.reason is reason
    assert words in verdict.detail


@pytest.mark.parametrize(
    ("facts", "reason", "words"),
    [
        (interface("1-4:1.0", None), Reason.NO_DRIVER, "no driver is bound"),
        (interface("1-4:1.0", None, authorized=b"0\n"), Reason.NO_DRIVER, "not authorised"),
        (interface("1-4:1.0", "usbfs"), Reason.NO_DRIVER, "through usbfs"),
        (interface("1-4:1.0", "hub", code="09"), Reason.BUS_STRUCTURE, "USB hub"),
        (interface("1-4:1.0", "cdc_ether", code="02"), Reason.NOTHING_TO_DELIVER, "cdc_ether made no /dev node"),
    ],
)
def test_an_interface_is_withheld_with_its_reason(facts: DeviceFacts, reason: Reason, words: str) -> None:
    offers, verdicts = judged(usb_device("1-4"), facts)
    assert not offers
    assert verdicts["1-4:1.0"].reason is reason
    assert words in verdicts["1-4:1.0"].detail
    assert verdicts["1-4"].detail.endswith("1-4:1.0")


def test_the_advice_for_what_is_not_authorised_names_the_file() -> None:
    _, verdicts = judged(usb_device("1-3", authorized=b"0\n"), pci("0000:00:02.0", "x", [node("a", "b")]))
    assert "/sys/bus/usb/devices/1-3/authorized" in verdicts["1-3"].advice
    assert not verdicts["0000:00:02.0"].advice


def test_every_reason_has_its_advice() -> None:
    system = SystemFacts(mounts={DevNumber(8, 0): "/"})
    serio = Rules(serio=(replace(PULSE8, vendor="10c4", product="ea60"),))
    problems = [
        replace(pci(f"0000:0{index}:00.0"), problem=Problem(reason=reason, detail="x"))
        for index, reason in enumerate((Reason.VANISHED, Reason.UNREADABLE))
    ]
    radio = [interface(f"1-7:1.{index}", "btusb", hci=index == 0) for index in (0, 1)]
    others = [
        pci("0000:03:00.0"),
        pci("0000:04:00.0", "vfio-pci"),
        pci("0000:05:00.0", "nvidia"),
        pci("0000:06:00.0", "e1000e", code="020000"),
        pci("0000:07:00.0", "nvme", [node("sda", "block", "8:0")]),
        interface("1-9:1.0", "usbfs"),
        interface("1-9:1.1", authorized=b"0\n"),
    ]
    _, verdicts = judged(
        *problems, *others, *serial_stick("1-4"), usb_device("1-7", ids="8087:0026"), usb_device("1-9"), *radio,
        system=system, rules=serio,
    )  # fmt: skip
    silent = {verdict.reason for verdict in verdicts.values() if not verdict.advice}
    assert {verdict.reason for verdict in verdicts.values()} == {None, *Reason}
    assert silent == {None, Reason.BUS_STRUCTURE}


def test_the_vendor_driver_is_published_with_a_word_about_cuda() -> None:
    card = pci("0000:0a:00.0", "nvidia", [node("dri/renderD129", "drm"), node("dri/card1", "drm")])
    offers, verdicts = judged(card)
    assert offers == {"pci-0000-0a-00-0": ["/dev/dri/renderD129"], "pci-0000-0a-00-0-display": ["/dev/dri/card1"]}
    assert "/dev/nvidia*" in verdicts["0000:0a:00.0"].detail
    assert "NVIDIA" in verdicts["0000:0a:00.0"].advice


def test_an_interface_whose_device_is_missing_or_sick_is_withheld_with_it() -> None:
    tty = interface("1-4:1.0", "cp210x", [node("ttyUSB0", "tty")])
    _, verdicts = judged(tty)
    assert verdicts["1-4:1.0"].reason is Reason.VANISHED
    sick = replace(usb_device("1-4"), problem=Problem(reason=Reason.UNREADABLE, detail="serial: no answer in 5 s"))
    offers, verdicts = judged(sick, tty)
    assert not offers
    assert verdicts["1-4:1.0"].reason is Reason.UNREADABLE
    assert "serial: no answer in 5 s" in verdicts["1-4:1.0"].detail


def test_a_sound_card_on_usb_leaves_the_node_of_the_whole_device_to_its_siblings() -> None:
    offers, verdicts = judged(
        usb_device("1-9", number=8),
        interface("1-9:1.0", "snd-usb-audio", [node("snd/controlC1", "sound")], code="01"),
        interface("1-9:1.2", "usbhid", [node("hidraw3", "hidraw")], code="03"),
    )
    assert offers == {
        "usb-1-9-1-0": ["/dev/snd/controlC1"],
        "usb-1-9-1-2": ["/dev/bus/usb/001/008", "/dev/hidraw3"],
    }
    assert "stays away" in verdicts["1-9:1.0"].detail


@pytest.mark.parametrize(("hci", "owner"), [((True, False), "0"), ((False, True), "1"), ((False, False), "0")])
def test_one_radio_on_two_interfaces_is_one_device(hci: tuple[bool, bool], owner: str) -> None:
    offers, verdicts = judged(
        usb_device("1-7", number=3),
        *(interface(f"1-7:1.{index}", "btusb", code="e0", hci=found) for index, found in enumerate(hci)),
    )
    assert offers == {f"usb-1-7-1-{owner}": ["/dev/bus/usb/001/003"]}
    assert [verdict.reason for verdict in verdicts.values()].count(Reason.SECONDARY_INTERFACE) == 1


def test_uhid_is_delivered_with_the_adapter_while_its_module_is_loaded() -> None:
    adapter = (usb_device("1-7", number=3), interface("1-7:1.0", "btusb", hci=True))
    offers, _ = judged(*adapter, system=SystemFacts(uhid=True))
    assert offers == {"usb-1-7-1-0": ["/dev/bus/usb/001/003", "/dev/uhid"]}
    assert "subsystem" not in offered(*adapter).attributes


def test_an_adapter_whose_usb_node_cannot_be_named_delivers_nothing() -> None:
    offers, verdicts = judged(usb_device("1-7", busnum=b""), interface("1-7:1.0", "btusb"))
    assert not offers
    assert verdicts["1-7:1.0"].reason is Reason.NOTHING_TO_DELIVER
    assert "busnum" in verdicts["1-7:1.0"].detail


@pytest.mark.parametrize(
    ("system", "words"),
    [
        (SystemFacts(mounts={DevNumber(253, 1): "/"}), "nvme0n1p3 -> dm-0 -> dm-1 is mounted on /"),
        (SystemFacts(swaps={DevNumber(253, 0): "/dev/dm-0"}), "nvme0n1p3 -> dm-0 is in use as swap (/dev/dm-0)"),
        (SystemFacts(sources={"/dev/nvme0n1p1": "/boot"}), "nvme0n1p1 is mounted on /boot"),
        (SystemFacts(), "nvme0n1p3 is held by dm-0, dm-1"),
    ],
)
def test_a_disk_the_machine_runs_from_is_withheld_with_the_whole_chain(system: SystemFacts, words: str) -> None:
    disk = pci(
        "0000:02:00.0",
        "nvme",
        [
            node("nvme0", "nvme", "241:0"),
            node("nvme0n1", "block"),
            node("nvme0n1p1", "block", "259:1"),
            node("nvme0n1p3", "block", "259:3", [("dm-0", "253:0"), ("dm-1", "253:1")]),
        ],
    )
    _, verdicts = judged(disk, system=system)
    assert verdicts["0000:02:00.0"].reason is Reason.MACHINE_DEPENDS_ON_IT
    assert verdicts["0000:02:00.0"].detail == words


def test_a_controller_whose_multipath_disk_is_mounted_is_withheld_and_one_whose_disk_is_idle_is_not() -> None:
    def controller(address: str, head: str, number: str) -> DeviceFacts:
        return pci(address, "nvme", [node(head.removesuffix("n1"), "nvme", "241:0", [(head, number)])])

    offers, verdicts = judged(
        controller("0000:02:00.0", "nvme0n1", "259:0"),
        controller("0000:03:00.0", "nvme1n1", "259:1"),
        system=SystemFacts(mounts={DevNumber(259, 0): "/"}),
    )
    assert list(offers) == ["pci-0000-03-00-0"]
    assert verdicts["0000:02:00.0"].detail == "nvme0 -> nvme0n1 is mounted on /"


def test_a_console_takes_the_usb_node_from_its_siblings() -> None:
    offers, verdicts = judged(
        usb_device("1-2"),
        interface("1-2:1.0", "ftdi_sio", [node("ttyUSB0", "tty")]),
        interface("1-2:1.1", "ftdi_sio", [node("ttyUSB1", "tty")]),
        interface("1-2:1.2", "btusb", hci=True),
        system=SystemFacts(consoles=frozenset({"tty0", "ttyUSB0"})),
    )
    assert offers == {"usb-1-2-1-1": ["/dev/ttyUSB1"]}
    assert verdicts["1-2:1.0"].detail == "ttyUSB0 is an active kernel console"
    assert "a reset through that node" in verdicts["1-2:1.1"].detail
    assert "a reset through that node" in verdicts["1-2:1.2"].detail


def cec_adapter(*nodes: NodeFact) -> tuple[DeviceFacts, ...]:
    return (
        usb_device("1-6", ids="2548:1002", number=5, serial=b"A1\n"),
        interface("1-6:1.0", "cdc_acm", [node("ttyACM0", "tty"), *nodes], code="02"),
        interface("1-6:1.1", "cdc_acm", code="0a"),
        interface("1-6:1.2", "usbhid", [node("hidraw0", "hidraw")], code="03"),
    )


@pytest.mark.parametrize("entry", [PULSE8, replace(PULSE8, serial="A1")])
def test_an_attached_line_offers_its_cec_and_input_and_no_usb_node_anywhere(entry: SerioEntry) -> None:
    rules = Rules(serio=(entry,))
    offers, verdicts = judged(*cec_adapter(), rules=rules)
    assert offers == {"usb-1-6-1-2": ["/dev/hidraw0"]}
    assert verdicts["1-6:1.0"].reason is Reason.HELD_SERIAL_LINE
    assert "/dev/ttyACM0" in verdicts["1-6:1.0"].detail
    made = (node("cec0", "cec"), node("input/event7", "input"), node("lirc0", "lirc"))
    offers, verdicts = judged(*cec_adapter(*made), rules=rules)
    assert offers == {
        "usb-1-6-1-0-cec": ["/dev/cec0"],
        "usb-1-6-1-0-input": ["/dev/input/event7"],
        "usb-1-6-1-2": ["/dev/hidraw0"],
    }
    assert "end the attachment" in verdicts["1-6:1.2"].detail


@pytest.mark.parametrize("entry", [replace(PULSE8, product="1003"), replace(PULSE8, serial="A2")])
def test_an_entry_for_another_adapter_leaves_the_line_alone(entry: SerioEntry) -> None:
    offers, _ = judged(*cec_adapter(), rules=Rules(serio=(entry,)))
    assert offers["usb-1-6-1-0"] == ["/dev/bus/usb/001/005", "/dev/ttyACM0"]


def held(*devices: DeviceFacts) -> Rules:
    offers, _ = view(inventory(*devices), Rules(), NoNames())
    return Rules(held=offers)


@pytest.mark.parametrize("driver", [None, "usbfs"])
def test_a_held_adapter_that_libusb_took_stays_as_it_was_with_the_usb_node_alone(driver: str | None) -> None:
    before = serial_stick("2-1", number=7)
    now = before[0], replace(before[1], driver=driver, nodes=())
    offers, verdicts = view(inventory(*now), held(*before), NoNames())
    assert paths(offers[STICK]) == ["/dev/bus/usb/001/007"]
    assert offers[STICK].attributes["driver"] == "cp210x"
    assert verdicts[now[1].key].reason is None
    assert "libusb" in verdicts[now[1].key].detail
    assert judged(*now)[1]["2-1:1.0"].reason is Reason.NO_DRIVER


@pytest.mark.parametrize(
    "owner",
    [usb_device("2-1", ids="0403:6001"), usb_device("2-1", serial=b"other\n"), usb_device("2-1", devnum=b"")],
)
def test_another_unit_in_the_port_does_not_inherit_the_hold(owner: DeviceFacts) -> None:
    _, tty = serial_stick("2-1")
    offers, _ = view(inventory(owner, replace(tty, driver=None, nodes=())), held(*serial_stick("2-1")), NoNames())
    assert not offers


def test_a_held_sound_card_whose_driver_is_gone_is_not_kept_because_its_claim_has_no_usb_node() -> None:
    card = usb_device("1-9"), interface("1-9:1.0", "snd-usb-audio", [node("snd/controlC1", "sound")])
    offers, _ = view(inventory(card[0], replace(card[1], driver=None, nodes=())), held(*card), NoNames())
    assert not offers


def test_a_detached_radio_does_not_hand_its_adapter_to_the_second_interface() -> None:
    adapter = usb_device("1-7"), *(interface(f"1-7:1.{index}", "btusb", hci=index == 0) for index in (0, 1))
    now = adapter[0], replace(adapter[1], driver="usbfs", hci=False), adapter[2]
    offers, verdicts = view(inventory(*now), held(*adapter), NoNames())
    assert list(offers) == ["usb-1-7-1-0"]
    assert verdicts[usb_key("1-7:1.1")].reason is Reason.SECONDARY_INTERFACE


def test_a_held_device_that_vanished_stays_with_a_taint_where_that_is_asked_for() -> None:
    rules = held(*serial_stick("2-1"))
    assert view(Inventory(), rules, NoNames())[0] == {}
    offers, _ = view(Inventory(), replace(rules, taint_gone=True), NoNames())
    (taint,) = offers[STICK].taints
    assert (taint.key, taint.effect, offers[STICK].nodes) == ("liken.sh/unplugged", "NoExecute", ())
    vanished = replace(serial_stick("2-1")[1], problem=Problem(reason=Reason.VANISHED, detail="gone"))
    assert STICK in view(inventory(vanished), replace(rules, taint_gone=True), NoNames())[0]


def test_a_held_device_that_returned_or_lost_its_driver_has_no_taint() -> None:
    rules = replace(held(*serial_stick("2-1"), pci("0000:05:00.0", "x", [node("x0", "misc")])), taint_gone=True)
    offers, _ = view(inventory(*serial_stick("2-1"), pci("0000:05:00.0")), rules, NoNames())
    assert [(found, offer.taints) for found, offer in offers.items()] == [(STICK, ())]


KINDS = st.sampled_from(["tty", "block", "sound", "input", "drm", "hidraw", None])
NODES = st.lists(st.builds(lambda kind, index: node(f"{kind}{index}", kind), KINDS, st.integers(0, 3)), max_size=3)
DRIVERS = st.sampled_from([None, "usbfs", "btusb", "hub", "cdc_acm", "pcieport", "nvidia", "vfio-pci"])


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["1-1", "1-1.1", "2-1"]), st.integers(0, 3), DRIVERS, NODES), max_size=8),
    st.lists(st.tuples(st.integers(0, 9), DRIVERS, NODES, st.sampled_from(["030000", "060400", "ff0000"])), max_size=5),
)
def test_every_entry_is_published_or_has_one_reason_and_no_exclusive_node_is_delivered_twice(
    interfaces: list[tuple[str, int, str | None, list[NodeFact]]],
    functions: list[tuple[int, str | None, list[NodeFact], str]],
) -> None:
    devices: dict[DeviceKey, DeviceFacts] = {usb_key(port): usb_device(port) for port in ("1-1", "1-1.1")}
    for port, index, driver, nodes in interfaces:
        facts = interface(f"{port}:1.{index}", driver, [unique(item, f"{port}-{index}") for item in nodes])
        devices[facts.key] = facts
    for slot, driver, nodes, code in functions:
        facts = pci(f"0000:0{slot}:00.0", driver, [unique(item, f"p{slot}") for item in nodes], code=code)
        devices[facts.key] = facts
    offers, verdicts = view(Inventory(devices=devices), Rules(), NoNames())
    assert verdicts.keys() == devices.keys()
    for verdict in verdicts.values():
        assert (verdict.reason is None) == bool(verdict.offers)
        assert verdict.detail
    assert sorted(offers) == sorted(found for verdict in verdicts.values() for found in verdict.offers)
    delivered = [item.path for offer in offers.values() for item in offer.nodes if item.kind != "usb"]
    assert len(delivered) == len(set(delivered))
    assert all(offer.nodes for offer in offers.values())


def unique(item: NodeFact, where: str) -> NodeFact:
    return replace(item, name=f"{item.name}-{where}", path=DevPath(f"{item.path}-{where}"))


def test_names_of_offers_follow_the_slot() -> None:
    assert offered(pci("0000:05:00.0", "x", [node("x0", "misc")])).key == pci_key("0000:05:00.0")
    assert DeviceName("pci-0000-05-00-0") == offered(pci("0000:05:00.0", "x", [node("x0", "misc")])).name


def test_names_that_are_no_text_reach_neither_attributes_nor_a_sentence_raw() -> None:
    odd = "bad\udcff\x1b[2J"
    devices = (
        pci(odd, "x", [node("x0", odd)]),
        usb_device(odd, idVendor=b""),
        interface(f"{odd}:1.0", odd, [node("sda", "block", "8:0")]),
        interface(f"{odd}:1.1", None),
        interface(f"{odd}:1.2", odd),
    )
    system = SystemFacts(mounts={DevNumber(8, 0): f"/mnt/{odd}"})
    offers, verdicts = view(inventory(*devices, system=system), Rules(), NoNames())
    (offer,) = offers.values()
    assert offer.attributes.keys() & {"address", "subsystem"} == set()
    for verdict in verdicts.values():
        for sentence in (verdict.title, verdict.detail, verdict.advice):
            assert sentence.isprintable()
