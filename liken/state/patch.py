"""The smallest RFC 6902 patch between two bodies of one slice, guarded by the resource version.

Pure. The guard is a `replace` of `/metadata/resourceVersion`, which a stale write answers with 409; a `test` would be
a 422 that does not say why. Only what liken owns is compared (owner references and spec), and what the server leaves
out of an answer, empty lists and maps, is no difference. Devices are told apart by name, so one that comes or goes
in the middle of 128 costs its own bytes.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from liken.model.api import Json


def json_patch(old: Json, new: Json) -> list[Json]:
    """Operations that turn the stored slice `old` into `new`; empty when there is nothing to write."""
    if old is new:
        return []
    wanted = new.get("metadata", {}).get("ownerReferences")
    stored = old.get("metadata", {}).get("ownerReferences")
    operations: list[Json] = []
    if wanted and wanted != stored:
        operations.append(_operation("add", "/metadata/ownerReferences", wanted))
    operations += _spec(old["spec"], new["spec"])
    version = old.get("metadata", {}).get("resourceVersion")
    guard = [_operation("replace", "/metadata/resourceVersion", version)] if operations and version else []
    return guard + operations


def _spec(old: Json, new: Json) -> Iterator[Json]:
    others = (old.keys() | new.keys()) - {"devices"}
    yield from _mapping("/spec", {key: old.get(key) for key in others}, {key: new.get(key) for key in others})
    before, after = old.get("devices") or [], new.get("devices") or []
    if before == after:
        return
    if not before or not after:
        yield _operation("replace" if "devices" in old else "add", "/spec/devices", after)
    elif _ordered(before, after):
        yield from _devices(before, after)
    else:
        yield _operation("replace", "/spec/devices", after)


def _ordered(before: Sequence[Json], after: Sequence[Json]) -> bool:
    """Whether what both lists hold stands in the same order, each name once."""
    names = [device["name"] for device in before], [device["name"] for device in after]
    if any(len(set(found)) != len(found) for found in names):
        return False
    common = set(names[0]) & set(names[1])
    return [name for name in names[0] if name in common] == [name for name in names[1] if name in common]


def _devices(before: Sequence[Json], after: Sequence[Json]) -> Iterator[Json]:
    """First what left, from the end, so that no index moves; then additions and changes in ascending order."""
    kept = {device["name"] for device in after}
    for index in reversed(range(len(before))):
        if before[index]["name"] not in kept:
            yield {"op": "remove", "path": f"/spec/devices/{index}"}
    stored = {device["name"]: device for device in before}
    for index, device in enumerate(after):
        path, known = f"/spec/devices/{index}", stored.get(device["name"])
        if known is None:
            yield _operation("add", path, device)
        elif known != device:
            yield from _mapping(path, known, device)


def _mapping(path: str, old: Json, new: Json) -> Iterator[Json]:
    for key in sorted(old.keys() | new.keys()):
        before, after = old.get(key), new.get(key)
        place = f"{path}/{key.replace('~', '~0').replace('/', '~1')}"
        if before == after or (_empty(before) and _empty(after)):
            continue
        if _empty(after):
            yield {"op": "remove", "path": place}
        elif isinstance(before, dict) and isinstance(after, dict) and before:
            yield from _mapping(place, before, after)
        else:
            yield _operation("add" if before is None else "replace", place, after)


def _empty(value: Any) -> bool:
    return value is None or value in ([], {})


def _operation(op: str, path: str, value: Any) -> Json:
    return {"op": op, "path": path, "value": value}
