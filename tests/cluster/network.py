"""A network of our own: loopback, and one address for the node, so that nothing here meets the machine's network.

Uevents injected here reach only who listens here. A network namespace belongs to a thread: enter it from the main
thread before anything is started, and whatever is started inherits it.
"""

import ctypes
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

CLONE_NEWNET = 0x40000000
NODE_IP = "10.99.0.2"


@contextmanager
def private_network() -> Iterator[None]:
    """Enter a new network namespace, and come back at the end; raises OSError where that is forbidden."""
    libc = ctypes.CDLL(None, use_errno=True)
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        if libc.unshare(CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "cannot make a network namespace")
        for command in (
            ("link", "set", "lo", "up"),
            ("link", "add", "node0", "type", "veth", "peer", "name", "node1"),
            ("addr", "add", f"{NODE_IP}/24", "dev", "node0"),
            ("link", "set", "node0", "up"),
            ("link", "set", "node1", "up"),
            ("route", "add", "default", "dev", "node0"),
        ):
            subprocess.run(["ip", *command], check=True, capture_output=True)
        yield
    finally:
        libc.setns(before, CLONE_NEWNET)
        os.close(before)
