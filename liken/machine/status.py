"""The status of a Machine: what was found and done, as the object's `status`, within a sensible size. Pure.

A condition's time moves only when its status does, so an unchanged machine gives an unchanged status and nothing is
written.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from liken.machine.modules import ModuleReport, ModuleState
from liken.machine.serio import SerioReport, SerioState
from liken.model.api import Json
from liken.state.unclaimed import Unclaimed

UNCLAIMED_BYTES: Final = 88 * 1024
"""What the list of unclaimed hardware may take of a status that stays below 100 KiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One condition without its time."""

    type: str
    true: bool
    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """Everything the status is made of; `removed` are modules that stay loaded until the next boot."""

    generation: int
    boot_id: str
    modules: tuple[ModuleReport, ...]
    removed: tuple[str, ...]
    parameters: tuple[str, ...]
    serio: tuple[SerioReport, ...]
    unclaimed: tuple[Unclaimed, ...]
    complete: bool


def status(found: Findings, previous: Json | None, now: str) -> Json:
    """The status object; `previous` is the stored one, `now` RFC 3339 in UTC."""
    shown, left_out = _shown(found.unclaimed)
    declared = [report for report in found.modules if report.name not in found.removed]
    ready = sum(report.state in {ModuleState.LOADED, ModuleState.BUILTIN} for report in declared)
    hardware: Json = {"unclaimed": shown, "unclaimedCount": len(found.unclaimed)}
    if left_out:
        hardware["unclaimedNotShown"] = left_out
    return {
        "observedGeneration": found.generation,
        "bootID": found.boot_id,
        "conditions": _timed(conditions(found), previous, found.generation, now),
        "modulesReady": f"{ready}/{len(declared)}",
        "modules": [_module(report) for report in found.modules],
        "serio": [_serio(report) for report in found.serio],
        "hardware": hardware,
    }


def conditions(found: Findings) -> tuple[Condition, ...]:
    """The four conditions."""
    return _converged(found), _parameters(found), _attached(found.serio), _ready(found)


def _converged(found: Findings) -> Condition:
    failed = [r for r in found.modules if r.state in {ModuleState.FAILED, ModuleState.MISSING}]
    loading = [report.name for report in found.modules if report.state is ModuleState.LOADING]
    if failed:
        message = "; ".join(f"{report.name}: {report.message}" for report in failed)
        return Condition(type="SpecConverged", true=False, reason="ModulesFailed", message=_short(message))
    if loading:
        return Condition(type="SpecConverged", true=False, reason="Loading", message=f"loading {', '.join(loading)}")
    staged = [*(f"{name} stays loaded" for name in found.removed), *found.parameters]
    if staged:
        message = f"waits for a reboot: {'; '.join(staged)}"
        return Condition(type="SpecConverged", true=False, reason="RebootPending", message=_short(message))
    return Condition(type="SpecConverged", true=True, reason="Converged")


def _parameters(found: Findings) -> Condition:
    if found.parameters:
        message = _short("; ".join(found.parameters))
        return Condition(type="ModuleParametersApplied", true=False, reason="RebootPending", message=message)
    return Condition(type="ModuleParametersApplied", true=True, reason="Applied")


def _attached(reports: Sequence[SerioReport]) -> Condition:
    open_ends = [report for report in reports if report.state is not SerioState.ATTACHED]
    if not open_ends:
        return Condition(type="SerioAttached", true=True, reason="Attached" if reports else "NothingDeclared")
    refused = any(report.state is SerioState.REFUSED for report in open_ends)
    message = "; ".join(f"{r.entry.vendor}:{r.entry.product}: {r.message}" for r in open_ends)
    return Condition(
        type="SerioAttached", true=False, reason="Refused" if refused else "Missing", message=_short(message)
    )


def _ready(found: Findings) -> Condition:
    if found.complete:
        return Condition(type="Ready", true=True, reason="Following")
    message = "liken has not finished its first look at the hardware"
    return Condition(type="Ready", true=False, reason="Starting", message=message)


def _short(message: str, limit: int = 1024) -> str:
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
        found["message"] = report.message
    if report.parameters:
        found["parameters"] = dict(report.parameters)
    return found


def _serio(report: SerioReport) -> Json:
    entry = report.entry
    usb = {"vendor": entry.vendor, "product": entry.product} | ({"serial": entry.serial} if entry.serial else {})
    found: Json = {"protocol": str(entry.protocol), "usb": usb, "state": str(report.state)}
    optional = {"tty": report.tty, "port": report.port, "nodes": list(report.nodes), "message": report.message}
    return found | {key: value for key, value in optional.items() if value}


def entry(found: Unclaimed) -> Json:
    """One unclaimed device; absent, never empty."""
    known: Json = {"bus": str(found.bus), "address": found.address}
    optional = {
        "name": found.name,
        "class": found.class_,
        "modalias": found.modalias,
        "modules": list(found.modules),
        "message": found.message,
    }
    return known | {key: value for key, value in optional.items() if value}


def _shown(found: Sequence[Unclaimed]) -> tuple[list[Json], int]:
    """As many entries as fit, in order, and how many are left out."""
    shown: list[Json] = []
    size = 0
    for unclaimed in found:
        made = entry(unclaimed)
        size += len(json.dumps(made).encode())
        if size > UNCLAIMED_BYTES:
            break
        shown.append(made)
    return shown, len(found) - len(shown)


def staged_removals(
    spec_modules: Sequence[str], stored: Json | None, boot_id: str, loaded: frozenset[str]
) -> tuple[str, ...]:
    """Modules that a status of this boot lists, that nobody declares any more and that are still loaded."""
    if not isinstance(stored, dict) or stored.get("bootID") != boot_id:
        return ()
    declared = {name.replace("-", "_") for name in spec_modules}
    listed = stored.get("modules")
    names = [m.get("name") for m in listed if isinstance(m, dict)] if isinstance(listed, list) else []
    known = {m.get("name"): m.get("state") for m in listed} if isinstance(listed, list) else {}
    return tuple(
        name
        for name in names
        if isinstance(name, str)
        and known.get(name) == ModuleState.LOADED
        and name.replace("-", "_") in loaded - declared
    )
