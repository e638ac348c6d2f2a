"""The publish policy: which slice devices a device's nodes become, and which of them claims may share.

Pure: nodes in, drafts out (suffix, nodes, subsystem, flags). Only a shape somebody examined splits or shares;
everything else is published whole and exclusive. A device wrongly exclusive makes a claim wait where a person sees
it; a device wrongly shared hands the same hardware to two workloads, and nothing can take it back.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from liken.model.hardware import NodeFact
from liken.state.attributes import SUPPORTS_SOUND

WIRE_KINDS: Final = ("i2c-dev", "drm_dp_aux_dev", "cec")
"""Kinds of node that drive a monitor's wires: each becomes an exclusive companion of its graphics card."""

CARD_KINDS: Final = frozenset({"drm", "graphics", *WIRE_KINDS})
SOUND_KINDS: Final = frozenset({"sound", "input"})


class Shape(StrEnum):
    """What a device was recognised as; the device reference has a row for each."""

    GPU = "GPU"
    DISPLAY_CARD = "display-only card"
    SOUND_CARD = "sound card"
    BLUETOOTH = "Bluetooth adapter"
    SERIAL_LINE = "attached serial line"
    ONE_KIND = "one kind"
    UNKNOWN_MIX = "unknown mix"


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """One slice device to be: `suffix` is empty for the primary, `flags` are attributes that are true."""

    suffix: str = ""
    nodes: tuple[NodeFact, ...] = ()
    subsystem: str | None = None
    flags: Mapping[str, bool] = field(default_factory=dict)
    shareable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Shaped:
    """A device's shape, its drafts (primary first), and the nodes that are delivered nowhere."""

    shape: Shape
    drafts: tuple[Draft, ...]
    kept_back: tuple[NodeFact, ...] = ()


def bluetooth() -> Shaped:
    """A Bluetooth adapter: one exclusive device that has no node of its own; the bus node is added by the caller."""
    return Shaped(shape=Shape.BLUETOOTH, drafts=(Draft(),))


def serial_line(nodes: Sequence[NodeFact]) -> Shaped:
    """A serial line that liken attaches: what its driver made, and never the tty. No drafts: nothing made yet."""
    cec = tuple(node for node in nodes if node.kind == "cec")
    remote = tuple(node for node in nodes if node.kind == "input" and _base(node).startswith("event"))
    drafts = tuple(
        Draft(suffix=kind, nodes=found, subsystem=kind) for kind, found in (("cec", cec), ("input", remote)) if found
    )
    return Shaped(shape=Shape.SERIAL_LINE, drafts=drafts, kept_back=_others(nodes, drafts))


def shaped(nodes: Sequence[NodeFact]) -> Shaped:
    """The shape of every other device that has at least one node."""
    kinds = frozenset(node.kind for node in nodes)
    drm = [node for node in nodes if node.kind == "drm"]
    renders = tuple(node for node in drm if _base(node).startswith("renderD"))
    cards = tuple(node for node in drm if _base(node).startswith("card"))
    if (renders or cards) and kinds <= CARD_KINDS:
        return _graphics(nodes, renders, cards)
    if "sound" in kinds and kinds <= SOUND_KINDS:
        flags = {SUPPORTS_SOUND: True}
        draft = Draft(nodes=tuple(nodes), subsystem="sound", flags=flags, shareable=True)
        return Shaped(shape=Shape.SOUND_CARD, drafts=(draft,))
    if len(kinds) == 1 and (kind := next(iter(kinds))) is not None:
        return Shaped(shape=Shape.ONE_KIND, drafts=(Draft(nodes=tuple(nodes), subsystem=kind),))
    return Shaped(shape=Shape.UNKNOWN_MIX, drafts=(Draft(nodes=tuple(nodes)),))


def _graphics(nodes: Sequence[NodeFact], renders: tuple[NodeFact, ...], cards: tuple[NodeFact, ...]) -> Shaped:
    drafts = []
    if renders:
        drafts.append(Draft(nodes=renders, subsystem="drm", flags={"renderNode": True}, shareable=True))
    if cards:
        suffix = "display" if renders else ""
        drafts.append(Draft(suffix=suffix, nodes=cards, subsystem="drm", flags={"displayNode": True}))
    for kind in WIRE_KINDS:
        wires = tuple(node for node in nodes if node.kind == kind)
        if wires:
            drafts.append(Draft(suffix=kind.replace("_", "-"), nodes=wires, subsystem=kind))
    shape = Shape.GPU if renders else Shape.DISPLAY_CARD
    return Shaped(shape=shape, drafts=tuple(drafts), kept_back=_others(nodes, drafts))


def _others(nodes: Sequence[NodeFact], drafts: Sequence[Draft]) -> tuple[NodeFact, ...]:
    taken = {node.path for draft in drafts for node in draft.nodes}
    return tuple(node for node in nodes if node.path not in taken)


def _base(node: NodeFact) -> str:
    return node.name.rsplit("/", 1)[-1]
