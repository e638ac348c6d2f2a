"""Offers as the ResourceSlices of one node's pool, stable against what the API server holds already.

Pure: offers and the slices as the server returned them in, complete `resource.k8s.io/v1` objects out. A slice that
is right as it stands is returned as that very object, so nothing is written for it. While only existing slices
change the generation stays; when one is added, removed or gives a device to another, all move to a new one, because
readers trust only the highest generation and only when it is whole.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from liken.model.api import Json
from liken.model.offers import DeviceName, Offer
from liken.state.bodies import NodeRef, dated_body, device_body, slice_body, slice_index, slice_name
from liken.state.patch import json_patch
from liken.state.pool import Layouts, Pool, Stored

__all__ = ["Composer", "NodeRef", "device_body", "json_patch", "slice_name", "slices"]


def slices(
    offers: Mapping[DeviceName, Offer] | Iterable[Offer], *, node: NodeRef, previous: Sequence[Json] = ()
) -> tuple[Json, ...]:
    """All slices of the node's pool in order, at least one; `previous`: the stored ones, with their metadata."""
    return Composer(node).slices(offers, previous=previous)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    """What was made of one slot: the slice for its offers, and the stored object known to say the same."""

    slot: tuple[Offer, ...]
    generation: int
    count: int
    body: Json
    tainted: bool = False
    right: Json | None = None


class Composer:
    """Makes one node's slices again and again; what it remembers only saves work, the result is that of `slices`."""

    def __init__(self, node: NodeRef) -> None:
        self._node = node
        self._layouts = Layouts()
        self._stored: dict[int, Stored] = {}
        self._made: dict[int, _Made] = {}

    def slices(
        self, offers: Mapping[DeviceName, Offer] | Iterable[Offer], *, previous: Sequence[Json] = ()
    ) -> tuple[Json, ...]:
        """All slices of the pool in order, at least one; a stored slice that is right is returned itself.

        Given a snapshot's own mapping of offers, a call costs what changed since the call before.
        """
        wanted = offers if isinstance(offers, Mapping) else {offer.name: offer for offer in offers}
        pool = self._pool(previous)
        spread = self._layouts.spread(wanted, pool)
        count = len(spread.slots)
        generation = pool.generation if pool.keeps(count) and not spread.moved else pool.generation + 1
        self._made = {
            index: self._slice(index, slot, pool.stored.get(index), generation, count)
            for index, slot in enumerate(spread.slots)
        }
        return tuple(
            made.right if (held := pool.stored.get(index)) and made.right is held.item else made.body
            for index, made in self._made.items()
        )

    def _pool(self, previous: Sequence[Json]) -> Pool:
        """The stored slices by index; their device names are taken out once for each object."""
        found: dict[int, Stored] = {}
        for item in previous:
            index = slice_index(self._node.name, item["metadata"]["name"])
            if index is not None:
                known = self._stored.get(index)
                found[index] = known if known is not None and known.item is item else _stored(item)
        self._stored = found
        generation = max((int(item["spec"]["pool"].get("generation", 0)) for item in previous), default=0)
        return Pool(stored=found, generation=generation, foreign=len(found) < len(previous))

    def _slice(self, index: int, slot: tuple[Offer, ...], stored: Stored | None, generation: int, count: int) -> _Made:
        item = stored.item if stored else None
        made = self._body(index, slot, item, generation=generation, count=count)
        if item is None or made.right is item:
            return made
        if json_patch(item, made.body):
            return replace(made, right=None)
        devices = item["spec"].get("devices") or []
        body = slice_body(self._node, index, devices, generation=generation, count=count)
        return replace(made, body=body, right=item)

    def _body(self, index: int, slot: tuple[Offer, ...], stored: Json | None, *, generation: int, count: int) -> _Made:
        """The slice as it shall be: what was made before if nothing differs, else with the bodies that still hold."""
        known = self._made.get(index)
        reusable: dict[DeviceName, tuple[Offer, Json]] = {}
        if known is not None and not known.tainted:
            if known.slot == slot and (known.generation, known.count) == (generation, count):
                return known
            bodies = known.body["spec"].get("devices") or ()
            reusable = {offer.name: (offer, body) for offer, body in zip(known.slot, bodies, strict=True)}
        tainted = any(offer.taints for offer in slot)
        held = (
            {device["name"]: device for device in (stored["spec"].get("devices") or ())} if stored and tainted else {}
        )
        devices = []
        for offer in slot:
            earlier = reusable.get(offer.name)
            devices.append(earlier[1] if earlier and earlier[0] is offer else dated_body(offer, held.get(offer.name)))
        body = slice_body(self._node, index, devices, generation=generation, count=count)
        return _Made(slot=slot, generation=generation, count=count, body=body, tainted=tainted)


def _stored(item: Json) -> Stored:
    pool, devices = item["spec"]["pool"], item["spec"].get("devices") or ()
    return Stored(
        item=item,
        generation=int(pool.get("generation", 0)),
        count=int(pool.get("resourceSliceCount", 0)),
        names=tuple(sorted(DeviceName(device["name"]) for device in devices)),
    )
