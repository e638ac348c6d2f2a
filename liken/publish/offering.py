"""Which offers of a snapshot are published now: all but those that flap and those that the server refused.

Flapping devices are absent until they are quiet; a refused device stays out until it changes. Both are told in
words to those who show the state of the node.
"""

from collections.abc import Collection, Mapping
from itertools import compress
from operator import is_not

from liken.model.offers import DeviceName, Offer, Snapshot
from liken.publish.losses import Without
from liken.state.graph import Delta
from liken.state.holdoff import HoldOff


class Offering:
    """Remembers the snapshots it was shown; `without` leaves fields out that the server drops."""

    def __init__(self) -> None:
        self.without = Without()
        self.refused: dict[DeviceName, Offer] = {}
        self._flapping = HoldOff()
        self._offers: Mapping[DeviceName, Offer] | None = None
        self._held: Mapping[DeviceName, float] = {}

    @property
    def held_back(self) -> frozenset[DeviceName]:
        """Devices that are offered and not published."""
        return frozenset(self._held) | frozenset(self.refused)

    @property
    def flapping(self) -> int:
        """How many devices are held back because they flap."""
        return len(self._held)

    def note(self, snapshot: Snapshot, now: float) -> None:
        """See one snapshot of the store; each change of a name counts as flapping."""
        new, old = snapshot.offers, self._offers
        if not snapshot.complete or new is old:
            return
        self._offers = new
        if old is not None:
            self._flapping.note(_delta(old, new), now)
        for name in [name for name, offer in self.refused.items() if new.get(name) != offer]:
            del self.refused[name]

    def now(self, snapshot: Snapshot, now: float) -> Collection[Offer]:
        """The offers to publish."""
        self._held = self._flapping.held(now)
        leave_out = self.held_back
        offers: Collection[Offer] = snapshot.offers.values()
        if leave_out:
            offers = [offer for name, offer in snapshot.offers.items() if name not in leave_out]
        return [self.without.offer(offer) for offer in offers] if self.without.fields else offers

    def release(self) -> float | None:
        """When the next flapping device may return; None: none does."""
        return min(self._held.values(), default=None)


def _delta(old: Mapping[DeviceName, Offer], new: Mapping[DeviceName, Offer]) -> Delta:
    """What differs; offers that did not change are the same objects, so ten thousand are compared in C."""
    touched = list(compress(new, map(is_not, map(old.get, new), new.values())))
    offered = tuple(name for name in touched if name not in old)
    gone = len(old) + len(offered) > len(new)
    return Delta(
        offered=offered,
        withdrawn=tuple(name for name in old if name not in new) if gone else (),
        altered=tuple(name for name in touched if name in old and _differs(old[name], new[name])),
    )


def _differs(old: Offer, new: Offer) -> bool:
    return (old.attributes, old.shareable, old.taints) != (new.attributes, new.shareable, new.taints)
