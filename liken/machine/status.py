"""The status of a Machine: what was found and done, as the object's `status`, within a sensible size. Pure.

A condition's time moves only when its status does, so an unchanged machine gives an unchanged status and nothing is
written. The list of unclaimed hardware gets what the rest leaves of the size.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from liken.machine.matching import SerioReport, SerioState
from liken.machine.modules import ModuleReport, ModuleState
from liken.machine.spec import canonical
from liken.model.api import Json
from liken.state.unclaimed import Unclaimed

STATUS_BYTES: Final = 96 * 1024
"""What the whole status may take: less than the 100 KiB that are promised."""
MESSAGE_LENGTH: Final = 1024
ENTRY_MESSAGE_LENGTH: Final = 300
CANDIDATES: Final = 16
IN_EFFECT: Final = frozenset({ModuleState.LOADED, ModuleState.BUILTIN})


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One condition without its time."""

    type: str
    true: bool
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """Everything the status is made of.

    `loading`: declared modules whose first load has not ended; `parameters`: those that wait for a reboot or a module;
    `complete`: the first look at the hardware is over.
    """

    generation: int
    boot_id: str
    modules: tuple[ModuleReport, ...] = ()
    loading: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ()
    serio: tuple[SerioReport, ...] = ()
    unclaimed: tuple[Unclaimed, ...] = ()
    complete: bool = True


def status(found: Findings, previous: Json | None, now: str) -> Json:
    """The status object; `previous` is the stored one, `now` RFC 3339 in UTC."""
    declared = [report for report in found.modules if not report.removed]
    ready = sum(report.state in IN_EFFECT for report in declared)
    made: Json = {
        "observedGeneration": found.generation,
        "bootID": found.boot_id,
        "conditions": _timed(conditions(found), previous, found.generation, now),
        "modulesReady": f"{ready}/{len(declared) + len(found.loading)}",
        "modules": [_module(report) for report in found.modules],
        "serio": [_serio(report) for report in found.serio],
    }
    return made | {"hardware": _hardware(found.unclaimed, STATUS_BYTES - _size(made))}


def conditions(found: Findings) -> tuple[Condition, ...]:
    """The four conditions."""
    converged = _converged(found)
    return converged, _parameters(found), _attached(found.serio), _ready(found, converged)


def _converged(found: Findings) -> Condition:
    failed = [f"{report.name}: {report.message}" for report in found.modules if report.state not in IN_EFFECT]
    staged = [f"{report.name} stays loaded" for report in found.modules if report.removed]
    if failed:
        return _false("SpecConverged", "ModulesFailed", "; ".join(failed))
    if found.loading:
        return _false("SpecConverged", "Loading", f"loading {', '.join(found.loading)}")
    if staged or found.parameters:
        return _false(
            "SpecConverged", "RebootPending", f"waits for a reboot: {'; '.join((*staged, *found.parameters))}"
        )
    return Condition(type="SpecConverged", true=True, reason="Converged", message="the machine is as its spec asks")


def _parameters(found: Findings) -> Condition:
    if found.parameters:
        return _false("ModuleParametersApplied", "RebootPending", f"not in force: {'; '.join(found.parameters)}")
    return Condition(
        type="ModuleParametersApplied", true=True, reason="Applied", message="no parameter waits for a reboot"
    )


def _attached(reports: Sequence[SerioReport]) -> Condition:
    open_ends = [report for report in reports if report.state is not SerioState.ATTACHED]
    if open_ends:
        refused = any(report.state is SerioState.REFUSED for report in open_ends)
        message = "; ".join(f"{r.entry.vendor}:{r.entry.product}: {r.message}" for r in open_ends)
        return _false("SerioAttached", "Refused" if refused else "Missing", message)
    reason, message = ("Attached", "every entry is attached") if reports else ("NothingDeclared", "spec.serio is empty")
    return Condition(type="SerioAttached", true=True, reason=reason, message=message)


def _ready(found: Findings, converged: Condition) -> Condition:
    """Whether liken does what was asked here: serial adapters may be missing, what waits for a reboot works on."""
    if not found.complete:
        return _false("Ready", "Starting", "liken has not finished its first look at the hardware")
    if converged.reason in {"ModulesFailed", "Loading"}:
        return _false("Ready", converged.reason, converged.message)
    return Condition(type="Ready", true=True, reason="Ready", message="liken follows this machine's hardware and spec")


