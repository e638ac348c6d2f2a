"""What the mirror tells people: one line for every device that appeared, left or changed, and a warning when deaf.

In: deltas and snapshots. Out: structured log lines, metrics, and an Event on the Node once it is certain that uevents
do not arrive here. Hostile text is made harmless by the log itself.
"""

from collections import Counter
from collections.abc import Collection
from functools import partial
from typing import Final

import structlog

from liken.metrics import Metrics
from liken.model.api import ObjectRef, Recorder
from liken.model.hardware import DeviceKey, Reason
from liken.model.offers import DeviceName, Snapshot
from liken.state.graph import Delta
from liken.state.store import Store

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

DEAF: Final = (
    "The kernel's uevents do not arrive here: a comparison with /sys found changes that no event had told of. liken "
    "needs the host's network namespace (hostNetwork: true, or no network namespace of its own) and must not run in a "
    "user namespace with its own network (hostUsers: false). Until then changes are seen at the next comparison only."
)
_CERTAIN: Final = 2
PUBLISHED: Final = "Published"


class Journal:
    """Tells what changed, and counts what the safety comparison had to correct."""

    def __init__(self, store: Store, metrics: Metrics, recorder: Recorder | None, node: ObjectRef | None) -> None:
        self._store, self._metrics, self._recorder, self._node = store, metrics, recorder, node
        self._counted: tuple[int, Counter[str]] = (-1, Counter())
        for label in (PUBLISHED, *Reason):
            metrics.devices.labels(verdict=str(label)).set_function(partial(self._entries, str(label)))
        self.corrections = 0
        """Safety comparisons that found what no event had told of."""

    def enumerated(self, snapshot: Snapshot, took_s: float) -> None:
        """The first inventory is there."""
        log.info(
            "inventory.read",
            entries=len(snapshot.inventory.devices),
            offered=len(snapshot.offers),
            took_ms=round(took_s * 1000),
        )

    def changed(self, before: Snapshot, now: Snapshot, delta: Delta) -> None:
        """One line for each device a person cares for."""
        if not before.complete:
            return
        for name in delta.offered:
            log.info("device.appeared", device=name, nodes=_nodes(now, name), title=_title(now, name))
        for name in delta.withdrawn:
            departed = now.departed.get(name)
            log.info("device.left", device=name, why=departed.why if departed else "it is no longer offered")
        for name in (*delta.altered, *delta.moved):
            log.info("device.changed", device=name, nodes=_nodes(now, name), had=_nodes(before, name))

    def _entries(self, label: str) -> float:
        """How many bus entries have this verdict, counted once for each revision."""
        snapshot = self._store.snapshot
        if self._counted[0] != snapshot.revision:
            labels = (str(verdict.reason or PUBLISHED) for verdict in snapshot.verdicts.values())
            self._counted = snapshot.revision, Counter(labels)
        return self._counted[1][label]

    def compared(
        self, causes: Collection[str], delta: Delta, noticed: Collection[DeviceKey], snapshot: Snapshot
    ) -> None:
        """A comparison with everything has ended; `noticed`: entries that differed and that no event had named."""
        for cause in causes:
            self._metrics.resyncs.labels(cause=cause).inc()
        if "start" in causes:
            return
        level = log.info if causes != {"safety"} or delta else log.debug
        level("inventory.compared", causes=sorted(causes), differed=len(delta.keys))
        devices = snapshot.inventory.devices
        wrong = [key for key in noticed if key not in devices or devices[key].problem is None]
        if causes == {"safety"} and wrong:
            self._corrected(wrong)

    def _corrected(self, wrong: list[DeviceKey]) -> None:
        self._metrics.corrections.inc(len(wrong))
        self.corrections += 1
        log.warning("uevents.missed", entries=[str(key) for key in wrong[:8]], count=len(wrong))
        if self.corrections == 1:
            log.warning("uevents.deaf", advice=DEAF)
        if self.corrections == _CERTAIN:
            log.error("uevents.deaf", advice=DEAF, corrections=self.corrections)
            if self._recorder is not None and self._node is not None:
                self._recorder.record(self._node, kind="Warning", reason="UeventsMissing", message=DEAF)


def _nodes(snapshot: Snapshot, name: DeviceName) -> list[str]:
    offer = snapshot.offers.get(name)
    return [node.path for node in offer.nodes] if offer is not None else []


def _title(snapshot: Snapshot, name: DeviceName) -> str:
    return str(snapshot.offers[name].attributes.get("name", ""))
