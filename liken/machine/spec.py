"""What a Machine asks for: its JSON read into plain values, leniently where admission has already been strict.

The server validates before it stores, but a CRD can be older than the daemon: what does not fit is left out, never
fatal.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from liken.model.api import Json
from liken.model.machine import SerioEntry, SerioProtocol

MODULE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
HEX4: Final = re.compile(r"[0-9a-f]{4}")
VALUE: Final = re.compile(r'[^\x00-\x1f\x7f"]*')
MODULES_LIMIT: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSpec:
    """The wishes of one Machine; `parameters` maps a module to its parameters, both names with `_` throughout."""

    modules: tuple[str, ...] = ()
    parameters: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    serio: tuple[SerioEntry, ...] = ()


def canonical(name: str) -> str:
    """A module's name as the kernel has it: `-` and `_` are one."""
    return name.replace("-", "_")


def machine_spec(item: Json | None) -> MachineSpec:
    """The spec of a Machine object; empty for None."""
    spec = (item or {}).get("spec")
    spec = spec if isinstance(spec, dict) else {}
    modules = [name for name in _list(spec.get("modules")) if isinstance(name, str) and MODULE.fullmatch(name)]
    unique = {canonical(name): name for name in reversed(modules[:MODULES_LIMIT])}
    return MachineSpec(
        modules=tuple(reversed(unique.values())),
        parameters=_parameters(spec.get("moduleParameters")),
        serio=tuple(_serio(_list(spec.get("serio")))),
    )


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _parameters(value: Any) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for key, text in (value if isinstance(value, dict) else {}).items():
        module, _, parameter = str(key).partition(".")
        named = MODULE.fullmatch(module) and MODULE.fullmatch(parameter)
        if named and isinstance(text, str) and VALUE.fullmatch(text):
            found.setdefault(canonical(module), {})[canonical(parameter)] = text
    return found


def _serio(entries: Iterable[Any]) -> Iterable[SerioEntry]:
    for entry in entries:
        usb = entry.get("usb") if isinstance(entry, dict) else None
        if not isinstance(usb, dict) or entry.get("protocol") not in {str(known) for known in SerioProtocol}:
            continue
        vendor, product, serial = usb.get("vendor"), usb.get("product"), usb.get("serial")
        if HEX4.fullmatch(str(vendor)) and HEX4.fullmatch(str(product)) and (serial is None or isinstance(serial, str)):
            protocol = SerioProtocol(entry["protocol"])
            yield SerioEntry(protocol=protocol, vendor=str(vendor), product=str(product), serial=serial)
