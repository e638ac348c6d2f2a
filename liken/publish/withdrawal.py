"""Removing a node's slices at the end: of an uninstallation, never of a rolling update."""

import structlog

from liken.model.api import Json, NotFound
from liken.publish.ports import SLICES, SliceApi, selector, slice_path
from liken.publish.stored import Stored

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


async def withdraw(api: SliceApi, *, node_name: str) -> int:
    """Delete every slice of this driver on this node; how many there were. Raises the errors of the API."""
    listing = await api.list(SLICES, field_selector=selector(node_name))
    mine = Stored(node_name).mine
    items: list[Json] = [item for item in listing.get("items") or [] if mine(item)]
    for item in items:
        name = item["metadata"]["name"]
        try:
            await api.delete(slice_path(name))
        except NotFound:
            continue
        log.info("publish.withdrawn", slice=name)
    return len(items)
