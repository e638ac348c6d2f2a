"""Which offers of a snapshot are published now: all but those that flap and those that the server refused.

Flapping devices are absent until they are quiet; a refused device stays out until it changes. Both are told in
words to those who show the state of the node.
"""

from collections.abc import Mapping

from liken.model.offers import DeviceName, Offer, Snapshot
from liken.publish.losses import Without
from liken.state.graph import Delta
from liken.state.holdoff import HoldOff
from liken.state.shelf import differing


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

    def now(self, snapshot: Snapshot, now: float) -> Mapping[DeviceName, Offer]:
        """The offers to publish; the snapshot's own mapping when all of them are, for it is compared cheaply."""
        self._held = self._flapping.held(now)
        leave_out = self.held_back
        if not leave_out and not self.without.fields:
            return snapshot.offers
        return {name: self.without.offer(offer) for name, offer in snapshot.offers.items() if name not in leave_out}

    def release(self) -> float | None:
        """When the next flapping device may return; None: none does."""
        return min(self._held.values(), default=None)


def _delta(old: Mapping[DeviceName, Offer], new: Mapping[DeviceName, Offer]) -> Delta:
    touched = differing(old, new)
    return Delta(
        offered=tuple(name for name in touched if name not in old),
        withdrawn=tuple(name for name in touched if name not in new),
        altered=tuple(name for name in touched if name in old and name in new and _differs(old[name], new[name])),
    )


def _differs(old: Offer, new: Offer) -> bool:
    return (old.attributes, old.shareable, old.taints) != (new.attributes, new.shareable, new.taints)
