"""Names: labels that follow the slot, unique for any two addresses, and made from the address alone."""

import re

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from liken.model.hardware import Bus, BusAddress, DeviceKey
from liken.state.names import LABEL_LIMIT, SUFFIXES, device_name, gone_path, natural
from tests.unit.fakes_state import name, pci_key, usb_key

LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
PORTS = st.lists(st.integers(1, 15), min_size=1, max_size=6).map(lambda ports: ".".join(map(str, ports)))
USB_DEVICES = st.builds("{}-{}".format, st.integers(1, 127), PORTS)
INTERFACES = st.builds("{}:{}.{}".format, USB_DEVICES, st.integers(0, 8), st.integers(0, 31))
ROOTS = st.builds("usb{}".format, st.integers(1, 99))
PCI = st.builds(
    "{:04x}:{:02x}:{:02x}.{}".format,
    st.integers(0, 0xFFFFFF),
    st.integers(0, 255),
    st.integers(0, 31),
    st.integers(0, 7),
)
ANYTHING = st.text(st.characters(exclude_categories=[]), max_size=80)
ALIKE = st.text(st.sampled_from("01-.:xaA"), max_size=12)
KEYS = st.one_of(
    st.builds(
        lambda address: DeviceKey(Bus.USB, BusAddress(address)), USB_DEVICES | INTERFACES | ROOTS | ANYTHING | ALIKE
    ),
    st.builds(lambda address: DeviceKey(Bus.PCI, BusAddress(address)), PCI | ANYTHING | ALIKE),
)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (pci_key("0000:00:02.0"), "pci-0000-00-02-0"),
        (pci_key("10001:80:05.0"), "pci-10001-80-05-0"),
        (pci_key("5d0505:01:00.0"), "pci-5d0505-01-00-0"),
        (usb_key("2-1:1.0"), "usb-2-1-1-0"),
        (usb_key("1-1:1.1"), "usb-1-1-1-1"),
        (usb_key("3-1.2.3.4.2.12:1.0"), "usb-3-1-2-3-4-2-12-1-0"),
        (usb_key("2-1"), "usb-2-1"),
        (usb_key("usb1"), "usb-usb1"),
    ],
)
def test_a_name_is_the_bus_and_the_address(key: DeviceKey, expected: str) -> None:
    assert device_name(key) == expected


def test_a_device_deep_in_the_hubs_never_takes_the_name_of_an_interface() -> None:
    assert device_name(usb_key("1-1.1.1")) != device_name(usb_key("1-1:1.1")) == "usb-1-1-1-1"


@settings(max_examples=100, deadline=None)
@given(st.lists(KEYS, min_size=2, max_size=12, unique=True))
def test_any_two_addresses_have_two_names_with_every_suffix(keys: list[DeviceKey]) -> None:
    names = [device_name(key, suffix) for key in keys for suffix in ("", *SUFFIXES)]
    assert len(set(names)) == len(names)


@settings(max_examples=100, deadline=None)
@given(KEYS, st.sampled_from(("", *SUFFIXES)))
def test_every_name_is_a_label(key: DeviceKey, suffix: str) -> None:
    found = device_name(key, suffix)
    assert LABEL.fullmatch(found)
    assert len(found) <= LABEL_LIMIT


@settings(max_examples=100, deadline=None)
@given(INTERFACES, INTERFACES)
def test_interfaces_keep_plain_names_and_never_share_one(one: str, other: str) -> None:
    assume(one != other)
    plain = [f"usb-{re.sub('[^0-9]', '-', address)}" for address in (one, other)]
    assert [device_name(usb_key(address)) for address in (one, other)] == plain
    assert plain[0] != plain[1]


def test_port_two_comes_before_port_ten() -> None:
    ports = [BusAddress(port) for port in ("1-10:1.0", "1-2:1.0", "1-2.1:1.0", "usb1", "1-2")]
    assert sorted(ports, key=natural) == ["usb1", "1-2", "1-2.1:1.0", "1-2:1.0", "1-10:1.0"]
    slots = [BusAddress(slot) for slot in ("0000:0a:00.0", "0000:09:00.0", "0000:10:00.0")]
    assert sorted(slots, key=natural) == ["0000:09:00.0", "0000:0a:00.0", "0000:10:00.0"]


def test_the_path_of_what_is_gone_names_the_device() -> None:
    assert gone_path(name("usb-2-1-1-0")) == "/dev/liken-gone-usb-2-1-1-0"
