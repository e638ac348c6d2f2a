"""What differs between two snapshots, as a person follows it: devices that came, went or changed, and why not.

Pure. Structure (bridges, hubs, USB devices as such) is left out: what hangs on it says enough.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from liken.model.hardware import Reason
from liken.model.offers import Offer, Snapshot, Verdict


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
    gone, here = old.offers.keys() - new.offers.keys(), new.offers.keys() - old.offers.keys()
    for name in sorted(gone):
        departed = new.departed.get(name)
        yield Change(
            what="left", name=name, title=_title(old, old.offers[name]), detail=departed.why if departed else ""
        )
    for name in sorted(here):
        yield _offered("appeared", new, new.offers[name])
    for name in sorted(new.offers.keys() & old.offers.keys()):
        if new.offers[name] != old.offers[name]:
            yield _offered("changed", new, new.offers[name])
    for key in sorted(new.verdicts):
        verdict = new.verdicts[key]
        if _worth_saying(verdict) and old.verdicts.get(key) != verdict:
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