def _false(kind: str, reason: str, message: str) -> Condition:
    return Condition(type=kind, true=False, reason=reason, message=_short(message, MESSAGE_LENGTH))


def _short(message: str, limit: int) -> str:
    return message if len(message) <= limit else f"{message[: limit - 1]}…"


def _timed(found: Iterable[Condition], previous: Json | None, generation: int, now: str) -> list[Json]:
    stored = (previous or {}).get("conditions")
    before = {c.get("type"): c for c in stored if isinstance(c, dict)} if isinstance(stored, list) else {}
    made = []
    for condition in found:
        value = "True" if condition.true else "False"
        old = before.get(condition.type, {})
        same = old.get("status") == value and old.get("lastTransitionTime")
        made.append(
            {
                "type": condition.type,
                "status": value,
                "reason": condition.reason,
                "message": condition.message,
                "observedGeneration": generation,
                "lastTransitionTime": old["lastTransitionTime"] if same else now,
            }
        )
    return made


def _module(report: ModuleReport) -> Json:
    found: Json = {"name": report.name, "state": str(report.state)}
    if report.message:
        found["message"] = _short(report.message, MESSAGE_LENGTH)
    if report.parameters:
        found["parameters"] = dict(report.parameters)
    return found


def _serio(report: SerioReport) -> Json:
    entry = report.entry
    usb = {"vendor": entry.vendor, "product": entry.product} | ({"serial": entry.serial} if entry.serial else {})
    found: Json = {"protocol": str(entry.protocol), "usb": usb, "state": str(report.state)}
    message = _short(report.message, MESSAGE_LENGTH)
    return found | _present({"tty": report.tty, "port": report.port, "nodes": list(report.nodes), "message": message})


def entry(found: Unclaimed) -> Json:
    """One unclaimed device; absent, never empty."""
    known: Json = {"bus": str(found.bus), "address": found.address}
    optional = {
        "name": found.name,
        "class": found.class_,
        "modalias": found.modalias,
        "modules": list(found.modules[:CANDIDATES]),
        "message": _short(found.message, ENTRY_MESSAGE_LENGTH),
    }
    return known | _present(optional)


def _present(optional: Mapping[str, object]) -> Json:
    return {key: value for key, value in optional.items() if value}


def _hardware(found: Sequence[Unclaimed], limit: int) -> Json:
    """As many entries as fit, in order, and how many there are and are left out."""
    shown: list[Json] = []
    size = 0
    for unclaimed in found:
        made = entry(unclaimed)
        size += _size(made)
        if size > limit:
            break
        shown.append(made)
    hardware: Json = {"unclaimed": shown, "unclaimedCount": len(found)}
    left_out = len(found) - len(shown)
    return hardware | ({"unclaimedNotShown": left_out} if left_out else {})


def _size(made: object) -> int:
    return len(json.dumps(made, ensure_ascii=False).encode("utf-8", "replace")) + 2


def staged_removals(
    declared: Iterable[str], stored: Json | None, boot_id: str, loaded: Iterable[str], applied: Iterable[str] = ()
) -> tuple[str, ...]:
    """Modules that nobody declares any more and that are still loaded.

    Those that the stored status of this boot has as loaded, and `applied`, which this daemon loaded itself.
    """
    there = frozenset(loaded) - {canonical(name) for name in declared}
    same_boot = isinstance(stored, dict) and stored.get("bootID") == boot_id
    known = [name for name, state in listed(stored) if state == ModuleState.LOADED.value] if same_boot else []
    named = {canonical(name): name for name in (*applied, *known) if canonical(name) in there}
    return tuple(named.values())


def listed(stored: Json | None) -> tuple[tuple[str, object], ...]:
    """Name and state of each module in a stored status."""
    modules = (stored or {}).get("modules")
    found = [module for module in modules if isinstance(module, dict)] if isinstance(modules, list) else []
    return tuple((module["name"], module.get("state")) for module in found if isinstance(module.get("name"), str))
