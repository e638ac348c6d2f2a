import json
import os
import pathlib
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from liken.cli.changes import changes
from liken.demo.hardware import STICK, Stick, text
from liken.demo.testbed import Testbed
from liken.events.sysfs import Sysfs
from liken.model.offers import DeviceName, Snapshot
from liken.state.ids import IdsFiles
from liken.state.store import Store

GUIDE = pathlib.Path(__file__).parents[1] / "fixtures/guide"


class Machine:
    """A machine that moves, and what is known of it after each move."""

    def __init__(self, root: pathlib.Path) -> None:
        self.testbed = Testbed(root, lambda *_: None)
        self.testbed.load(text("mini-pc").encode())
        self._store = Store(IdsFiles())
        self._sysfs = Sysfs(self.testbed.sys, root / "proc", root / "dev")

    def seen(self) -> Snapshot:
        facts, system = self._sysfs.everything(), self._sysfs.system()
        self._store.replace(facts, system=system, complete=True, everything=True)
        return self._store.snapshot


def test_a_stick_that_comes_changes_and_goes_is_one_line_each(tmp_path: pathlib.Path) -> None:
    machine = Machine(tmp_path)
    before = machine.seen()
    machine.testbed.plug(Stick(5, 0).recording.encode())
    there = machine.seen()
    (appeared,) = changes(before, there)
    assert (appeared.what, appeared.name) == ("appeared", "usb-2-1-1-0")
    assert appeared.nodes == ("/dev/bus/usb/002/005", "/dev/ttyUSB0")
    assert appeared.title == "ITead Sonoff Zigbee 3.0 USB Dongle Plus"

    machine.testbed.replug(STICK, devnum=6)
    moved = machine.seen()
    (changed,) = changes(there, moved)
    assert (changed.what, changed.nodes) == ("changed", ("/dev/bus/usb/002/006", "/dev/ttyUSB0"))

    machine.testbed.unplug(STICK)
    (left,) = changes(moved, machine.seen())
    assert (left.what, left.name) == ("left", "usb-2-1-1-0")
    assert left.title == appeared.title


def test_what_comes_and_is_withheld_is_said_with_its_reason_but_structure_is_not(tmp_path: pathlib.Path) -> None:
    machine = Machine(tmp_path)
    before = machine.seen()
    lines = Stick(5, 0).recording.splitlines(keepends=True)
    machine.testbed.plug("".join(line for line in lines if "cp210x" not in line).encode())
    found = list(changes(before, machine.seen()))
    assert [(change.what, change.name) for change in found] == [("withheld", "usb:2-1:1.0")]
    assert found[0].detail.startswith("NoDriver: ")


def test_nothing_is_said_when_nothing_changed(tmp_path: pathlib.Path) -> None:
    seen = Machine(tmp_path).seen()
    assert list(changes(seen, replace(seen, revision=seen.revision + 1))) == []
    assert DeviceName("usb-2-7-1-0") in seen.offers


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_recording_is_watched_until_ctrl_c(options: list[str]) -> None:
    command = [sys.executable, "-m", "liken", "watch", *options, "--recording", str(GUIDE / "machine.umockdev")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watching:
        assert watching.stderr is not None
        assert "3 devices offered" in watching.stderr.readline()
        watching.send_signal(signal.SIGINT)
        said, complaints = watching.communicate(timeout=30)
    assert watching.returncode == 0
    assert said == ""
    assert "Traceback" not in complaints


PLAYED = """
import json, os, subprocess, sys, time
from pathlib import Path
from liken.demo.bench import folders, refusal
from liken.demo.hardware import STICK, Stick, text
from liken.demo.testbed import Netlink, Testbed, enter_namespaces
root = Path(sys.argv[1])
folders(root)
if (why := refusal(root / "sys")):
    sys.exit(f"forbidden: {why}")
enter_namespaces(root / "sys")
testbed = Testbed(root, Netlink())
testbed.load(text("mini-pc").encode())
command = [sys.executable, "-m", "liken", "watch", "--json", "--proc", str(root / "proc")]
with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watching:
    watching.stderr.readline()
    testbed.plug(Stick(5, 0).recording.encode())
    print(watching.stdout.readline(), end="")
    testbed.unplug(STICK)
    print(watching.stdout.readline(), end="")
    watching.send_signal(2)
"""


@pytest.mark.namespace
def test_plugging_is_seen_with_the_time_it_took(tmp_path: pathlib.Path) -> None:
    result = subprocess.run(
        [sys.executable, "-c", PLAYED, str(tmp_path)],
        capture_output=True, text=True, check=False, timeout=50, env=dict(os.environ),
    )  # fmt: skip
    if "forbidden: " in result.stderr:
        pytest.skip(result.stderr.strip())
    appeared, left = (json.loads(line) for line in result.stdout.splitlines())
    assert appeared["event"] == "appeared"
    assert appeared["device"] == "usb-2-1-1-0"
    assert appeared["nodes"] == ["/dev/bus/usb/002/005", "/dev/ttyUSB0"]
    assert 50 <= appeared["milliseconds"] < 5000
    assert left["event"] == "left"
