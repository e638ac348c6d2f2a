"""Offers as the ResourceSlices of one node's pool, stable against what the API server holds already.

Pure: offers and the slices as the server returned them in, complete `resource.k8s.io/v1` objects out. A slice that
is right as it stands is returned as that very object, so nothing is written for it. While only existing slices
change the generation stays; when one is added, removed or gives a device to another, all move to a new one, because
readers trust only the highest generation and only when it is whole.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from liken.model.api import Json
from liken.model.offers import DeviceName, Offer, Taint
from liken.state.names import DRIVER_NAME
from liken.state.patch import json_patch
from liken.state.pool import TAINTED_LIMIT, layout

__all__ = ["API_VERSION", "Composer", "NodeRef", "device_body", "json_patch", "slice_name", "slices"]

API_VERSION: Final = "resource.k8s.io/v1"
NAME_LIMIT: Final = 253
"""Longest object name (DNS subdomain)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRef:
    """The node whose devices these are; without a `uid` (offline) the slices have no owner."""

    name: str
    uid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pool:
    """The pool as it is stored: slices by index, the highest generation, and what its slices say of themselves."""

    stored: Mapping[int, Json]
    generation: int
    counts: frozenset[int]
    indices: frozenset[int]
    foreign: bool

    def keeps(self, count: int) -> bool:
        """Whether the highest generation already says that the pool has `count` slices, and no other."""
        return self.counts == {count} and not self.foreign and all(index < count for index in self.indices)


def slices(offers: Iterable[Offer], *, node: NodeRef, previous: Sequence[Json] = ()) -> tuple[Json, ...]:
    """All slices of the node's pool in order, at least one; `previous`: the stored ones, with their metadata."""
    return Composer(node).slices(offers, previous=previous)


def slice_name(node: str, index: int) -> str:
    """Name of a node's slice: `<node>-liken.sh`, further ones `<node>-liken.sh-1` and so on."""
    tail = f"-{DRIVER_NAME}-{index}" if index else f"-{DRIVER_NAME}"
    if len(node) + len(f"-{DRIVER_NAME}-9999") <= NAME_LIMIT:
        return node + tail
    return f"{node[:200].rstrip('.-')}-{sha256(node.encode()).hexdigest()[:12]}{tail}"


def device_body(offer: Offer) -> Json:
    """One device in API form: what is empty or false is absent, attributes stand in the order of their names."""
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


def _taint(taint: Taint) -> Json:
    found = {"key": taint.key, "value": taint.value, "effect": taint.effect, "timeAdded": taint.time_added}
    return {key: value for key, value in found.items() if value}


