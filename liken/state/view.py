"""The whole view of an inventory: every offer and every verdict, in one pass.

The store keeps the same result up to date unit by unit; here it is made from nothing, for the command line and as
the yardstick the incremental one is tested against. Also here: a held device that is gone but stays, tainted.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from liken.model.hardware import DeviceFacts, DeviceKey, Inventory, Reason
from liken.model.offers import DeviceName, HardwareNames, Offer, Rules, Taint, Verdict
from liken.state.graph import Graph, merged
from liken.state.verdicts import judgement

UNPLUGGED: Final = Taint(key="liken.sh/unplugged", value="", effect="NoExecute")
"""Of a device that vanished while a claim holds it, where `taint_gone` is on: evicts the pod."""


def view(
    inventory: Inventory, rules: Rules, names: HardwareNames
) -> tuple[Mapping[DeviceName, Offer], Mapping[DeviceKey, Verdict]]:
    """Offers by name and verdicts by key, each in the order of its sorted keys."""
    graph, _ = merged(Graph(), inventory.devices.values())
    offers: dict[DeviceName, Offer] = {}
    verdicts: dict[DeviceKey, Verdict] = {}
    for owner in sorted(graph.members):
        found = judgement(graph.unit(owner), system=inventory.system, rules=rules, names=names)
        offers |= {offer.name: offer for offer in found.offers}
        verdicts |= {verdict.key: verdict for verdict in found.verdicts}
    offers |= {offer.name: offer for offer in gone_but_held(rules, graph.devices, offers)}
    return dict(sorted(offers.items())), dict(sorted(verdicts.items()))


def gone_but_held(
    rules: Rules, devices: Mapping[DeviceKey, DeviceFacts], offers: Mapping[DeviceName, Offer]
) -> Iterable[Offer]:
    """Held devices that vanished, to be kept in the slice: as they were, without a node, with the taint."""
    if rules.taint_gone:
        for name, held in rules.held.items():
            if name not in offers and _vanished(devices.get(held.key)):
                yield replace(held, nodes=(), taints=(UNPLUGGED,))


def _vanished(facts: DeviceFacts | None) -> bool:
    return facts is None or (facts.problem is not None and facts.problem.reason is Reason.VANISHED)
