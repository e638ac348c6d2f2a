"""API form of what a slice says: names of slices, one device, one whole ResourceSlice.

Pure, and the only place that knows how `resource.k8s.io/v1` spells an offer: what is empty or false is absent, and
attributes stand in the order of their names, so that two equal offers have two equal bodies.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from liken.model.api import Json
from liken.model.offers import Offer, Taint
from liken.state.names import DRIVER_NAME

API_VERSION: Final = "resource.k8s.io/v1"
NAME_LIMIT: Final = 253
"""Longest object name (DNS subdomain)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRef:
    """The node whose devices these are; without a `uid` (offline) the slices have no owner."""

    name: str
    uid: str = ""


def slice_name(node: str, index: int) -> str:
    """Name of a node's slice: `<node>-liken.sh`, further ones `<node>-liken.sh-1` and so on."""
    tail = f"-{DRIVER_NAME}-{index}" if index else f"-{DRIVER_NAME}"
    if len(node) + len(f"-{DRIVER_NAME}-9999") <= NAME_LIMIT:
        return node + tail
    return f"{node[:200].rstrip('.-')}-{sha256(node.encode()).hexdigest()[:12]}{tail}"


def slice_index(node: str, name: str) -> int | None:
    """Index of a node's slice by its name; None: it is not one of ours."""
    first = slice_name(node, 0)
    tail = name.removeprefix(f"{first}-")
    if name == first:
        return 0
    return int(tail) if tail != name and tail.isdecimal() and str(int(tail)) == tail != "0" else None


def slice_body(node: NodeRef, index: int, devices: Sequence[Json], *, generation: int, count: int) -> Json:
    """A whole slice of a pool of `count` slices at one generation."""
    metadata: Json = {"name": slice_name(node.name, index)}
    if node.uid:
        owner = {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid, "controller": True}
        metadata["ownerReferences"] = [owner]
    spec = {
        "driver": DRIVER_NAME,
        "nodeName": node.name,
        "pool": {"name": node.name, "generation": generation, "resourceSliceCount": count},
        "devices": devices,
    }
    return {"apiVersion": API_VERSION, "kind": "ResourceSlice", "metadata": metadata, "spec": spec}


def device_body(offer: Offer) -> Json:
    """One device."""
    body: Json = {"name": str(offer.name)}
    if offer.shareable:
        body["allowMultipleAllocations"] = True
    if offer.attributes:
        body["attributes"] = {
            key: {"bool": value} if isinstance(value, bool) else {"string": value}
            for key, value in sorted(offer.attributes.items())
        }
    if offer.taints:
        body["taints"] = [_taint(taint) for taint in offer.taints]
    return body


def dated_body(offer: Offer, stored: Json | None) -> Json:
    """One device whose taints keep the times the server gave them: without them each write would renew the times."""
    body = device_body(offer)
    times = {_identity(taint): taint.get("timeAdded") for taint in (stored or {}).get("taints") or ()}
    for taint in body.get("taints", ()):
        time = times.get(_identity(taint))
        if time and "timeAdded" not in taint:
            taint["timeAdded"] = time
    return body


def _identity(taint: Json) -> tuple[str, str, str]:
    return taint["key"], taint["effect"], taint.get("value", "")


def _taint(taint: Taint) -> Json:
    found = {"key": taint.key, "value": taint.value, "effect": taint.effect, "timeAdded": taint.time_added}
    return {key: value for key, value in found.items() if value}
