"""Which serial lines the entries of `spec.serio` mean. Pure: entries and a snapshot in, lines and reports out.

Matching is by USB identity, never by a tty's name. An entry with a serial takes its adapter first, one without takes
what is left of its model. A line that the machine itself or a claim uses is not taken from them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from liken.model.hardware import Bus, DeviceFacts, DeviceKey, Reason
from liken.model.machine import SerioEntry, SerioProtocol
from liken.model.offers import Snapshot
from liken.state.graph import owner_key
from liken.state.names import natural
from liken.state.verdicts import attaches

LINE_DRIVER: Final = "cdc_acm"
DISCIPLINE: Final = "serport"
DRIVERS: Final = {SerioProtocol.PULSE8_CEC: "pulse8_cec", SerioProtocol.RAINSHADOW_CEC: "rainshadow_cec"}
"""The module that drives the port of each protocol."""

UNPLUGGED: Final = "the adapter is not plugged in"


class SerioState(StrEnum):
    """State of one attachment."""

    ATTACHED = "Attached"
    MISSING = "Missing"
    REFUSED = "Refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A serial line to attach; `unit` is new with each enumeration, so a replug makes another line."""

    adapter: DeviceKey
    interface: DeviceKey
    tty: str
    unit: bytes
    protocol: SerioProtocol


@dataclass(frozen=True, slots=True, kw_only=True)
class SerioReport:
    """One attachment for the status."""

    entry: SerioEntry
    state: SerioState
    message: str = ""
    tty: str = ""
    port: str = ""
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Matching:
    """The lines to attach, each with its entry, and what keeps other entries or adapters from having one."""

    lines: Mapping[Line, SerioEntry] = field(default_factory=dict)
    others: tuple[SerioReport, ...] = ()


def matching(
    entries: Sequence[SerioEntry], snapshot: Snapshot, held: Mapping[DeviceKey, SerioProtocol] | None = None
) -> Matching:
    """Give each adapter to one entry; `held` are adapters that are attached already, with the protocol in force."""
    adapters = _adapters(entries, snapshot) if entries else []
    lines: dict[Line, SerioEntry] = {}
    others: list[SerioReport] = []
    taken: set[DeviceKey] = set()
    for entry in sorted(entries, key=lambda entry: entry.serial is None):
        same = [facts for facts in adapters if attaches(entry, facts)]
        mine = [facts for facts in same if facts.key not in taken]
        taken |= {facts.key for facts in mine}
        for facts in mine:
            found = _line(entry, facts, snapshot, held or {})
            if isinstance(found, Line):
                lines[found] = entry
            else:
                others.append(found)
        if not mine:
            message = "every adapter of this identity serves another entry" if same else UNPLUGGED
            others.append(SerioReport(entry=entry, state=SerioState.MISSING, message=message))
    return Matching(lines=lines, others=tuple(others))


def needs(protocol: SerioProtocol, loaded: frozenset[str]) -> str:
    """What to declare so that a line of this protocol attaches: empty when every module is there."""
    missing = [module for module in (DISCIPLINE, DRIVERS[protocol]) if module not in loaded]
    if not missing:
        return ""
    verb = "is" if len(missing) == 1 else "are"
    names = " and ".join(missing)
    return f"{names} {verb} not loaded: declare {names} in spec.modules"


def _line(
    entry: SerioEntry, adapter: DeviceFacts, snapshot: Snapshot, held: Mapping[DeviceKey, SerioProtocol]
) -> Line | SerioReport:
    where = f"the adapter is plugged in at {adapter.key.address}"
    found = next(_ttys(adapter, snapshot), None)
    if found is None:
        message = f"{where} and has no serial line: {_no_line(adapter, snapshot)}"
        return SerioReport(entry=entry, state=SerioState.MISSING, message=message)
    interface, tty = found
    refusal = ""
    verdict = snapshot.verdicts.get(interface)
    protocol = held.get(adapter.key, entry.protocol)
    if protocol is not entry.protocol:
        refusal = f"its line is attached as {protocol} until liken restarts: restart liken on this node"
    elif adapter.key not in held and verdict is not None and verdict.reason is Reason.MACHINE_DEPENDS_ON_IT:
        refusal = f"the machine itself uses this line: {verdict.detail}"
    elif adapter.key not in held and _claimed(interface, snapshot):
        refusal = "a claim holds this line; it is attached when that claim ends"
    if refusal:
        return SerioReport(entry=entry, state=SerioState.REFUSED, message=refusal, tty=tty)
    unit = adapter.files.get("devnum", b"")
    return Line(adapter=adapter.key, interface=interface, tty=tty, unit=unit, protocol=entry.protocol)


def _ttys(adapter: DeviceFacts, snapshot: Snapshot) -> Iterator[tuple[DeviceKey, str]]:
    for facts in _interfaces(adapter, snapshot):
        yield from ((facts.key, node.name) for node in facts.nodes if node.kind == "tty")


def _no_line(adapter: DeviceFacts, snapshot: Snapshot) -> str:
    drivers = {facts.driver for facts in _interfaces(adapter, snapshot)} - {None, LINE_DRIVER}
    if drivers:
        return f"{', '.join(sorted(map(str, drivers)))} is bound to it instead of {LINE_DRIVER}"
    return f"declare {LINE_DRIVER} in spec.modules"


def _adapters(entries: Sequence[SerioEntry], snapshot: Snapshot) -> list[DeviceFacts]:
    found = (
        facts
        for key, facts in snapshot.inventory.devices.items()
        if key.bus is Bus.USB and ":" not in key.address and any(attaches(entry, facts) for entry in entries)
    )
    return sorted(found, key=lambda facts: natural(facts.key.address))


def _interfaces(adapter: DeviceFacts, snapshot: Snapshot) -> list[DeviceFacts]:
    prefix = f"{adapter.key.address}:"
    devices = snapshot.inventory.devices
    mine = [key for key in devices if key.address.startswith(prefix) and owner_key(key) == adapter.key]
    return [devices[key] for key in sorted(mine)]


def _claimed(interface: DeviceKey, snapshot: Snapshot) -> bool:
    """Whether a prepared claim has the line itself (not what a serio driver made of it)."""
    held = snapshot.rules.held.values()
    return any(offer.key == interface and any(node.kind == "tty" for node in offer.nodes) for offer in held)
