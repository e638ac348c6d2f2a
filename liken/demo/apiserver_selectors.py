"""Field and label selectors of the in-memory API server, and the fields and JSONPaths they read."""

import re
from collections.abc import Callable, Iterator
from typing import Any

from liken.demo.apiserver_refusals import bad_request
from liken.demo.apiserver_types import ResourceType
from liken.model.api import Json

Matcher = Callable[[Json], bool]

_COMPARED = re.compile(r"^(?P<key>[^!=]+?)(?P<op>!=|==|=)(?P<value>.*)$")
_SET = re.compile(r"^(?P<key>\S+)\s+(?P<op>in|notin)\s+\((?P<values>[^)]*)\)$")
_FILTER = re.compile(r"^(?P<name>[^\[]*)\[\?\(@\.(?P<key>[\w.]+)==[\"'](?P<value>[^\"']*)[\"']\)\]$")


def matcher(kind: ResourceType, *, fields: str = "", labels: str = "") -> Matcher:
    """Whether an object is selected; raises a 400 for a field the type has no selector for."""
    terms = [*_field_terms(kind, fields), *_label_terms(labels)]
    return lambda item: all(term(item) for term in terms)


def value(item: Any, path: str) -> Any:
    """What a simple JSONPath (`.status.conditions[?(@.type=="Ready")].status`) finds; None: nothing."""
    for part in _parts(path):
        if found := _FILTER.match(part):
            inner = item.get(found["name"]) if isinstance(item, dict) else None
            hits = [entry for entry in inner or [] if str(value(entry, found["key"])) == found["value"]]
            item = hits[0] if hits else None
        elif isinstance(item, dict):
            item = item.get(part)
        else:
            return None
    return item


def _parts(path: str) -> list[str]:
    return [part for part in re.split(r"\.(?![^\[]*\])", path.lstrip(".")) if part]


def _text(found: Any) -> str:
    match found:
        case None:
            return ""
        case bool():
            return str(found).lower()
        case _:
            return str(found)


def _field_terms(kind: ResourceType, selector: str) -> Iterator[Matcher]:
    for term in filter(None, selector.split(",")):
        compared = _COMPARED.match(term)
        if compared is None:
            raise bad_request(f"invalid field selector: {term!r}")
        key, wanted, positive = compared["key"], compared["value"], compared["op"] != "!="
        if key not in kind.selectable:
            what = f"{kind.group_version}, Resource={kind.key.plural}"
            raise bad_request(
                f'Unable to find "{what}" that match label selector "", field selector "{selector}": '
                f"field label not supported: {key}"
            )
        yield lambda item, key=key, wanted=wanted, positive=positive: (  # type: ignore[misc]
            (_text(value(item, key)) == wanted) is positive
        )


def _label_terms(selector: str) -> Iterator[Matcher]:
    for term in (part.strip() for part in re.split(r",(?![^(]*\))", selector)):
        if term:
            yield _label_term(term)


def _label_term(term: str) -> Matcher:
    if found := _SET.match(term):
        name, values, inside = (
            found["key"],
            {entry.strip() for entry in found["values"].split(",")},
            found["op"] == "in",
        )
        return lambda item: (_labels(item).get(name) in values) is inside
    if found := _COMPARED.match(term):
        key, wanted, equal = found["key"].strip(), found["value"].strip(), found["op"] != "!="
        return lambda item: (_labels(item).get(key) == wanted) is equal
    if term.startswith("!"):
        return lambda item: term[1:] not in _labels(item)
    return lambda item: term in _labels(item)


def _labels(item: Json) -> dict[str, str]:
    return item["metadata"].get("labels") or {}
