"""When to write: a token bucket for accepted writes and growing, jittered waits after failures.

Pure arithmetic on the caller's clock. The bucket may go into debt: the slices of one pool are written together,
because a half-written pool is of no use to anybody, and the debt is paid before the next pass begins.
"""

import random

JITTER = 0.2


class Bucket:
    """`burst` tokens, one more each `refill_s` seconds."""

    def __init__(self, burst: int, refill_s: float, now: float) -> None:
        self._burst = float(burst)
        self._refill_s = refill_s
        self._tokens = float(burst)
        self._at = now

    def delay(self, now: float) -> float:
        """Seconds until a pass may begin; 0: now."""
        self._fill(now)
        return max(0.0, (1.0 - self._tokens) * self._refill_s)

    def take(self, now: float) -> None:
        """Count one accepted write."""
        self._fill(now)
        self._tokens -= 1.0

    def _fill(self, now: float) -> None:
        self._tokens = min(self._burst, self._tokens + (now - self._at) / self._refill_s)
        self._at = now


class Pause:
    """Waits that double up to a limit, each between half and all of its nominal length."""

    def __init__(self, first_s: float, last_s: float, dice: random.Random) -> None:
        self._first_s, self._last_s = first_s, last_s
        self._dice = dice
        self._nominal_s = first_s

    def reset(self) -> None:
        """Begin with the shortest wait again."""
        self._nominal_s = self._first_s

    def next(self, retry_after: float | None = None) -> float:
        """Seconds to wait now; never less than the server asked for, and a little more, so that nodes spread."""
        nominal, self._nominal_s = self._nominal_s, min(2 * self._nominal_s, self._last_s)
        wait = nominal * self._dice.uniform(0.5, 1.0)
        if retry_after is None:
            return wait
        return max(wait, retry_after * self._dice.uniform(1.0, 1.0 + JITTER))
