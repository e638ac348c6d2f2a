import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import anyio
import grpc
import pytest

from liken.claims import annotations, registration
from tests.claims.kubelet import Kubelet
from tests.unit.fakes_claims import Node, ref

CLAIMS = 60
KILLS = 4


class Daemon:
    """The process, started again whenever it is killed."""

    def __init__(self, folder: Path) -> None:
        self.socket = registration.plugin_path(Node(folder).settings.plugins_dir, None)
        self._command = [sys.executable, "-m", "tests.claims.process", str(folder)]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._command, cwd=Path(__file__).parents[2], stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT
        )

    def end(self, number: signal.Signals) -> int:
        assert self._process is not None
        self._process.send_signal(number)
        return self._process.wait(30)


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="l") as made:
        yield Path(made)


def until_it_works(kubelet: Kubelet, verb: str, name: str, until: float) -> None:
    """As the kubelet does: call again until the claim is done."""
    claim = ref(f"uid-{name}", name)
    while time.monotonic() < until:
        try:
            answer = kubelet.call(verb, [claim], within_s=5)[claim.uid]
        except grpc.RpcError:
            time.sleep(0.05)
            continue
        if not answer.error:
            return
        time.sleep(0.05)
    raise AssertionError(f"{verb} of {name} never succeeded")


def test_a_kill_under_load_loses_nothing_doubles_nothing_and_leaves_nothing(folder: Path) -> None:
    daemon = Daemon(folder)
    daemon.start()
    until = time.monotonic() + 45
    killer = threading.Thread(target=kill_again_and_again, args=(daemon,))
    killer.start()
    names = [f"gpu{number}" for number in range(CLAIMS)]
    with Kubelet(daemon.socket) as kubelet, ThreadPoolExecutor(16) as pool:
        for done in [pool.submit(until_it_works, kubelet, "Prepare", name, until) for name in names]:
            done.result()
        for done in [pool.submit(until_it_works, kubelet, "Unprepare", name, until) for name in names[::2]]:
            done.result()
        killer.join()
        for done in [pool.submit(until_it_works, kubelet, "Prepare", name, until) for name in names[1::2]]:
            done.result()
    daemon.end(signal.SIGKILL)
    machine = Node(folder)
    kept = {f"uid-{name}" for name in names[1::2]}
    anyio.run(machine.recovery.load)
    assert set(machine.files()) == {f"liken.sh-{uid}.json" for uid in kept}
    for uid in kept:
        assert annotations.claim(machine.document(uid)).uid == uid


def kill_again_and_again(daemon: Daemon) -> None:
    chance = random.Random(4)
    for _ in range(KILLS):
        time.sleep(chance.uniform(0.6, 1.4))
        daemon.end(signal.SIGKILL)
        daemon.start()
