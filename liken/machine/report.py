"""`liken report`: a Machine manifest for the machine at hand, to edit and apply. Pure; it changes nothing.

What is bound already stands as comments, so that a person sees what needs no module; under `spec.modules` there is one
commented line for each module that unclaimed hardware could use, in load order: what a module wants loaded before it
comes first. Text from hardware stands in comments alone, on one line, printable.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from liken.machine import hardware
from liken.machine.crd import API_VERSION, KIND
from liken.machine.spec import MODULE, MODULES_LIMIT, canonical
from liken.model.api import Json
from liken.model.offers import Snapshot
from liken.state.names import natural
from liken.state.unclaimed import Catalog, Unclaimed

TITLE_LENGTH: Final = 70
DEVICES_NAMED: Final = 3
REPORT: Final = "liken.sh/report"
"""The annotation that carries the suggestions where a manifest has no comments (JSON)."""


class Order(Catalog, Protocol):
    """What is asked of the module catalogue besides candidates."""

    def is_builtin(self, name: str) -> bool:
        """Whether it is part of the kernel image."""

    def softdeps(self, name: str) -> tuple[str, ...]:
        """Modules to load before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """One module and what it is for."""

    module: str
    purpose: str


def suggestions(found: Sequence[Unclaimed], catalog: Order) -> tuple[Suggestion, ...]:
    """Each module once with the devices it drives, soft dependencies before what wants them."""
    order: dict[str, str] = {}
    devices: dict[str, list[str]] = {}
    for entry in found:
        for module in entry.modules:
            _add(module, "", catalog, order, ())
            devices.setdefault(canonical(module), []).append(f"{entry.bus} {_line(entry.address)} {_line(entry.name)}")
    return tuple(
        Suggestion(module=module, purpose=_named(devices[module]) if module in devices else f"wanted by {wanted_by}")
        for module, wanted_by in order.items()
    )


def _add(module: str, wanted_by: str, catalog: Order, order: dict[str, str], above: tuple[str, ...]) -> None:
    key = canonical(module)
    loadable = MODULE.fullmatch(module) and catalog.exists(module) and not catalog.is_builtin(module)
    if key in order or key in above or not loadable:
        return
    for before in catalog.softdeps(module):
        _add(before, key, catalog, order, (*above, key))
    order[key] = wanted_by


def _named(devices: Sequence[str]) -> str:
    more = len(devices) - DEVICES_NAMED
    return "; ".join((*devices[:DEVICES_NAMED], *([f"and {more} more"] if more > 0 else [])))


def report(snapshot: Snapshot, catalog: Order, name: str) -> str:
    """The manifest as YAML with comments; valid as it is, and with any of its commented modules uncommented."""
    found = hardware.report(snapshot, catalog)
    offered = suggestions(found, catalog)
    bound = list(_bound(snapshot))
    lines = [
        "# A Machine for this node. Uncomment the modules you want, then: kubectl apply -f FILE",
        f"apiVersion: {API_VERSION}",
        f"kind: {KIND}",
        "metadata:",
        f"  name: {json.dumps(name)}",
        "spec:",
        "  # Bound already, nothing to declare:" if bound else "  # No device here is offered yet.",
        *(f"  #   {line}" for line in bound),
        "  modules:",
        *(f"    # - {each.module}  # {each.purpose}" for each in offered),
    ]
    if not offered:
        why = f"no module can be named: {_line(catalog.problem, 400)}" if catalog.problem else "no hardware needs one"
        lines.append(f"    # {why}")
    if len(offered) > MODULES_LIMIT:
        lines.append(f"    # (a Machine declares at most {MODULES_LIMIT} of these)")
    others = list(_others(found, catalog))
    if others:
        lines += ["  # Besides:", *(f"  #   {line}" for line in others)]
    return "\n".join(lines) + "\n"


def report_json(snapshot: Snapshot, catalog: Order, name: str) -> Json:
    """The manifest as an object; the suggestions stand in an annotation, one a line."""
    offered = suggestions(hardware.report(snapshot, catalog), catalog)
    metadata: Json = {"name": name}
    if offered:
        metadata["annotations"] = {REPORT: "\n".join(f"{each.module}: {each.purpose}" for each in offered)}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": {"modules": []}}


def _bound(snapshot: Snapshot) -> Iterator[str]:
    for key, verdict in sorted(snapshot.verdicts.items(), key=lambda item: (item[0].bus, natural(item[0].address))):
        facts = snapshot.inventory.devices.get(key)
        if verdict.offers and facts is not None and facts.driver:
            yield f"{key.bus} {_line(key.address)} {_line(verdict.title)} ({_line(facts.driver)})"


def _others(found: Sequence[Unclaimed], catalog: Order) -> Iterator[str]:
    """Entries whose way out is no module of this kernel: what they are, and what to do."""
    for entry in found:
        if not any(catalog.exists(module) for module in entry.modules):
            yield f"{entry.bus} {_line(entry.address)} {_line(entry.name)}: {_line(entry.message, 400)}"


def _line(text: str | None, limit: int = TITLE_LENGTH) -> str:
    """Text that cannot leave its comment: one line, printable."""
    return "".join(char if char.isprintable() else "?" for char in text or "")[:limit]
