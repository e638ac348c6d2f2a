"""Faults on request: the next answers of the in-memory API server are refusals, late, broken off, or none.

A fault names the verbs and the resource it concerns and how often it strikes; the first that fits is used up.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    413: "RequestEntityTooLarge",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


class How(StrEnum):
    """What happens to a request."""

    ANSWER = "answer"  # with `status`, instead of doing it
    HANG = "hang"  # nothing comes, ever
    RESET = "reset"  # the connection breaks before an answer
    HALF = "half"  # done, but the answer breaks off
    LATE = "late"  # done, `seconds` later


@dataclass(slots=True, kw_only=True)
class Fault:
    """One fault. Empty `verbs` and `resource`: every request. `body` replaces the Status (an HTML page)."""

    how: How
    status: int = 500
    verbs: frozenset[str] = frozenset()
    resource: str = ""
    times: int = 1
    seconds: float = 0.0
    retry_after: int | None = None
    message: str = ""
    body: bytes | None = None

    def fits(self, verb: str, resource: str) -> bool:
        """Whether it concerns this request."""
        return self.times > 0 and (not self.verbs or verb in self.verbs) and self.resource in ("", resource)


@dataclass(slots=True)
class Faults:
    """The faults to come, oldest first."""

    waiting: deque[Fault] = field(default_factory=deque)

    def add(self, fault: Fault, verbs: Iterable[str] | str = ()) -> None:
        """Queue a fault."""
        fault.verbs = frozenset([verbs] if isinstance(verbs, str) and verbs else verbs)
        self.waiting.append(fault)

    def take(self, verb: str, resource: str) -> Fault | None:
        """The fault for this request, used once more."""
        for fault in self.waiting:
            if fault.fits(verb, resource):
                fault.times -= 1
                if fault.times == 0:
                    self.waiting.remove(fault)
                return fault
        return None

    def clear(self) -> None:
        """No more faults."""
        self.waiting.clear()
