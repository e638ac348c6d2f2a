"""Hold-off: a flapping device is absent for a growing time, and everything else is never held."""

from liken.state.graph import Delta
from liken.state.holdoff import FORGET_S, FREE_CHANGES, LONGEST_S, HoldOff
from tests.unit.fakes_state import name

STICK, OTHER = name("usb-1-2-1-0"), name("usb-1-3-1-0")


def test_a_few_changes_pass_at_once() -> None:
    hold = HoldOff()
    for second in range(FREE_CHANGES):
        hold.note(Delta(offered=(STICK,)) if second % 2 == 0 else Delta(withdrawn=(STICK,)), float(second))
    assert hold.held(float(FREE_CHANGES)) == {}


def test_each_further_change_doubles_the_time_to_be_quiet() -> None:
    hold = HoldOff()
    releases = []
    for _ in range(FREE_CHANGES + 4):
        hold.note(Delta(withdrawn=(STICK,)), 10.0)
        releases.append(hold.held(10.0).get(STICK, 0.0) - 10.0)
    assert releases[FREE_CHANGES:] == [1.0, 2.0, 4.0, 8.0]
    assert hold.held(18.0) == {}


def test_a_storm_holds_one_device_only_and_not_longer_than_a_minute_after_it_is_quiet() -> None:
    hold = HoldOff()
    for step in range(2000):
        hold.note(Delta(offered=(STICK,)) if step % 2 else Delta(withdrawn=(STICK,)), step * 0.15)
    hold.note(Delta(offered=(OTHER,)), 300.0)
    assert list(hold.held(300.0)) == [STICK]
    assert hold.held(300.0)[STICK] <= 300.0 + LONGEST_S
    assert hold.held(300.0 + LONGEST_S) == {}


def test_a_replug_that_moves_only_nodes_is_no_flap() -> None:
    hold = HoldOff()
    for _ in range(100):
        hold.note(Delta(moved=(STICK,)), 1.0)
    assert hold.held(1.0) == {}


def test_who_was_quiet_for_long_is_forgotten() -> None:
    hold = HoldOff()
    for index in range(1000):
        hold.note(Delta(offered=(name(f"usb-{index}"),)), float(index) * FORGET_S)
    assert len(hold._names) == 1
