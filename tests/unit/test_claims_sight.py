from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from liken.claims.prepared import PreparedDevice, followed
from liken.claims.sight import Sight, driverless, enumeration, key_of, sight
from liken.model.hardware import Bus, BusAddress, DeviceFacts, DeviceKey, Inventory, Reason
from liken.model.offers import DeviceName, DeviceNode, Offer, Rules, Snapshot, Taint, Verdict
from liken.state.names import SUFFIXES, device_name
from liken.state.view import UNPLUGGED
from tests.unit.fakes_claims import gpu, sound, stick
from tests.unit.fakes_state import pci, pci_key, usb_device, usb_key

NAME = DeviceName("usb-1-4-1-0")
BUS_NODE = DeviceNode(path="/dev/bus/usb/001/007", kind="usb")
TTY = DeviceNode(path="/dev/ttyUSB0", kind="tty")
ADAPTER = Offer(
    name=NAME,
    key=usb_key("1-4:1.0"),
    nodes=(BUS_NODE, TTY),
    attributes={"vendor": "10c4", "product": "ea60", "name": "CP2102", "driver": "cp210x"},
)


def snapshot(*facts: DeviceFacts, offers: tuple[Offer, ...] = (), verdicts: tuple[Verdict, ...] = ()) -> Snapshot:
    return Snapshot(
        revision=1,
        complete=True,
        inventory=Inventory(devices={fact.key: fact for fact in facts}),
        rules=Rules(),
        offers={offer.name: offer for offer in offers},
        verdicts={verdict.key: verdict for verdict in verdicts},
    )


def verdict(reason: Reason | None, *, detail: str = "", advice: str = "") -> Verdict:
    return Verdict(key=ADAPTER.key, title="FT232 (0403:6001)", reason=reason, detail=detail, advice=advice)


def test_a_device_that_is_offered_is_seen_with_its_nodes() -> None:
    seen = sight(NAME, snapshot(*stick(), offers=(ADAPTER,)))
    assert seen == Sight(nodes=ADAPTER.nodes, offer=ADAPTER, enumeration="001/007")


@pytest.mark.parametrize(
    "offer",
    [
        replace(ADAPTER, nodes=()),
        replace(ADAPTER, taints=(UNPLUGGED,)),
        replace(ADAPTER, taints=(Taint(key="liken.sh/unplugged", value="", effect="NoExecute"),)),
    ],
)
def test_a_device_that_is_only_kept_in_the_slice_is_gone(offer: Offer) -> None:
    assert sight(NAME, snapshot(offers=(offer,))).nodes == ()


def test_another_taint_does_not_make_it_gone() -> None:
    tainted = replace(ADAPTER, taints=(Taint(key="example.com/x", value="", effect="NoSchedule"),))
    assert sight(NAME, snapshot(*stick(), offers=(tainted,))).nodes == ADAPTER.nodes


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (verdict(Reason.NO_DRIVER, advice="declare cp210x"), "its driver is gone (declare cp210x)"),
        (verdict(Reason.MACHINE_DEPENDS_ON_IT, detail="console"), "it is withheld now, MachineDependsOnIt (console)"),
        (verdict(None), "it is withheld now, NothingToDeliver"),
    ],
)
def test_what_stands_there_without_being_offered_says_why(found: Verdict, words: str) -> None:
    assert sight(NAME, snapshot(*stick(), verdicts=(found,))).why == words
    assert sight(NAME, snapshot(*stick())).why == "it is withheld now, NothingToDeliver"


def test_another_model_without_a_driver_is_told_by_its_name() -> None:
    other = stick(ids="0403:6001", driver=None)
    seen = sight(NAME, snapshot(*other, verdicts=(verdict(Reason.NO_DRIVER),)), ADAPTER)
    assert seen.why == "its address now holds another model, FT232 (0403:6001) instead of CP2102 (10c4:ea60)"
    assert "0403:6001" in sight(NAME, snapshot(*other), ADAPTER).why


