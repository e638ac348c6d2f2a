"""What the API server can say: JSON, watch events, references and errors, independent of any client library.

`kube` raises these errors and nothing else; `publish`, `claims` and `machine` catch them. Each message already
says what failed on which object, so it can be shown to a person as it is.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, Protocol, TypeAlias

Json: TypeAlias = dict[str, Any]
"""A JSON object at the edge to Kubernetes."""


class WatchKind(StrEnum):
    """Type of a watch event."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchEvent:
    """One event of a watch; `item` is the whole object as it is (or was, when deleted)."""

    kind: WatchKind
    item: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A whole list, first of a followed collection and again after each re-list: what is not in it is gone."""

    items: tuple[Json, ...]
    version: str


Followed: TypeAlias = Listed | WatchEvent
"""What following a collection yields: a list, then its changes (never a bookmark)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectRef:
    """The object an Event is about."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""
    uid: str = ""


class Recorder(Protocol):
    """Where something is said on the API server as an Event. Never blocks and never raises; repeats are merged."""

    def record(self, about: ObjectRef, *, kind: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        """Queue one Event about an object: `reason` is a CamelCase word, `message` a sentence for a person."""


class ApiError(Exception):
    """The API server refused or did not answer. `status` is the HTTP code, 0 when there was no answer."""

    def __init__(self, message: str, *, status: int = 0, retry_after: float | None = None, reason: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after
        self.reason = reason


class Unauthorized(ApiError):
    """401: the credentials are not accepted (an expired token is read again first)."""


class Forbidden(ApiError):
    """403: a right is missing; the message names it."""


class NotFound(ApiError):
    """404: no such object, or the resource type is not served."""


class Conflict(ApiError):
    """409: the object changed since it was read, or a create met an existing name."""


class Gone(ApiError):
    """410: the resource version is too old; list again."""


class Invalid(ApiError):
    """422 or 400: the server will never accept this body."""


class TooManyRequests(ApiError):
    """429: wait `retry_after` seconds."""


class Unavailable(ApiError):
    """5xx, a reset, a refused connection, half a body or a time-out: try again later."""
