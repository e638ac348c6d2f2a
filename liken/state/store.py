"""The single writer of what liken knows: facts in, immutable revisioned snapshots out.

One change judges only the units it touched; everything else is carried over by identity, so `snapshot.offers` is the
very mapping of the snapshot before while no offer changed. Readers are level-triggered: they remember the revision
they served and ask for a newer one, so a change that lands while they work cannot be lost. One writer, the event
loop; nothing here may be called from a thread.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

import anyio

from liken.model.hardware import DeviceFacts, DeviceKey, Inventory, SystemFacts
from liken.model.machine import SerioEntry
from liken.model.offers import Departed, DeviceName, HardwareNames, Offer, Rules, Snapshot, Verdict
from liken.state.departures import departure
from liken.state.graph import Delta, Graph, merged, owner_key
from liken.state.shelf import Shelf
from liken.state.verdicts import BLUETOOTH_DRIVER, Judgement, judgement
from liken.state.view import gone_but_held

DEPARTED_LIMIT: Final = 256
"""How many devices that are gone are remembered, so that a claim on one can be told what happened to it."""

_USED_KINDS: Final = frozenset({"block", "nvme", "tty"})


class Store:
    """Holds the newest snapshot; `replace` and the `set_` methods make the next one."""

    def __init__(
        self, names: HardwareNames, *, rules: Rules | None = None, wall: Callable[[], float] = time.time
    ) -> None:
        """Start with an empty, incomplete snapshot of revision 0; `wall` tells Unix seconds."""
        self._names = names
        self._wall = wall
        self._graph = Graph()
        self._judged: dict[DeviceKey, Judgement] = {}
        self._used: set[DeviceKey] = set()
        self._ghosts: dict[DeviceName, Offer] = {}
        self._last: dict[DeviceName, Offer] = {}
        self._changed = anyio.Event()
        self._offered: Shelf[DeviceName, Offer] = Shelf()
        self._verdicts: Shelf[DeviceKey, Verdict] = Shelf()
        self._snapshot = Snapshot(
            revision=0,
            complete=False,
            inventory=Inventory(),
            rules=rules or Rules(),
            offers=self._offered,
            verdicts=self._verdicts,
        )

    @property
    def snapshot(self) -> Snapshot:
        """The newest snapshot."""
        return self._snapshot

    async def settled(self, after: int) -> Snapshot:
        """Wait until there is a snapshot newer than revision `after`, and return the newest."""
        while self._snapshot.revision <= after:
            await self._changed.wait()
        return self._snapshot

    def replace(
        self,
        facts: Iterable[DeviceFacts],
        *,
        gone: Iterable[DeviceKey] = (),
        system: SystemFacts | None = None,
        complete: bool | None = None,
        everything: bool = False,
        changed_at: float | None = None,
    ) -> Delta:
        """Put fresh facts in place of the old ones.

        `everything`: `facts` is the whole inventory, what is not in it is gone. `system` and `complete` stay as they
        are when None. `changed_at`: time of the first event that led here (`anyio.current_time()`), None after a
        resync. The revision grows only when something changed.
        """
        old = self._snapshot
        self._graph, delta = merged(self._graph, facts, gone=gone, everything=everything)
        dirty = {owner_key(key) for key in delta.keys}
        if system is not None and system != old.inventory.system:
            delta = replace(delta, system=True)
            dirty |= self._used
        inventory = old.inventory
        if delta:
            inventory = Inventory(devices=self._graph.devices, system=system or inventory.system)
        snapshot = replace(
            old, inventory=inventory, complete=old.complete if complete is None else complete, changed_at=changed_at
        )
        return self._commit(snapshot, dirty, delta)

    def set_serio(self, entries: Iterable[SerioEntry]) -> Delta:
        """Put other serial attachments in force."""
        return self._set_rules(replace(self._snapshot.rules, serio=tuple(entries)), set(self._used))

    def set_held(self, held: Mapping[DeviceName, Offer]) -> Delta:
        """Say which devices prepared claims hold, each with its offer as it was when it was prepared."""
        before = self._snapshot.rules.held
        differs = [
            (before.get(name) or held[name]).key
            for name in before.keys() | held.keys()
            if before.get(name) != held.get(name)
        ]
        rules = replace(self._snapshot.rules, held=dict(held))
        return self._set_rules(rules, {owner_key(key) for key in differs})

    def set_taint_gone(self, on: bool) -> Delta:  # noqa: FBT001 - a setter's one value
        """Say whether a held device that vanished stays in the slice with a NoExecute taint."""
        return self._set_rules(replace(self._snapshot.rules, taint_gone=on), set())

    def _set_rules(self, rules: Rules, dirty: set[DeviceKey]) -> Delta:
        if rules == self._snapshot.rules:
            return Delta()
        return self._commit(replace(self._snapshot, rules=rules, changed_at=None), dirty, Delta())

    def _commit(self, snapshot: Snapshot, dirty: set[DeviceKey], delta: Delta) -> Delta:
        """Judge the dirty units, and make the next revision if anything differs from the newest one."""
        old = self._snapshot
        touched = self._rejudged(snapshot, dirty)
        delta = _with_offers(delta, touched, old.offers, self._offered)
        snapshot = replace(snapshot, offers=self._offered, verdicts=self._verdicts)
        snapshot = replace(snapshot, departed=self._departed(delta, dirty, snapshot))
        unchanged = not delta and snapshot.verdicts is old.verdicts
        if not unchanged or snapshot.complete != old.complete or snapshot.rules is not old.rules:
            self._snapshot = replace(snapshot, revision=old.revision + 1)
            event, self._changed = self._changed, anyio.Event()
            event.set()
        return delta

    def _rejudged(self, snapshot: Snapshot, dirty: set[DeviceKey]) -> set[DeviceName]:
        """Bring verdicts and offers up to date; the names of offers that are not the same object as before."""
        before: list[Judgement] = []
        after: list[Judgement] = []
        for owner in dirty:
            old = self._judged.get(owner, Judgement())
            new = self._judge(owner, snapshot)
            if new != old:
                before.append(old)
                after.append(new)
        if after:
            self._verdicts = self._verdicts.updated(
                {verdict.key: verdict for found in after for verdict in found.verdicts},
                [verdict.key for found in before for verdict in found.verdicts],
            )
        return self._offer(snapshot.rules, before, after)

    def _judge(self, owner: DeviceKey, snapshot: Snapshot) -> Judgement:
        unit = self._graph.unit(owner)
        if not unit.members:
            self._judged.pop(owner, None)
            self._used.discard(owner)
            return Judgement()
        found = judgement(unit, system=snapshot.inventory.system, rules=snapshot.rules, names=self._names)
        used = any(
            facts.driver == BLUETOOTH_DRIVER or any(node.kind in _USED_KINDS for node in facts.nodes)
            for facts in unit.members
        )
        (self._used.add if used else self._used.discard)(owner)
        known = {offer.name: offer for offer in self._judged.get(owner, Judgement()).offers}
        kept = tuple(known[offer.name] if known.get(offer.name) == offer else offer for offer in found.offers)
        self._judged[owner] = replace(found, offers=kept)
        return self._judged[owner]

    def _offer(self, rules: Rules, before: Iterable[Judgement], after: Iterable[Judgement]) -> set[DeviceName]:
        old = self._offered
        leaving = {offer.name for found in before for offer in found.offers} | self._ghosts.keys()
        coming = {offer.name: offer for found in after for offer in found.offers}
        offers = old.updated(coming, leaving)
        ghosts = {offer.name: offer for offer in gone_but_held(rules, self._graph.devices, offers)}
        self._ghosts = {name: old[name] if old.get(name) == ghost else ghost for name, ghost in ghosts.items()}
        offers = offers.updated(self._ghosts)
        touched = {name for name in leaving | coming.keys() | ghosts.keys() if old.get(name) is not offers.get(name)}
        self._offered = offers if touched else old
        return touched

    def _departed(self, delta: Delta, dirty: set[DeviceKey], snapshot: Snapshot) -> Mapping[DeviceName, Departed]:
        """Devices that are gone with the reason as it is now; what returned is forgotten, what is oldest drops out."""
        offers = snapshot.offers
        old = self._snapshot.departed
        left = [name for name in (*delta.withdrawn, *delta.altered) if name not in offers or name in self._ghosts]
        again = [name for name, offer in self._last.items() if owner_key(offer.key) in dirty]
        if not left and not again:
            return old
        now, departed = self._wall(), dict(old)
        for name in left:
            if name not in departed:
                self._last[name] = self._snapshot.offers[name]
                departed[name] = Departed(name=name, at=now, why="")
        for name in (*left, *again):
            if name in offers and name not in self._ghosts:
                departed.pop(name, None)
                self._last.pop(name, None)
            else:
                last = self._last[name]
                why = departure(last, self._graph, snapshot.verdicts.get(last.key))
                departed[name] = replace(departed[name], why=why)
        for name in list(departed)[: max(0, len(departed) - DEPARTED_LIMIT)]:
            del departed[name], self._last[name]
        return departed


def _with_offers(
    delta: Delta, touched: set[DeviceName], old: Mapping[DeviceName, Offer], new: Mapping[DeviceName, Offer]
) -> Delta:
    stayed = sorted(name for name in touched if name in old and name in new)
    altered = tuple(name for name in stayed if _published(old[name]) != _published(new[name]))
    return replace(
        delta,
        offered=tuple(sorted(name for name in touched if name not in old)),
        withdrawn=tuple(sorted(name for name in touched if name not in new)),
        altered=altered,
        moved=tuple(name for name in stayed if name not in altered),
    )


def _published(offer: Offer) -> tuple[object, ...]:
    return offer.attributes, offer.shareable, offer.taints
