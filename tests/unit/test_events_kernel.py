"""Datagrams: a place to look or nothing, whatever the bytes; and when a burst has settled."""

from hypothesis import given, settings
from hypothesis import strategies as st

from liken.events.kernel import Changed, moved_from, parsed
from liken.events.settle import Settle
from liken.model.hardware import DevPath
from tests.fuzz.fuzz_uevents import one

PLACE = DevPath("/devices/pci0000:00/0000:00:14.0/usb1/1-4")


def test_a_first_line_names_a_place() -> None:
    assert parsed(f"add@{PLACE}".encode()) == Changed(PLACE, "add")


def test_an_action_of_no_kernel_yet_is_a_reason_to_look() -> None:
    assert parsed(f"frobnicated@{PLACE}".encode()) == Changed(PLACE, "frobnicated")


def test_a_path_with_bytes_that_are_no_text_is_kept_as_it_is() -> None:
    changed = parsed(b"add@/devices/\xff\xfe")
    assert changed is not None
    assert changed.path.encode("utf-8", "surrogateescape") == b"/devices/\xff\xfe"


def test_what_names_no_place_is_nothing() -> None:
    for header in (b"", b"@", b"add@", b"add@devices/x", b"add@/devices/../../etc", b"libudev", b"a d@/devices/x"):
        assert parsed(header) is None
    assert parsed(b"add@/" + b"x" * 5000) is None


def test_a_move_also_tells_where_it_was() -> None:
    datagram = b"move@/devices/new\0ACTION=move\0DEVPATH=/devices/new\0DEVPATH_OLD=/devices/old\0SEQNUM=7\0"
    assert moved_from(datagram) == Changed(DevPath("/devices/old"), "move")
    assert moved_from(b"move@/devices/new\0") is None


@given(
    st.one_of(
        st.binary(max_size=200),
        st.tuples(
            st.sampled_from([b"add", b"move", b"", b"\xff", b"bind"]),
            st.sampled_from([b"@/", b"@", b"@/devices/", b"@/../"]),
            st.binary(max_size=40),
            st.sampled_from([b"", b"\0", b"\0DEVPATH_OLD=", b"\0DEVPATH_OLD=/devices/\xff\0", b"\0MAJOR=9\0"]),
        ).map(b"".join),
    )
)
@settings(max_examples=100, deadline=None)
def test_no_datagram_is_an_error(datagram: bytes) -> None:
    one(datagram)


def test_a_burst_ends_a_quiet_moment_after_its_last_change() -> None:
    window = Settle(quiet_s=0.05, limit_s=0.5)
    assert window.due is None
    for at in (10.0, 10.02, 10.04):
        window.note(at)
    assert window.due == 10.04 + 0.05
    assert window.close() == 10.0
    assert window.due is None


def test_what_never_falls_silent_ends_at_the_limit() -> None:
    window = Settle(quiet_s=0.05, limit_s=0.5)
    for step in range(100):
        window.note(10.0 + step * 0.03)
    assert window.due == 10.5


@given(st.lists(st.floats(0, 10), min_size=1, max_size=30), st.floats(0, 1), st.floats(0, 5))
@settings(max_examples=100, deadline=None)
def test_a_window_is_never_due_before_quiet_nor_after_the_limit(times: list[float], quiet: float, limit: float) -> None:
    window = Settle(quiet_s=quiet, limit_s=limit)
    for at in sorted(times):
        window.note(at)
    assert window.due is not None
    assert window.due <= min(times) + limit
    assert window.due <= max(times) + quiet
    assert window.due >= min(min(times) + limit, max(times) + quiet)
