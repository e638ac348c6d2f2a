"""From an allocation and a snapshot to a prepared claim, or to the reason why not. Pure.

In: the claim as it was prepared before (or without devices), its allocation, the hardware. Out: the claim as its file
is to say it. Raises ClaimError when a device cannot be given or the configuration asks for what cannot be.
"""

from collections.abc import Sequence
from dataclasses import replace

from liken.claims import cdi, options, words
from liken.claims.allocation import Allocation, Result
from liken.claims.options import NodeOptions, OptionsError
from liken.claims.prepared import PreparedClaim, PreparedDevice, followed
from liken.claims.sight import Sight, sight
from liken.claims.words import ClaimError
from liken.model.offers import BUS_NODE_KIND, DeviceNode, Offer, Snapshot


def prepared_claim(before: PreparedClaim, allocated: Allocation, snapshot: Snapshot) -> PreparedClaim:
    """The claim with the devices of its allocation as they are in `snapshot`; it keeps since when it is prepared."""
    known = {device.identity: device for device in before.devices}
    devices = []
    for result in allocated.results:
        old = known.get((result.device, result.main_request, result.share_id))
        seen = sight(result.device, snapshot, old.offer if old else None)
        if seen.offer is None or not seen.nodes:
            raise ClaimError(words.not_there(result.device, seen.why))
        devices.append(_device(str(before), allocated, result, (seen, seen.offer), old))
    _check_paths(str(before), devices)
    return replace(before, devices=tuple(devices))


def _device(
    claim: str, allocated: Allocation, result: Result, found: tuple[Sight, Offer], old: PreparedDevice | None
) -> PreparedDevice:
    seen, offer = found
    whole = old.offer.nodes if old and seen.detached else seen.nodes
    try:
        chosen = _chosen(allocated, result, whole)
    except OptionsError as error:
        raise ClaimError(words.bad_options(claim, result.main_request, str(error)), refused=True) from error
    if old is not None:
        return replace(followed(old, seen), options=chosen, admin=result.admin)
    return PreparedDevice(
        name=result.device,
        pool=result.pool,
        request=result.main_request,
        share_id=result.share_id,
        admin=result.admin,
        offer=replace(offer, taints=()),
        first=seen.nodes,
        nodes=seen.nodes,
        enumeration=seen.enumeration,
        options=chosen,
    )


def _chosen(allocated: Allocation, result: Result, nodes: Sequence[DeviceNode]) -> NodeOptions:
    kinds = [node.kind for node in nodes]
    chosen = options.bound(
        options.options(allocated.config, result.request), kinds, bus_kind=BUS_NODE_KIND, device=result.device
    )
    if not chosen.bus_node and set(kinds) == {BUS_NODE_KIND}:
        raise OptionsError(words.nothing_left(result.device))
    return chosen


def _check_paths(claim: str, devices: Sequence[PreparedDevice]) -> None:
    """Every kind that is named exists in the claim, and no path of a request means two nodes."""
    present = {node.kind for device in devices for node in (*device.nodes, *device.offer.nodes) if node.kind}
    taken: dict[tuple[str, str], str] = {}
    for device in devices:
        said = [
            words.unknown_kind(kind, sorted(present)) for kind in device.options.paths if kind not in present | {""}
        ]
        for inside, path in cdi.delivered(device):
            other = taken.setdefault((device.request, inside), path)
            if other != path:
                said.append(words.same_path(inside, other, path))
        if said:
            raise ClaimError(words.bad_options(claim, device.request, said[0]), refused=True)
