"""The status document: one JSON-ready value of what this node offers, withholds, has handed out and was told.

Pure: a snapshot and the rows of claims and Machine in, a plain document out. Text from hardware was judged by
`state`; paths may still hold undecodable bytes and are shown escaped, so that the JSON stays valid.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from liken.model.api import Json
from liken.model.hardware import DeviceFacts, DeviceKey
from liken.model.offers import Offer, Snapshot, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One line of `/readyz`: a part of the daemon, whether it does its work, and a sentence."""

    name: str
    ok: bool
    line: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedDevice:
    """One device of a prepared claim as the page shows it; `health` is Healthy, Unhealthy or Unknown."""

    name: str
    nodes: tuple[str, ...]
    health: str
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRow:
    """A prepared claim; `since` in Unix seconds."""

    namespace: str
    name: str
    uid: str
    since: float
    devices: tuple[ClaimedDevice, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionRow:
    """A condition of the Machine: `status` is True, False or Unknown."""

    type: str
    status: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineRows:
    """What the Machine's status says: its conditions, and driverless hardware with the way out."""

    conditions: tuple[ConditionRow, ...] = ()
    unclaimed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """Everything the page shows beside the snapshot."""

    node: str
    version: str
    parts: tuple[Part, ...] = ()
    claims: tuple[ClaimRow, ...] = ()
    machine: MachineRows | None = None
    held_back: frozenset[str] = field(default_factory=frozenset)


def readable(text: str) -> str:
    """Text that encodes as UTF-8: what cannot be encoded appears escaped, as `udcff` after a backslash."""
    return text.encode("utf-8", "backslashreplace").decode()


def document(snapshot: Snapshot, outlook: Outlook) -> Json:
    """The whole status as JSON-ready values; devices sorted by bus and address, claims by namespace and name."""
    held_by = {device.name: f"{c.namespace}/{c.name}" for c in outlook.claims for device in c.devices}
    return {
        "node": outlook.node,
        "version": outlook.version,
        "revision": snapshot.revision,
        "complete": snapshot.complete,
        "parts": [{"name": part.name, "ok": part.ok, "line": readable(part.line)} for part in outlook.parts],
        "devices": [
            _device(verdict, snapshot.inventory.devices.get(key), snapshot, held_by, outlook.held_back)
            for key, verdict in sorted(snapshot.verdicts.items(), key=_order)
        ],
        "claims": [_claim(claim) for claim in sorted(outlook.claims, key=lambda c: (c.namespace, c.name, c.uid))],
        "machine": _machine(outlook.machine),
    }


def _order(entry: tuple[DeviceKey, Verdict]) -> tuple[str, str]:
    return entry[0].bus, entry[0].address


def _device(
    verdict: Verdict,
    facts: DeviceFacts | None,
    snapshot: Snapshot,
    held_by: dict[str, str],
    held_back: frozenset[str],
) -> Json:
    offers = [snapshot.offers[name] for name in verdict.offers if name in snapshot.offers]
    return {
        "bus": str(verdict.key.bus),
        "address": readable(verdict.key.address),
        "path": readable(facts.path) if facts else "",
        "title": readable(verdict.title),
        "driver": readable(facts.driver or "") if facts else "",
        "verdict": str(verdict.reason) if verdict.reason else "Published",
        "detail": readable(verdict.detail),
        "advice": readable(verdict.advice),
        "offers": [_offer(offer, held_by, held_back) for offer in offers],
    }


def _offer(offer: Offer, held_by: dict[str, str], held_back: frozenset[str]) -> Json:
    return {
        "name": offer.name,
        "shared": offer.shareable,
        "nodes": [readable(node.path) for node in offer.nodes],
        "claim": held_by.get(offer.name, ""),
        "heldBack": offer.name in held_back,
    }


def _claim(claim: ClaimRow) -> Json:
    return {
        "namespace": claim.namespace,
        "name": claim.name,
        "uid": claim.uid,
        "since": claim.since,
        "devices": [
            {
                "name": device.name,
                "nodes": [readable(node) for node in device.nodes],
                "health": device.health,
                "message": readable(device.message),
            }
            for device in claim.devices
        ],
    }


def _machine(rows: MachineRows | None) -> Json | None:
    if rows is None:
        return None
    return {
        "conditions": [
            {"type": c.type, "status": c.status, "reason": c.reason, "message": readable(c.message)}
            for c in rows.conditions
        ],
        "unclaimed": [readable(line) for line in rows.unclaimed],
    }


def readiness(parts: Sequence[Part]) -> tuple[bool, str]:
    """Whether every part is ready, and the text of `/readyz`: one line for each part."""
    lines = [f"[{'+' if part.ok else '-'}] {part.name}: {readable(part.line)}" for part in parts]
    ready = all(part.ok for part in parts)
    return ready, "\n".join([*lines, "ready" if ready else "not ready"]) + "\n"
