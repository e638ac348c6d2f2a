"""A bus address as a device name: a DNS label that follows the slot and depends on nothing but the address.

`<bus>-<address>`, lower case, every character outside `[a-z0-9]` replaced by `-`. That rewriting is injective only
on the addresses the two buses really give to what is published; every other address (a deep usb_device such as
`1-1.1.1`, which would meet the interface `1-1:1.1`) carries a digest of itself. So no device ever takes a name away
from another, whichever came first. A companion appends its suffix, for which every base name leaves room.
"""

import hashlib
import re
from typing import Final

from liken.model.hardware import Bus, BusAddress, DeviceKey
from liken.model.offers import DeviceName

DRIVER_NAME: Final = "liken.sh"
"""Name of the DRA driver, and the domain of its attributes."""

LABEL_LIMIT: Final = 63
"""Longest DNS label (RFC 1123), and so the longest device name."""

SUFFIXES: Final = ("display", "i2c-dev", "drm-dp-aux-dev", "cec", "input")
"""Everything a companion device's name may append, each after a dash."""

BASE_LIMIT: Final = LABEL_LIMIT - 1 - max(map(len, SUFFIXES))
DIGEST_DIGITS: Final = 12

_PLAIN: Final = {
    Bus.PCI: re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"),
    Bus.USB: re.compile(r"[0-9]+-[0-9]+(\.[0-9]+)*:[0-9]+\.[0-9]+|[0-9]+-[0-9]+(\.[0-9]+)?|usb[0-9]+"),
}
_OUTSIDE: Final = re.compile(r"[^a-z0-9]")
_DIGITS: Final = re.compile(r"([0-9]+)")


def device_name(key: DeviceKey, suffix: str = "") -> DeviceName:
    """Name of the device at an address, or of its companion when `suffix` is one of `SUFFIXES`."""
    base = f"{key.bus}-{_OUTSIDE.sub('-', key.address.lower())}"
    if len(base) > BASE_LIMIT or not _PLAIN[key.bus].fullmatch(key.address):
        digest = hashlib.sha256(key.address.encode("utf-8", "surrogatepass")).hexdigest()[:DIGEST_DIGITS]
        base = f"{base[: BASE_LIMIT - DIGEST_DIGITS - 2]}-x{digest}"
    return DeviceName(f"{base}-{suffix}" if suffix else base)


def gone_path(name: DeviceName) -> str:
    """A path below /dev that cannot exist and names the device: what a claim's file says of a device that is gone."""
    return f"/dev/liken-gone-{name}"


def natural(address: BusAddress) -> tuple[tuple[int, str], ...]:
    """Sort key by which port 2 comes before port 10; PCI addresses have a fixed width and sort as text."""
    if _PLAIN[Bus.PCI].fullmatch(address):
        return ((-1, address),)
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in _DIGITS.split(address) if part)
