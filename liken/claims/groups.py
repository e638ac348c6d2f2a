"""The host groups of a claim's nodes, for claims that ask for `supplementalGroups`.

In: a claim and the host's `/dev`. Out: the claim with the group of each node. Blocks: run it in a worker thread.
"""

import os
import stat
from dataclasses import replace
from pathlib import Path

from liken.claims.prepared import PreparedClaim, PreparedDevice


def asked(claim: PreparedClaim) -> bool:
    """Whether any device of the claim needs it."""
    return any(device.options.supplemental_groups for device in claim.devices)


def with_groups(claim: PreparedClaim, dev: Path) -> PreparedClaim:
    """The claim with the groups its nodes have in `dev` now."""
    return replace(claim, devices=tuple(_with_groups(device, dev) for device in claim.devices))


def _with_groups(device: PreparedDevice, dev: Path) -> PreparedDevice:
    if not device.options.supplemental_groups:
        return device
    found = {node.path: group for node in device.nodes if (group := _group(dev, node.path)) is not None}
    return replace(device, groups=found)


def _group(dev: Path, path: str) -> int | None:
    """The group of a device node; None: it is none, and the runtime will say so with its path."""
    try:
        status = os.stat(dev / path.removeprefix("/dev/"))  # noqa: PTH116 - beside the constants of stat
    except OSError:
        return None
    return status.st_gid if stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode) else None
