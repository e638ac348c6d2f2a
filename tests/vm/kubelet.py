"""As much of a kubelet as a claim needs: prepare and unprepare over gRPC, from the host into the guest.

The channel goes to a forwarded port and from there to the daemon's unix socket. The client is grpcio, not the library
that the daemon serves with.
"""

from types import TracebackType
from typing import Self

import grpc

from liken.wire.k8s.io.kubelet.pkg.apis.dra.v1 import (
    Claim,
    Device,
    NodePrepareResourcesRequest,
    NodePrepareResourcesResponse,
    NodeUnprepareResourcesRequest,
    NodeUnprepareResourcesResponse,
)

SERVICE = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
DEADLINE_S = 45.0


class PrepareRefused(Exception):
    """The daemon answered for this claim with an error."""


class Kubelet:
    """A connection to the plugin's socket."""

    def __init__(self, port: int) -> None:
        self._channel = grpc.insecure_channel(f"127.0.0.1:{port}", options=[("grpc.use_local_subchannel_pool", 1)])

    def prepare(self, claim: Claim) -> tuple[Device, ...]:
        """Prepare one claim. Raises PrepareRefused with the daemon's words."""
        call = self._channel.unary_unary(
            f"{SERVICE}/NodePrepareResources",
            request_serializer=bytes,
            response_deserializer=NodePrepareResourcesResponse.parse,
        )
        answers = call(NodePrepareResourcesRequest(claims=[claim]), timeout=DEADLINE_S, wait_for_ready=True).claims
        answer = answers[claim.uid]
        if answer.error:
            raise PrepareRefused(answer.error)
        return tuple(answer.devices)

    def unprepare(self, claim: Claim) -> None:
        """Release one claim. Raises PrepareRefused."""
        call = self._channel.unary_unary(
            f"{SERVICE}/NodeUnprepareResources",
            request_serializer=bytes,
            response_deserializer=NodeUnprepareResourcesResponse.parse,
        )
        answers = call(NodeUnprepareResourcesRequest(claims=[claim]), timeout=DEADLINE_S, wait_for_ready=True).claims
        if error := answers[claim.uid].error:
            raise PrepareRefused(error)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._channel.close()
