"""Which module to load next, and what to say of each: pure decisions of the module controller.

In: the declared modules, the kernel's module tree, what `/sys/module` shows, and what was tried. Out: the next load, or
when to try again, and a state for every module. What counts is what the kernel shows, never an exit code alone:
modprobe succeeds for a module that is built in, and a module can be loaded by somebody else.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

from liken.machine.spec import MachineSpec, canonical

FIRST_RETRY_S: Final = 5.0
LAST_RETRY_S: Final = 300.0
TRUE: Final = frozenset({"y", "1", "yes", "true", "on"})
FALSE: Final = frozenset({"n", "0", "no", "false", "off"})


class ModuleState(StrEnum):
    """State of one declared module."""

    LOADED = "Loaded"
    BUILTIN = "Builtin"
    MISSING = "Missing"
    FAILED = "Failed"
    LOADING = "Loading"


class Catalog(Protocol):
    """What is asked of the kernel's module tree."""

    @property
    def problem(self) -> str | None:
        """Why the tree cannot be read, with the remedy; None: it can."""

    def exists(self, name: str) -> bool:
        """Whether this kernel has the module."""

    def is_builtin(self, name: str) -> bool:
        """Whether it is part of the kernel image."""

    def nearest(self, name: str) -> str | None:
        """The known name most like this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A module as `/sys/module` shows it: `builtin` when it has no init state; readable parameters as text."""

    builtin: bool = False
    parameters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A load that did not bring the module: its words, how many in a row, and when to try again (monotonic seconds)."""

    words: str
    count: int
    again_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleReport:
    """One declared (or staged) module for the status."""

    name: str
    state: ModuleState
    message: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)
    staged: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The next module to load, if any; else when to look again (monotonic seconds), if ever."""

    load: str | None = None
    again_at: float | None = None


def next_attempt(words: str, before: Attempt | None, now: float) -> Attempt:
    """The record of a failed load, with a growing wait: 5 s, 10 s, … at most five minutes."""
    count = before.count + 1 if before else 1
    wait = min(LAST_RETRY_S, FIRST_RETRY_S * 2 ** (count - 1))
    return Attempt(words=words, count=count, again_at=now + wait)


def plan(
    spec: MachineSpec, catalog: Catalog, seen: Mapping[str, Seen], tried: Mapping[str, Attempt], now: float
) -> Plan:
    """The first declared module that is not there, that this kernel has, and that is not waiting for its next try."""
    waits = []
    for name in spec.modules:
        key = canonical(name)
        if key in seen or catalog.problem or catalog.is_builtin(name) or not catalog.exists(name):
            continue
        attempt = tried.get(key)
        if attempt is None or attempt.again_at <= now:
            return Plan(load=name)
        waits.append(attempt.again_at)
    return Plan(again_at=min(waits, default=None))


def reports(
    spec: MachineSpec,
    catalog: Catalog,
    seen: Mapping[str, Seen],
    tried: Mapping[str, Attempt],
    staged: Sequence[str] = (),
) -> tuple[ModuleReport, ...]:
    """A report for each declared module in order, then for each removed one that is loaded until the next boot."""
    declared = [_report(name, spec, catalog, seen, tried) for name in spec.modules]
    removed = [
        ModuleReport(
            name=name,
            state=ModuleState.LOADED,
            message="removed from spec.modules; it stays loaded until the next boot",
            staged=(f"{name} stays loaded",),
        )
        for name in staged
    ]
    return (*declared, *removed)


def _report(
    name: str, spec: MachineSpec, catalog: Catalog, seen: Mapping[str, Seen], tried: Mapping[str, Attempt]
) -> ModuleReport:
    key = canonical(name)
    found = seen.get(key)
    if found is not None or (catalog.is_builtin(name) and not catalog.problem):
        found = found or Seen(builtin=True)
        state = ModuleState.BUILTIN if found.builtin or catalog.is_builtin(name) else ModuleState.LOADED
        wanted = spec.parameters.get(key, {})
        shown = {parameter: found.parameters[parameter] for parameter in wanted if parameter in found.parameters}
        waiting = tuple(
            f"{name}.{parameter}={value} (now {shown[parameter]})"
            for parameter, value in wanted.items()
            if parameter in shown and not same_value(value, shown[parameter])
        )
        message = f"waits for a reboot: {', '.join(waiting)}" if waiting else ""
        return ModuleReport(name=name, state=state, message=message, parameters=shown, staged=waiting)
    if catalog.problem:
        return ModuleReport(name=name, state=ModuleState.FAILED, message=catalog.problem)
    if not catalog.exists(name):
        nearest = catalog.nearest(name)
        hint = f"; did you mean {nearest}?" if nearest else "; check the spelling, or install the package that has it"
        return ModuleReport(
            name=name, state=ModuleState.MISSING, message=f"this kernel has no module of this name{hint}"
        )
    attempt = tried.get(key)
    if attempt is None:
        return ModuleReport(name=name, state=ModuleState.LOADING)
    return ModuleReport(name=name, state=ModuleState.FAILED, message=attempt.words)


def same_value(wanted: str, shown: str) -> bool:
    """Whether a declared parameter is what the kernel shows, which writes flags as Y and N and numbers its own way."""
    wanted, shown = wanted.strip(), shown.strip()
    if wanted == shown:
        return True
    for words in (TRUE, FALSE):
        if wanted.lower() in words and shown.lower() in words:
            return True
    try:
        return int(wanted, 0) == int(shown, 0)
    except ValueError:
        return False


def staged_parameters(spec: MachineSpec, found: Sequence[ModuleReport]) -> tuple[str, ...]:
    """Every parameter that waits: for a reboot, or for a module that nobody declared."""
    declared = {canonical(name) for name in spec.modules}
    waiting = [text for report in found if canonical(report.name) in declared for text in report.staged]
    orphans = [
        f"{module}.{parameter} (declare {module} in spec.modules)"
        for module, parameters in spec.parameters.items()
        if module not in declared
        for parameter in parameters
    ]
    return (*waiting, *orphans)
