"""The device graph: every bus entry's facts, grouped into the units that are judged together.

A unit is a PCI device alone, or a usb_device with its interfaces: siblings decide about each other (one radio on two
interfaces, a console that takes the bus node from the whole adapter), and nothing decides across units. So an event
costs the judgement of one unit, not of the machine. Pure: a graph and fresh facts give a new graph and what changed.
"""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

from liken.model.hardware import Bus, BusAddress, DeviceFacts, DeviceKey
from liken.model.offers import DeviceName
from liken.state.names import natural
from liken.state.shelf import Shelf

_ROOT_HUB: Final = re.compile(r"([0-9]+)-0:")


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """What one change of the store did: bus entries, and the devices offered because of them.

    `altered`: offers whose published part differs (attributes, sharing, taints); `moved`: offers of which only the
    nodes differ, as after a replug; `system`: the machine's own use of its devices changed. Empty: false.
    """

    appeared: tuple[DeviceKey, ...] = ()
    left: tuple[DeviceKey, ...] = ()
    changed: tuple[DeviceKey, ...] = ()
    offered: tuple[DeviceName, ...] = ()
    withdrawn: tuple[DeviceName, ...] = ()
    altered: tuple[DeviceName, ...] = ()
    moved: tuple[DeviceName, ...] = ()
    system: bool = False

    def __bool__(self) -> bool:
        return bool(self.keys or self.names or self.system)

    @property
    def keys(self) -> tuple[DeviceKey, ...]:
        """Every bus entry that appeared, left or changed."""
        return self.appeared + self.left + self.changed

    @property
    def names(self) -> tuple[DeviceName, ...]:
        """Every device whose offer came, went or changed."""
        return self.offered + self.withdrawn + self.altered + self.moved


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """Bus entries judged together: `owner` is the PCI device or usb_device, None while an interface has none above.

    `members` are all of them, the owner first, interfaces in the order of their numbers.
    """

    owner: DeviceFacts | None
    members: tuple[DeviceFacts, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """Facts of every bus entry, and the members of each unit by its owner's key."""

    devices: Shelf[DeviceKey, DeviceFacts] = field(default_factory=Shelf)
    members: Shelf[DeviceKey, tuple[DeviceKey, ...]] = field(default_factory=Shelf)

    def unit(self, owner: DeviceKey) -> Unit:
        """The unit of an owner's key; without members when none of them is there."""
        members = tuple(self.devices[key] for key in self.members.get(owner, ()))
        return Unit(owner=self.devices.get(owner), members=members)


def owner_key(key: DeviceKey) -> DeviceKey:
    """Key of the unit an entry belongs to: itself, or for an interface `2-1:1.0` the usb_device `2-1`.

    The interface of a root hub, `1-0:1.0`, belongs to `usb1`.
    """
    if key.bus is Bus.PCI or ":" not in key.address:
        return key
    hub = _ROOT_HUB.match(key.address)
    return DeviceKey(Bus.USB, BusAddress(f"usb{hub[1]}" if hub else key.address.split(":", 1)[0]))


def merged(
    graph: Graph, facts: Iterable[DeviceFacts], *, gone: Iterable[DeviceKey] = (), everything: bool = False
) -> tuple[Graph, Delta]:
    """The graph with fresh facts in place of the old ones; `everything`: what is not among them is gone.

    An entry that is both fresh and gone is there. The very graph is returned when nothing changed.
    """
    old = graph.devices
    fresh = {device.key: device for device in facts}
    missing = [key for key in (old if everything else dict.fromkeys(gone)) if key not in fresh and key in old]
    appeared = tuple(key for key in fresh if key not in old)
    changed = tuple(key for key, device in fresh.items() if key in old and old[key] != device)
    delta = Delta(appeared=appeared, left=tuple(missing), changed=changed)
    if not delta:
        return graph, delta
    devices = old.updated({key: fresh[key] for key in appeared + changed}, missing)
    return Graph(devices=devices, members=_regrouped(graph.members, appeared, missing)), delta


def _regrouped(
    members: Shelf[DeviceKey, tuple[DeviceKey, ...]], appeared: Collection[DeviceKey], left: Collection[DeviceKey]
) -> Shelf[DeviceKey, tuple[DeviceKey, ...]]:
    if not appeared and not left:
        return members
    touched: dict[DeviceKey, set[DeviceKey]] = {}
    for key in (*appeared, *left):
        owner = owner_key(key)
        if owner not in touched:
            touched[owner] = set(members.get(owner, ()))
        touched[owner] ^= {key}
    groups = {owner: tuple(sorted(group, key=_place)) for owner, group in touched.items() if group}
    return members.updated(groups, [owner for owner, group in touched.items() if not group])


def _place(key: DeviceKey) -> tuple[bool, tuple[tuple[int, str], ...]]:
    return ":" in key.address, natural(key.address)
