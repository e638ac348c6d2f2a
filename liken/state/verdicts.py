"""The verdict on each bus entry of a unit: the offers it makes, or the one reason it makes none.

Pure: a unit's facts, the machine's own use, rules and ids files in; verdicts and offers out. Reasons are tried in
one order and exactly one is given, because a person can follow one; what is said besides stands in `words`.
"""

from dataclasses import dataclass, replace
from typing import Final

from liken.model.hardware import Bus, DeviceFacts, DeviceKey, Reason, SystemFacts
from liken.model.machine import SerioEntry
from liken.model.offers import BUS_NODE_KIND, DeviceNode, HardwareNames, Offer, Rules, Verdict
from liken.state import words
from liken.state.attributes import attributes, class_code, cut, identity, plain, serial, shown, title
from liken.state.delivery import UHID, bus_node, delivered, undeliverable
from liken.state.dependence import dependence
from liken.state.graph import Unit
from liken.state.names import device_name
from liken.state.policy import Draft, Shape, Shaped, bluetooth, serial_line, shaped

USBFS: Final = "usbfs"
"""The driver link of an interface that a program claimed through usbfs."""

BRIDGE_CLASS: Final = "06"
HUB_CLASS: Final = "09"
BLUETOOTH_DRIVER: Final = "btusb"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """One unit's result: a verdict for each of its entries, and the offers they make."""

    verdicts: tuple[Verdict, ...] = ()
    offers: tuple[Offer, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What holds for a whole unit: uses by the machine, its radios, whether it is attached, its bus node.

    `bus_taken` says why no entry delivers the bus node; None: it is delivered.
    """

    owner: DeviceFacts | None
    members: tuple[DeviceFacts, ...]
    uses: dict[DeviceKey, str]
    radios: tuple[DeviceKey, ...]
    line: bool
    bus: DeviceNode | None
    bus_taken: str | None


def judgement(unit: Unit, *, system: SystemFacts, rules: Rules, names: HardwareNames) -> Judgement:
    """Verdicts and offers of one unit, in the order of its members."""
    case = _case(unit, system, rules)
    called = cut(title(unit.owner, names) or "") if unit.owner else ""
    verdicts: list[Verdict] = []
    offers: list[Offer] = []
    for facts in unit.members:
        reason, detail, made = _judged(facts, case, system, rules, names)
        offers += made
        verdict = Verdict(
            key=facts.key,
            title=called or shown(facts.key.address),
            reason=reason,
            detail=detail,
            advice=words.advice(facts, reason),
            offers=tuple(offer.name for offer in made),
        )
        verdicts.append(verdict)
    return Judgement(verdicts=tuple(verdicts), offers=tuple(offers))


def attaches(entry: SerioEntry, owner: DeviceFacts) -> bool:
    """Whether a `spec.serio` entry means this usb_device: by vendor and product, and by serial if it names one."""
    same = identity(owner) == (entry.vendor, entry.product)
    return same and (entry.serial is None or entry.serial == serial(owner))


def detached(facts: DeviceFacts) -> bool:
    """Whether no kernel driver has the entry; a program may hold it through usbfs."""
    return facts.driver is None or facts.driver == USBFS


def _case(unit: Unit, system: SystemFacts, rules: Rules) -> Case:
    owner = unit.owner
    usb = owner is not None and owner.key.bus is Bus.USB
    uses = {facts.key: use for facts in unit.members if (use := dependence(facts.nodes, system))}
    ttys = any(node.kind == "tty" for facts in unit.members for node in facts.nodes)
    line = usb and ttys and any(attaches(entry, owner) for entry in rules.serio if owner)
    taken = words.bus_node_taken(next(iter(uses.values()))) if uses else None
    return Case(
        owner=owner,
        members=unit.members,
        uses=uses,
        radios=_radios(unit, rules) if usb else (),
        line=line,
        bus=bus_node(owner) if owner else None,
        bus_taken=taken or (words.bus_node_attached() if line else None),
    )


def _radios(unit: Unit, rules: Rules) -> tuple[DeviceKey, ...]:
    """The interfaces that stand for a Bluetooth adapter: one that owns an hci device, else the lowest-numbered."""
    bound = [facts for facts in unit.members if _bluetooth(facts, rules)]
    owning = [facts for facts in bound if facts.hci]
    return tuple(facts.key for facts in owning or bound[:1])


def _bluetooth(facts: DeviceFacts, rules: Rules) -> bool:
    held = rules.held.get(device_name(facts.key)) if detached(facts) else None
    return facts.driver == BLUETOOTH_DRIVER or (held is not None and held.attributes.get("driver") == BLUETOOTH_DRIVER)


def _judged(
    facts: DeviceFacts, case: Case, system: SystemFacts, rules: Rules, names: HardwareNames
) -> tuple[Reason | None, str, tuple[Offer, ...]]:
    withheld = _withheld(facts, case)
    if withheld is not None:
        kept = _kept(facts, case, rules) if withheld[0] is Reason.NO_DRIVER else None
        return (None, words.detached(facts), (kept,)) if kept else (*withheld, ())
    shape = _shape(facts, case)
    made = _offers(facts, shape, case, system, names) if shape else ()
    if shape and made:
        return None, words.published(facts, shape, case.bus_taken), made
    if shape and shape.shape is Shape.SERIAL_LINE:
        return Reason.HELD_SERIAL_LINE, words.serial_line_waits(facts), ()
    return Reason.NOTHING_TO_DELIVER, words.nothing(facts, case.bus_taken), ()


def _withheld(facts: DeviceFacts, case: Case) -> tuple[Reason, str] | None:  # noqa: PLR0911 - one for each reason
    """The first reason that needs no look at the nodes' shape."""
    if facts.problem:
        return facts.problem.reason, facts.problem.detail
    if facts.key.bus is Bus.USB and ":" not in facts.key.address:
        return Reason.BUS_STRUCTURE, words.usb_device(facts, case.members[1:])
    if case.owner is None:
        return Reason.VANISHED, "the USB device above it is not there"
    if case.owner.problem:
        return case.owner.problem.reason, f"the USB device above it: {case.owner.problem.detail}"
    if detached(facts):
        return Reason.NO_DRIVER, words.no_driver(facts)
    if _structure(facts):
        return Reason.BUS_STRUCTURE, words.structure(facts)
    if facts.key in case.uses:
        return Reason.MACHINE_DEPENDS_ON_IT, case.uses[facts.key]
    if facts.driver == BLUETOOTH_DRIVER and case.radios and facts.key not in case.radios:
        return Reason.SECONDARY_INTERFACE, words.secondary(case.radios[0].address)
    hostile = undeliverable(facts.nodes)
    return (Reason.UNREADABLE, f"{shown(hostile.path)}: its name is no text, or leaves /dev") if hostile else None


def _structure(facts: DeviceFacts) -> bool:
    code = class_code(facts) or ""
    if facts.key.bus is Bus.PCI:
        return facts.driver == "pcieport" or code.startswith(BRIDGE_CLASS)
    return facts.driver == "hub" or code == HUB_CLASS


def _shape(facts: DeviceFacts, case: Case) -> Shaped | None:
    if facts.key in case.radios:
        return bluetooth()
    if case.line and any(node.kind == "tty" for node in facts.nodes):
        return serial_line(facts.nodes)
    return shaped(facts.nodes) if facts.nodes else None


def _offers(
    facts: DeviceFacts, shape: Shaped, case: Case, system: SystemFacts, names: HardwareNames
) -> tuple[Offer, ...]:
    shared = attributes(facts, case.owner or facts, names)
    found = ((draft, _nodes(draft, shape, case, system)) for draft in shape.drafts)
    return tuple(
        Offer(
            name=device_name(facts.key, draft.suffix),
            key=facts.key,
            nodes=nodes,
            attributes=dict(sorted({**shared, **draft.flags, **_subsystem(draft)}.items())),
            shareable=draft.shareable,
        )
        for draft, nodes in found
        if nodes
    )


def _subsystem(draft: Draft) -> dict[str, str]:
    kind = cut(plain(draft.subsystem or "") or "")
    return {"subsystem": kind} if kind else {}


def _nodes(draft: Draft, shape: Shaped, case: Case, system: SystemFacts) -> tuple[DeviceNode, ...]:
    """The draft's nodes, and the bus node for a primary that is not shareable."""
    nodes = delivered(draft.nodes)
    if draft.suffix or draft.shareable or case.bus is None or case.bus_taken:
        return nodes
    extra = (UHID,) if shape.shape is Shape.BLUETOOTH and system.uhid else ()
    return tuple(sorted((*nodes, case.bus, *extra), key=lambda node: node.path))


def _kept(facts: DeviceFacts, case: Case, rules: Rules) -> Offer | None:
    """The offer of a claim whose program detached the kernel driver: as it was, with the bus node alone."""
    held = rules.held.get(device_name(facts.key))
    if held is None or case.owner is None or case.bus is None:
        return None
    vendor, product = identity(case.owner) or (None, None)
    number = cut(serial(case.owner) or "") or None
    same = [held.attributes.get(key) for key in ("vendor", "product", "serial")] == [vendor, product, number]
    opened = any(node.kind == BUS_NODE_KIND for node in held.nodes)
    return replace(held, nodes=(case.bus,), taints=()) if same and opened else None
