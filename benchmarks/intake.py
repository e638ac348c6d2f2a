"""Uevent intake against a bare recv-and-split loop over the same flood, in one run. Needs root (its own network)."""

import os
import socket
import statistics
import struct
import time
from collections.abc import Callable, Iterator

from benchmarks.rows import Row
from liken.events.kernel import KernelEvents
from liken.metrics import Metrics
from tests.cluster.network import private_network

EVENTS = 20_000
TURNS = 7
PLACES = 200
NETLINK_KOBJECT_UEVENT = 15
BUFFER = 64 << 20


def rows() -> Iterator[Row]:
    """The rows of this module."""
    if os.geteuid() != 0:
        yield Row("uevent intake", "not measured: needs root", "", None)
        return
    with private_network():
        ours, bare = _rates()
    share = ours / bare
    figure = f"{ours:,.0f}/s, {share:.0%} of the bare loop's {bare:,.0f}/s"
    yield Row(f"uevent intake (CPU, {PLACES} places that repeat)", figure, "50%", share >= 0.5)


def _rates() -> tuple[float, float]:
    events = KernelEvents(metrics=Metrics(), receive_buffer=BUFFER)
    plain = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, NETLINK_KOBJECT_UEVENT)
    plain.setsockopt(socket.SOL_SOCKET, 33, BUFFER)  # SO_RCVBUFFORCE
    plain.bind((0, 1))
    ours, bare = [], []
    for _ in range(TURNS):
        _flood()
        bare.append(EVENTS / _cpu(lambda: _bare(plain)))
        ours.append(EVENTS / _cpu(lambda: _drained(events)))
    events.close()
    plain.close()
    return statistics.median(ours), statistics.median(bare)


def _flood() -> None:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_KOBJECT_UEVENT) as out:
        for number in range(EVENTS):
            path = f"/devices/pci0000:00/0000:00:14.0/usb1/1-{number % PLACES}/1-{number % PLACES}:1.0"
            payload = f"change@{path}\0ACTION=change\0DEVPATH={path}\0SUBSYSTEM=usb\0".encode()
            out.sendto(struct.pack("IHHII", 16 + len(payload), 0x10, 1, 0, 0) + payload, (0, 0))


def _cpu(action: Callable[[], int]) -> float:
    began = time.process_time()
    seen = action()
    took = time.process_time() - began
    assert seen >= EVENTS, f"{seen} of {EVENTS} events arrived"
    return took


def _bare(plain: socket.socket) -> int:
    count = 0
    while True:
        try:
            datagram = plain.recv(16384)
        except BlockingIOError:
            return count
        datagram.split(b"\0")
        count += 1


def _drained(events: KernelEvents) -> int:
    count, more = 0, True
    while more:
        heard, more = events.drained()
        count += len(heard)
    return count
