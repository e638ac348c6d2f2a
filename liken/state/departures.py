"""What happened to a device that was offered and no longer is, in words for whoever asks for it by name.

Pure. In: the offer as it last was, and what stands at its address now. The sentence continues "usb-2-1-1-0 is not
offered: ", so that a claim's error and `explain` can say the same.
"""

from liken.model.hardware import Bus, DeviceFacts
from liken.model.offers import Offer, Verdict
from liken.state.attributes import identity, shown
from liken.state.graph import Graph, owner_key


def departure(offer: Offer, graph: Graph, verdict: Verdict | None) -> str:
    """Why the device of an earlier offer is not offered now; `verdict` is that of its address, None: nothing there."""
    now = graph.devices.get(offer.key)
    owner = graph.devices.get(owner_key(offer.key))
    model = _other_model(offer, owner)
    if owner is None:
        return "it was unplugged" if offer.key.bus is Bus.USB else "it was removed from the machine"
    if model is not None:
        return f"its address {shown(offer.key.address)} now holds another model, {model}"
    if now is None or verdict is None:
        return f"interface {shown(offer.key.address)} is gone, because the device was reconfigured or reset"
    if verdict.reason is None:
        return f"{shown(offer.key.address)} now offers {', '.join(verdict.offers)} instead"
    driver = offer.attributes.get("driver")
    if now.driver is None and driver:
        return f"its driver {driver} is gone, and no other is bound to {shown(offer.key.address)}"
    return f"it is withheld as {verdict.reason}: {verdict.detail}"


def _other_model(offer: Offer, owner: DeviceFacts | None) -> str | None:
    """Vendor and product at the address, when they are known and not those of the offer."""
    known = identity(owner) if owner else None
    earlier = offer.attributes.get("vendor"), offer.attributes.get("product")
    return ":".join(known) if known and known != earlier else None
