"""Patches of the in-memory API server: RFC 6902, RFC 7386, and strategic merge for the lists that have merge keys.

Pure: a document and a patch in, a new document out. Strategic merge knows the merge keys of the types served here;
every other list is replaced whole, as atomic lists are.
"""

import copy
from collections.abc import Sequence
from typing import Any

from liken.demo.apiserver_refusals import bad_request, unprocessable_patch
from liken.model.api import Json

MERGE_KEYS = {"ownerReferences": "uid", "conditions": "type", "containers": "name", "addresses": "type"}


def json_patched(document: Json, operations: Any) -> Json:
    """Apply RFC 6902 operations; raises 400 for what is no patch, 422 for one that does not fit."""
    if not isinstance(operations, list) or not all(isinstance(entry, dict) for entry in operations):
        raise bad_request("json: cannot unmarshal the body into a JSON Patch")
    result = copy.deepcopy(document)
    for entry in operations:
        try:
            result = _operation(result, entry)
        except (KeyError, IndexError, TypeError, ValueError):
            raise unprocessable_patch() from None
    return result


def merge_patched(document: Any, patch: Any) -> Any:
    """Apply an RFC 7386 patch."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(document) if isinstance(document, dict) else {}
    for key, entry in patch.items():
        if entry is None:
            result.pop(key, None)
        else:
            result[key] = merge_patched(result.get(key), entry)
    return result


def strategic_patched(document: Any, patch: Any, at: str = "") -> Any:
    """Apply a strategic merge patch: as a merge patch, but lists with a merge key are merged entry by entry."""
    if isinstance(patch, list) and at in MERGE_KEYS:
        return _merged_list(document if isinstance(document, list) else [], patch, MERGE_KEYS[at])
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    if patch.get("$patch") == "replace":
        return {key: entry for key, entry in patch.items() if key != "$patch"}
    result = dict(document) if isinstance(document, dict) else {}
    for key, entry in patch.items():
        if key.startswith(("$setElementOrder/", "$retainKeys", "$patch")):
            continue
        if key.startswith("$deleteFromPrimitiveList/"):
            name = key.partition("/")[2]
            result[name] = [kept for kept in result.get(name) or [] if kept not in entry]
        elif entry is None:
            result.pop(key, None)
        else:
            result[key] = strategic_patched(result.get(key), entry, key)
    return result


def _merged_list(old: Sequence[Any], patch: Sequence[Any], merge_key: str) -> list[Any]:
    result = [copy.deepcopy(entry) for entry in old]
    for entry in patch:
        at = next((i for i, known in enumerate(result) if known.get(merge_key) == entry.get(merge_key)), None)
        if entry.get("$patch") == "delete":
            if at is not None:
                del result[at]
        elif at is None:
            result.append(copy.deepcopy(entry))
        else:
            result[at] = strategic_patched(result[at], entry)
    return result


def _operation(document: Any, entry: Json) -> Any:
    path = _pointer(entry["path"])
    match entry["op"]:
        case "add":
            return _added(document, path, copy.deepcopy(entry["value"]))
        case "remove":
            return _removed(document, path)[0]
        case "replace":
            _found(document, path)
            return _set(document, path, copy.deepcopy(entry["value"]))
        case "move":
            document, moved = _removed(document, _pointer(entry["from"]))
            return _added(document, path, moved)
        case "copy":
            return _added(document, path, copy.deepcopy(_found(document, _pointer(entry["from"]))))
        case "test":
            if _found(document, path) != entry["value"]:
                raise ValueError("test failed")
            return document
        case other:
            raise ValueError(f"unknown operation {other}")


def _pointer(text: str) -> list[str]:
    if text and not text.startswith("/"):
        raise ValueError("a JSON pointer begins with /")
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _index(items: Sequence[Any], part: str, *, end: bool = False) -> int:
    limit = len(items) + (1 if end else 0)
    number = int(part)
    if not part.isdecimal() or number >= limit:
        raise IndexError(part)
    return number


def _found(document: Any, path: Sequence[str]) -> Any:
    for part in path:
        document = document[_index(document, part)] if isinstance(document, list) else document[part]
    return document


def _set(document: Any, path: Sequence[str], entry: Any) -> Any:
    if not path:
        return entry
    parent = _found(document, path[:-1])
    parent[_index(parent, path[-1]) if isinstance(parent, list) else path[-1]] = entry
    return document


def _added(document: Any, path: Sequence[str], entry: Any) -> Any:
    if not path:
        return entry
    parent = _found(document, path[:-1])
    if isinstance(parent, list):
        parent.insert(len(parent) if path[-1] == "-" else _index(parent, path[-1], end=True), entry)
    else:
        parent[path[-1]] = entry
    return document


def _removed(document: Any, path: Sequence[str]) -> tuple[Any, Any]:
    parent = _found(document, path[:-1])
    return document, parent.pop(_index(parent, path[-1]) if isinstance(parent, list) else path[-1])
