"""Device numbers as the kernel writes them, and `uevent` files: the two formats every reader of sysfs needs."""

from typing import Final

from liken.model.hardware import DevNumber

_DIGITS: Final = 7
"""A minor has 20 bits, a major 12: anything longer is no device number."""


def properties(uevent: bytes) -> dict[bytes, bytes]:
    """The KEY=value lines of a `uevent` file."""
    return dict(line.split(b"=", 1) for line in uevent.split(b"\n") if b"=" in line)


def dev_number(content: bytes) -> DevNumber | None:
    """The numbers of a `dev` file (`188:0`); None when it holds anything else."""
    major, _, minor = content.strip().partition(b":")
    return numbers(major, minor)


def numbers(major: bytes, minor: bytes) -> DevNumber | None:
    """A device number from its two decimal halves; None when they are none."""
    if not (major.isdigit() and minor.isdigit() and len(major) <= _DIGITS and len(minor) <= _DIGITS):
        return None
    return DevNumber(int(major), int(minor))
