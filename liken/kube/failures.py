"""Every way in which a request fails, as one of the errors of `liken.model.api` with words for a person.

A message says the verb, the object, the server's own words and what to do. The server's words are cut and made
printable, because a proxy may answer in its place.
"""

import json
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import aiohttp

from liken.kube import paths
from liken.model.api import (
    ApiError,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    TooManyRequests,
    Unauthorized,
    Unavailable,
)

WORDS_LIMIT = 600
RETRY_AFTER_LIMIT_S = 600.0

_KINDS: Mapping[int, type[ApiError]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    405: Invalid,
    406: Invalid,
    409: Conflict,
    410: Gone,
    413: Invalid,
    415: Invalid,
    422: Invalid,
    429: TooManyRequests,
}

_ADVICE: Mapping[type[ApiError], str] = {
    Unauthorized: "check the service account's token or the kubeconfig",
    Forbidden: "grant this right (the ClusterRole in container/ has all that liken needs)",
}


def refusal(verb: str, path: str, status: int, body: bytes, headers: Mapping[str, str]) -> ApiError:
    """The error for an answer that is not 2xx; `body` is a Status object, or whatever a proxy sent."""
    reason, said = _said(body)
    if 300 <= status < 400:  # noqa: PLR2004  (HTTP's redirects)
        said = f"redirected to {printable(headers.get('Location', '?'))}, which is not followed"
    kind = _KINDS.get(status, Unavailable if status >= 500 or 300 <= status < 400 else ApiError)  # noqa: PLR2004
    message = f"cannot {verb} {paths.words(path)}: {status} {reason}: {said}".replace(": :", ":").rstrip(": ")
    if advice := _ADVICE.get(kind):
        message = f"{message}; {advice}"
    return kind(message, status=status, retry_after=retry_after(headers), reason=reason)


def no_answer(verb: str, path: str, server: str, error: BaseException) -> Unavailable:
    """The error for a request that brought no whole answer: refused, reset, timed out, half a body."""
    match error:
        case TimeoutError():
            said = "no answer in time"
        case aiohttp.ClientConnectorCertificateError() | ssl.SSLError():
            said = f"its certificate is not trusted ({printable(str(error))}): check the certificate authority"
        case aiohttp.ClientPayloadError() | aiohttp.ServerDisconnectedError() | aiohttp.ClientResponseError():
            said = f"the answer broke off ({type(error).__name__})"
        case _:
            said = printable(str(error)) or type(error).__name__
    return Unavailable(f"cannot {verb} {paths.words(path)}: {printable(server)}: {said}")


def not_json(verb: str, path: str, status: int, body: bytes) -> Unavailable:
    """The error for a good status with a body that is no JSON object."""
    begin = printable(body[:80].decode(errors="replace"))
    return Unavailable(
        f"cannot {verb} {paths.words(path)}: the answer is no JSON object ({begin!r}): "
        "something between here and the API server answered",
        status=status,
    )


def retry_after(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Seconds of a Retry-After header (a number or a date), at most ten minutes; None without one."""
    text = headers.get("Retry-After", "").strip()
    if text.isdecimal():
        return min(float(text[:9]), RETRY_AFTER_LIMIT_S)
    try:
        when = parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return min(max((when - (now or datetime.now(UTC))).total_seconds(), 0.0), RETRY_AFTER_LIMIT_S)


def printable(text: str) -> str:
    """Text of others, cut and without control characters."""
    kept = "".join(character if character.isprintable() else " " for character in text[:WORDS_LIMIT])
    return kept.strip() + ("…" if len(text) > WORDS_LIMIT else "")


def _said(body: bytes) -> tuple[str, str]:
    try:
        status = json.loads(body)
    except ValueError:
        return "", printable(body[:120].decode(errors="replace"))
    if not isinstance(status, dict):
        return "", ""
    return printable(str(status.get("reason") or "")), printable(str(status.get("message") or ""))
