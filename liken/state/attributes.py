"""Attributes of a device in the driver's own domain, from the raw bytes of its sysfs files.

In: facts of the device, for a USB interface also of the usb_device above it, and the ids files. Out: a mapping in
which everything is true of the hardware: what is unknown, empty or false is absent. Bytes from hardware are hostile:
a value with anything that cannot be shown as text is dropped whole, never repaired, because a repaired serial is a
serial no hardware has; and the API's limit of 64 bytes is met on a character boundary, else it refuses the slice.
"""

import re
import unicodedata
from typing import Final

from liken.model.hardware import Bus, DeviceFacts
from liken.model.offers import HardwareNames

VALUE_LIMIT_BYTES: Final = 64
"""Longest string value of an attribute in `resource.k8s.io/v1`."""

PCI_BUS_ID: Final = "resource.kubernetes.io/pciBusID"
PCIE_ROOT: Final = "resource.kubernetes.io/pcieRoot"
SUPPORTS_SOUND: Final = "sound.liken.sh/supportsSound"

PCI_CLASSES: Final = {
    "01": "storage",
    "02": "network",
    "03": "display",
    "04": "multimedia",
    "05": "memory",
    "06": "bridge",
    "07": "communication",
    "08": "system",
    "09": "input",
    "0a": "docking",
    "0b": "processor",
    "0c": "serial-bus",
    "0d": "wireless",
    "0e": "intelligent",
    "0f": "satellite",
    "10": "encryption",
    "11": "signal-processing",
    "12": "accelerator",
}
USB_CLASSES: Final = {
    "01": "audio",
    "02": "communications",
    "03": "hid",
    "05": "physical",
    "06": "imaging",
    "07": "printer",
    "08": "mass-storage",
    "09": "hub",
    "0a": "cdc-data",
    "0b": "smart-card",
    "0d": "content-security",
    "0e": "video",
    "0f": "healthcare",
    "10": "audio-video",
    "11": "billboard",
    "dc": "diagnostic",
    "e0": "wireless",
    "ef": "miscellaneous",
    "fe": "application",
    "ff": "vendor-specific",
}

_BLANK: Final = b" \t\n\v\f\r\0"
_BIDI: Final = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_NONCHARACTERS: Final = range(0xFDD0, 0xFDF0)
_PLANE_END: Final = 0xFFFE
_CONTROL: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})
_HEX4: Final = re.compile(r"(?:0x)?([0-9a-fA-F]{4})")
_HEX6: Final = re.compile(r"(?:0x)?([0-9a-fA-F]{6})")
_HEX2: Final = re.compile(r"([0-9a-fA-F]{2})")
_BUS_ID: Final = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_ROOT: Final = re.compile(r"pci[0-9a-f]+:[0-9a-f]{2}")
_FIRST_ROOT_BUS: Final = re.compile(r"/devices/pci0000:00/[^/]+")


def text(raw: bytes | None) -> str | None:
    """The bytes of a file as text without white space and NULs at its ends; None when nothing showable is there."""
    try:
        value = (raw or b"").strip(_BLANK).decode()
    except UnicodeDecodeError:
        return None
    plain = value.isascii() and value.isprintable()
    return (value.strip() or None) if plain or all(map(_showable, value)) else None


def _showable(char: str) -> bool:
    noncharacter = ord(char) in _NONCHARACTERS or ord(char) & _PLANE_END == _PLANE_END
    return not (noncharacter or char in _BIDI or unicodedata.category(char) in _CONTROL)


def plain(value: str) -> str | None:
    """A name from sysfs, which keeps undecodable bytes as surrogates, as text; None when it cannot be shown."""
    return text(value.encode("utf-8", "surrogateescape"))


def shown(value: str) -> str:
    """A name or path for a sentence: itself when it can be shown, else with escapes."""
    return value if plain(value) == value else ascii(value)


def cut(value: str) -> str:
    """The text cut to what an attribute may hold, on a character boundary and without a blank at its end."""
    if len(value) <= VALUE_LIMIT_BYTES and value.isascii():
        return value.rstrip()
    return value.encode()[:VALUE_LIMIT_BYTES].decode(errors="ignore").rstrip()


