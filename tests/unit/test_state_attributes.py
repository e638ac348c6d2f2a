"""Attributes: true, never empty, at most 64 bytes, and no byte from hardware takes down more than its own."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from liken.model.hardware import DevPath
from liken.model.offers import HardwareNames
from liken.state.attributes import attributes, class_word, cut, identity, serial, text, title
from tests.unit.fakes_state import NoNames, SomeNames, interface, pci, usb_device

BYTES = st.binary(max_size=200) | st.text(max_size=150).map(lambda value: value.encode("utf-8", "surrogatepass"))


@settings(max_examples=100, deadline=None)
@given(BYTES)
def test_whatever_a_file_holds_its_text_can_be_shown_or_is_absent(raw: bytes) -> None:
    found = text(raw)
    assert found is None or (found and found == found.strip() and not any(ord(char) < 32 for char in found))


@settings(max_examples=100, deadline=None)
@given(st.text())
def test_a_cut_value_is_a_beginning_of_at_most_64_bytes_without_a_blank_at_its_end(value: str) -> None:
    value = value.encode("utf-8", "ignore").decode()
    found = cut(value)
    assert len(found.encode()) <= 64
    assert value.startswith(found)
    assert found == found.rstrip()


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"0001\n", "0001"),
        (b"  12 34 \n", "12 34"),
        (b"ABC\0\0\0\n", "ABC"),
        (b"A\0B\n", None),
        (b"\xc2\xa0padded\xc2\xa0\n", "padded"),
        (b"\xe2\x80\xaeevil\n", None),
        (b"two\xe2\x80\xa8lines\n", None),
        ("\ufdd0".encode(), None),
        ("\U0001fffe".encode(), None),
        ("\U0001f600 \u00e9".encode(), "\U0001f600 \u00e9"),
        (b"", None),
        (None, None),
    ],
)
def test_text_is_stripped_once_and_dropped_whole_when_part_of_it_cannot_be_shown(raw: bytes, expected: str) -> None:
    assert text(raw) == expected


@pytest.mark.parametrize(
    ("files", "names", "expected"),
    [
        ({"manufacturer": b"Acme\n", "product": b"Bridge\n"}, SomeNames(), "Acme Bridge"),
        ({"manufacturer": b"\x1b[2J\n", "product": b"Bridge\n"}, SomeNames(), "Bridge"),
        ({"manufacturer": b"Acme\n"}, SomeNames(), "Acme"),
        ({}, SomeNames(), "Silicon Labs CP210x UART Bridge"),
        ({"idProduct": b"ea61\n"}, SomeNames(), "Silicon Labs device ea61"),
        ({}, NoNames(), "10c4:ea60"),
        ({"idVendor": b""}, NoNames(), None),
    ],
)
def test_a_usb_device_has_its_own_name_else_the_ids_files_name_else_its_numbers(
    files: dict[str, bytes], names: HardwareNames, expected: str | None
) -> None:
    device = usb_device("1-4")
    assert title(replace(device, files={**device.files, **files}), names) == expected


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ("8086:46d2", "Alder Lake-N [UHD Graphics]"),
        ("8086:0001", "Intel Corporation device 0001"),
        ("ffff:0001", "ffff:0001"),
    ],
)
def test_a_pci_device_has_the_ids_files_name_else_its_vendors_else_its_numbers(ids: str, expected: str) -> None:
    assert title(pci("0000:00:02.0", ids=ids), SomeNames()) == expected


def test_an_interface_says_its_own_class_and_the_identity_of_the_device_above() -> None:
    owner = usb_device("1-4", ids="046D:0A44", serial=b"{7F3A}\n")
    found = attributes(interface("1-4:1.0", "snd-usb-audio", code="01"), owner, NoNames())
    assert found == {
        "address": "1-4:1.0",
        "bus": "usb",
        "class": "audio",
        "classCode": "01",
        "driver": "snd-usb-audio",
        "name": "046d:0a44",
        "product": "0a44",
        "resource.kubernetes.io/pcieRoot": "pci0000:00",
        "serial": "{7F3A}",
        "vendor": "046d",
    }


def test_a_domain_of_more_than_four_digits_has_no_bus_id_and_the_root_of_its_real_path() -> None:
    drive = pci("10001:84:00.0", path="/devices/pci0000:6f/0000:6f:00.5/pci10001:80/10001:80:07.0/10001:84:00.0")
    found = attributes(drive, drive, NoNames())
    assert "resource.kubernetes.io/pciBusID" not in found
    assert found["resource.kubernetes.io/pcieRoot"] == "pci0000:6f"


@pytest.mark.parametrize(
    ("path", "code", "expected"),
    [
        ("/devices/pci0000:00/0000:00:02.0", "030000", None),
        ("/devices/pci0000:00/0000:00:02.0", "010802", "pci0000:00"),
        ("/devices/pci0000:00/0000:00:1c.0/0000:00:02.0", "030000", "pci0000:00"),
        ("/devices/pci0001:00/0000:00:02.0", "030000", "pci0001:00"),
        ("/devices/platform/0000:00:02.0", "030000", None),
    ],
)
def test_only_the_graphics_of_the_processor_itself_have_no_root(path: str, code: str, expected: str | None) -> None:
    device = pci("0000:00:02.0", path=path, code=code)
    assert attributes(device, device, NoNames()).get("resource.kubernetes.io/pcieRoot") == expected


def test_a_class_without_a_word_has_only_its_code() -> None:
    device = pci("0000:02:00.0", code="ff0000")
    found = attributes(device, device, NoNames())
    assert ("class" in found, found["classCode"]) == (False, "ff0000")


def test_files_that_say_nothing_sensible_leave_their_attributes_out() -> None:
    device = replace(pci("0000:02:00.0", "x\x1b[2J"), files={"vendor": b"0x80\n", "class": b"\xff", "modalias": b"\n"})
    assert identity(device) is None
    assert class_word(device) is None
    assert attributes(replace(device, path=DevPath("/devices/x")), device, NoNames()) == {
        "address": "0000:02:00.0",
        "bus": "pci",
        "resource.kubernetes.io/pciBusID": "0000:02:00.0",
    }


def test_a_pci_serial_is_published_where_the_kernel_shows_one() -> None:
    assert serial(pci("0000:02:00.0", serial_number=b"00-11-22\n")) == "00-11-22"


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.sampled_from(["serial", "product", "manufacturer", "idVendor", "modalias"]), BYTES), BYTES)
def test_hostile_files_still_give_values_the_api_accepts(files: dict[str, bytes], driver: bytes) -> None:
    owner = replace(usb_device("1-4"), files={**usb_device("1-4").files, **files})
    facts = replace(interface("1-4:1.0"), driver=driver.decode("utf-8", "surrogateescape"), files=files)
    for value in attributes(facts, owner, NoNames()).values():
        assert isinstance(value, str)
        assert 0 < len(value.encode()) <= 64
