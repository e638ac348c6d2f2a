"""ResourceSlices as a real API server of 1.34 to 1.37 takes them: their fields, their limits, what never changes.

The words are the real server's (1.37); clients should match on them and not on the field path, which moves between
versions. Feature gates that are off drop their field silently, as before 1.36.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from liken.model.api import Json

Problem = tuple[str, str]

DEVICES = 128
DEVICES_WITH_EXTRAS = 64
TAINTS = 16
ATTRIBUTES = 32
ID_BYTES = 32
DOMAIN_BYTES = 63
VALUE_BYTES = 64
LABEL_CHARACTERS = 63
KINDS = ("string", "bool", "int", "version")
EFFECTS = ("NoSchedule", "NoExecute", "None")

_TEXT = {"type": "string"}
_FREE = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_TAINT = {"key": _TEXT, "value": _TEXT, "effect": _TEXT, "timeAdded": _TEXT}
_ATTRIBUTE = {"string": _TEXT, "bool": {"type": "boolean"}, "int": {"type": "integer"}, "version": _TEXT}
_DEVICE = {
    "name": _TEXT,
    "attributes": {"type": "object", "additionalProperties": {"type": "object", "properties": _ATTRIBUTE}},
    "capacity": {"type": "object", "additionalProperties": _FREE},
    "taints": {"type": "array", "items": {"type": "object", "properties": _TAINT}},
    "allowMultipleAllocations": {"type": "boolean"},
    "allNodes": {"type": "boolean"},
    "nodeName": _TEXT,
    "nodeSelector": _FREE,
    "consumesCounters": {"type": "array", "items": _FREE},
    "bindsToNode": {"type": "boolean"},
    "bindingConditions": {"type": "array", "items": _TEXT},
    "bindingFailureConditions": {"type": "array", "items": _TEXT},
}
_POOL = {"name": _TEXT, "generation": {"type": "integer"}, "resourceSliceCount": {"type": "integer"}}
_SPEC = {
    "driver": _TEXT,
    "nodeName": _TEXT,
    "nodeSelector": _FREE,
    "allNodes": {"type": "boolean"},
    "perDeviceNodeSelection": {"type": "boolean"},
    "pool": {"type": "object", "properties": _POOL},
    "devices": {"type": "array", "items": {"type": "object", "properties": _DEVICE}},
    "sharedCounters": {"type": "array", "items": _FREE},
}
SCHEMA: Json = {
    "type": "object",
    "properties": {
        "apiVersion": _TEXT,
        "kind": _TEXT,
        "metadata": _FREE,
        "spec": {"type": "object", "properties": _SPEC},
    },
}

GATED: Mapping[str, str] = {"allowMultipleAllocations": "DRAConsumableCapacity", "taints": "DRADeviceTaints"}
"""Device fields and the feature gate without which they are dropped."""

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NUMBER = r"(0|[1-9]\d*)"
_IDENTIFIERS = r"[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*"
_SEMVER = re.compile(rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(-{_IDENTIFIERS})?(\+{_IDENTIFIERS})?")


def decoded(item: Json) -> Json:
    """The slice as a typed server reads it: null is the same as absent."""
    spec = item.get("spec")
    if not isinstance(spec, dict):
        return item
    return {**item, "spec": {key: entry for key, entry in spec.items() if entry is not None}}


def admitted(item: Json, gates: Mapping[str, bool], now: datetime | None = None) -> bool:
    """Drop what gates forbid and complete taints, in place; whether a gate dropped anything."""
    dropped = False
    spec = item.get("spec") or {}
    for device in spec.get("devices") or ():
        for field, gate in GATED.items():
            if not gates.get(gate, True) and device.pop(field, None) is not None:
                dropped = True
        for taint in device.get("taints") or ():
            moment = (now or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%SZ")
            taint.setdefault("timeAdded", moment)
        for field in [name for name, entry in device.items() if entry in ({}, [], None)]:
            del device[field]
    if spec and not spec.get("devices"):
        spec.pop("devices", None)
        if not all(gates.get(gate, True) for gate in GATED.values()):
            spec["devices"] = None  # as 1.34 answers
    return dropped


def problems(item: Json, before: Json | None) -> Iterator[Problem]:
    """Every reason to refuse a slice."""
    spec = item.get("spec") or {}
    yield from _top(spec)
    if before is not None:
        yield from _immutable(spec, before["spec"])
    devices = spec.get("devices") or []
    extras = any(device.get("taints") or device.get("consumesCounters") for device in devices)
    limit = DEVICES_WITH_EXTRAS if extras else DEVICES
    if len(devices) > limit:
        yield "spec.devices", f"Too many: {len(devices)}: must have at most {limit} items"
    seen: set[str] = set()
    for number, device in enumerate(devices):
        at = f"spec.devices[{number}]"
        name = str(device.get("name", ""))
        yield from _label(name, f"{at}.name")
        if name in seen:
            yield at, f'Duplicate value: "{name}"'
        seen.add(name)
        yield from _device(device, at)


def _top(spec: Json) -> Iterator[Problem]:
    driver = str(spec.get("driver", ""))
    if not driver:
        yield "spec.driver", "Required value"
    elif len(driver.encode()) > DOMAIN_BYTES:
        yield "spec.driver", f"Too long: may not be more than {DOMAIN_BYTES} bytes"
    elif not all(_LABEL.fullmatch(part) for part in driver.split(".")):
        yield "spec.driver", f'Invalid value: "{driver}": a lowercase RFC 1123 subdomain must consist of …'
    pool = spec.get("pool") or {}
    if not pool.get("name"):
        yield "spec.pool.name", "Required value"
    if int(pool.get("resourceSliceCount", 0)) <= 0:
        count = int(pool.get("resourceSliceCount", 0))
        yield "spec.pool.resourceSliceCount", f"Invalid value: {count}: must be greater than zero"
    if int(pool.get("generation", 0)) < 0:
        yield "spec.pool.generation", f"Invalid value: {pool['generation']}: must be greater than or equal to zero"
    chosen = [name for name in ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection") if spec.get(name)]
    if len(chosen) != 1:
        words = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
        yield "spec", words if not chosen else f"Invalid value: {{{', '.join(chosen)}}}: {words}"


def _immutable(spec: Json, before: Json) -> Iterator[Problem]:
    for field, new, old in (
        ("spec.driver", spec.get("driver"), before.get("driver")),
        ("spec.nodeName", spec.get("nodeName"), before.get("nodeName")),
        ("spec.pool.name", (spec.get("pool") or {}).get("name"), before["pool"]["name"]),
    ):
        if new != old:
            yield field, f'Invalid value: "{new}": field is immutable'


def _label(name: str, at: str) -> Iterator[Problem]:
    if not name:
        yield at, "Required value"
        return
    if len(name) > LABEL_CHARACTERS:
        yield at, f'Invalid value: "{name}": must be no more than {LABEL_CHARACTERS} characters'
    if not _LABEL.fullmatch(name):
        words = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start"
        yield at, f'Invalid value: "{name}": {words} and end with an alphanumeric character'


def _device(device: Json, at: str) -> Iterator[Problem]:
    attributes = device.get("attributes") or {}
    total = len(attributes) + len(device.get("capacity") or {})
    if total > ATTRIBUTES:
        words = f"the total number of attributes and capacities must not exceed {ATTRIBUTES}"
        yield at, f"Invalid value: {total}: {words}"
    for key, entry in attributes.items():
        yield from _key(key, f"{at}.attributes")
        yield from _value(entry, f"{at}.attributes[{key}]")
    taints = device.get("taints") or []
    if len(taints) > TAINTS:
        yield f"{at}.taints", f"Too many: {len(taints)}: must have at most {TAINTS} items"
    for number, taint in enumerate(taints):
        if taint.get("effect") not in EFFECTS:
            supported = ", ".join(f'"{effect}"' for effect in sorted(EFFECTS))
            words = f'Unsupported value: "{taint.get("effect", "")}": supported values: {supported}'
            yield f"{at}.taints[{number}].effect", words


def _key(key: str, at: str) -> Iterator[Problem]:
    domain, slash, name = key.rpartition("/")
    if slash:
        if len(domain.encode()) > DOMAIN_BYTES:
            yield at, f"Too long: may not be more than {DOMAIN_BYTES} bytes"
        elif not all(_LABEL.fullmatch(part) for part in domain.split(".")):
            yield at, f'Invalid value: "{domain}": a lowercase RFC 1123 subdomain must consist of lower case …'
    if len(name.encode()) > ID_BYTES:
        yield at, f"Too long: may not be more than {ID_BYTES} bytes"
    elif not _IDENTIFIER.fullmatch(name):
        words = "a valid C identifier must start with alphabetic character or '_', followed by a string of"
        yield at, f"Invalid value: \"{name}\": {words} alphanumeric characters or '_'"


def _value(entry: Any, at: str) -> Iterator[Problem]:
    given = [kind for kind in KINDS if isinstance(entry, dict) and entry.get(kind) is not None]
    if len(given) != 1:
        names = ", ".join(f"`{kind}`" for kind in sorted(KINDS))
        words = "must specify one of" if not given else "must specify exactly one of"
        yield at, f"Invalid value: {{{', '.join(given)}}}: {words}: {names}"
        return
    kind = given[0]
    text = entry[kind]
    if kind in ("string", "version") and len(str(text).encode()) > VALUE_BYTES:
        yield f"{at}.{kind}", f"Too long: may not be more than {VALUE_BYTES} bytes"
    elif kind == "version" and not _SEMVER.fullmatch(str(text)):
        yield f"{at}.version", f'Invalid value: "{text}": must be a string compatible with semver.org spec 2.0.0'
