"""When to look: after a quiet moment, at the latest a fixed time after the first change.

Pure: times go in (seconds of any one clock), a due time comes out. A plug is a burst of some ten events within a few
milliseconds; the quiet window makes it one change, and the limit keeps a device that never falls silent from holding
up all others.
"""

from dataclasses import dataclass


@dataclass(slots=True)
class Settle:
    """One window: opened by the first change noted, moved by each further one, closed by `close`."""

    quiet_s: float
    limit_s: float
    first: float | None = None
    last: float = 0.0

    def note(self, now: float) -> None:
        """A change at `now`."""
        if self.first is None:
            self.first = now
        self.last = now

    @property
    def due(self) -> float | None:
        """When the window ends; None while nothing has changed."""
        if self.first is None:
            return None
        return min(self.last + self.quiet_s, self.first + self.limit_s)

    def close(self) -> float | None:
        """End the window and return the time of its first change."""
        first, self.first = self.first, None
        return first
