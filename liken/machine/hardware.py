"""The unclaimed report at the cost of what it is about. Pure.

Most of a machine's thousands of bus entries have drivers and are no serial adapter, so the report says nothing of
them. It is made from a snapshot of the others alone: driverless entries, adapters that `spec.serio` could serve, and
whatever a claim holds, each with the USB device above it.
"""

from dataclasses import replace

from liken.model.hardware import Bus, Inventory
from liken.model.offers import Snapshot
from liken.state.attributes import identity
from liken.state.graph import owner_key
from liken.state.unclaimed import SERIO_ADAPTERS, Catalog, Unclaimed, unclaimed
from liken.state.verdicts import USBFS

_VENDORS = frozenset(vendor.encode() for vendor, _ in SERIO_ADAPTERS)


def report(snapshot: Snapshot, catalog: Catalog) -> tuple[Unclaimed, ...]:
    """What `unclaimed(snapshot, catalog)` says, without looking at every device in earnest."""
    return unclaimed(concerned(snapshot), catalog)


def concerned(snapshot: Snapshot) -> Snapshot:
    """The snapshot with the part of its inventory that the report can be about."""
    devices = snapshot.inventory.devices
    keys = {offer.key for offer in snapshot.rules.held.values()}
    adapters = set()
    for key, facts in devices.items():
        if facts.driver is None or facts.driver == USBFS:
            keys.add(key)
        elif facts.files.get("idVendor", b"").strip().lower() in _VENDORS and identity(facts) in SERIO_ADAPTERS:
            adapters.add(key)
    if adapters:
        keys |= adapters | {key for key in devices if key.bus is Bus.USB and owner_key(key) in adapters}
    keys |= {owner_key(key) for key in keys}
    return replace(snapshot, inventory=Inventory(devices={key: devices[key] for key in keys if key in devices}))
