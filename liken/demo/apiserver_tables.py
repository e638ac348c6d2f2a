"""Tables: the columns `kubectl get` prints, made by the server as it asks for them."""

from collections.abc import Sequence
from datetime import UTC, datetime

from liken.demo.apiserver_selectors import value
from liken.demo.apiserver_types import ResourceType
from liken.model.api import Json

META = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "labels")
MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86400


def wanted(accept: str) -> bool:
    """Whether an Accept header asks for a table."""
    return "as=Table" in accept and "g=meta.k8s.io" in accept


def table(kind: ResourceType, items: Sequence[Json], version: str, *, now: datetime | None = None) -> Json:
    """A Table of these objects."""
    moment = now or datetime.now(UTC)
    definitions = [
        {"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0},
        *(
            {"name": column.name, "type": column.kind, "format": "", "description": "", "priority": column.priority}
            for column in kind.columns
        ),
    ]
    own_age = any(column.name.lower() == "age" for column in kind.columns)
    if not own_age:
        definitions.append({"name": "Age", "type": "string", "format": "", "description": "", "priority": 0})
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": version},
        "columnDefinitions": definitions,
        "rows": [_row(kind, item, moment, age=not own_age) for item in items],
    }


def _row(kind: ResourceType, item: Json, now: datetime, *, age: bool) -> Json:
    cells = [item["metadata"]["name"]]
    for column in kind.columns:
        found = value(item, column.path)
        cells.append(_age(str(found), now) if column.kind == "date" and found else found)
    if age:
        cells.append(_age(item["metadata"].get("creationTimestamp", ""), now))
    metadata = {key: item["metadata"][key] for key in META if key in item["metadata"]}
    partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
    return {"cells": [_cell(cell) for cell in cells], "object": partial}


def _cell(found: object) -> object:
    return "<none>" if found is None else found if isinstance(found, str | int | float) else str(found)


def _age(stamp: str, now: datetime) -> str:
    try:
        seconds = int((now - datetime.fromisoformat(stamp)).total_seconds())
    except ValueError:
        return "<unknown>"
    if seconds < 2 * MINUTE_S:
        return f"{max(seconds, 0)}s"
    if seconds < 2 * HOUR_S:
        return f"{seconds // MINUTE_S}m"
    return f"{seconds // HOUR_S}h" if seconds < 2 * DAY_S else f"{seconds // DAY_S}d"
