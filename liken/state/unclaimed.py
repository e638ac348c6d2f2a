"""The unclaimed report: hardware without a driver that a module of this machine could drive.

Pure: a snapshot and the module catalogue in, sorted entries out. An entry stands for something a person can do, so
a device that no module knows is not listed; where the catalogue cannot be read everything driverless is, and says
so. A CEC adapter whose serial line nobody attached is listed too: it has a driver, and two uses.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from liken.model.hardware import Bus, BusAddress, DeviceFacts, Reason
from liken.model.machine import SerioProtocol
from liken.model.offers import Snapshot
from liken.state.attributes import class_word, identity, text
from liken.state.graph import owner_key
from liken.state.names import natural
from liken.state.verdicts import attaches, detached

SERIO_ADAPTERS: Final = {
    ("2548", "1001"): SerioProtocol.PULSE8_CEC,
    ("2548", "1002"): SerioProtocol.PULSE8_CEC,
    ("04d8", "ff59"): SerioProtocol.RAINSHADOW_CEC,
}
"""USB-CEC adapters that show themselves as a serial line (Pulse-Eight, RainShadow), and their protocol."""


class Catalog(Protocol):
    """What the report asks of the module catalogue."""

    @property
    def problem(self) -> str | None:
        """Why the catalogue cannot be read; None: it can."""

    def candidates(self, modalias: str) -> tuple[str, ...]:
        """Loadable modules that fit, in the order the kernel build prefers."""

    def exists(self, name: str) -> bool:
        """Whether the module is on this machine."""

    def is_blacklisted(self, name: str) -> bool:
        """Whether modprobe keeps it from loading by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unclaimed:
    """One entry: what the hardware is, the modules that fit it, and what to do in one sentence."""

    bus: Bus
    address: BusAddress
    name: str
    class_: str | None
    modalias: str | None
    modules: tuple[str, ...]
    message: str


def unclaimed(snapshot: Snapshot, catalog: Catalog) -> tuple[Unclaimed, ...]:
    """Every entry once, sorted by bus and address."""
    found = (entry for facts in snapshot.inventory.devices.values() for entry in _entries(facts, snapshot, catalog))
    return tuple(sorted(found, key=lambda entry: (entry.bus, natural(entry.address))))


def _entries(facts: DeviceFacts, snapshot: Snapshot, catalog: Catalog) -> Iterator[Unclaimed]:
    verdict = snapshot.verdicts[facts.key]
    modalias = text(facts.files.get("modalias"))
    modules: tuple[str, ...] = ()
    message = ""
    serial_line = _serio(facts, snapshot)
    if verdict.reason is Reason.NO_DRIVER and facts.driver is None and not _held(facts, snapshot):
        modules = catalog.candidates(modalias) if modalias else ()
        if modules or catalog.problem:
            message = _message(modules, catalog)
    if serial_line and (message or facts.driver is not None):
        message = "; ".join(filter(None, (message, serial_line)))
    if message:
        yield Unclaimed(
            bus=facts.key.bus,
            address=facts.key.address,
            name=verdict.title,
            class_=class_word(facts),
            modalias=modalias,
            modules=modules,
            message=message,
        )


def _message(modules: tuple[str, ...], catalog: Catalog) -> str:
    if not modules:
        return f"no module can be named: {catalog.problem}"
    there = [module for module in modules if catalog.exists(module)]
    if not there:
        return f"{', '.join(modules)} would drive it, and none of them is on this machine: install the kernel's modules"
    first, *others = there
    parts = [f"declare {first} in spec.modules"]
    if others:
        parts.append(f"it may also be {', '.join(others)}")
    blacklisted = [module for module in there if catalog.is_blacklisted(module)]
    if blacklisted:
        parts.append(
            f"{', '.join(blacklisted)} is blacklisted on this machine, and declared by name it loads all the same"
        )
    return "; ".join(parts)


def _serio(facts: DeviceFacts, snapshot: Snapshot) -> str:
    """Both uses of a CEC adapter whose serial line no entry attaches; empty for anything else."""
    owner = snapshot.inventory.devices.get(owner_key(facts.key))
    if owner is None or ":" not in facts.key.address or facts.key.bus is Bus.PCI:
        return ""
    protocol = SERIO_ADAPTERS.get(identity(owner) or ("", ""))
    taken = any(attaches(entry, owner) for entry in snapshot.rules.serio)
    line = facts.driver is None or any(node.kind == "tty" for node in facts.nodes)
    if protocol is None or taken or not line or class_word(facts) == "cdc-data":
        return ""
    return (
        f"as it is, a claim receives its serial line; to use it as a CEC adapter, add it to spec.serio with protocol "
        f"{protocol}, and declare serport and {protocol.replace('-', '_')} in spec.modules"
    )


def _held(facts: DeviceFacts, snapshot: Snapshot) -> bool:
    """Whether a program in a claim's pod has the adapter: an interface of it is offered without a kernel driver."""
    owner = owner_key(facts.key)
    return any(
        detached(other) and snapshot.verdicts[other.key].offers
        for name in snapshot.rules.held
        if (offer := snapshot.offers.get(name)) and owner_key(offer.key) == owner
        if (other := snapshot.inventory.devices.get(offer.key))
    )
