"""pci.ids and usb.ids: names found in the bytes, whatever the bytes are."""

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from liken.state.ids import IdsFiles

PCI = b"""# comment
0001  First
\t0002  Wrong Vendor
8086  Intel Corporation
\t46d2  Alder Lake-N [UHD Graphics]
\t\t8086 7270  A subsystem
\tbad0  \xff\xfe
ffff  Last
\t0001  Of The Last
C 03  Display controller
\t00  VGA compatible controller
"""
NAMES = IdsFiles(pci=PCI, usb=b"10c4  Silicon Labs\n\tea60  CP210x UART Bridge")


def test_vendors_and_models_are_found() -> None:
    assert (NAMES.pci_vendor("8086"), NAMES.pci_device("8086", "46d2")) == (
        "Intel Corporation",
        "Alder Lake-N [UHD Graphics]",
    )
    assert (NAMES.usb_vendor("10c4"), NAMES.usb_product("10c4", "ea60")) == ("Silicon Labs", "CP210x UART Bridge")
    assert (NAMES.pci_vendor("ffff"), NAMES.pci_device("ffff", "0001")) == ("Last", "Of The Last")


@pytest.mark.parametrize(
    ("vendor", "device"),
    [
        ("8086", "0002"),
        ("8086", "7270"),
        ("8086", "bad0"),
        ("1234", "0001"),
        ("ffff", "0000"),
        ("x", "y"),
        ("8086", ""),
    ],
)
def test_what_is_not_listed_or_no_text_has_no_name(vendor: str, device: str) -> None:
    assert NAMES.pci_device(vendor, device) is None


def test_without_files_nothing_is_listed(tmp_path: Path) -> None:
    assert IdsFiles.read(tmp_path).pci_vendor("8086") is None
    (tmp_path / "pci.ids").write_bytes(PCI)
    assert IdsFiles.read(tmp_path).pci_vendor("8086") == "Intel Corporation"


def test_the_distributions_files_are_found_where_they_are() -> None:
    assert IdsFiles.read().usb_vendor("zzzz") is None


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=400), st.from_regex(r"[0-9a-f]{4}", fullmatch=True))
def test_no_bytes_raise_and_every_name_can_be_shown(raw: bytes, number: str) -> None:
    names = IdsFiles(pci=raw, usb=number.encode() + b"  " + raw)
    for found in (names.pci_vendor(number), names.pci_device(number, number), names.usb_vendor(number)):
        assert found is None or not re.search(r"[\x00-\x1f]", found)
