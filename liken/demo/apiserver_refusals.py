"""How the in-memory API server says no: a Status with the code, the reason and the words of the real one."""

from collections.abc import Mapping, Sequence
from typing import Any

from liken.model.api import Json


class Refusal(Exception):
    """An answer that is not 2xx; `status()` is its body."""

    def __init__(
        self, code: int, reason: str, message: str, *, details: Json | None = None, retry_after: int | None = None
    ) -> None:
        super().__init__(message)
        self.code, self.reason, self.message = code, reason, message
        self.details = details
        self.retry_after = retry_after

    def status(self) -> Json:
        """The Status object."""
        body: Json = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        }
        details = dict(self.details or {})
        if self.retry_after is not None:
            details["retryAfterSeconds"] = self.retry_after
        return {**body, "details": details} if details else body

    def headers(self) -> Mapping[str, str]:
        """Headers beside the body."""
        return {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}


def not_served() -> Refusal:
    """No such resource type."""
    return Refusal(404, "NotFound", "the server could not find the requested resource")


def not_found(resource: str, name: str) -> Refusal:
    """No such object; `resource` is qualified: `resourceslices.resource.k8s.io`."""
    return Refusal(404, "NotFound", f'{resource} "{name}" not found', details=_about(resource, name))


def exists(resource: str, name: str) -> Refusal:
    """A create met an existing name."""
    return Refusal(409, "AlreadyExists", f'{resource} "{name}" already exists', details=_about(resource, name))


def modified(resource: str, name: str) -> Refusal:
    """The object changed since it was read."""
    return conflict(
        resource,
        name,
        "the object has been modified; please apply your changes to the latest version and try again",
    )


def conflict(resource: str, name: str, why: str) -> Refusal:
    """409 for another cause."""
    message = f'Operation cannot be fulfilled on {resource} "{name}": {why}'
    return Refusal(409, "Conflict", message, details=_about(resource, name))


def bad_request(message: str) -> Refusal:
    """400."""
    return Refusal(400, "BadRequest", message)


def unprocessable_patch() -> Refusal:
    """A JSON Patch whose operation fails: the real server says no more than this."""
    return Refusal(422, "Invalid", "the server rejected our request due to an error in our request")


def invalid(kind: str, name: str, errors: Sequence[tuple[str, str]]) -> Refusal:
    """Validation errors: pairs of a field path and words. `kind` is qualified: `ResourceSlice.resource.k8s.io`."""
    lines = [f"{field}: {words}" for field, words in errors]
    said = lines[0] if len(lines) == 1 else f"[{', '.join(lines)}]"
    causes: list[dict[str, Any]] = [
        {"reason": "FieldValueInvalid", "message": words, "field": field} for field, words in errors
    ]
    about = _about(kind, name) | {"causes": causes}
    return Refusal(422, "Invalid", f'{kind} "{name}" is invalid: {said}', details=about)


def too_old(version: int, floor: int) -> Refusal:
    """A watch from a compacted version."""
    return Refusal(410, "Expired", f"too old resource version: {version} ({floor})")


def _about(resource: str, name: str) -> Json:
    kind, _, group = resource.partition(".")
    return {"name": name, "kind": kind} | ({"group": group} if group else {})
