"""The kubelet's DRA calls in both versions, converted to plain values and back at this edge.

In: protobuf requests. Out: one answer for each claim of a request and no other, under its uid; a failure is that
claim's `error`, never the call's. `v1beta1` is `v1` without share ids.
"""

from collections.abc import Iterable
from typing import Any, Protocol, TypeAlias

from liken.claims import cdi
from liken.claims.ports import ClaimRef
from liken.claims.prepared import PreparedClaim
from liken.wire.k8s.io.kubelet.pkg.apis.dra import v1 as dra_v1
from liken.wire.k8s.io.kubelet.pkg.apis.dra import v1beta1 as dra_v1beta1

Answers: TypeAlias = dict[str, PreparedClaim | str]
"""Claim uid -> the prepared claim, or the text of its error; an unprepared claim's text is empty."""


class Calls(Protocol):
    """Who does the work."""

    async def prepare(self, refs: Iterable[ClaimRef]) -> Answers:
        """Make each claim ready."""

    async def unprepare(self, refs: Iterable[ClaimRef]) -> Answers:
        """Let each claim go."""


def _refs(claims: Iterable[dra_v1.Claim | dra_v1beta1.Claim]) -> list[ClaimRef]:
    return [ClaimRef(namespace=claim.namespace, name=claim.name, uid=claim.uid) for claim in claims]


def _prepare_response(wire: Any, answer: PreparedClaim | str, *, shares: bool) -> Any:
    if isinstance(answer, str):
        return wire.NodePrepareResourceResponse(error=answer)
    devices = []
    for name, device in zip(cdi.names(answer), answer.devices, strict=True):
        share = {"share_id": device.share_id} if shares else {}
        devices.append(
            wire.Device(
                request_names=[device.request],
                pool_name=device.pool,
                device_name=device.name,
                cdi_device_ids=[cdi.qualified(name)],
                **share,
            )
        )
    return wire.NodePrepareResourceResponse(devices=devices)


class DraV1(dra_v1.DraPluginBase):
    """`k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin`."""

    def __init__(self, claims: Calls) -> None:
        self._claims = claims

    async def node_prepare_resources(
        self, message: dra_v1.NodePrepareResourcesRequest
    ) -> dra_v1.NodePrepareResourcesResponse:
        """One answer for each claim of the request."""
        answers = await self._claims.prepare(_refs(message.claims))
        return dra_v1.NodePrepareResourcesResponse(
            claims={uid: _prepare_response(dra_v1, answer, shares=True) for uid, answer in answers.items()}
        )

    async def node_unprepare_resources(
        self, message: dra_v1.NodeUnprepareResourcesRequest
    ) -> dra_v1.NodeUnprepareResourcesResponse:
        """One answer for each claim of the request."""
        answers = await self._claims.unprepare(_refs(message.claims))
        return dra_v1.NodeUnprepareResourcesResponse(
            claims={uid: dra_v1.NodeUnprepareResourceResponse(error=str(said)) for uid, said in answers.items()}
        )


class DraV1Beta1(dra_v1beta1.DraPluginBase):
    """`k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin`, the same without share ids."""

    def __init__(self, claims: Calls) -> None:
        self._claims = claims

    async def node_prepare_resources(
        self, message: dra_v1beta1.NodePrepareResourcesRequest
    ) -> dra_v1beta1.NodePrepareResourcesResponse:
        """One answer for each claim of the request."""
        answers = await self._claims.prepare(_refs(message.claims))
        return dra_v1beta1.NodePrepareResourcesResponse(
            claims={uid: _prepare_response(dra_v1beta1, answer, shares=False) for uid, answer in answers.items()}
        )

    async def node_unprepare_resources(
        self, message: dra_v1beta1.NodeUnprepareResourcesRequest
    ) -> dra_v1beta1.NodeUnprepareResourcesResponse:
        """One answer for each claim of the request."""
        answers = await self._claims.unprepare(_refs(message.claims))
        return dra_v1beta1.NodeUnprepareResourcesResponse(
            claims={uid: dra_v1beta1.NodeUnprepareResourceResponse(error=str(said)) for uid, said in answers.items()}
        )
