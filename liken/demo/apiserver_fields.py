"""Who owns which field: `metadata.managedFields` of the in-memory API server, and server-side apply.

A field is a path of keys; a list is one field, as an atomic list is (the real server knows finer lists). Applying
takes a manager's fields, removes those it no longer names, and meets a conflict where another manager owns a field
with another value, unless forced.
"""

import copy
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from liken.demo.apiserver_refusals import Refusal
from liken.model.api import Json

Path = tuple[str, ...]

UNOWNED: frozenset[Path] = frozenset(
    [
        ("apiVersion",),
        ("kind",),
        *(
            ("metadata", name)
            for name in (
                "name",
                "namespace",
                "uid",
                "resourceVersion",
                "generation",
                "creationTimestamp",
                "deletionTimestamp",
                "managedFields",
                "selfLink",
                "generateName",
            )
        ),
    ]
)


def leaves(item: Any, at: Path = ()) -> Iterator[Path]:
    """The fields of an object that can be owned."""
    if at in UNOWNED:
        return
    if isinstance(item, dict) and (item or not at):
        for key, entry in item.items():
            yield from leaves(entry, (*at, key))
    else:
        yield at


def applied(before: Json | None, config: Json, manager: str, *, force: bool) -> Json:
    """The object after an apply; raises a 409 with the conflicting fields."""
    wanted = set(leaves(config))
    result = copy.deepcopy(before) if before is not None else {}
    managed = _managed(result)
    mine = (manager, "Apply", "")
    lost = managed.pop(mine, set()) - wanted
    conflicts = []
    for who, owned in managed.items():
        for path in sorted(owned & wanted):
            if _at(result, path) != _at(config, path):
                conflicts.append((who[0], path))
                owned.discard(path)
    if conflicts and not force:
        raise _conflict(conflicts)
    for path in lost - set().union(*managed.values()):
        _remove(result, path)
    for path in wanted:
        _put(result, path, copy.deepcopy(_at(config, path)))
    for key in ("apiVersion", "kind"):
        result[key] = config.get(key)
    metadata, given = result.setdefault("metadata", {}), config.get("metadata") or {}
    metadata |= {key: given[key] for key in ("name", "namespace", "resourceVersion", "uid") if key in given}
    managed[mine] = wanted
    _set_managed(result, managed)
    return result


def updated(before: Json | None, after: Json, manager: str, subresource: str = "") -> Json:
    """The object after a write that is no apply: what changed is owned by `manager` alone."""
    result = dict(after)
    result["metadata"] = dict(result["metadata"])
    old = before if before is not None else {}
    fields = set(leaves(result))
    changed = {path for path in fields if _at(old, path) != _at(result, path)}
    managed = _managed(old if before is not None else result)
    for owned in managed.values():
        owned.intersection_update(fields)
        owned.difference_update(changed)
    managed.setdefault((manager, "Update", subresource), set()).update(changed)
    _set_managed(result, managed)
    return result


def _conflict(conflicts: list[tuple[str, Path]]) -> Refusal:
    lines = [f'conflict with "{who}": .{".".join(path)}' for who, path in conflicts]
    many = "conflict" if len(lines) == 1 else "conflicts"
    causes = [{"reason": "FieldManagerConflict", "message": line.partition(":")[0], "field": line} for line in lines]
    message = f"Apply failed with {len(lines)} {many}: {lines[0] if len(lines) == 1 else lines}"
    return Refusal(409, "Conflict", message, details={"causes": causes})


def _managed(item: Json) -> dict[tuple[str, str, str], set[Path]]:
    entries = (item.get("metadata") or {}).get("managedFields") or []
    return {
        (entry["manager"], entry["operation"], entry.get("subresource", "")): set(_paths(entry.get("fieldsV1") or {}))
        for entry in entries
    }


def _set_managed(item: Json, managed: dict[tuple[str, str, str], set[Path]]) -> None:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    item["metadata"]["managedFields"] = [
        {"manager": manager, "operation": operation, "apiVersion": item.get("apiVersion"), "time": now}
        | {"fieldsType": "FieldsV1", "fieldsV1": _tree(paths)}
        | ({"subresource": subresource} if subresource else {})
        for (manager, operation, subresource), paths in managed.items()
        if paths
    ]


def _tree(paths: set[Path]) -> Json:
    tree: Json = {}
    for path in sorted(paths):
        place = tree
        for part in path:
            place = place.setdefault(f"f:{part}", {})
    return tree


def _paths(tree: Json, at: Path = ()) -> Iterator[Path]:
    if not tree and at:
        yield at
    for key, inner in tree.items():
        yield from _paths(inner, (*at, key.removeprefix("f:")))


def _at(item: Any, path: Path) -> Any:
    for part in path:
        if not isinstance(item, dict) or part not in item:
            return None
        item = item[part]
    return item


def _put(item: Json, path: Path, value: Any) -> None:
    for part in path[:-1]:
        inner = item.get(part)
        if not isinstance(inner, dict):
            inner = item[part] = {}
        item = inner
    item[path[-1]] = value


def _remove(item: Json, path: Path) -> None:
    parent = _at(item, path[:-1])
    if isinstance(parent, dict):
        parent.pop(path[-1], None)
        if not parent and len(path) > 1:
            _remove(item, path[:-1])
