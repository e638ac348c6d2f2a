"""The publish policy: every shape of the table, and everything unexamined whole and exclusive."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from liken.model.hardware import NodeFact
from liken.state.policy import Draft, Shape, Shaped, serial_line, shaped
from tests.unit.fakes_state import node

NAMES = {
    "drm": ["dri/card0", "dri/renderD128", "dri/controlD64"],
    "sound": ["snd/controlC0", "snd/pcmC0D0p"],
    "input": ["input/event3", "input/mouse0"],
    "graphics": ["fb0"],
    "i2c-dev": ["i2c-1", "i2c-2"],
    "drm_dp_aux_dev": ["drm_dp_aux0"],
    "cec": ["cec0"],
    "tty": ["ttyUSB0"],
    None: ["odd0"],
}
NODES = [node(name, kind) for kind, names in NAMES.items() for name in names]


def outline(found: Shaped) -> list[tuple[str, list[str], str | None, bool]]:
    return [
        (draft.suffix, [item.name for item in draft.nodes], draft.subsystem, draft.shareable) for draft in found.drafts
    ]


def of(*names: str) -> list[NodeFact]:
    return [item for name in names for item in NODES if item.name == name]


@pytest.mark.parametrize(
    ("names", "shape", "expected"),
    [
        (["dri/renderD128"], Shape.GPU, [("", ["dri/renderD128"], "drm", True)]),
        (
            ["dri/card0", "dri/renderD128", "dri/controlD64", "fb0", "i2c-1", "i2c-2", "drm_dp_aux0", "cec0"],
            Shape.GPU,
            [
                ("", ["dri/renderD128"], "drm", True),
                ("display", ["dri/card0"], "drm", False),
                ("i2c-dev", ["i2c-1", "i2c-2"], "i2c-dev", False),
                ("drm-dp-aux-dev", ["drm_dp_aux0"], "drm_dp_aux_dev", False),
                ("cec", ["cec0"], "cec", False),
            ],
        ),
        (
            ["dri/card0", "fb0", "i2c-1"],
            Shape.DISPLAY_CARD,
            [("", ["dri/card0"], "drm", False), ("i2c-dev", ["i2c-1"], "i2c-dev", False)],
        ),
        (["snd/controlC0", "input/event3"], Shape.SOUND_CARD, [("", ["snd/controlC0", "input/event3"], "sound", True)]),
        (["ttyUSB0"], Shape.ONE_KIND, [("", ["ttyUSB0"], "tty", False)]),
        (["input/event3", "input/mouse0"], Shape.ONE_KIND, [("", ["input/event3", "input/mouse0"], "input", False)]),
        (["dri/controlD64"], Shape.ONE_KIND, [("", ["dri/controlD64"], "drm", False)]),
        (["dri/renderD128", "ttyUSB0"], Shape.UNKNOWN_MIX, [("", ["dri/renderD128", "ttyUSB0"], None, False)]),
        (["snd/controlC0", "ttyUSB0"], Shape.UNKNOWN_MIX, [("", ["snd/controlC0", "ttyUSB0"], None, False)]),
        (["odd0"], Shape.UNKNOWN_MIX, [("", ["odd0"], None, False)]),
        (["dri/renderD128", "odd0"], Shape.UNKNOWN_MIX, [("", ["dri/renderD128", "odd0"], None, False)]),
    ],
)
def test_a_shape_is_recognised_by_its_nodes(names: list[str], shape: Shape, expected: list[tuple[object, ...]]) -> None:
    found = shaped(of(*names))
    assert found.shape is shape
    assert outline(found) == expected


def test_the_flags_name_the_half_a_claim_wants() -> None:
    assert [draft.flags for draft in shaped(of("dri/renderD128", "dri/card0")).drafts] == [
        {"renderNode": True},
        {"displayNode": True},
    ]
    assert shaped(of("snd/controlC0")).drafts[0].flags == {"sound.liken.sh/supportsSound": True}


def test_a_framebuffer_is_delivered_nowhere_and_said_to_be_so() -> None:
    assert [item.name for item in shaped(of("dri/card0", "fb0")).kept_back] == ["fb0"]


def test_a_serial_line_offers_what_its_driver_made_and_never_the_tty() -> None:
    found = serial_line(of("ttyUSB0", "cec0", "input/event3", "input/mouse0"))
    assert outline(found) == [("cec", ["cec0"], "cec", False), ("input", ["input/event3"], "input", False)]
    assert [item.name for item in found.kept_back] == ["ttyUSB0", "input/mouse0"]
    assert serial_line(of("ttyUSB0")).drafts == ()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(NODES), min_size=1, unique=True))
def test_no_node_is_delivered_twice_and_only_examined_shapes_split_or_share(nodes: list[NodeFact]) -> None:
    found = shaped(nodes)
    delivered = [item.name for draft in found.drafts for item in draft.nodes]
    assert len(delivered) == len(set(delivered))
    assert sorted([*delivered, *(item.name for item in found.kept_back)]) == sorted(item.name for item in nodes)
    if found.shape in {Shape.ONE_KIND, Shape.UNKNOWN_MIX}:
        assert found.drafts == (Draft(nodes=tuple(nodes), subsystem=found.drafts[0].subsystem),)
