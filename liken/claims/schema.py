"""Says what is wrong with a CDI document: the facts of the published JSON schema and of the runtimes' own validation.

In: any parsed JSON. Out: problems in words, none when every runtime accepts the file. One mistake costs every device of
a file and is told only in the runtime's log, so liken asks here before it writes. Sources: `schema/defs.json` and
`pkg/cdi/validate.go` of the Container Device Interface, and what containerd was seen to do.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

VERSIONS = ("0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0")
LONGEST_ANNOTATIONS = 256 * 1024

# A one-letter vendor or class is legal, and panics containerd's watcher.
_KIND = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*[A-Za-z0-9]/[A-Za-z][A-Za-z0-9_-]*[A-Za-z0-9]")
_DEVICE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?")
_ANNOTATION = re.compile(r"([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_PERMISSIONS = re.compile(r"[rwm]{1,3}")


def problems(document: Any) -> tuple[str, ...]:
    """What a runtime would refuse in `document`, each with its place; empty when it is valid."""
    if not isinstance(document, dict):
        return ("the document is not an object",)
    return tuple(_document(document))


def _document(document: Mapping[str, Any]) -> Iterator[str]:
    yield from _unknown(document, {"cdiVersion", "kind", "annotations", "devices", "containerEdits"}, "the document")
    version = document.get("cdiVersion")
    if version not in VERSIONS:
        yield f"cdiVersion {version!r} is none of {', '.join(VERSIONS)}"
    if not _matches(_KIND, document.get("kind")):
        yield f"kind {document.get('kind')!r} is not vendor/class"
    yield from _annotations(document.get("annotations"), "the document")
    yield from _edits(document.get("containerEdits", {}), "the document")
    devices = document.get("devices")
    if not isinstance(devices, list) or not devices:
        yield "devices is not a list with at least one entry"
        return
    seen: set[str] = set()
    for index, device in enumerate(devices):
        yield from _device(device, f"devices[{index}]", seen)
    if version in VERSIONS and (needed := _needed(document, devices)) > version:
        yield f"cdiVersion {version} is too low: the content needs {needed}"


def _device(device: Any, place: str, seen: set[str]) -> Iterator[str]:
    if not isinstance(device, dict):
        yield f"{place} is not an object"
        return
    yield from _unknown(device, {"name", "annotations", "containerEdits"}, place)
    name = device.get("name")
    if not _matches(_DEVICE, name):
        yield f"{place}: {name!r} is no device name"
    if str(name) in seen:
        yield f"{place}: {name!r} occurs twice, which removes both"
    seen.add(str(name))
    yield from _annotations(device.get("annotations"), place)
    edits = device.get("containerEdits")
    if not isinstance(edits, dict) or not any(edits.values()):
        yield f"{place} has no edits"
        return
    yield from _edits(edits, place)


def _annotations(annotations: Any, place: str) -> Iterator[str]:
    if annotations is None:
        return
    if not isinstance(annotations, dict):
        yield f"{place}: annotations is not an object"
        return
    for key, value in annotations.items():
        if not _matches(_ANNOTATION, key):
            yield f"{place}: {key!r} is no annotation's key"
        if not isinstance(value, str):
            yield f"{place}: the annotation {key!r} is not a text"
    if sum(len(str(key)) + len(str(value)) for key, value in annotations.items()) > LONGEST_ANNOTATIONS:
        yield f"{place}: the annotations are longer than {LONGEST_ANNOTATIONS} bytes"


def _edits(edits: Any, place: str) -> Iterator[str]:
    if not isinstance(edits, dict):
        yield f"{place}: containerEdits is not an object"
        return
    # Hooks, mounts and variables are legal CDI, and no part of what liken gives: a problem here by intent.
    yield from _unknown(edits, {"deviceNodes", "additionalGids"}, f"{place}: containerEdits")
    for node in edits.get("deviceNodes", []):
        yield from _node(node, place)
    for group in edits.get("additionalGids", []):
        if not _uint32(group):
            yield f"{place}: additionalGids holds {group!r}"


def _node(node: Any, place: str) -> Iterator[str]:
    if not isinstance(node, dict):
        yield f"{place}: a device node is not an object"
        return
    yield from _unknown(node, set(_NODE_FIELDS), f"{place}: a device node")
    if "path" not in node:
        yield f"{place}: a device node has no path"
    for name, value in node.items():
        if name in _NODE_FIELDS and not _NODE_FIELDS[name](value):
            yield f"{place}: a device node's {name} is {value!r}"


def _path(value: Any) -> bool:
    return isinstance(value, str) and value.startswith("/") and "\0" not in value and ".." not in value.split("/")


def _uint32(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**32


def _int64(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63


_NODE_FIELDS: Mapping[str, Callable[[Any], bool]] = {
    "path": _path,
    "hostPath": _path,
    "permissions": lambda value: _matches(_PERMISSIONS, value),
    "type": lambda value: value in {"b", "c", "u", "p"},
    "major": _int64,
    "minor": _int64,
    "fileMode": _uint32,
    "uid": _uint32,
    "gid": _uint32,
}


def _needed(document: Mapping[str, Any], devices: list[Any]) -> str:
    """The lowest version that knows everything the document uses."""
    known = [device for device in devices if isinstance(device, dict)]
    every = [edits for owner in (document, *known) if isinstance(edits := owner.get("containerEdits", {}), dict)]
    nodes = [node for edits in every for node in edits.get("deviceNodes", []) if isinstance(node, dict)]
    if any("additionalGids" in edits for edits in every):
        return "0.7.0"
    if any(owner.get("annotations") for owner in (document, *known)):
        return "0.6.0"
    if any("hostPath" in node for node in nodes) or any(str(device.get("name"))[:1].isdigit() for device in known):
        return "0.5.0"
    return "0.3.0"


def _unknown(mapping: Mapping[str, Any], known: set[str], place: str) -> Iterator[str]:
    for name in mapping:
        if name not in known:
            yield f"{place} has an unknown field {name!r}"


def _matches(pattern: re.Pattern[str], value: Any) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None
