"""CDI documents: what a container runtime reads to give a container its device nodes.

In: a prepared claim, or a machine's offers. Out: a document of kind `liken.sh/device` with device nodes and nothing
else, by path and without numbers, in the lowest `cdiVersion` that carries it. A claim's document holds its record as
annotations (`annotations`), so that there is nothing else to keep. `schema` checks any document.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from liken.claims import annotations
from liken.claims.options import DEFAULTS, NodeOptions
from liken.claims.prepared import PreparedClaim, PreparedDevice
from liken.model.api import Json
from liken.model.offers import BUS_NODE_KIND, DeviceNode, Offer
from liken.state.names import DRIVER_NAME, gone_path

KIND = f"{DRIVER_NAME}/device"

_NUMBER = re.compile(r"\d+")
_SEPARATOR = "_"  # in no uid, request, device name or share id: so no two claims can make the same name
_FOREIGN = re.compile(r"[^A-Za-z0-9.:-]")


def document(claim: PreparedClaim) -> Json:
    """The CDI document of a claim: one CDI device for each allocated result, in the order of the results."""
    return _versioned(
        {
            "kind": KIND,
            "annotations": annotations.of_claim(claim),
            "devices": [
                {"name": name, "annotations": annotations.of_device(device), "containerEdits": _edits(device)}
                for name, device in zip(names(claim), claim.devices, strict=True)
            ],
        }
    )


def inventory(offers: Iterable[Offer]) -> Json | None:
    """The CDI document of a machine without Kubernetes: each device under its own name. None: no device, so no file."""
    ordered = sorted(offers, key=lambda offer: offer.name)
    devices = [
        {"name": offer.name, "containerEdits": {"deviceNodes": [{"path": node.path} for node in offer.nodes]}}
        for offer in ordered
        if offer.nodes
    ]
    return _versioned({"kind": KIND, "devices": devices}) if devices else None


def text(made: Json) -> bytes:
    """A document as the bytes of its file: one line for each field and each device."""
    lines = []
    for name, value in made.items():
        if name == "devices":
            devices = ",\n  ".join(json.dumps(device) for device in value)
            lines.append(f' "devices": [\n  {devices}\n ]')
        else:
            lines.append(f" {json.dumps(name)}: {json.dumps(value)}")
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


def names(claim: PreparedClaim) -> tuple[str, ...]:
    """The CDI device names of a claim's devices: unique, and never used by another claim, since each holds its uid."""
    made: list[str] = []
    for device in claim.devices:
        parts = (claim.uid, device.request, device.name, *([device.share_id] if device.share_id else []))
        name = _SEPARATOR.join(_FOREIGN.sub("-", part) for part in parts)
        again = sum(other == name or other.startswith(f"{name}{_SEPARATOR}again") for other in made)
        made.append(f"{name}{_SEPARATOR}again{again}" if again else name)
    return tuple(made)


def qualified(name: str) -> str:
    """The id by which the kubelet and the runtime ask for a CDI device."""
    return f"{KIND}={name}"


def delivered(device: PreparedDevice) -> tuple[tuple[str, str], ...]:
    """(path in the container, path on the host) of each node a device gives now; empty while it is gone."""
    return delivery(device.nodes, device.options)


def delivery(nodes: Sequence[DeviceNode], chosen: NodeOptions = DEFAULTS) -> tuple[tuple[str, str], ...]:
    """(path in the container, path on the host) for `nodes` under the options; several of a kind get a number."""
    kept = [node for node in nodes if chosen.bus_node or node.kind != BUS_NODE_KIND]
    found: list[tuple[str, str]] = []
    for kind in {node.kind or "": None for node in kept}:
        alike = sorted((node.path for node in kept if (node.kind or "") == kind), key=_natural)
        wanted = chosen.paths.get(kind)
        for number, path in enumerate(alike):
            inside = path if wanted is None else wanted if len(alike) == 1 else f"{wanted}{number}"
            found.append((inside, path))
    return tuple(sorted(found, key=lambda pair: _natural(pair[1])))


def _natural(path: str) -> tuple[str, list[int]]:
    return _NUMBER.sub("0", path), [int(number) for number in _NUMBER.findall(path)]


def _edits(device: PreparedDevice) -> Json:
    given = delivered(device)
    if not given:
        return {"deviceNodes": [{"path": gone_path(device.name)}]}
    edits: Json = {"deviceNodes": [_node(inside, path, device) for inside, path in given]}
    added = {*device.groups.values(), device.options.group} - {None, 0}  # a runtime ignores group 0
    if device.options.supplemental_groups and added:
        edits["additionalGids"] = sorted(added)
    return edits


def _node(inside: str, path: str, device: PreparedDevice) -> Json:
    node: Json = {"path": inside}
    if inside != path:
        node["hostPath"] = path
    if device.options.mode is not None:
        node["fileMode"] = device.options.mode
    group = device.options.group
    if group is None and device.options.supplemental_groups:
        # A container that starts as root owns the node as 0:0, and the added group would open nothing.
        group = device.groups.get(path)
    if group is not None:
        node["gid"] = group
    return node


def _versioned(body: Json) -> Json:
    return {"cdiVersion": lowest_version(body), **body}


def lowest_version(body: Mapping[str, Any]) -> str:
    """The lowest `cdiVersion` that carries what `body` holds; a runtime refuses a file that says less."""
    devices = body.get("devices", [])
    every = [body.get("containerEdits", {}), *(device.get("containerEdits", {}) for device in devices)]
    if any("additionalGids" in edits for edits in every):
        return "0.7.0"
    if body.get("annotations") or any(device.get("annotations") for device in devices):
        return "0.6.0"
    nodes = [node for edits in every for node in edits.get("deviceNodes", [])]
    if any("hostPath" in node for node in nodes) or any(not device["name"][:1].isalpha() for device in devices):
        return "0.5.0"
    return "0.3.0"
