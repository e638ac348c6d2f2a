"""What differs between two snapshots, as a person follows it: devices that came, went or changed, and why not.

Pure. Structure (bridges, hubs, USB devices as such) is left out: what hangs on it says enough.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from liken.model.hardware import Reason
from liken.model.offers import Offer, Snapshot, Verdict
from liken.state.shelf import differing


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One line: `what` is appeared, changed or left for a device, withheld for an entry that is not offered."""

    what: str
    name: str
    title: str
    nodes: tuple[str, ...] = ()
    detail: str = ""


def changes(old: Snapshot, new: Snapshot) -> Iterator[Change]:
    """The differences in a stable order: what left, what came, what changed, what came and is withheld."""
    names = sorted(differing(old.offers, new.offers))
    for name in names:
        if name not in new.offers:
            departed = new.departed.get(name)
            why = departed.why if departed else ""
            yield Change(what="left", name=name, title=_title(old, old.offers[name]), detail=why)
    for what, there in (("appeared", False), ("changed", True)):
        for name in names:
            if name in new.offers and (name in old.offers) is there and new.offers[name] != old.offers.get(name):
                yield _offered(what, new, new.offers[name])
    for key in sorted(differing(old.verdicts, new.verdicts)):
        verdict = new.verdicts.get(key)
        if verdict is not None and verdict != old.verdicts.get(key) and _worth_saying(verdict):
            yield Change(
                what="withheld", name=str(key), title=verdict.title, detail=f"{verdict.reason}: {verdict.detail}"
            )


def _worth_saying(verdict: Verdict) -> bool:
    return verdict.reason is not None and verdict.reason is not Reason.BUS_STRUCTURE


def _title(snapshot: Snapshot, offer: Offer) -> str:
    verdict = snapshot.verdicts.get(offer.key)
    return verdict.title if verdict else ""


def _offered(what: str, snapshot: Snapshot, offer: Offer) -> Change:
    nodes = tuple(node.path for node in offer.nodes)
    return Change(what=what, name=offer.name, title=_title(snapshot, offer), nodes=nodes)
