"""What a claim or its DeviceClass may ask beyond the kernel's own nodes: `kind: NodeOptions`, parsed strictly.

In: the `config` entries of an allocation. Out: one `NodeOptions` for a request, or an `OptionsError` that names the
field and the fix. The entries of the class come first and those of the claim win, field by field, so that a class can
leave out the bus node and a claim still choose a path. Strict, because a misspelt field that is ignored would start a
container without what it asked for.
"""

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from liken.claims.words import shown
from liken.model.api import Json
from liken.state.names import DRIVER_NAME

API_VERSION = "liken.sh/v1alpha1"
KIND = "NodeOptions"
FIELDS = ("busNode", "group", "mode", "path", "paths", "supplementalGroups")
LARGEST_ID = 2**32 - 2  # 2^32-1 means "no group" to the kernel

_PATH = re.compile(r"/dev(/[A-Za-z0-9_][A-Za-z0-9_.:@+-]*)+")
_MODE = re.compile(r"0?[0-7]{3}")
_NODE_KIND = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


class OptionsError(ValueError):
    """A claim asks for something that liken cannot give; the message says which field, and what to write instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOptions:
    """How a device's nodes appear in the container; the defaults are the kernel's own.

    `path` names the device's one node, `paths` the nodes of a kind (`tty`); `group` and `mode` are pinned on every
    node; `supplemental_groups` adds the nodes' host group to the container's process; without `bus_node` the usbfs node
    is left out.
    """

    path: str | None = None
    paths: Mapping[str, str] = field(default_factory=dict)
    group: int | None = None
    mode: int | None = None
    supplemental_groups: bool = False
    bus_node: bool = True


DEFAULTS = NodeOptions()


def options(config: Iterable[Json], request: str) -> NodeOptions:
    """What the `config` entries of an allocation ask for a result of `request` (`gpu` or `gpu/best`)."""
    mine = [entry for entry in config if _concerns(entry, request)]
    chosen = DEFAULTS
    for source in ("FromClass", "FromClaim"):
        for entry in mine:
            if entry.get("source", "FromClaim") == source:
                chosen = _over(chosen, parsed((entry.get("opaque") or {}).get("parameters")))
    return chosen


def _concerns(entry: Json, request: str) -> bool:
    requests = entry.get("requests") or []
    ours = (entry.get("opaque") or {}).get("driver") == DRIVER_NAME
    return ours and (not requests or request in requests or request.partition("/")[0] in requests)


def _over(below: NodeOptions, above: Mapping[str, Any]) -> NodeOptions:
    """`above` wins; a name for the node, in either form, replaces every name below."""
    if "path" in above or "paths" in above:
        below = replace(below, path=None, paths={})
    return replace(below, **above)


def parsed(parameters: Any) -> dict[str, Any]:
    """The fields that `parameters` (one opaque configuration) sets, as fields of NodeOptions."""
    if not isinstance(parameters, dict):
        raise OptionsError(f"the parameters for driver {DRIVER_NAME} must be an object of kind {KIND}")
    for name, expected in (("apiVersion", API_VERSION), ("kind", KIND)):
        if parameters.get(name) != expected:
            raise OptionsError(f"{name} of the parameters must be {expected}, not {shown(parameters.get(name))}")
    given = {name: value for name, value in parameters.items() if name not in {"apiVersion", "kind"}}
    for name in given.keys() - set(FIELDS):
        near = difflib.get_close_matches(str(name), FIELDS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(FIELDS)}"
        raise OptionsError(f"{KIND} has no field {shown(name)}: {hint}")
    if "path" in given and "paths" in given:
        raise OptionsError("give path (a device with one node) or paths (by kind), not both")
    return dict(_READERS[name](given[name]) for name in given)


def _path_value(value: Any, name: str = "path") -> str:
    if not isinstance(value, str) or not _PATH.fullmatch(value) or len(value) > 255:  # noqa: PLR2004 - a name's limit
        raise OptionsError(
            f"{name}: {shown(value)} is not a plain path below /dev: write one like /dev/zigbee (no '..', no blanks)"
        )
    return value


def _paths_value(value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or not value:
        raise OptionsError("paths must map a kind of node to a path, like {tty: /dev/zigbee}")
    for kind in value:
        if not isinstance(kind, str) or not _NODE_KIND.fullmatch(kind):
            raise OptionsError(f"paths: {shown(kind)} is no kind of node: write one like tty, hidraw or sound")
    read = {kind: _path_value(path, f"paths.{kind}") for kind, path in value.items()}
    twice = {path for path in read.values() if list(read.values()).count(path) > 1}
    if twice:
        raise OptionsError(f"paths: {min(twice)} is given to more than one kind: each needs its own path")
    return read


def _group_value(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LARGEST_ID:
        raise OptionsError(f"group: {shown(value)} is not a group's number in the container: write one like 20")
    return value


def _mode_value(value: Any) -> int:
    if not isinstance(value, str) or not _MODE.fullmatch(value):
        raise OptionsError(f'mode: {shown(value)} is not a mode in quotes and octal: write one like "0660"')
    return int(value, 8)


def _switch_value(value: Any, name: str) -> bool:
    if not isinstance(value, bool):
        raise OptionsError(f"{name}: {shown(value)} is neither true nor false")
    return value


_READERS: Mapping[str, Callable[[Any], tuple[str, Any]]] = {
    "path": lambda value: ("path", _path_value(value)),
    "paths": lambda value: ("paths", _paths_value(value)),
    "group": lambda value: ("group", _group_value(value)),
    "mode": lambda value: ("mode", _mode_value(value)),
    "supplementalGroups": lambda value: ("supplemental_groups", _switch_value(value, "supplementalGroups")),
    "busNode": lambda value: ("bus_node", _switch_value(value, "busNode")),
}


def bound(chosen: NodeOptions, kinds: Iterable[str | None], *, bus_kind: str, device: str) -> NodeOptions:
    """`path` turned into `paths`: which kind of node it names is settled while the device is whole.

    Later a program may take the kernel driver away; the path must then not pass to the bus node.
    """
    if chosen.path is None:
        return chosen
    present = sorted({kind or "" for kind in kinds})
    named = [kind for kind in present if kind != bus_kind] or present
    if len(named) != 1:
        raise OptionsError(
            f"path: device {device} has nodes of several kinds ({', '.join(filter(None, named))}): "
            f"write paths, like {{{next(filter(None, named), 'tty')}: {chosen.path}}}"
        )
    return replace(chosen, path=None, paths={named[0]: chosen.path})


def as_json(chosen: NodeOptions) -> Json:
    """The fields that differ from the defaults, under the names a person writes."""
    fields = {
        "path": chosen.path,
        "paths": dict(chosen.paths) or None,
        "group": chosen.group,
        "mode": None if chosen.mode is None else f"{chosen.mode:04o}",
        "supplementalGroups": chosen.supplemental_groups or None,
        "busNode": None if chosen.bus_node else False,
    }
    return {name: value for name, value in fields.items() if value is not None}
