"""Claims over the real socket: latency, throughput, a slow API server, one replug among a hundred claims, memory.

The load comes from grpcio in this process; the API server, the node and the bare server are processes of their own.
"""

import contextlib
import json
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import grpc

from benchmarks import trees
from benchmarks.rows import Row, milliseconds, percentile, resident_of
from liken.claims.registration import plugin_path
from liken.wire.k8s.io.kubelet.pkg.apis.dra import v1 as dra

CLAIMS = 100
MANY = 1000
TOGETHER = 16
SERVICE = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
ONE_BUDGET_S, RATE_BUDGET, SLOW_BUDGET_S = 0.010, 250, 0.4


class Load:
    """Calls of a kubelet on one connection."""

    def __init__(self, socket: pathlib.Path) -> None:
        self._channel = grpc.insecure_channel(f"unix:{socket}")
        self._prepare = self._channel.unary_unary(
            f"{SERVICE}/NodePrepareResources",
            request_serializer=bytes,
            response_deserializer=dra.NodePrepareResourcesResponse.parse,
        )
        self._unprepare = self._channel.unary_unary(
            f"{SERVICE}/NodeUnprepareResources",
            request_serializer=bytes,
            response_deserializer=dra.NodeUnprepareResourcesResponse.parse,
        )

    def prepare(self, name: str, uid: str) -> float:
        """Prepare one claim; the seconds it took."""
        request = dra.NodePrepareResourcesRequest(claims=[dra.Claim(namespace="default", name=name, uid=uid)])
        began = time.perf_counter()
        answer = self._prepare(request, timeout=40)
        took = time.perf_counter() - began
        assert not answer.claims[uid].error, answer.claims[uid].error
        return took

    def unprepare(self, name: str, uid: str) -> None:
        """Let one claim go."""
        request = dra.NodeUnprepareResourcesRequest(claims=[dra.Claim(namespace="default", name=name, uid=uid)])
        assert not self._unprepare(request, timeout=40).claims[uid].error

    def close(self) -> None:
        """End the connection."""
        self._channel.close()


@contextlib.contextmanager
def part(role: str, folder: pathlib.Path, wait_s: float = 0.0) -> Iterator[subprocess.Popen[bytes]]:
    """One of the processes, from when it serves to the end of the block."""
    ready = folder / f"{role}.ready"
    ready.unlink(missing_ok=True)
    command = [sys.executable, "-m", "benchmarks.claims_parts", role, str(folder), str(wait_s)]
    process = subprocess.Popen(command)
    try:
        for _ in range(600):
            if ready.exists():
                break
            if process.poll() is not None:
                raise RuntimeError(f"{role} ended with {process.returncode}")
            time.sleep(0.05)
        yield process
    finally:
        process.terminate()
        process.wait(30)


