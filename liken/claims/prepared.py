"""A prepared claim as a plain value, and how it follows the hardware.

In: what prepare found, then one `Sight` after another. Out: the claim as its file must say it, and each device's
health. A device remembers the nodes its pod received first: a container that runs keeps those for ever, so once the
device was away or has other nodes it stays unhealthy until the claim ends, however often the file was brought up to
date.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from liken.claims import words
from liken.claims.options import DEFAULTS, NodeOptions
from liken.claims.sight import Sight
from liken.model.offers import BUS_NODE_KIND, DeviceName, DeviceNode, Offer


class Health(StrEnum):
    """The health of a claimed device, in the kubelet's words."""

    HEALTHY = "Healthy"
    UNHEALTHY = "Unhealthy"


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedDevice:
    """One allocated device of a prepared claim.

    `offer` is the device when it was last whole, `first` the nodes the pod was given at first (in the plugging-in
    `enumeration`), `nodes` what it delivers now, before `options` are applied; none while it is gone, and `gone` says
    why. `moved` is what happened since that a running container cannot follow; it stays until the claim ends.
    `groups` maps a node's path to its host group, read only when the options ask for it.
    """

    name: DeviceName
    pool: str
    request: str
    offer: Offer
    first: tuple[DeviceNode, ...]
    nodes: tuple[DeviceNode, ...]
    enumeration: str = ""
    share_id: str | None = None
    admin: bool = False
    options: NodeOptions = DEFAULTS
    groups: Mapping[str, int] = field(default_factory=dict)
    gone: str = ""
    moved: str = ""

    @property
    def identity(self) -> tuple[str, str, str | None]:
        """What tells it from the other devices of its claim."""
        return self.name, self.request, self.share_id

    @property
    def health(self) -> Health:
        """Whether the pod's own node still reaches the device."""
        return Health.UNHEALTHY if self.gone or self.moved else Health.HEALTHY

    @property
    def message(self) -> str:
        """Why it is unhealthy and what helps; empty when it is healthy."""
        return self.gone or self.moved


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedClaim:
    """A claim with a CDI file: whose it is, since when (Unix seconds), in which boot, and its devices in order."""

    uid: str
    namespace: str
    name: str
    since: float
    boot: str
    devices: tuple[PreparedDevice, ...]

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def followed(device: PreparedDevice, seen: Sight) -> PreparedDevice:
    """The device after the hardware became what `seen` says."""
    if seen.unsure:
        return device
    if not seen.nodes or seen.offer is None:
        return replace(device, nodes=(), gone=seen.why or words.driver_gone(""))
    now = replace(
        device, nodes=seen.nodes, gone="", offer=device.offer if seen.detached else replace(seen.offer, taints=())
    )
    names = [_short(node) for node in seen.nodes if node.kind != BUS_NODE_KIND] or [_short(n) for n in seen.nodes]
    if seen.detached and device.moved and not device.gone:
        return now  # what it was before a program took it still tells more than its bus node
    numbers = device.enumeration, seen.enumeration
    if device.gone or (all(numbers) and numbers[0] != numbers[1]):
        return replace(now, moved=words.replugged(names))
    if _lost(device.first, seen):
        return replace(now, moved=words.moved(names))
    return replace(now, moved=_renamed(device.moved, names))


def _short(node: DeviceNode) -> str:
    return node.path.removeprefix("/dev/")


def _renamed(before: str, names: Sequence[str]) -> str:
    """What happened stays; only where the device is now is said anew."""
    if not before:
        return ""
    return words.replugged(names) if before.startswith("replugged") else words.moved(names)


def _lost(first: Sequence[DeviceNode], seen: Sight) -> bool:
    """None of the nodes the pod has reaches the device any more, though the device has such nodes.

    A node that only went (a jack was pulled, a program took the driver) is no loss: there is nothing to restart for.
    """
    had = {node for node in first if node.kind != BUS_NODE_KIND}
    has = {node for node in seen.nodes if node.kind != BUS_NODE_KIND}
    if not had:
        return not set(first) & set(seen.nodes)
    return bool(has) and not had & has
