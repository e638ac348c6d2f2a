"""Which module to load next, and what to say of each: pure decisions of the module controller.

In: the declared modules, the kernel's module tree, what `/sys/module` shows, and what was tried. Out: the next load, or
when to try again, and a state for every module that has one. What counts is what the kernel shows, never an exit code
alone: modprobe succeeds for a module that is built in, and a module can be loaded by somebody else.
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
    """State of one declared module; one whose first load has not ended has none yet."""

    LOADED = "Loaded"
    BUILTIN = "Builtin"
    MISSING = "Missing"
    FAILED = "Failed"


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
class Tried:
    """What this daemon did: failed loads by module, and the parameters that a load of its own put in force."""

    failed: Mapping[str, Attempt] = field(default_factory=dict)
    applied: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleReport:
    """One module for the status. `staged`: its parameters that wait for a reboot; `removed`: nobody declares it."""

    name: str
    state: ModuleState
    message: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)
    staged: tuple[str, ...] = ()
    removed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The next module to load, if any; else when to look again (monotonic seconds), if ever."""

    load: str | None = None
    again_at: float | None = None


def next_attempt(words: str, before: Attempt | None, now: float) -> Attempt:
    """The record of a failed load, with a growing wait: 5 s, 10 s, … at most five minutes."""
    count = before.count + 1 if before else 1
    wait = min(LAST_RETRY_S, FIRST_RETRY_S * 2 ** min(count - 1, 10))
    return Attempt(words=words, count=count, again_at=now + wait)


def plan(
    spec: MachineSpec, catalog: Catalog, seen: Mapping[str, Seen], failed: Mapping[str, Attempt], now: float
) -> Plan:
    """The first declared module that is not there, that this kernel has, and that is not waiting for its next try."""
    waits = []
    for name in spec.modules:
        key = canonical(name)
        if key in seen or catalog.is_builtin(name) or not catalog.exists(name):
            continue
        attempt = failed.get(key)
        if attempt is None or attempt.again_at <= now:
            return Plan(load=name)
        waits.append(attempt.again_at)
    return Plan(again_at=min(waits, default=None))


def reports(
    spec: MachineSpec, catalog: Catalog, seen: Mapping[str, Seen], tried: Tried, removed: Sequence[str] = ()
) -> tuple[ModuleReport, ...]:
    """A report for each declared module that has a state, in order, then for each removed one that is still loaded."""
    declared = (_report(name, spec, catalog, seen, tried) for name in spec.modules)
    message = "removed from spec.modules; it stays loaded until the next boot"
    gone = (ModuleReport(name=name, state=ModuleState.LOADED, message=message, removed=True) for name in removed)
    return (*filter(None, declared), *gone)


def loading(spec: MachineSpec, found: Sequence[ModuleReport]) -> tuple[str, ...]:
    """Declared modules without a state yet."""
    known = {report.name for report in found}
    return tuple(name for name in spec.modules if name not in known)


def _report(
    name: str, spec: MachineSpec, catalog: Catalog, seen: Mapping[str, Seen], tried: Tried
) -> ModuleReport | None:
    key = canonical(name)
    found = seen.get(key)
    if found is not None or catalog.is_builtin(name):
        found = found or Seen(builtin=True)
        return _in_effect(name, spec, found, tried, builtin=found.builtin or catalog.is_builtin(name))
    if not catalog.exists(name):
        return ModuleReport(name=name, state=ModuleState.MISSING, message=catalog.problem or _unknown(name, catalog))
    attempt = tried.failed.get(key)
    return ModuleReport(name=name, state=ModuleState.FAILED, message=attempt.words) if attempt else None


def _unknown(name: str, catalog: Catalog) -> str:
    nearest = catalog.nearest(name)
    hint = f"did you mean {nearest}?" if nearest else "check the spelling, or install the package that has it"
    return f"this kernel has no module of this name; {hint}"


def _in_effect(name: str, spec: MachineSpec, found: Seen, tried: Tried, *, builtin: bool) -> ModuleReport:
    """A module that is there: with the declared parameters as the kernel shows them, and those that wait."""
    wanted = spec.parameters.get(canonical(name), {})
    applied = tried.applied.get(canonical(name), {})
    shown = {key: found.parameters[key] for key in sorted(wanted.keys() | applied.keys()) if key in found.parameters}
    waiting = [
        f"{name}.{key}={value} (now {shown[key]})"
        for key, value in wanted.items()
        if key in shown and not same_value(value, shown[key])
    ]
    stays = [f"{name}.{key} was removed (now {shown[key]})" for key in applied if key in shown and key not in wanted]
    hidden = [key for key in wanted if key not in shown and key not in applied]
    staged = (*waiting, *stays)
    remedy = "built in, so only the kernel's command line sets" if builtin else "waits for a reboot"
    said = [f"{remedy}: {', '.join(staged)}"] if staged else []
    if hidden:
        said.append(f"the kernel does not show {', '.join(hidden)}: is it a parameter of {name}? (modinfo {name})")
    return ModuleReport(
        name=name,
        state=ModuleState.BUILTIN if builtin else ModuleState.LOADED,
        message="; ".join(said),
        parameters=shown,
        staged=staged,
    )


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
    waiting = [text for report in found for text in report.staged]
    orphans = [
        f"{module}.{parameter} (declare {module} in spec.modules)"
        for module, parameters in sorted(spec.parameters.items())
        if module not in declared
        for parameter in sorted(parameters)
    ]
    return (*waiting, *orphans)
