"""Removing a node's slices at the end: of an uninstallation, never of a rolling update."""

import structlog

from liken.model.api import Json, NotFound
from liken.publish.ports import SLICES, SliceApi, selector, slice_path
from liken.state.names import DRIVER_NAME

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


async def withdraw(api: SliceApi, *, node_name: str | None) -> int:
    """Delete every slice of this driver on this node, None: on all; how many there were. Raises the API's errors."""
    chosen = selector(node_name) if node_name is not None else f"spec.driver={DRIVER_NAME}"
    listing = await api.list(SLICES, field_selector=chosen)
    items: list[Json] = [item for item in listing.get("items") or [] if _chosen(item["spec"], node_name)]
    for item in items:
        name = item["metadata"]["name"]
        try:
            await api.delete(slice_path(name))
        except NotFound:
            continue
        log.info("publish.withdrawn", slice=name)
    return len(items)


def _chosen(spec: Json, node_name: str | None) -> bool:
    """The server has selected already; one that ignored the selector must not cost another driver its slices."""
    return spec.get("driver") == DRIVER_NAME and node_name in (None, spec.get("nodeName"))