def test_a_pci_device_of_another_model_is_told_too() -> None:
    known = replace(ADAPTER, name=DeviceName("pci-0000-00-02-0"), key=pci_key("0000:00:02.0"))
    assert "8086:46d2" in sight(known.name, snapshot(replace(gpu(), driver=None)), known).why


def test_a_strange_name_was_never_seen() -> None:
    for name in ("no-such-bus", "usb-1-x0123456789ab", ""):
        assert sight(DeviceName(name), snapshot(*stick())).why.startswith("no device was seen")


def test_a_place_that_cannot_be_identified_was_never_seen() -> None:
    nameless = DeviceFacts(key=usb_key("1-4"), path=stick()[0].path)
    assert sight(NAME, snapshot(nameless, stick()[1])).why.startswith("no device was seen")


def test_only_a_usb_interface_can_have_lost_its_driver_to_a_program() -> None:
    bare = snapshot(*stick(driver=None), replace(sound(), driver=None), usb_device("1-5", driver=""))
    assert driverless(ADAPTER.key, bare)
    assert not driverless(usb_key("1-5"), bare)
    assert not driverless(sound().key, bare)
    assert not driverless(usb_key("9-9:1.0"), bare)
    assert not driverless(ADAPTER.key, snapshot(*stick()))


def test_an_enumeration_is_that_of_the_usb_device_above() -> None:
    assert enumeration(ADAPTER.key, snapshot(*stick(number=12))) == "001/012"
    assert enumeration(ADAPTER.key, snapshot()) == ""
    assert enumeration(gpu().key, snapshot(gpu())) == ""
    odd = replace(stick()[0], files={"busnum": b"one", "devnum": b""})
    assert enumeration(ADAPTER.key, snapshot(odd)) == ""


@settings(max_examples=100, deadline=None)
@given(
    st.one_of(
        st.from_regex(r"[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]", fullmatch=True).map(pci_key),
        st.from_regex(r"[1-9]-[1-9](\.[1-9]){0,4}:[1-9]\.[0-9]{1,2}", fullmatch=True).map(usb_key),
    ),
    st.sampled_from(["", *SUFFIXES]),
)
def test_a_name_leads_back_to_the_address_it_was_made_from(key: DeviceKey, suffix: str) -> None:
    assert key_of(device_name(key, suffix)) == key


def test_a_usb_device_s_own_name_leads_nowhere() -> None:
    assert key_of(device_name(DeviceKey(Bus.USB, BusAddress("1-1")))) is None


def test_a_bus_node_alone_that_changes_is_a_replug_only_when_the_device_was_enumerated_anew() -> None:
    radio = replace(ADAPTER, nodes=(BUS_NODE,))
    held = PreparedDevice(
        name=NAME, pool="n", request="r", offer=radio, first=radio.nodes, nodes=radio.nodes, enumeration="001/007"
    )
    other = replace(radio, nodes=(DeviceNode(path="/dev/bus/usb/001/009", kind="usb"),))
    moved = followed(held, Sight(nodes=other.nodes, offer=other, enumeration="001/009"))
    assert moved.message == "replugged as bus/usb/001/009: restart the pod to receive it"
    unknown = replace(held, enumeration="")
    assert followed(unknown, Sight(nodes=other.nodes, offer=other)).message.startswith("its node is now")
    again = followed(moved, Sight(nodes=radio.nodes, offer=radio, enumeration="001/007"))
    assert again.message == "replugged as bus/usb/001/007: restart the pod to receive it"


def test_a_driver_of_another_kind_leaves_the_pod_nothing() -> None:
    printer = pci("0000:00:02.0", "other")
    held = PreparedDevice(name=NAME, pool="n", request="r", offer=ADAPTER, first=(TTY,), nodes=(TTY,))
    hidraw = DeviceNode(path="/dev/hidraw3", kind="hidraw")
    now = followed(held, Sight(nodes=(hidraw,), offer=replace(ADAPTER, nodes=(hidraw,), key=printer.key)))
    assert now.message == "its node is now hidraw3: restart the pod to receive it"
    later = followed(now, Sight(nodes=(TTY,), offer=ADAPTER))
    assert later.message == "its node is now ttyUSB0: restart the pod to receive it"
