"""How a pool's devices are spread over slices, so that one device that comes or goes changes one slice.

Pure: offers and the layout there is now in, the layout to be out. A device stays where it is; a new one goes where
there is room. It moves only when its slice is over the limit (128 devices, 64 as soon as one of them is tainted) or
when so many left that half the slices would do; a move needs a new generation, because readers must never see the
device twice or not at all.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, TypeAlias

from liken.model.api import Json
from liken.model.offers import DeviceName, Offer
from liken.state.shelf import differing

Names: TypeAlias = tuple[DeviceName, ...]

SLICE_LIMIT: Final = 128
"""Most devices in one slice (`resource.k8s.io/v1`)."""

TAINTED_LIMIT: Final = 64
"""Most devices in a slice of which any device carries a taint."""

_taints = attrgetter("taints")


FEW_CHANGES: Final = 64
"""Up to so many changed offers the layout before is amended, not made anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """One slice of ours on the server: the object, what it says of its pool, its devices sorted."""

    item: Json
    generation: int
    count: int
    names: Names


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """The pool as it is stored: slices by index, the highest generation, and whether a slice is not one of ours."""

    stored: Mapping[int, Stored]
    generation: int
    foreign: bool

    @property
    def current(self) -> dict[int, Stored]:
        """The slices of the highest generation: the only ones that readers use."""
        return {index: item for index, item in self.stored.items() if item.generation == self.generation}

    def keeps(self, count: int) -> bool:
        """Whether the highest generation already says that the pool has `count` slices, and no other."""
        current = self.current
        said = {item.count for item in current.values()}
        return said == {count} and not self.foreign and all(index < count for index in current)

    def length(self, devices: int) -> int:
        """How many slices the pool has: as it says of itself, unless that is absurd for so many devices."""
        most = max(devices // TAINTED_LIMIT + 1, len(self.stored))
        said = max((item.count for item in self.current.values()), default=0)
        return said if 0 < said <= most else min(max(self.stored, default=-1) + 1, most)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The devices of each slice in the order of their names, and whether one of them left the slice it was in."""

    slots: tuple[tuple[Offer, ...], ...]
    moved: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Last:
    """One layout: the offers it was made of, and the names in its slots."""

    wanted: Mapping[DeviceName, Offer]
    names: tuple[Names | None, ...]
    layout: Layout


class Layouts:
    """Lays one pool out again and again; remembers the layout before only to save work."""

    def __init__(self) -> None:
        self._last: _Last | None = None
        self._distinct: tuple[Names, ...] = ()

    def spread(self, wanted: Mapping[DeviceName, Offer], pool: Pool) -> Layout:
        """Spread the offers over slices so that the stored ones change as little as possible."""
        present = self._present(pool, len(wanted))
        last = self._last
        if last is not None and present == last.names and (found := _amended(last, wanted)) is not None:
            self._last = _Last(wanted=wanted, names=present, layout=found)
            return found
        found = layout(wanted, present)
        names = tuple(tuple(offer.name for offer in slot) for slot in found.slots)
        self._last = _Last(wanted=wanted, names=names, layout=found)
        return found

    def _present(self, pool: Pool, devices: int) -> tuple[Names | None, ...]:
        """What each slice holds. A device that two slices hold is where the newest generation has it."""
        length = pool.length(devices)
        names = {index: item.names for index, item in pool.stored.items() if index < length}
        held = tuple(names.values())
        if held != self._distinct:
            if len(set().union(*held)) < sum(map(len, held)):
                names = _deduplicated(names, pool.current)
            else:
                self._distinct = held
        return tuple(names.get(index) for index in range(length))


def _amended(last: _Last, wanted: Mapping[DeviceName, Offer]) -> Layout | None:
    """The layout before with a few offers replaced by others of the same name; None: it must be made anew."""
    changed = differing(last.wanted, wanted)
    if len(changed) > FEW_CHANGES:
        return None
    slots = list(last.layout.slots)
    for name in changed:
        new, old = wanted.get(name), last.wanted.get(name)
        if new is None or old is None or new.taints or old.taints:
            return None
        for index, names in enumerate(last.names):
            at = bisect_left(names or (), name)
            if names and at < len(names) and names[at] == name:
                slots[index] = (*slots[index][:at], new, *slots[index][at + 1 :])
    return Layout(slots=tuple(slots), moved=False)


def _deduplicated(names: Mapping[int, Names], current: Mapping[int, Stored]) -> dict[int, Names]:
    seen: set[DeviceName] = set()
    found: dict[int, Names] = {}
    for index in sorted(names, key=lambda index: (index not in current, index)):
        found[index] = tuple(dict.fromkeys(name for name in names[index] if name not in seen))
        seen.update(found[index])
    return found


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
