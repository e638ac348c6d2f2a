"""`liken report`: a Machine manifest for the machine at hand, to edit and apply. It changes nothing.

What is bound already stands as a comment, so that a person sees what needs no module; under `spec.modules` there is one
commented line for each module that unclaimed hardware could use, in load order: what a module wants loaded before it
comes first.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from liken.machine.crd import API_VERSION, KIND
from liken.machine.spec import MODULE, MODULES_LIMIT, canonical
from liken.model.api import Json
from liken.model.offers import Snapshot
from liken.state.unclaimed import Unclaimed

TITLE_LENGTH: Final = 70


class Order(Protocol):
    """What is asked of the module catalogue."""

    @property
    def problem(self) -> str | None:
        """Why it cannot be read; None: it can."""

    def exists(self, name: str) -> bool:
        """Whether this kernel has the module."""

    def is_builtin(self, name: str) -> bool:
        """Whether it is part of the kernel image."""

    def softdeps(self, name: str) -> tuple[str, ...]:
        """Modules to load before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """One module and what it is for."""

    module: str
    purpose: str


def suggestions(found: Sequence[Unclaimed], order: Order) -> tuple[Suggestion, ...]:
    """Each module once, soft dependencies before what wants them, at most as many as a Machine may declare."""
    made: dict[str, Suggestion] = {}
    for entry in found:
        for module in entry.modules:
            _add(module, f"{entry.bus} {entry.address} {_line(entry.name)}", order, made, ())
    return tuple(made.values())[:MODULES_LIMIT]


def _add(module: str, purpose: str, order: Order, made: dict[str, Suggestion], above: tuple[str, ...]) -> None:
    key = canonical(module)
    loadable = MODULE.fullmatch(module) and order.exists(module) and not order.is_builtin(module)
    if key in made or key in above or not loadable:
        return
    for before in order.softdeps(module):
        _add(before, f"wanted by {module}", order, made, (*above, key))
    made[key] = Suggestion(module=module, purpose=purpose)


def report(snapshot: Snapshot, found: Sequence[Unclaimed], order: Order, *, name: str) -> str:
    """The manifest as YAML with comments; valid as it is, and with any of its commented lines uncommented."""
    lines = [
        "# A Machine for this node: uncomment the modules you want, then `kubectl apply -f` it.",
        f"apiVersion: {API_VERSION}",
        f"kind: {KIND}",
        "metadata:",
        f"  name: {name}",
        "spec:",
        *(f"  # bound: {line}" for line in _bound(snapshot)),
    ]
    offered = suggestions(found, order)
    if offered:
        lines += ["  modules:", *(f"  # - {each.module}  # {each.purpose}" for each in offered)]
    elif order.problem:
        lines += [f"  # no module can be named: {_line(order.problem, 400)}", "  modules: []"]
    else:
        lines += ["  # no hardware here lacks a driver that this kernel has", "  modules: []"]
    lines += [f"  # {line}" for line in _without(found, order)]
    return "\n".join(lines) + "\n"


def report_json(found: Sequence[Unclaimed], order: Order, *, name: str) -> Json:
    """The same for a program: the manifest, and the suggestions beside it."""
    return {
        "machine": {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}, "spec": {"modules": []}},
        "suggestions": [{"module": each.module, "purpose": each.purpose} for each in suggestions(found, order)],
    }


def _bound(snapshot: Snapshot) -> Iterator[str]:
    for key, verdict in sorted(snapshot.verdicts.items()):
        facts = snapshot.inventory.devices.get(key)
        if verdict.offers and facts is not None and facts.driver:
            yield f"{key.bus} {_line(key.address)} {_line(verdict.title)} ({_line(facts.driver)})"


def _without(found: Iterable[Unclaimed], order: Order) -> Iterator[str]:
    for entry in found:
        if not any(order.exists(module) for module in entry.modules):
            yield f"{entry.bus} {_line(entry.address)} {_line(entry.name)}: {_line(entry.message, 400)}"


def _line(text: str, limit: int = TITLE_LENGTH) -> str:
    """Text that cannot leave its comment: one line, printable."""
    return "".join(char if char.isprintable() else "?" for char in text)[:limit]
