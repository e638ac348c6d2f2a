import os
import pty
import re
import select
import subprocess
import sys
import threading
import time

import pytest

from tests.kubectl import program

STEPS = 10


def command(*options: str) -> list[str]:
    return [sys.executable, "-m", "liken", "demo", *options]


def played() -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(), capture_output=True, text=True, check=False, timeout=55)


def steps(said: str) -> list[str]:
    return re.findall(r"^ *\d+\. .*$", said, re.MULTILINE)


@pytest.mark.namespace
def test_in_private_namespaces_every_step_is_seen() -> None:
    result = played()
    if "without private namespaces" in result.stdout:
        pytest.skip(result.stdout.splitlines()[0])
    assert result.returncode == 0, result.stdout + result.stderr
    assert "a real netlink socket" in result.stdout
    assert len(steps(result.stdout)) == STEPS
    assert f"{STEPS} of {STEPS} steps were seen" in result.stdout
    assert "restart the pod to receive it" in result.stdout
    assert result.stderr == ""


@pytest.fixture(scope="module")
def fed(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """The demo without namespaces, and what it left in its folder for temporary files."""
    folder = tmp_path_factory.mktemp("demo")
    result = subprocess.run(
        command("--without-namespaces"), capture_output=True, text=True, check=False, timeout=55,
        env={**os.environ, "TMPDIR": str(folder)},
    )  # fmt: skip
    return result, [path.name for path in folder.iterdir()]


def test_without_namespaces_the_same_steps_are_seen(fed: tuple[subprocess.CompletedProcess[str], list[str]]) -> None:
    result, _ = fed
    assert result.returncode == 0, result.stdout + result.stderr
    assert len(steps(result.stdout)) == STEPS
    assert f"{STEPS} of {STEPS} steps were seen" in result.stdout


def test_each_write_is_shown_with_its_time_and_its_patch(
    fed: tuple[subprocess.CompletedProcess[str], list[str]],
) -> None:
    said = fed[0].stdout
    assert re.search(r"^ +\d+\.\d ms  PATCH demo-node-liken\.sh  \(\d+ bytes\)$", said, re.MULTILINE)
    assert '{"op": "replace", "path": "/metadata/resourceVersion"' in said
    assert '{"op": "remove", "path": "/spec/devices/' in said


def test_nothing_is_left_behind(fed: tuple[subprocess.CompletedProcess[str], list[str]]) -> None:
    assert fed[1] == []


def test_a_menu_without_a_terminal_is_wrong_usage() -> None:
    result = subprocess.run(
        command("--interactive"), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=55
    )
    assert result.returncode == 2
    assert "needs a terminal" in result.stderr


@pytest.mark.contract
@pytest.mark.namespace
def test_kubectl_outside_follows_the_slice_with_the_kubeconfig_that_is_printed() -> None:
    kubectl = program()
    with subprocess.Popen(command(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as demo:
        assert demo.stdout is not None
        said = ""
        while (found := re.search(r"--kubeconfig (\S+) get resourceslices -w", said)) is None:
            line = demo.stdout.readline()
            assert line, said
            said += line
        reader = threading.Thread(target=demo.stdout.read)
        reader.start()
        follow = [kubectl, "get", "--kubeconfig", found[1], "resourceslices", "-w", "-o", "name"]
        with subprocess.Popen(follow, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as watching:
            until = time.monotonic() + 30
            while demo.poll() is None and time.monotonic() < until:
                time.sleep(0.1)
            watching.terminate()
            assert watching.stdout is not None
            seen = watching.stdout.read().split()
        reader.join()
        assert demo.wait() == 0
    assert seen.count("resourceslice.resource.k8s.io/demo-node-liken.sh") >= 5


class Terminal:
    """A demo on a terminal of its own, and what it shows."""

    def __init__(self) -> None:
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            os.execv(sys.executable, command("--interactive", "--without-namespaces"))

    def shown(self, end: str) -> str:
        said = b""
        until = time.monotonic() + 40
        while end.encode() not in said and time.monotonic() < until:
            if select.select([self._fd], [], [], 0.5)[0]:
                said += os.read(self._fd, 65536)
        return said.decode(errors="replace")

    def typed(self, keys: str) -> None:
        os.write(self._fd, keys.encode())

    def ended(self) -> int:
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self._fd)
        return code


def test_a_person_plugs_and_unplugs_from_a_menu() -> None:
    terminal = Terminal()
    assert "plug or unplug" in terminal.shown("[q] quit")
    terminal.typed("3\n")
    assert "choose 1 first" in terminal.shown("[q] quit")
    terminal.typed("1\n")
    assert "usb-2-1-1-0 in the slice" in terminal.shown("[q] quit")
    terminal.typed("1\n")
    assert "usb-2-1-1-0 out of the slice" in terminal.shown("[q] quit")
    terminal.typed("q\n")
    assert terminal.ended() == 0


def test_ctrl_c_ends_the_menu() -> None:
    terminal = Terminal()
    terminal.shown("[q] quit")
    terminal.typed("\x03")
    assert terminal.ended() == 130