class Composer:
    """Makes one node's slices again and again; what it remembers only saves work, the result is that of `slices`."""

    def __init__(self, node: NodeRef) -> None:
        self._node = node
        self._names: dict[str, tuple[Json, tuple[DeviceName, ...]]] = {}
        self._equal: dict[str, tuple[Json, tuple[Offer, ...]]] = {}
        self._distinct: tuple[tuple[DeviceName, ...], ...] = ()

    def slices(self, offers: Iterable[Offer], *, previous: Sequence[Json] = ()) -> tuple[Json, ...]:
        """All slices of the pool in order, at least one; a stored slice that is right is returned itself."""
        wanted = {offer.name: offer for offer in offers}
        pool = self._pool(previous)
        spread = layout(wanted, self._present(pool, len(wanted)))
        count = len(spread.slots)
        generation = pool.generation
        if spread.moved or not pool.keeps(count):
            generation += 1
        found = enumerate(spread.slots)
        result = tuple(self._slice(index, slot, pool, generation, count) for index, slot in found)
        names = {item["metadata"]["name"] for item in result}
        for memory in (self._names, self._equal):
            for name in memory.keys() - names:
                del memory[name]
        return result

    def _pool(self, previous: Sequence[Json]) -> _Pool:
        by_name = {slice_name(self._node.name, index): index for index in range(len(previous))}
        prefix = slice_name(self._node.name, 0) + "-"
        stored: dict[int, Json] = {}
        for item in previous:
            name = item["metadata"]["name"]
            tail = name.removeprefix(prefix)
            index = by_name.get(name)
            if index is None and tail != name and tail.isdecimal() and str(int(tail)) == tail and tail != "0":
                index = int(tail)
            if index is not None:
                stored[index] = item
        generation = max((_pool_field(item, "generation") for item in previous), default=0)
        current = {index: item for index, item in stored.items() if _pool_field(item, "generation") == generation}
        return _Pool(
            stored=stored,
            generation=generation,
            counts=frozenset(_pool_field(item, "resourceSliceCount") for item in current.values()),
            indices=frozenset(current),
            foreign=len(stored) < len(previous),
        )

    def _present(self, pool: _Pool, devices: int) -> list[Sequence[DeviceName] | None]:
        """What each slice holds. A device that two slices hold is where the newer generation has it."""
        sane = devices // TAINTED_LIMIT + 1
        length = max(pool.counts, default=0)
        if not 0 < length <= max(sane, len(pool.stored)):
            length = min(max(pool.stored, default=-1) + 1, max(sane, len(pool.stored)))
        names = {index: self._held(item) for index, item in pool.stored.items() if index < length}
        held = tuple(names.values())
        if held != self._distinct:
            if len(set().union(*held)) < sum(map(len, held)):
                names = _deduplicated(names, pool.indices)
            else:
                self._distinct = held
        return [names.get(index) for index in range(length)]

    def _held(self, item: Json) -> tuple[DeviceName, ...]:
        name = item["metadata"]["name"]
        known = self._names.get(name)
        if known is None or known[0] is not item:
            names = sorted(DeviceName(device["name"]) for device in item["spec"].get("devices") or ())
            known = item, tuple(names)
            self._names[name] = known
        return known[1]

    def _slice(self, index: int, slot: tuple[Offer, ...], pool: _Pool, generation: int, count: int) -> Json:
        stored = pool.stored.get(index)
        name = slice_name(self._node.name, index)
        devices = self._devices(name, slot, stored)
        spec: Json = {
            "driver": DRIVER_NAME,
            "nodeName": self._node.name,
            "pool": {"name": self._node.name, "generation": generation, "resourceSliceCount": count},
            "devices": devices,
        }
        metadata: Json = {"name": name}
        if self._node.uid:
            owner = {"apiVersion": "v1", "kind": "Node", "name": self._node.name, "uid": self._node.uid}
            metadata["ownerReferences"] = [{**owner, "controller": True}]
        body = {"apiVersion": API_VERSION, "kind": "ResourceSlice", "metadata": metadata, "spec": spec}
        return stored if stored is not None and not json_patch(stored, body) else body

    def _devices(self, name: str, slot: tuple[Offer, ...], stored: Json | None) -> list[Json]:
        """Device bodies; the stored list itself when it says the same."""
        old: list[Json] = (stored or {"spec": {}})["spec"].get("devices") or []
        known = self._equal.get(name)
        if stored is not None and known is not None and known[0] is stored and known[1] == slot:
            return old
        right = {offer.name: offer for offer in known[1]} if stored is not None and known and known[0] is stored else {}
        by_name = {device["name"]: device for device in old}
        bodies = [
            by_name[offer.name] if right.get(offer.name) is offer else _body(offer, by_name.get(offer.name))
            for offer in slot
        ]
        if stored is None or bodies != old:
            return bodies
        self._equal[name] = stored, slot
        return old


def _deduplicated(
    names: Mapping[int, Sequence[DeviceName]], current: frozenset[int]
) -> dict[int, tuple[DeviceName, ...]]:
    seen: set[DeviceName] = set()
    found: dict[int, tuple[DeviceName, ...]] = {}
    for index in sorted(names, key=lambda index: (index not in current, index)):
        found[index] = tuple(dict.fromkeys(name for name in names[index] if name not in seen))
        seen.update(found[index])
    return found


def _body(offer: Offer, stored: Json | None) -> Json:
    """The device's body, or the stored one if it is equal; taints keep the times the server gave them.

    Without the times each write would renew them.
    """
    body = device_body(offer)
    times = {
        (taint["key"], taint["effect"], taint.get("value", "")): taint.get("timeAdded")
        for taint in (stored or {}).get("taints") or ()
    }
    for taint in body.get("taints", ()):
        time = times.get((taint["key"], taint["effect"], taint.get("value", "")))
        if time and "timeAdded" not in taint:
            taint["timeAdded"] = time
    return stored if stored == body else body


def _pool_field(item: Json, field: str) -> int:
    return int(item["spec"]["pool"].get(field, 0))
