"""Structural schemas: what a CustomResourceDefinition's schema (or the one of ResourceSlices) drops, adds, refuses.

Done: pruning of unknown fields, defaults, types, required, enum, pattern, lengths, item counts, bounds,
`x-kubernetes-list-type` set and map, `x-kubernetes-preserve-unknown-fields`, int-or-string, nullable. Not done: CEL
rules (`x-kubernetes-validations`), `oneOf`/`anyOf`/`not`, formats: what they would refuse is accepted here.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from liken.model.api import Json

Problem = tuple[str, str]

_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
}


def pruned(value: Any, schema: Json, at: str = "") -> tuple[Any, list[str]]:
    """The value without unknown fields, and the paths of those."""
    dropped: list[str] = []
    return _pruned(value, schema, at, dropped), dropped


def _pruned(value: Any, schema: Json, at: str, dropped: list[str]) -> Any:
    if isinstance(value, list):
        items = schema.get("items") or {}
        return [_pruned(entry, items, f"{at}[{number}]", dropped) for number, entry in enumerate(value)]
    if not isinstance(value, dict) or schema.get("x-kubernetes-preserve-unknown-fields"):
        return value
    properties = schema.get("properties") or {}
    others = schema.get("additionalProperties")
    if not properties and others is None and schema.get("type") != "object":
        return value
    result = {}
    for key, entry in value.items():
        path = f"{at}.{key}" if at else key
        if key in properties:
            result[key] = _pruned(entry, properties[key], path, dropped)
        elif others:
            result[key] = _pruned(entry, others if isinstance(others, dict) else {}, path, dropped)
        else:
            dropped.append(path)
    return result


def defaulted(value: Any, schema: Json) -> Any:
    """The value with the schema's defaults where a field is absent."""
    if isinstance(value, list):
        return [defaulted(entry, schema.get("items") or {}) for entry in value]
    if not isinstance(value, dict):
        return value
    result = dict(value)
    properties = schema.get("properties") or {}
    for key, inner in properties.items():
        if key not in result and "default" in inner:
            result[key] = json.loads(json.dumps(inner["default"]))
        if key in result:
            result[key] = defaulted(result[key], inner)
    others = schema.get("additionalProperties")
    if isinstance(others, dict):
        result |= {key: defaulted(entry, others) for key, entry in result.items() if key not in properties}
    return result


def problems(value: Any, schema: Json, at: str = "") -> Iterator[Problem]:
    """Every violation as a field path and the API server's words."""
    if value is None:
        if not schema.get("nullable"):
            yield at, f'Invalid value: "null": {at} in body must be of type {schema.get("type", "object")}: "null"'
        return
    wrong = _wrong_type(value, schema, at)
    if wrong is not None:
        yield wrong
        return
    if "enum" in schema and value not in schema["enum"]:
        known = ", ".join(json.dumps(entry) for entry in schema["enum"])
        yield at, f"Unsupported value: {json.dumps(value)}: supported values: {known}"
    match value:
        case str():
            yield from _text_problems(value, schema, at)
        case bool():
            pass
        case int() | float():
            yield from _number_problems(value, schema, at)
        case list():
            yield from _list_problems(value, schema, at)
        case dict():
            yield from _object_problems(value, schema, at)


def _wrong_type(value: Any, schema: Json, at: str) -> Problem | None:
    if schema.get("x-kubernetes-int-or-string") and isinstance(value, int | str) and not isinstance(value, bool):
        return None
    wanted = str(schema.get("type"))
    if wanted not in _TYPES:
        return None
    fits = isinstance(value, _TYPES[wanted]) and not (isinstance(value, bool) and wanted in {"integer", "number"})
    if fits:
        return None
    found = next(name for name, kind in _TYPES.items() if isinstance(value, kind))
    return at, f'Invalid value: "{found}": {at} in body must be of type {wanted}: "{found}"'


def _text_problems(value: str, schema: Json, at: str) -> Iterator[Problem]:
    size = len(value)
    if "maxLength" in schema and size > schema["maxLength"]:
        yield at, f"Too long: may not be more than {schema['maxLength']} bytes"
    if "minLength" in schema and size < schema["minLength"]:
        words = f"{at} in body should be at least {schema['minLength']} chars long"
        yield at, f"Invalid value: {json.dumps(value)}: {words}"
    if "pattern" in schema and not re.search(schema["pattern"], value):
        yield at, f"Invalid value: {json.dumps(value)}: {at} in body should match '{schema['pattern']}'"


def _number_problems(value: float, schema: Json, at: str) -> Iterator[Problem]:
    if "maximum" in schema and value > schema["maximum"]:
        yield at, f"Invalid value: {value}: {at} in body should be less than or equal to {schema['maximum']}"
    if "minimum" in schema and value < schema["minimum"]:
        yield at, f"Invalid value: {value}: {at} in body should be greater than or equal to {schema['minimum']}"


def _list_problems(value: Sequence[Any], schema: Json, at: str) -> Iterator[Problem]:
    if "maxItems" in schema and len(value) > schema["maxItems"]:
        yield at, f"Too many: {len(value)}: must have at most {schema['maxItems']} items"
    if "minItems" in schema and len(value) < schema["minItems"]:
        words = f"{at} in body should have at least {schema['minItems']} items"
        yield at, f"Invalid value: {len(value)}: {words}"
    yield from _duplicates(value, schema, at)
    for number, entry in enumerate(value):
        yield from problems(entry, schema.get("items") or {}, f"{at}[{number}]")


def _duplicates(value: Sequence[Any], schema: Json, at: str) -> Iterator[Problem]:
    keys: Sequence[str] | None
    match schema.get("x-kubernetes-list-type"):
        case "set":
            keys = None
        case "map":
            keys = schema.get("x-kubernetes-list-map-keys") or ()
        case _:
            return
    seen: set[str] = set()
    for number, entry in enumerate(value):
        identity = entry if keys is None else {key: entry.get(key) for key in keys if isinstance(entry, dict)}
        text = json.dumps(identity, sort_keys=True)
        if text in seen:
            yield f"{at}[{number}]", f"Duplicate value: {text}"
        seen.add(text)


def _object_problems(value: Json, schema: Json, at: str) -> Iterator[Problem]:
    prefix = f"{at}." if at else ""
    for key in schema.get("required") or ():
        if key not in value:
            yield f"{prefix}{key}", "Required value"
    if "maxProperties" in schema and len(value) > schema["maxProperties"]:
        yield at, f"Too many: {len(value)}: must have at most {schema['maxProperties']} items"
    properties = schema.get("properties") or {}
    others = schema.get("additionalProperties")
    for key, entry in value.items():
        if key in properties:
            yield from problems(entry, properties[key], f"{prefix}{key}")
        elif isinstance(others, dict):
            yield from problems(entry, others, f"{prefix}{key}")
