"""What publishing needs of the API server, its settings, and where slices and nodes live there."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Protocol

from liken.model.api import Followed, Json
from liken.model.offers import Snapshot
from liken.state.names import DRIVER_NAME

SLICES = "/apis/resource.k8s.io/v1/resourceslices"
NODES = "/api/v1/nodes"


class SliceApi(Protocol):
    """The API server; every method raises the errors of `liken.model.api`, `follow` none."""

    async def get(self, path: str) -> Json:
        """One object."""

    async def list(self, path: str, *, field_selector: str = "") -> Json:
        """A whole list object."""

    async def create(self, path: str, body: Json, *, dry_run: bool = False) -> Json:
        """Create in a collection; returns the object as stored."""

    async def json_patch(self, path: str, ops: Sequence[Json], *, dry_run: bool = False) -> Json:
        """Apply an RFC 6902 patch; returns the object as stored."""

    async def delete(self, path: str) -> Json:
        """Delete an object."""

    async def version(self) -> Json:
        """What `/version` says."""

    def follow(self, path: str, *, field_selector: str = "") -> AsyncGenerator[Followed, None]:
        """List and watch for ever."""


class Snapshots(Protocol):
    """Where the newest snapshot is (`liken.state.store.Store`)."""

    @property
    def snapshot(self) -> Snapshot:
        """The newest one."""

    async def settled(self, after: int) -> Snapshot:
        """Wait for one newer than revision `after`; the newest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishSettings:
    """`burst` writes may follow each other at once, then one per `refill_s` seconds."""

    burst: int = 5
    refill_s: float = 2.0
    first_pause_s: float = 0.25
    last_pause_s: float = 30.0


def selector(node_name: str) -> str:
    """The field selector of a node's own slices."""
    return f"spec.nodeName={node_name},spec.driver={DRIVER_NAME}"


def slice_path(name: str) -> str:
    """One slice; its name is a DNS subdomain, so nothing needs quoting."""
    return f"{SLICES}/{name}"
