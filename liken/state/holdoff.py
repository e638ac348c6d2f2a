"""Which devices flap, and until when they are left out of the slices.

Pure: what each change of the store offered and withdrew goes in with its time; names with their release time come
out. The first few changes of a name pass at once, because re-plugging an adapter twice is no fault; from then on
each change doubles the time for which the name must be quiet. So a loose cable ends as an absent device and no
write, while every other device is published as usual.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from liken.model.offers import DeviceName
from liken.state.graph import Delta

FREE_CHANGES: Final = 6
"""Changes of one name that pass unhindered: three times out and in again."""

FIRST_S: Final = 1.0
LONGEST_S: Final = 60.0
FORGET_S: Final = 120.0
"""A name that was quiet this long starts anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Flapping:
    changes: int
    last: float


class HoldOff:
    """Counts the changes of each name; times are seconds of one monotonic clock."""

    def __init__(self) -> None:
        self._names: dict[DeviceName, _Flapping] = {}

    def note(self, delta: Delta, now: float) -> None:
        """Count what a change of the store offered, withdrew or altered."""
        self._names = {name: seen for name, seen in self._names.items() if now - seen.last < FORGET_S}
        for name in (*delta.offered, *delta.withdrawn, *delta.altered):
            seen = self._names.get(name)
            self._names[name] = _Flapping(changes=seen.changes + 1 if seen else 1, last=now)

    def held(self, now: float) -> Mapping[DeviceName, float]:
        """Names to leave out now, each with the time at which it may return if it stays quiet."""
        releases = {name: seen.last + _quiet(seen.changes) for name, seen in self._names.items()}
        return {name: release for name, release in sorted(releases.items()) if release > now}


def _quiet(changes: int) -> float:
    over = changes - FREE_CHANGES
    return min(LONGEST_S, FIRST_S * 2.0 ** min(over - 1, 32)) if over > 0 else 0.0
