"""The event path on a real netlink socket, in private namespaces: as root and as nobody, on uvloop and asyncio."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.namespace.scenarios import DEVICE, FORBIDDEN

pytestmark = pytest.mark.namespace

PROJECT = Path(__file__).parents[2]
USERS = ("nobody", "root") if os.getuid() == 0 else ("own",)


def seen(scenario: str, user: str = USERS[0], loop: str = "uvloop") -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.namespace.scenarios", scenario, loop, user],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
        env={"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"},
    )
    if done.returncode == FORBIDDEN:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_a_stick_leaves_and_returns_within_its_window(user: str, loop: str) -> None:
    result = seen("hotplug", user, loop)
    assert DEVICE in result["before"]
    assert 45 <= result["left_ms"] < 1000
    assert 45 <= result["back_ms"] < 1000
    assert result["nodes"] == ["/dev/bus/usb/001/009", "/dev/ttyUSB1"]
    assert result["fresh"]


def test_a_driver_lets_go_and_comes_back() -> None:
    assert seen("bound_and_unbound") == {"withheld": ["NoDriver"], "fresh": True}


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_an_overflow_is_one_comparison_and_later_events_are_heard(user: str, loop: str) -> None:
    result = seen("overflow", user, loop)
    assert result["resyncs"] == 1
    assert result["equal"]
    assert result["idle_cpu_s"] < 0.1
    assert result["heard_ms"] < 1000
    assert result["fresh"]


def test_a_datagram_from_a_process_is_dropped_and_counted() -> None:
    assert seen("foreign") == {"dropped": 1, "counted": 0, "same_revision": True}


def test_datagrams_that_arrive_cut_are_one_comparison() -> None:
    assert seen("cut_short") == {"resyncs": 1, "fresh": True}


def test_hostile_datagrams_end_nothing() -> None:
    assert seen("hostile") == {"malformed": 5, "fresh": True}


def test_a_daemon_that_hears_nothing_finds_out_and_says_so() -> None:
    result = seen("deaf")
    assert result["first"] > 0
    assert result["said_first"] == 0
    assert result["second"] > result["first"]
    assert result["uevents"] == 0
    [(node, text)] = result["said"]
    assert node == "node"
    assert text.startswith("Warning UeventsMissing: ")
    assert "network namespace" in text


def test_a_mount_is_noticed_at_once_and_then_nothing_spins() -> None:
    result = seen("mounted")
    assert result["noticed_ms"] < 1000
    assert result["idle_cpu_s"] < 0.1
