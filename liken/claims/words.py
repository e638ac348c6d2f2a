"""The sentences a person reads in `kubectl describe pod`, in a pod's health and in the log of a claim.

Each says which claim or device, what happened and what to do. They are gathered here so that they read alike and the
reference can list them; the kubelet puts `NodePrepareResources failed for ResourceClaim NAME:` before an error.
Pure: values in, text out.
"""

# ruff: noqa: D103 - each function is its own sentence

from collections.abc import Iterable
from datetime import UTC, datetime

LONGEST = 1024  # characters: the kubelet's limit for a health message, and what an Event shows

AGAIN = "the kubelet tries again by itself within two minutes"


class ClaimError(Exception):
    """A claim that cannot be prepared or let go now; the message is the kubelet's answer for it.

    `refused` is True when it is the claim that must change (or another one must end), False when the machine or the
    API server failed.
    """

    def __init__(self, message: str, *, refused: bool = False) -> None:
        super().__init__(message[:LONGEST])
        self.refused = refused


def shown(value: object, longest: int = 64) -> str:
    """A value of a stranger as a short, printable text."""
    text = "nothing" if value is None else str(value)
    return "".join(letter if letter.isprintable() else "?" for letter in text[:longest])


def clock(at: float) -> str:
    """A time of day as a person reads it, in UTC."""
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S")


def listed(names: Iterable[str], longest: int = 4) -> str:
    """`a`, `a and b`, `a, b and 3 more`."""
    known = list(names)
    if len(known) > longest:
        known = [*known[: longest - 1], f"{len(known) - longest + 1} more"]
    return " and ".join(filter(None, [", ".join(known[:-1]), *known[-1:]]))


# --- reading the claim ------------------------------------------------------------------------------------------------
def claim_gone(claim: str) -> str:
    return f"claim {claim} is not on the API server any more (404): delete the pod, its new one gets a new claim"


def claim_replaced(claim: str, wanted: str, found: str) -> str:
    return (
        f"claim {claim} was deleted and made anew: its uid is {shown(found)} and the pod was started for "
        f"{shown(wanted)}: delete the pod, its new one gets the new claim"
    )


def claim_forbidden(claim: str, said: str) -> str:
    return f"liken may not read claim {claim} (403): its ClusterRole needs get on resourceclaims: {shown(said, 300)}"


def claim_unread(claim: str, status: int, seconds: float, said: str) -> str:
    match status:
        case 429:
            what = f"the API server is too busy to show claim {claim} (429)"
        case 401:
            what = f"the API server does not accept liken's credentials (401) to read claim {claim}"
        case 0:
            what = f"no answer from the API server about claim {claim}"
        case _:
            what = f"the API server failed to show claim {claim} ({status})"
    return f"{what}, tried for {seconds:.0f} s: {AGAIN}: {shown(said, 300)}"


def claim_late(claim: str, seconds: float) -> str:
    return f"no answer from the API server about claim {claim} within {seconds:.0f} s (time-out): {AGAIN}"


def claim_strange(claim: str, status: int, said: str) -> str:
    return f"the API server refuses to show claim {claim} ({status}): {shown(said, 300)}"


def unallocated(claim: str) -> str:
    return f"claim {claim} has no allocation: wait for the scheduler, or delete the pod if it was bound by hand"


def nothing_of_ours(claim: str, driver: str) -> str:
    return f"claim {claim} was allocated no device of driver {driver}: compare its requests with status.allocation"


def another_node(claim: str, device: str, pool: str, node: str) -> str:
    return f"claim {claim} was allocated {shown(device)} of node {shown(pool)}, and this is node {node}: delete the pod"


def strange_uid(uid: str) -> str:
    return f"{shown(uid)} is not a claim's uid: nothing was prepared"


# --- the hardware -----------------------------------------------------------------------------------------------------
def not_ready(seconds: float) -> str:
    return f"liken is still reading the machine's hardware after {seconds:.0f} s: {AGAIN}"


def not_answering(devices: Iterable[str], seconds: float) -> str:
    return (
        f"device {listed(devices)} did not answer within {seconds:.0f} s: see `liken explain`, replug it or wait: "
        f"{AGAIN}"
    )


def not_there(device: str, why: str) -> str:
    remedy = "plug it in again" if why.startswith("unplugged") else "put that right"
    return f"device {device} cannot be given: {why}: {remedy}, or delete the pod so that it gets another device"


def departed(at: float, why: str) -> str:
    """`unplugged at 14:03:22 UTC`, or what else happened and since when."""
    said = shown(why, 200)
    if said.startswith("it was "):
        return f"{said.removeprefix('it was ')} at {clock(at)} UTC"
    return f"{said} (since {clock(at)} UTC)"


def never_seen() -> str:
    return "no device was seen in its place since liken started"


def driver_gone(advice: str) -> str:
    return "its driver is gone" + (f" ({shown(advice, 200)})" if advice else "")


def withheld(reason: str, detail: str) -> str:
    return f"it is withheld now, {reason}" + (f" ({shown(detail, 200)})" if detail else "")


def another_model(now: str, before: str) -> str:
    return f"its address now holds another model, {shown(now, 100)} instead of {shown(before, 100)}"


def replugged(nodes: Iterable[str]) -> str:
    return f"replugged as {listed(nodes)}: restart the pod to receive it"


def moved(nodes: Iterable[str]) -> str:
    return f"its node is now {listed(nodes)}: restart the pod to receive it"


# --- other claims, options, files -------------------------------------------------------------------------------------
def held(device: str, holder: str) -> str:
    return (
        f"device {device} is held by claim {holder} and is not shareable: delete the pod of that claim, or delete this "
        "pod so that it gets another device"
    )


def bad_options(claim: str, request: str, said: str) -> str:
    return f"the configuration of claim {claim} for request {shown(request)}: {said}"


def unknown_kind(kind: str, present: Iterable[str]) -> str:
    return f"paths: no device of this claim has a node of kind {shown(kind)}; there is {listed(present) or 'none'}"


def nothing_left(device: str) -> str:
    return f"busNode: device {device} has no other node than its bus node: leave busNode out"


def same_path(path: str, first: str, second: str) -> str:
    return f"{path} would be both {first} and {second}: give each request its own path"


def busy(claim: str, seconds: float) -> str:
    return f"another instance of liken is at work on claim {claim} for {seconds:.0f} s: {AGAIN}"


def restless(claim: str) -> str:
    return f"the folder of the CDI files changes too fast to write that of claim {claim}: {AGAIN}"


def unlockable(said: str) -> str:
    return f"cannot lock the claims of this node against another instance: {said}: {AGAIN}"


def invalid_document(claim: str, wrong: Iterable[str]) -> str:
    return f"the CDI file of claim {claim} would be refused by the container runtime: {'; '.join(wrong)}"


def unwritable(claim: str, said: str) -> str:
    return f"cannot write the CDI file of claim {claim}: {said}: {AGAIN}"


def unremovable(claim: str, said: str) -> str:
    return f"cannot remove the CDI file of claim {claim}: {said}: {AGAIN}"


def failed_inside(claim: str) -> str:
    return f"liken failed on claim {claim} by a fault of its own; its log tells more (event claims.failed): {AGAIN}"
