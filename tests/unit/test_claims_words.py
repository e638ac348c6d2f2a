import inspect
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from liken.claims import groups, words
from liken.claims.catalogue import MESSAGES
from liken.claims.options import NodeOptions
from liken.model.offers import DeviceNode
from tests.unit.test_claims_cdi import claim, device

HELPERS = {"shown", "clock", "listed"}


def sentences() -> set[str]:
    return {
        name
        for name, found in inspect.getmembers(words, inspect.isfunction)
        if found.__module__ == words.__name__ and name not in HELPERS
    }


def test_every_sentence_has_its_cause_and_its_remedy() -> None:
    assert [message.maker for message in MESSAGES] == list(dict.fromkeys(message.maker for message in MESSAGES))
    assert {message.maker for message in MESSAGES} == sentences()
    for message in MESSAGES:
        assert message.cause.endswith((".", "is.")), message
        assert message.remedy.endswith("."), message
        assert message.text.isprintable()
        assert len(message.text) <= words.LONGEST


def test_times_are_read_as_a_clock_in_utc() -> None:
    assert words.departed(50_602.0, "it was unplugged") == "unplugged at 14:03:22 UTC"
    assert words.departed(50_602.0, "its driver cp210x is gone") == "its driver cp210x is gone (since 14:03:22 UTC)"


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], ""),
        (["a"], "a"),
        (["a", "b"], "a and b"),
        (["a", "b", "c", "d"], "a, b, c and d"),
        (list("abcdefg"), "a, b, c and 4 more"),
    ],
)
def test_names_are_listed_and_cut(names: list[str], text: str) -> None:
    assert words.listed(names) == text


@settings(max_examples=60, deadline=None)
@given(st.text(), st.integers(0, 599))
def test_a_stranger_s_words_stay_printable_and_short(said: str, status: int) -> None:
    for message in (
        words.claim_unread("a/b", status, 1.0, said),
        words.claim_replaced("a/b", said, said),
        words.another_node("a/b", said, said, "node-a"),
        words.withheld("Unreadable", said),
    ):
        assert message.isprintable()
        assert len(message) < 600


def test_the_host_s_group_is_that_of_each_node_that_is_one(tmp_path: Path) -> None:
    nodes = tuple(DeviceNode(path=f"/dev/{name}", kind="tty") for name in ("tty", "missing", "shm"))
    asking = claim(device(nodes=nodes, options=NodeOptions(supplemental_groups=True)), device(nodes=nodes))
    found = groups.with_groups(asking, Path("/dev"))
    assert [made.groups for made in found.devices] == [{"/dev/tty": Path("/dev/tty").stat().st_gid}, {}]
    assert groups.with_groups(asking, tmp_path) == asking
