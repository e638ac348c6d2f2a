"""The shelf: a dict in every answer, versions that never change, and differences found by identity."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from liken.state.shelf import CHUNK, Shelf, differing

STEPS = st.lists(
    st.tuples(
        st.dictionaries(st.integers(0, 600), st.integers(), max_size=40), st.lists(st.integers(0, 600), max_size=9)
    ),
    max_size=4,
)


def filled(count: int) -> Shelf[int, str]:
    return Shelf[int, str]().updated({key: str(key) for key in range(count)})


@settings(max_examples=40, deadline=None)
@given(STEPS)
def test_every_version_answers_as_a_dict_does_and_stays_as_it_was(
    steps: list[tuple[dict[int, int], list[int]]],
) -> None:
    shelf: Shelf[int, int] = Shelf[int, int]().updated(dict.fromkeys(range(0, 600, 2), 0))
    plain = dict(shelf)
    versions = [(shelf, dict(plain))]
    for coming, leaving in steps:
        shelf = shelf.updated(coming, leaving)
        plain = {key: value for key, value in plain.items() if key not in leaving} | coming
        versions.append((shelf, dict(plain)))
    for version, expected in versions:
        assert version == expected
        assert len(version) == len(expected)
        assert sorted(version) == sorted(expected)
        assert sorted(version.values()) == sorted(expected.values())
        assert dict(version.items()) == expected
        assert [version.get(key) for key in range(601)] == [expected.get(key) for key in range(601)]
        assert [key in version for key in range(601)] == [key in expected for key in range(601)]


@settings(max_examples=40, deadline=None)
@given(STEPS, STEPS)
def test_what_differs_between_versions_is_what_differs_between_dicts(
    first: list[tuple[dict[int, int], list[int]]], second: list[tuple[dict[int, int], list[int]]]
) -> None:
    old: Shelf[int, int] = Shelf()
    for coming, leaving in first:
        old = old.updated(coming, leaving)
    new = old
    for coming, leaving in second:
        new = new.updated(coming, leaving)
    expected = sorted({key for key in (*old, *new) if old.get(key) is not new.get(key)})
    assert sorted(differing(old, new)) == expected
    assert sorted(differing(new, old)) == expected
    assert sorted(differing(dict(old), new)) == expected


def test_a_key_that_a_later_version_brought_is_not_in_an_earlier_one() -> None:
    first = filled(CHUNK)
    second = first.updated({CHUNK: "new"})
    assert (first.get(CHUNK), second[CHUNK]) == (None, "new")
    with pytest.raises(KeyError):
        first[CHUNK]
    with pytest.raises(KeyError):
        first[-1]


def test_a_change_copies_one_chunk_only() -> None:
    first = filled(10 * CHUNK)
    second = first.updated({5: "x"}, [7])
    assert sum(one is not other for one, other in zip(first.chunks, second.chunks, strict=True)) == 1
    assert sorted(differing(first, second)) == [5, 7]
    assert differing(first, first) == []


def test_it_is_shown_as_what_it_holds() -> None:
    assert repr(filled(2)) == "Shelf({0: '0', 1: '1'})"
