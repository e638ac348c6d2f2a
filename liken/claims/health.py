"""Tells the kubelet how the claimed devices are: the complete list, each change at once, repeats within the lease.

In: the ledger's records. Out: messages for `NodeWatchResources`. A device is as healthy as its worst claim says. The
kubelet reads silence as Unknown after the lease, and forgets everything when the stream ends: so a stream ends only
with the daemon, by an event. No cancel scope may be open when a streaming handler yields.
"""

import time
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from typing import Any

import anyio

from liken.claims.ledger import Ledger
from liken.claims.prepared import Health, PreparedClaim
from liken.claims.words import LONGEST
from liken.wire import v1, v1alpha1


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """The health of one device of a pool."""

    pool: str
    device: str
    health: Health
    message: str


def statements(claims: Iterable[PreparedClaim]) -> tuple[Statement, ...]:
    """One statement for each claimed device, in the order of their names."""
    worst: dict[tuple[str, str], Statement] = {}
    for claim in claims:
        for device in claim.devices:
            said = Statement(
                pool=device.pool, device=device.name, health=device.health, message=device.message[:LONGEST]
            )
            known = worst.get((said.pool, said.device))
            if known is None or known.health is Health.HEALTHY:
                worst[said.pool, said.device] = said
    return tuple(worst[key] for key in sorted(worst))


class HealthBoard:
    """Statements for any number of streams."""

    def __init__(
        self, *, ledger: Ledger, lease_s: float, repeat_s: float, wall: Callable[[], float] = time.time
    ) -> None:
        self._ledger = ledger
        self._lease_s = lease_s
        self._repeat_s = repeat_s
        self._wall = wall
        self._closed = False

    def close(self) -> None:
        """End every stream, in good order."""
        self._closed = True
        self._ledger.announce()

    async def messages(self, wire: Any) -> AsyncIterator[Any]:
        """Messages of one stream, as `NodeWatchResourcesResponse` of the module `wire`."""
        while not self._closed:
            said = statements(self._ledger.records)
            yield self._message(wire, said)
            await self._news(said)

    async def _news(self, said: tuple[Statement, ...]) -> None:
        """Until something else is to be said, or the same again."""
        with anyio.move_on_after(self._repeat_s):
            while not self._closed and statements(self._ledger.records) == said:
                await self._ledger.announced()

    def _message(self, wire: Any, said: Iterable[Statement]) -> Any:
        now = int(self._wall())  # the kubelet counts the lease from here
        healths = {Health.HEALTHY: wire.HealthStatus.HEALTHY, Health.UNHEALTHY: wire.HealthStatus.UNHEALTHY}
        return wire.NodeWatchResourcesResponse(
            devices=[
                wire.DeviceHealth(
                    device=wire.DeviceIdentifier(pool_name=one.pool, device_name=one.device),
                    health=healths[one.health],
                    last_updated_time=now,
                    health_check_timeout_seconds=int(self._lease_s),
                    message=one.message,
                )
                for one in said
            ]
        )


class HealthV1(v1.DraResourceHealthBase):
    """`v1.DRAResourceHealth`."""

    def __init__(self, board: HealthBoard) -> None:
        self._board = board

    async def node_watch_resources(
        self,
        message: v1.NodeWatchResourcesRequest,  # noqa: ARG002 - an empty message
    ) -> AsyncIterator[v1.NodeWatchResourcesResponse]:
        """Stream the health of the claimed devices."""
        async for said in self._board.messages(v1):
            yield said


class HealthV1Alpha1(v1alpha1.DraResourceHealthBase):
    """`v1alpha1.DRAResourceHealth`, the same for kubelets before 1.36."""

    def __init__(self, board: HealthBoard) -> None:
        self._board = board

    async def node_watch_resources(
        self,
        message: v1alpha1.NodeWatchResourcesRequest,  # noqa: ARG002 - an empty message
    ) -> AsyncIterator[v1alpha1.NodeWatchResourcesResponse]:
        """Stream the health of the claimed devices."""
        async for said in self._board.messages(v1alpha1):
            yield said
