"""The whole daemon, as a process in a network of its own, with real netlink and an API server in memory. Needs root.

Measured: process start to the first slice, the last event of a change to its patch on the wire (beyond the quiet
window), resident memory idle and after 200,000 events that arrived, and what an idle daemon does. The Machine resource
is installed, as a deployment has it. `LIKEN_BENCH_IDLE_S` sets how long it idles (60 s).
"""

import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace

import anyio

from benchmarks.rows import IDLE_S, Row, milliseconds, percentile, resident_of
from liken.demo.apiserver import ApiServer
from liken.machine.crd import crd
from tests.cluster.network import private_network
from tests.cluster.world import Stick, World
from tests.metrics import told

QUIET_S = 0.05
ROUNDS = 30
EVENTS = 200_000
PORTION = 500
PLACES = 200
ARRIVE_S = 10
WEB = "127.0.0.1:9790"
SLICES = "resourceslices"
PORT = "devices/pci0000:00/0000:00:14.0/usb1"


def rows() -> Iterator[Row]:
    """The rows of this module."""
    if os.geteuid() != 0:
        yield Row("the whole daemon", "not measured: needs root", "", None)
        return
    with private_network(), tempfile.TemporaryDirectory(prefix="lb", dir="/tmp") as folder:
        yield from anyio.run(_measured, pathlib.Path(folder), backend_options={"use_uvloop": True})


def _command(root: pathlib.Path, kubeconfig: pathlib.Path) -> list[str]:
    return [
        *(sys.executable, "-m", "liken", "run", "--node-name=node-1", f"--sysfs={root}/sys"),
        f"--kubeconfig={kubeconfig}",
        *(f"--cdi-dir={root}/cdi", f"--plugins-dir={root}/p", f"--registry-dir={root}/r", "--log-format=json"),
        *("--write-burst=1000", "--write-refill=10ms", f"--dev={root}/dev"),
        f"--web-listen={WEB}",
    ]


async def _measured(root: pathlib.Path) -> list[Row]:
    (root / "dev").mkdir()
    world = World(sys=root / "sys", dev=root / "dev")
    world.build()
    stick = Stick(port="1-4", serial="0001", devnum=7, tty=0, prefix=world.prefix)
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    async with ApiServer.serve() as server:
        server.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}})
        server.put(crd())
        kubeconfig = server.kubeconfig(root / "kubeconfig")
        with (root / "log").open("ab") as log:
            command = _command(root, kubeconfig)
            first = subprocess.Popen(command, stdout=log, stderr=log, env=environment)  # compiles what is not compiled
            await _written(server, 0)
            first.terminate()
            await anyio.to_thread.run_sync(first.wait)
            server.remove(SLICES, "node-1-liken.sh")
            count = len(server.writes)
            began = anyio.current_time()
            process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
            try:
                first_slice = await _written(server, count) - began
                return await _rows(server, world, stick, process, first_slice)
            finally:
                process.terminate()
                await anyio.to_thread.run_sync(process.wait)
                world.clear()


async def _rows(
    server: ApiServer, world: World, stick: Stick, process: "subprocess.Popen[bytes]", first_slice: float
) -> list[Row]:
    await anyio.sleep(3)
    found = [Row("process start to the first slice", milliseconds(first_slice), "1 s", first_slice < 1)]
    lags = []
    for turn in range(ROUNDS):
        again = replace(stick, port=f"1-{turn + 1}", devnum=10 + turn, tty=turn)  # one device that flaps is held back
        for act in (world.plug, world.unplug):
            count = len(server.writes)
            act(again)
            sent = anyio.current_time()
            at = await _written(server, count)
            lags.append(at - sent - QUIET_S)
            await anyio.sleep(0.1)
    p50, p99 = statistics.median(lags), percentile(lags, 0.99)
    what = "last event to the patch on the wire, beyond the quiet window: p50"
    found.append(Row(what, milliseconds(p50), "5 ms", p50 < 0.005))
    found.append(Row("the same: p99", milliseconds(p99), "25 ms", p99 < 0.025))
    count = len(server.writes)
    server.remove(SLICES, "node-1-liken.sh")
    deleted = anyio.current_time()
    back = await _written(server, count) - deleted
    found.append(Row("a slice deleted behind our back to its return", milliseconds(back), "1 s", back < 1))
    idle = resident_of(process.pid)
    found.append(Row("resident memory, idle, whole daemon", f"{idle:.1f} MiB", "55 MiB", idle < 55))
    before, resyncs = await _told("liken_uevents_total"), await _told("liken_resyncs_total")
    for portion in range(EVENTS // PORTION):
        for number in range(PORTION):
            world.event("change", f"{PORT}/1-{number % PLACES + 1}", "usb")
        with anyio.move_on_after(ARRIVE_S):
            while await _told("liken_uevents_total") < before + (portion + 1) * PORTION:
                await anyio.sleep(0.01)
    await anyio.sleep(3)
    arrived = await _told("liken_uevents_total") - before
    growth = resident_of(process.pid) - idle
    found.append(Row(f"growth of it over {arrived:,.0f} events", f"{growth:.1f} MiB", "5 MiB", growth < 5))
    lost = await _told("liken_resyncs_total") - resyncs
    everything = arrived == EVENTS and lost == 0
    found.append(Row(f"the same: arrived of {EVENTS:,} sent", f"{arrived:,.0f}, {lost:.0f} resyncs", "all", everything))
    await anyio.sleep(3)
    since, switches = anyio.current_time(), _switches(process.pid)
    await anyio.sleep(IDLE_S)
    rate = (_switches(process.pid) - switches) / IDLE_S
    asked = sum(seen.at > since and seen.verb != "watch" for seen in server.requests)
    found.append(Row(f"idle for {IDLE_S:.0f} s: requests beside watches", str(asked), "0", asked == 0))
    found.append(Row("idle: wake-ups a second, all threads", f"{rate:.2f}", "0.5", rate < 0.5))
    return found


async def _written(server: ApiServer, count: int) -> float:
    """When the write of a slice after the first `count` of them arrived."""
    with anyio.fail_after(60):
        while len(server.writes) <= count:
            await server.logged(server.total)
    return server.writes[count].at


async def _told(name: str) -> float:
    return await anyio.to_thread.run_sync(told, f"http://{WEB}/metrics", name)


def _switches(pid: int) -> int:
    tasks = pathlib.Path(f"/proc/{pid}/task").glob("*/status")
    return sum(
        int(re.findall(r"^voluntary_ctxt_switches:\s+(\d+)", task.read_text(), re.MULTILINE)[0]) for task in tasks
    )
