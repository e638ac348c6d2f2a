"""What a person declares in a Machine that other packages must know: the serial attachments.

The whole resource (spec, status, conditions) belongs to `machine`; only what crosses to `state` stands here.
"""

from dataclasses import dataclass
from enum import StrEnum


class SerioProtocol(StrEnum):
    """Serio protocols liken can hold; the numbers are in `machine`."""

    PULSE8_CEC = "pulse8-cec"
    RAINSHADOW_CEC = "rainshadow-cec"


@dataclass(frozen=True, slots=True, kw_only=True)
class SerioEntry:
    """One `spec.serio` entry: a protocol and the USB identity of its adapter (four lower-case hex digits)."""

    protocol: SerioProtocol
    vendor: str
    product: str
    serial: str | None = None
