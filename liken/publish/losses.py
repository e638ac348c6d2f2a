"""What the server does not keep of what it is sent: noticed and said once, not fought, tried again when it changed.

Mostly that is a field whose feature gate is off. Each repetition of such a field is a new version and generation of
the slice, so a repair loop would feed itself and wake every waiting pod of the cluster. Gated fields are left out
from then on; any other difference (somebody's admission webhook) is tolerated as long as it is the same. Both are
tried again when the server's version changes, a gated field also when a stored slice shows it; and where a patch
would only add such a field it is tried in a dry run first, so that a restart writes nothing.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final, Protocol

import structlog

from liken.model.api import Json
from liken.model.offers import DeviceName, Offer
from liken.publish.plan import Patch, difference
from liken.state.slices import json_patch

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

GATES: Final[Mapping[str, str]] = {"allowMultipleAllocations": "DRAConsumableCapacity", "taints": "DRADeviceTaints"}
CONSEQUENCES: Final[Mapping[str, str]] = {
    "allowMultipleAllocations": "shareable devices go to one claim at a time",
    "taints": "a device that vanished while it is claimed is not tainted",
}


def missing(sent: Json, answer: Json) -> frozenset[str]:
    """The gated fields that were sent with a device and are not in the answer."""
    kept = {device["name"]: device for device in answer["spec"].get("devices") or ()}
    return frozenset(
        field
        for device in sent["spec"].get("devices") or ()
        for field in GATES
        if device.get(field) and device["name"] in kept and not kept[device["name"]].get(field)
    )


def shown(items: Iterable[Json], fields: frozenset[str]) -> frozenset[str]:
    """Those of the fields that a stored slice has after all."""
    return frozenset(
        field
        for field in fields
        if any(device.get(field) for item in items for device in item["spec"].get("devices") or ())
    )


class Without:
    """Offers without the fields that are dropped; an offer is rewritten once, so that it stays the same object."""

    def __init__(self) -> None:
        self.fields: frozenset[str] = frozenset()
        self._rewritten: dict[DeviceName, tuple[Offer, Offer]] = {}

    def set(self, fields: frozenset[str]) -> None:
        """Leave these fields out from now on."""
        self.fields = fields
        self._rewritten.clear()

    def offer(self, offer: Offer) -> Offer:
        """The offer as it is published."""
        share = "allowMultipleAllocations" in self.fields and offer.shareable
        taint = "taints" in self.fields and bool(offer.taints)
        if not share and not taint:
            return offer
        known = self._rewritten.get(offer.name)
        if known is None or known[0] is not offer:
            plain = replace(offer, shareable=offer.shareable and not share, taints=() if taint else offer.taints)
            known = self._rewritten[offer.name] = (offer, plain)
        return known[1]


class Versioned(Protocol):
    """Says the server's version."""

    async def version(self) -> Json:
        """What `/version` says."""


class Losses:
    """Remembers what this server drops; `say(reason, message)` makes an Event of it, once."""

    def __init__(self, without: Without, say: Callable[[str, str], None]) -> None:
        self._without = without
        self._say = say
        self._said: set[str] = set()
        self._version = ""
        self.wants_version = False
        self.tolerated: dict[str, tuple[Json, ...]] = {}

    def compare(self, sent: Json, answer: Json) -> bool:
        """Notice what the answer lacks; whether a gated field is among it."""
        fields = missing(sent, answer)
        name = answer["metadata"]["name"]
        self.tolerated.pop(name, None)
        if fields:
            self._without.set(self._without.fields | fields)
            for field in sorted(fields):
                self._announce(GATES[field], _words(field))
        elif rest := difference(json_patch(answer, sent)):
            self.tolerated[name] = rest
            where = ", ".join(sorted({str(entry["path"]) for entry in rest})[:3])
            self._announce("changed", f"The API server stores slice {name} differently from what is written: {where}")
        self.wants_version |= bool(fields or self.tolerated) and not self._version
        return bool(fields)

    def doubtful(self, change: Patch) -> bool:
        """Whether the patch does nothing but add gated fields."""
        gated = tuple(f"/{field}" for field in GATES)
        return all(entry["op"] == "add" and entry["path"].endswith(gated) for entry in difference(change.ops))

    def shown(self, items: Iterable[Json]) -> None:
        """Look at what is stored: a field that is kept there is sent again."""
        kept = shown(items, self._without.fields)
        if kept:
            self._without.set(self._without.fields - kept)

    def reconnected(self) -> None:
        """The watch began anew: perhaps it is another server now."""
        self.wants_version = bool(self._without.fields or self.tolerated)

    async def learn_version(self, api: Versioned) -> bool:
        """Ask for the version; whether it is another one than before, so that everything is tried again."""
        found = str((await api.version()).get("gitVersion") or "")
        self.wants_version = False
        before, self._version = self._version, found
        if before in ("", found):
            return False
        log.info("publish.server_changed", version=found, before=before)
        self._without.set(frozenset())
        self.tolerated.clear()
        self._said.clear()
        return True

    def _announce(self, topic: str, message: str) -> None:
        if topic not in self._said:
            self._said.add(topic)
            log.warning("publish.field_dropped", topic=topic, message=message)
            self._say("FieldDropped", message)


def _words(field: str) -> str:
    gate = GATES[field]
    return (
        f"The API server drops {field} of devices, so {CONSEQUENCES[field]}: "
        f"turn its feature gate {gate} on (it is on by default from 1.36)"
    )