def identity(facts: DeviceFacts) -> tuple[str, str] | None:
    """Vendor and product of a PCI device or a usb_device: four lower-case hex digits each; None: not readable."""
    vendor, product = ("vendor", "device") if facts.key.bus is Bus.PCI else ("idVendor", "idProduct")
    found = _matched(_HEX4, facts, vendor), _matched(_HEX4, facts, product)
    return (found[0], found[1]) if found[0] and found[1] else None


def class_code(facts: DeviceFacts) -> str | None:
    """What the bus says of the class: six lower-case hex digits on PCI, two of a USB interface."""
    if facts.key.bus is Bus.PCI:
        return _matched(_HEX6, facts, "class")
    return _matched(_HEX2, facts, "bInterfaceClass")


def class_word(facts: DeviceFacts) -> str | None:
    """The class in one word; None for a class without a word here."""
    code = class_code(facts) or ""
    return (PCI_CLASSES if facts.key.bus is Bus.PCI else USB_CLASSES).get(code[:2])


def serial(owner: DeviceFacts) -> str | None:
    """The hardware's own serial number, whole: of the usb_device, or of a PCI device whose kernel shows one."""
    return text(owner.files.get("serial_number" if owner.key.bus is Bus.PCI else "serial"))


def title(owner: DeviceFacts, names: HardwareNames) -> str | None:
    """The device's name for a person, not cut: its own strings (USB), else the ids files, else `vvvv:pppp`."""
    if owner.key.bus is Bus.USB:
        own = [value for file in ("manufacturer", "product") if (value := text(owner.files.get(file)))]
        if own:
            return " ".join(own)
    known = identity(owner)
    if known is None:
        return None
    vendor, product = known
    if owner.key.bus is Bus.PCI:
        model, maker = names.pci_device(vendor, product), names.pci_vendor(vendor)
    else:
        model, maker = names.usb_product(vendor, product), names.usb_vendor(vendor)
    if maker is None:
        return f"{vendor}:{product}"
    if model is None:
        return f"{maker} device {product}"
    return model if owner.key.bus is Bus.PCI else f"{maker} {model}"


def attributes(facts: DeviceFacts, owner: DeviceFacts, names: HardwareNames) -> dict[str, str | bool]:
    """What every device of one physical device says alike; `owner` is the usb_device above an interface, else itself.

    Keys and values as `resource.k8s.io/v1` takes them, values of at most 64 bytes.
    """
    vendor, product = identity(owner) or (None, None)
    found = {
        "bus": str(facts.key.bus),
        "address": plain(facts.key.address),
        "driver": plain(facts.driver or ""),
        "class": class_word(facts),
        "classCode": class_code(facts),
        "name": title(owner, names),
        "modalias": text(facts.files.get("modalias")),
        "serial": serial(owner),
        "vendor": vendor,
        "product": product,
        PCI_BUS_ID: _bus_id(facts),
        PCIE_ROOT: _pcie_root(facts),
    }
    return {key: cut(value) for key, value in found.items() if value}


def _bus_id(facts: DeviceFacts) -> str | None:
    address = facts.key.address.lower()
    return address if facts.key.bus is Bus.PCI and _BUS_ID.fullmatch(address) else None


def _pcie_root(facts: DeviceFacts) -> str | None:
    """First `pciDDDD:BB` of the real path; none for graphics that sit on the first root bus itself, as in the guide.

    Those are part of the processor: they are below no port, so nothing is nearer to them than anything else.
    """
    if _FIRST_ROOT_BUS.fullmatch(facts.path) and class_word(facts) == "display":
        return None
    return next((part for part in facts.path.split("/") if _ROOT.fullmatch(part)), None)


def _matched(pattern: re.Pattern[str], facts: DeviceFacts, file: str) -> str | None:
    found = pattern.fullmatch(text(facts.files.get(file)) or "")
    return found[1].lower() if found else None
