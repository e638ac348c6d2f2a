import contextlib
import json
import os
import pathlib
import pty
import re
import subprocess
import sys

import pytest

GUIDE = pathlib.Path(__file__).parents[1] / "fixtures/guide"
MACHINE = ["--recording", str(GUIDE / "machine.umockdev"), "--ids", str(GUIDE)]

HOSTILE = """\
P: /devices/pci0000:00/0000:00:14.0
E: SUBSYSTEM=pci
A: vendor=0x8086\\n
A: device=0x54ed\\n
A: class=0x0c0330\\n

P: /devices/pci0000:00/0000:00:14.0/usb1
E: SUBSYSTEM=usb
E: DEVTYPE=usb_device
E: DRIVER=usb
L: driver=../../../../bus/usb/drivers/usb
A: idVendor=1d6b\\n
A: idProduct=0002\\n
A: busnum=1\\n
A: devnum=1\\n

P: /devices/pci0000:00/0000:00:14.0/usb1/1-1
E: SUBSYSTEM=usb
E: DEVTYPE=usb_device
E: DRIVER=usb
L: driver=../../../../../bus/usb/drivers/usb
A: idVendor=10c4\\n
A: idProduct=ea60\\n
A: busnum=1\\n
A: devnum=2\\n
A: product=[red]x\\033]0;owned\\007 \\342\\200\\256gnp\\n
A: serial=a\\nlevel=error\\n

P: /devices/pci0000:00/0000:00:14.0/usb1/1-1/1-1:1.0
E: SUBSYSTEM=usb
E: DEVTYPE=usb_interface
E: DRIVER=evil\\033[31m
L: driver=../../../../../../bus/usb/drivers/evil\\033[31m
A: bInterfaceClass=ff\\n
A: bInterfaceNumber=00\\n

P: /devices/pci0000:00/0000:00:14.0/usb1/1-1/1-1:1.0/ttyUSB0/tty/ttyUSB0
N: ttyUSB0
E: SUBSYSTEM=tty
E: DEVNAME=/dev/ttyUSB0
A: dev=188:0\\n
"""


def liken(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("LIKEN_", "KUBECONFIG"))}
    return subprocess.run(
        [sys.executable, "-m", "liken", *arguments],
        capture_output=True, text=True, check=False, timeout=50, env={**inherited, **env},
    )  # fmt: skip


def test_help_goes_to_stdout_and_exits_0() -> None:
    result = liken("--help")
    assert result.returncode == 0
    assert "doctor" in result.stdout
    assert result.stderr == ""


def test_json_goes_to_stdout_alone() -> None:
    result = liken("slices", "--node-name", "n", "-o", "json", *MACHINE)
    assert result.returncode == 0
    assert json.loads(result.stdout)["kind"] == "List"
    assert "owner" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["frobnicate"],
        ["devices", "--frobnicate"],
        ["devices", "-o", "xml"],
        ["run", "--quiet-window", "soon"],
        ["run", *MACHINE],
        ["completion", "tcsh"],
    ],
)
def test_wrong_usage_exits_2(arguments: list[str]) -> None:
    result = liken(*arguments)
    assert result.returncode == 2
    assert result.stdout == ""
    assert "Error: " in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["devices", "--recording", "/nonexistent/machine.tar"], "/nonexistent/machine.tar"),
        (["devices", "--recording", str(GUIDE / "pci.ids")], "pci.ids"),
        (["devices", "--sysfs", "/nonexistent"], "--sysfs"),
        (["slices", "--node-name", "Not A Name", *MACHINE], "--node-name"),
        (["explain", "toaster", *MACHINE], "toaster"),
        (["withdraw", "--node-name", "n", "--kubeconfig", "/nonexistent/kubeconfig"], "/nonexistent/kubeconfig"),
        (["record", "/nonexistent/folder/machine.umockdev", *MACHINE], "No such file"),
    ],
)
def test_a_failure_is_one_clear_line_and_exit_code_1(arguments: list[str], words: str) -> None:
    result = liken(*arguments)
    assert result.returncode == 1, result.stderr
    assert result.stdout == ""
    assert words in result.stderr
    assert "Traceback" not in result.stderr
    assert "internal error" not in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_reader_that_leaves_early_sees_no_traceback() -> None:
    command = f"{sys.executable} -m liken explain --recording {MACHINE[1]} | true"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, timeout=50)
    assert result.stderr == ""


@pytest.mark.parametrize(
    "arguments", [["devices", "-o", "wide"], ["explain"], ["explain", "1-1"], ["explain", "1-1:1.0"]]
)
def test_hostile_hardware_cannot_reach_a_terminal_raw(tmp_path: pathlib.Path, arguments: list[str]) -> None:
    recording = tmp_path / "hostile.umockdev"
    recording.write_text(HOSTILE)
    result = liken(*arguments, "--recording", str(recording))
    assert result.returncode == 0, result.stderr
    assert "1-1" in result.stdout
    assert all(line.isprintable() for line in (result.stdout + result.stderr).splitlines())


def test_a_hostile_recording_still_gives_json_and_yaml(tmp_path: pathlib.Path) -> None:
    recording = tmp_path / "hostile.umockdev"
    recording.write_text(HOSTILE)
    for form in ("json", "yaml"):
        result = liken("slices", "--node-name", "n", "-o", form, "--recording", str(recording))
        assert result.returncode == 0, result.stderr
        assert "usb-1-1-1-0" in result.stdout
        assert all(line.isprintable() for line in result.stdout.splitlines())


@pytest.mark.parametrize("arguments", [["devices", "-o", "wide"], ["explain"]])
def test_on_a_terminal_names_stay_whole_and_only_our_own_colours_are_written(
    tmp_path: pathlib.Path, arguments: list[str]
) -> None:
    recording = tmp_path / "hostile.umockdev"
    recording.write_text(HOSTILE)
    terminal, theirs = pty.openpty()
    command = [sys.executable, "-m", "liken", *arguments, "--recording", str(recording)]
    with subprocess.Popen(command, stdout=theirs, env={**os.environ, "COLUMNS": "80", "TERM": "xterm"}) as process:
        os.close(theirs)
        said = b""
        with contextlib.suppress(OSError):  # EIO: the other end is closed
            while chunk := os.read(terminal, 65536):
                said += chunk
        assert process.wait() == 0
    os.close(terminal)
    text = re.sub(r"\x1b\[[0-9;]*m", "", said.decode()).replace("\r", "")
    assert "1-1" in text
    assert all(line.isprintable() for line in text.splitlines())
    if arguments[0] == "devices":
        assert any(line.startswith("usb-1-1-1-0 ") for line in text.splitlines())
