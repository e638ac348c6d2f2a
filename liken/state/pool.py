"""How a pool's devices are spread over slices, so that one device that comes or goes changes one slice.

Pure: offers and the layout there is now in, the layout to be out. A device stays where it is; a new one goes where
there is room. It moves only when its slice is over the limit (128 devices, 64 as soon as one of them is tainted) or
when so many left that half the slices would do; a move needs a new generation, because readers must never see the
device twice or not at all.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from liken.model.offers import DeviceName, Offer

SLICE_LIMIT: Final = 128
"""Most devices in one slice (`resource.k8s.io/v1`)."""

TAINTED_LIMIT: Final = 64
"""Most devices in a slice of which any device carries a taint."""

_taints = attrgetter("taints")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The devices of each slice in the order of their names, and whether one of them left the slice it was in."""

    slots: tuple[tuple[Offer, ...], ...]
    moved: bool


def layout(wanted: Mapping[DeviceName, Offer], present: Sequence[Sequence[DeviceName] | None]) -> Layout:
    """Spread the wanted devices over slices; always at least one.

    `present` is what each slice holds now, sorted and no name twice; None: that slice is missing.
    """
    found = [tuple(map(wanted.get, names or ())) for names in present]
    kept = [tuple(offer for offer in slot if offer) for slot in found]
    count = sum(map(len, kept))
    if len(kept) > 1 and len(wanted) <= TAINTED_LIMIT * (len(kept) - 1):
        return Layout(slots=_filled([], (), _sorted(wanted.values())), moved=count > 0)
    if kept and count == len(wanted) and all(map(_fits, kept)):
        return Layout(slots=tuple(kept), moved=False)
    slots = [list(slot) for slot in kept]
    evicted = [offer for slot in slots for offer in _evicted(slot)]
    placed = {offer.name for slot in slots for offer in slot}
    homeless = _sorted(offer for name, offer in wanted.items() if name not in placed)
    missing = [index for index, names in enumerate(present) if names is None]
    return Layout(slots=_filled(slots, missing, homeless), moved=bool(evicted))


def _filled(
    slots: list[list[Offer]], missing: Sequence[int], homeless: Iterable[Offer]
) -> tuple[tuple[Offer, ...], ...]:
    """Put each homeless device into the first slice with room, missing slices first, else into a new one."""
    order = [slots[index] for index in missing]
    order += [slot for index, slot in enumerate(slots) if index not in missing]
    for offer in homeless:
        room = next((slot for slot in order if _room(slot, offer)), None)
        if room is None:
            room = []
            slots.append(room)
            order.append(room)
        room.append(offer)
    return tuple(tuple(_sorted(slot)) for slot in slots or [[]])


def _evicted(slot: list[Offer]) -> list[Offer]:
    """Take out of a slice what is too much for it: the tainted ones if that helps, else the last."""
    if _fits(slot):
        return []
    tainted = [offer for offer in slot if offer.taints]
    if tainted and len(slot) <= SLICE_LIMIT + len(tainted):
        slot[:] = [offer for offer in slot if not offer.taints]
        return tainted
    over = slot[SLICE_LIMIT:]
    del slot[SLICE_LIMIT:]
    return over + _evicted(slot)


def _fits(slot: Sequence[Offer]) -> bool:
    return len(slot) <= _limit(slot)


def _room(slot: Sequence[Offer], offer: Offer) -> bool:
    return len(slot) < (TAINTED_LIMIT if offer.taints else SLICE_LIMIT) and len(slot) < _limit(slot)


def _limit(slot: Sequence[Offer]) -> int:
    return TAINTED_LIMIT if any(map(_taints, slot)) else SLICE_LIMIT


def _sorted(offers: Iterable[Offer]) -> list[Offer]:
    return sorted(offers, key=attrgetter("name"))
