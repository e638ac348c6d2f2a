import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import time

import pytest

STEPS = 10


def command(*options: str) -> list[str]:
    return [sys.executable, "-m", "liken", "demo", *options]


def played(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*options), capture_output=True, text=True, check=False, timeout=55)


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


def test_without_namespaces_the_same_steps_are_seen() -> None:
    result = played("--without-namespaces")
    assert result.returncode == 0, result.stdout + result.stderr
    assert len(steps(result.stdout)) == STEPS
    assert f"{STEPS} of {STEPS} steps were seen" in result.stdout


def test_a_menu_without_a_terminal_is_wrong_usage() -> None:
    result = subprocess.run(
        command("--interactive"), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=55
    )
    assert result.returncode == 2
    assert "needs a terminal" in result.stderr


def test_each_write_is_shown_with_its_time_and_its_patch() -> None:
    said = played("--without-namespaces").stdout
    assert re.search(r"^ +\d+\.\d ms  PATCH demo-node-liken\.sh  \(\d+ bytes\)$", said, re.MULTILINE)
    assert '{"op": "replace", "path": "/metadata/resourceVersion"' in said
    assert '{"op": "remove", "path": "/spec/devices/' in said


@pytest.mark.contract
@pytest.mark.namespace
def test_kubectl_outside_follows_the_slice_with_the_kubeconfig_that_is_printed() -> None:
    assets = os.environ.get("KUBEBUILDER_ASSETS", "")
    kubectl = shutil.which("kubectl", path=f"{assets}:{os.environ.get('PATH', '')}")
    if kubectl is None:
        pytest.skip("no kubectl: set KUBEBUILDER_ASSETS")
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


def test_nothing_is_left_behind(tmp_path: pathlib.Path) -> None:
    result = subprocess.run(
        command("--without-namespaces"), capture_output=True, text=True, check=False, timeout=55,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert result.returncode == 0
    assert list(tmp_path.iterdir()) == []
