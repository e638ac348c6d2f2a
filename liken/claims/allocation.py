"""Reads a claim from the API server: whether it is the claim the kubelet means, and what it was allocated.

In: a claim's reference. Out: the results of driver `liken.sh` in their order, and the configuration. Each way in which
the server can fail has its own sentence, and all of them end within the kubelet's deadline: what may pass by itself
(no answer, 429, 5xx) is tried again for a while, what a person must change is told at once.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import anyio

from liken.claims import words
from liken.claims.ports import ClaimApi, ClaimRef
from liken.claims.words import ClaimError
from liken.model.api import ApiError, Forbidden, Json, NotFound, TooManyRequests, Unauthorized, Unavailable
from liken.model.offers import DeviceName
from liken.state.names import DRIVER_NAME

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One allocated device: which request got it (`gpu/best` for a prioritized list), and how."""

    request: str
    pool: str
    device: DeviceName
    share_id: str | None = None
    admin: bool = False

    @property
    def main_request(self) -> str:
        """The request's name as a container names it: without the subrequest."""
        return self.request.partition("/")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """Our part of a claim's allocation."""

    results: tuple[Result, ...]
    config: Sequence[Json] = ()


async def fetched(api: ClaimApi, ref: ClaimRef, *, within_s: float, try_s: float) -> Json:
    """The claim object, tried for at most `within_s`; raises ClaimError."""
    began = anyio.current_time()
    pause = _FIRST_PAUSE_S
    failure = ClaimError(words.claim_late(str(ref), within_s))
    with anyio.move_on_after(within_s):
        while True:
            asked = 0.0
            try:
                with anyio.fail_after(try_s):
                    return await api.get_claim(ref.namespace, ref.name)
            except TimeoutError:
                failure = ClaimError(words.claim_late(str(ref), anyio.current_time() - began))
            except (Unavailable, TooManyRequests, Unauthorized) as error:
                spent = anyio.current_time() - began
                failure = ClaimError(words.claim_unread(str(ref), error.status, spent, str(error)))
                asked = error.retry_after or 0.0
            except NotFound as error:
                raise ClaimError(words.claim_gone(str(ref)), refused=True) from error
            except Forbidden as error:
                raise ClaimError(words.claim_forbidden(str(ref), str(error))) from error
            except ApiError as error:
                raise ClaimError(words.claim_strange(str(ref), error.status, str(error))) from error
            wait = max(asked, pause * random.uniform(0.75, 1.25))  # noqa: S311 - to spread retries
            if anyio.current_time() - began + wait > within_s:
                break
            await anyio.sleep(wait)
            pause = min(pause * 2, _LONGEST_PAUSE_S)
    raise failure


def allocation(claim: Json, ref: ClaimRef, node: str) -> Allocation:
    """What the claim object gives the pod from this node; raises ClaimError when it is not for us to prepare."""
    found = (claim.get("metadata") or {}).get("uid")
    if found != ref.uid:
        raise ClaimError(words.claim_replaced(str(ref), ref.uid, str(found)), refused=True)
    allocated = ((claim.get("status") or {}).get("allocation") or {}).get("devices")
    if not allocated:
        raise ClaimError(words.unallocated(str(ref)), refused=True)
    results = tuple(_result(entry) for entry in allocated.get("results") or [] if entry.get("driver") == DRIVER_NAME)
    if not results:
        raise ClaimError(words.nothing_of_ours(str(ref), DRIVER_NAME), refused=True)
    for result in results:
        if result.pool != node:
            raise ClaimError(words.another_node(str(ref), result.device, result.pool, node), refused=True)
    return Allocation(results=results, config=allocated.get("config") or [])


def _result(entry: Json) -> Result:
    return Result(
        request=str(entry.get("request", "")),
        pool=str(entry.get("pool", "")),
        device=DeviceName(str(entry.get("device", ""))),
        share_id=entry.get("shareID") or None,
        admin=entry.get("adminAccess") is True,
    )
