"""Which bus entries a person means by a word: a device's name, an address, a node, an id, or part of a name.

Pure: a snapshot and the word in, keys out. The exact readings come first, and only when none of them finds anything
is the word looked for inside names.
"""

import re
from collections.abc import Callable, Iterable

from liken.model.hardware import Bus, BusAddress, DeviceFacts, DeviceKey
from liken.model.offers import Offer, Snapshot
from liken.state.attributes import identity, serial
from liken.state.names import natural

IDENTITY = re.compile(r"([0-9a-fA-F]{4}):([0-9a-fA-F]{4})")
Reading = Callable[[Snapshot, str], Iterable[DeviceKey]]


def order(key: DeviceKey) -> tuple[str, tuple[tuple[int, str], ...], str]:
    """Sort key of a list of bus entries: by bus, PCI by its hexadecimal address, ports as people count."""
    return key.bus, () if key.bus is Bus.PCI else natural(key.address), key.address


def found(snapshot: Snapshot, what: str) -> tuple[DeviceKey, ...]:
    """The bus entries `what` means, in order; none when nothing here is called so."""
    for reading in READINGS:
        if keys := set(reading(snapshot, what)):
            return tuple(sorted(keys, key=order))
    return ()


def _by_name(snapshot: Snapshot, what: str) -> Iterable[DeviceKey]:
    return (offer.key for name, offer in snapshot.offers.items() if name == what)


def _by_address(snapshot: Snapshot, what: str) -> Iterable[DeviceKey]:
    asked = what.lower()
    return (
        key
        for key in snapshot.verdicts
        if asked in {key.address.lower(), str(key).lower()} or key.address.lower() == f"0000:{asked}"
    )


def _by_node(snapshot: Snapshot, what: str) -> Iterable[DeviceKey]:
    for key, facts in snapshot.inventory.devices.items():
        if any(what in {f"/dev/{node.name}", node.name} for node in facts.nodes):
            yield key
    for offer in snapshot.offers.values():
        if any(node.path in {what, f"/dev/{what}"} for node in offer.nodes):
            yield offer.key


def _by_identity(snapshot: Snapshot, what: str) -> Iterable[DeviceKey]:
    if (asked := IDENTITY.fullmatch(what)) is None:
        return
    wanted = (asked[1].lower(), asked[2].lower())
    devices = snapshot.inventory.devices
    for key in snapshot.verdicts:
        if any(identity(facts) == wanted for facts in (devices.get(key), above(snapshot, key)) if facts):
            yield key


def _by_part(snapshot: Snapshot, what: str) -> Iterable[DeviceKey]:
    part = what.lower()
    for key, verdict in snapshot.verdicts.items():
        words = [verdict.title, *verdict.offers, str(key)]
        for facts in filter(None, (snapshot.inventory.devices.get(key), above(snapshot, key))):
            words += [serial(facts) or "", facts.driver or ""]
        if any(part in word.lower() for word in words):
            yield key


def above(snapshot: Snapshot, key: DeviceKey) -> DeviceFacts | None:
    """The usb_device above an interface; None for anything else."""
    device, colon, _ = key.address.partition(":")
    if key.bus is not Bus.USB or not colon:
        return None
    return snapshot.inventory.devices.get(DeviceKey(Bus.USB, BusAddress(device)))


def siblings(snapshot: Snapshot, key: DeviceKey) -> tuple[DeviceKey, ...]:
    """The other entries of the same physical device: a usb_device and its interfaces, the functions of a PCI slot."""

    def slot(other: DeviceKey) -> str:
        return other.address.partition(":")[0] if other.bus is Bus.USB else other.address.rpartition(".")[0]

    same = (other for other in snapshot.verdicts if other.bus == key.bus and slot(other) == slot(key) and other != key)
    return tuple(sorted(same, key=order))


def offers_of(snapshot: Snapshot, key: DeviceKey) -> tuple[Offer, ...]:
    """The devices one bus entry makes, the primary first."""
    return tuple(snapshot.offers[name] for name in snapshot.verdicts[key].offers if name in snapshot.offers)


READINGS: tuple[Reading, ...] = (_by_name, _by_address, _by_node, _by_identity, _by_part)