def rows() -> Iterator[Row]:
    """The rows of this module."""
    with tempfile.TemporaryDirectory(prefix="lb", dir="/dev/shm") as name:  # /var/run/cdi is a tmpfs, too
        folder = pathlib.Path(name)
        addresses = trees.machine(folder / "sys", CLAIMS)
        devices = [f"usb-{address.replace('.', '-')}-1-0" for address in addresses]
        (folder / "wanted.json").write_text(json.dumps({f"c{n}": device for n, device in enumerate(devices)}))
        socket = plugin_path(folder / "p", None)
        with part("api", folder):
            claims: list[tuple[str, str]] = list(json.loads((folder / "claims.json").read_text()).items())
            with part("bare", folder), load(folder / "bare.sock") as bare:
                bare_one, bare_rate = _one_at_a_time(bare, claims), _rate(bare, claims)
            with part("node", folder), load(socket) as node:
                one = _one_at_a_time(node, claims)
                rate = _rate(node, claims)
        yield Row(
            "one claim, one at a time, p50",
            milliseconds(percentile(one, 0.5)),
            "10 ms",
            percentile(one, 0.5) < ONE_BUDGET_S,
        )
        yield Row("one claim, one at a time, p99", milliseconds(percentile(one, 0.99)), "", None)
        bare_p50 = percentile(bare_one, 0.5)
        yield Row(
            "the same, bare grpclib server",
            milliseconds(bare_p50),
            f"ours is {percentile(one, 0.5) / bare_p50:.1f} times",
            None,
        )
        yield Row(f"{CLAIMS} claims, {TOGETHER} at a time", f"{rate:.0f}/s", f"{RATE_BUDGET}/s", rate >= RATE_BUDGET)
        yield Row("the same, bare grpclib server", f"{bare_rate:.0f}/s", f"ours is 1/{bare_rate / rate:.1f}", None)
        with part("slow", folder, 0.1), load(socket) as node:
            yield from _slow(node, claims)
            yield from _replug(folder, addresses[CLAIMS // 2], claims)
        yield from _memory(folder)


@contextlib.contextmanager
def load(socket: pathlib.Path) -> Iterator[Load]:
    """A connection, warmed up."""
    made = Load(socket)
    try:
        yield made
    finally:
        made.close()


def _one_at_a_time(node: Load, claims: Sequence[tuple[str, str]]) -> list[float]:
    took = []
    for _ in range(3):
        for name, uid in claims:
            took.append(node.prepare(name, uid))
            node.unprepare(name, uid)
    return took


def _rate(node: Load, claims: Sequence[tuple[str, str]]) -> float:
    """Claims prepared a second; the best of three, since other work on the machine only makes it slower."""
    rates = []
    with ThreadPoolExecutor(TOGETHER) as pool:
        for _ in range(3):
            began = time.perf_counter()
            list(pool.map(lambda claim: node.prepare(*claim), claims))
            rates.append(len(claims) / (time.perf_counter() - began))
            list(pool.map(lambda claim: node.unprepare(*claim), claims))
    return max(rates)


def _slow(node: Load, claims: Sequence[tuple[str, str]]) -> Iterator[Row]:
    with ThreadPoolExecutor(len(claims)) as pool:
        list(pool.map(lambda claim: node.unprepare(*claim), claims))  # the threads exist now
        began = time.perf_counter()
        list(pool.map(lambda claim: node.prepare(*claim), claims))
        took = time.perf_counter() - began
    yield Row(f"{len(claims)} claims together, each GET 100 ms", milliseconds(took), "400 ms", took < SLOW_BUDGET_S)


def _replug(folder: pathlib.Path, address: str, claims: Sequence[tuple[str, str]]) -> Iterator[Row]:
    """One adapter gets another number while all the claims are prepared."""
    files = sorted((folder / "cdi").glob("liken.sh-*.json"))
    assert len(files) == len(claims)
    inodes = {path: path.stat().st_ino for path in files}
    place = folder / "sys" / trees.CONTROLLER / "usb1" / address.split(".", maxsplit=1)[0] / address
    (place / "devnum").write_text("126\n")
    began = time.perf_counter()
    (folder / "replugged").write_text(address)
    changed = _until(lambda: [path for path in files if path.stat().st_ino != inodes[path]])
    took = time.perf_counter() - began
    time.sleep(0.5)
    written = sum(path.stat().st_ino != inodes[path] for path in files)
    assert len(changed) == 1
    yield Row(f"one replug among {len(claims)} prepared claims: files written", str(written), "1", written == 1)
    yield Row("the same: told to written", milliseconds(took), "", None)


def _until(found: Callable[[], list[pathlib.Path]]) -> list[pathlib.Path]:
    for _ in range(5000):
        if result := found():
            return result
        time.sleep(0.001)
    raise RuntimeError("nothing was written")


def _memory(folder: pathlib.Path) -> Iterator[Row]:
    """A node that finds a thousand prepared claims."""
    sample = next((folder / "cdi").glob("liken.sh-*.json"))
    text, uid = sample.read_text(), sample.name.removeprefix("liken.sh-").removesuffix(".json")
    figures = []
    for count in (0, MANY):
        for path in (folder / "cdi").glob("liken.sh-*.json"):
            path.unlink()
        for number in range(count):
            made = f"{uid[:-4]}{number:04}"
            (folder / "cdi" / f"liken.sh-{made}.json").write_text(text.replace(uid, made))
        with part("slow", folder, 3600) as process:
            time.sleep(1)
            figures.append(resident_of(process.pid))
    yield Row("memory without a prepared claim (with this benchmark's API client)", f"{figures[0]:.0f} MiB", "", None)
    yield Row(f"growth with {MANY:,} prepared claims", f"{figures[1] - figures[0]:.1f} MiB", "", None)
