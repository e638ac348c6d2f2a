"""What the machine itself uses: a device with any of it is withheld as `MachineDependsOnIt`.

A block device counts when it, or anything stacked on it to the end (LVM, md, dm-crypt, bcache, multipath), is
mounted for pid 1 or is swap, and also when something is stacked on it that nobody mounted: it is a part of that. A
tty counts when it is an active kernel console. Out: one sentence that names the whole chain to what would break.
"""

from liken.model.hardware import DevNumber, NodeFact, SystemFacts
from liken.state.attributes import shown


def dependence(nodes: tuple[NodeFact, ...], system: SystemFacts) -> str | None:
    """The first use found among a device's nodes, as `nvme0n1p3 -> dm-0 -> dm-1 is mounted on /`; None: no use."""
    held = None
    for node in nodes:
        if node.kind == "tty" and node.name.rsplit("/", 1)[-1] in system.consoles:
            return f"{shown(node.name)} is an active kernel console"
        if node.kind == "block" or node.holders:  # an NVMe controller holds the disk of its paths
            layers = ((node.name, node.number), *((holder.name, holder.number) for holder in node.holders))
            for depth, (name, number) in enumerate(layers, 1):
                use = _use(name, number, system)
                if use:
                    return f"{' -> '.join(shown(layer) for layer, _ in layers[:depth])} {use}"
            if node.kind == "block" and node.holders and held is None:
                held = f"{shown(node.name)} is held by {', '.join(shown(holder.name) for holder in node.holders)}"
    return held


def _use(name: str, number: DevNumber | None, system: SystemFacts) -> str | None:
    mount = system.mounts.get(number) if number else None
    mount = mount or system.sources.get(f"/dev/{name}")
    if mount:
        return f"is mounted on {shown(mount)}"
    swap = system.swaps.get(number) if number else None
    return f"is in use as swap ({shown(swap)})" if swap else None
