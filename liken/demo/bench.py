"""Where the demo's hardware is: the testbed's fake sysfs, and a way to tell the daemon of its events.

With private namespaces the tree is bound over /sys, and events go through the kernel's own netlink: sockets, overflow
and all are real. Where they are forbidden the tree is a folder, and the same events go straight into the daemon's feed.
"""

import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import anyio

from liken.demo.hardware import MODULES, MOUNTINFO, text
from liken.demo.testbed import Announcer, NamespacesForbidden, Netlink, Testbed, enter_namespaces
from liken.events.feed import Feed
from liken.events.kernel import Source

IDLE = "/devices/pci0000:00/0000:00:00.0"
FOLDERS = ("cdi", "plugins", "registry", "proc/1", "lib/modules/demo", "etc", "dev")
WITH = "liken on a recorded machine: private namespaces, a real netlink socket, an API server in memory."
WITHOUT = "liken on a recorded machine, without private namespaces: the same events, but no socket."


class FeedAnnouncer:
    """Tells the testbed's events to a feed, and loses them while it is deaf."""

    def __init__(self) -> None:
        self.feed = Feed()
        self.deaf = False

    def __call__(self, action: str, path: str, properties: Mapping[bytes, bytes]) -> None:  # noqa: ARG002
        """Something happened at `path` just now; what else a datagram says is of no use to a feed."""
        if not self.deaf:
            self.feed.tell(action, path)


class Bench:
    """Moves the recorded hardware; each move answers with the time of its last event (`anyio.current_time()`)."""

    def __init__(self, testbed: Testbed, *, sysfs: Path, announcer: FeedAnnouncer | None, words: str) -> None:
        self.sysfs = sysfs
        self.dev = testbed.root / "dev"
        self.words = words
        self._testbed = testbed
        self._announcer = announcer

    @property
    def source(self) -> Callable[[], Source] | None:
        """The daemon's source of events; None: its own, the kernel."""
        announcer = self._announcer
        return None if announcer is None else lambda: announcer.feed

    def plug(self, recording: str) -> float:
        """Make devices appear."""
        self._testbed.plug(recording.encode())
        return anyio.current_time()

    def unplug(self, path: str) -> float:
        """Make a device and all below it disappear."""
        self._testbed.unplug(path)
        return anyio.current_time()

    def bind(self, path: str, driver: str, children: str) -> float:
        """Bind a driver, which makes the children."""
        self._testbed.bind(path, driver, children.encode())
        return anyio.current_time()

    def unbind(self, path: str) -> float:
        """Unbind it; its children disappear."""
        self._testbed.unbind(path)
        return anyio.current_time()

    def unplug_in_a_flood(self, path: str, events: int) -> float:
        """Unplug a device after so many events that its own are lost.

        The daemon shares this loop, so it reads nothing meanwhile; its buffer keeps the oldest and drops the rest. A
        feed has no buffer to overflow: its events are dropped here, and it says that some were.
        """
        if self._announcer is None:
            self._testbed.flood(events, IDLE)
            return self.unplug(path)
        self._announcer.deaf = True
        at = self.unplug(path)
        self._announcer.deaf = False
        self._announcer.feed.overflow()
        return at


@contextmanager
def set_up(root: Path, *, namespaces: bool = True) -> Iterator[tuple[Bench, list[socket.socket]]]:
    """The bench below `root`, and listening sockets: one for the outside, one for the daemon (which may be the same).

    Enters private namespaces where that is allowed; the process, which must have no threads yet, stays in them.
    """
    folders(root)
    sockets = [listening()]
    forbidden = refusal(root / "sys") if namespaces else "it was asked for"
    try:
        if forbidden is None:
            enter_namespaces(root / "sys")
            sockets.append(listening())
            yield Bench(_loaded(root, Netlink()), sysfs=Path("/sys"), announcer=None, words=WITH), sockets
        else:
            announcer = FeedAnnouncer()
            said = f"{WITHOUT} ({forbidden})"
            yield Bench(_loaded(root, announcer), sysfs=root / "sys", announcer=announcer, words=said), sockets
    finally:
        for made in sockets:
            made.close()


def _loaded(root: Path, announce: Announcer) -> Testbed:
    testbed = Testbed(root, announce)
    testbed.load(text("mini-pc").encode())
    return testbed


def folders(root: Path) -> None:
    """The folders of a node, and what the demo's machine says of its mounts and modules."""
    for name in (*FOLDERS, "sys"):
        (root / name).mkdir(parents=True, exist_ok=True)
    (root / "proc/1/mountinfo").write_text(MOUNTINFO)
    for name, content in MODULES.items():
        (root / "lib/modules/demo" / name).write_text(content)


def listening() -> socket.socket:
    """A socket on loopback; it stays in the network namespace in which it was made."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    made.bind(("127.0.0.1", 0))
    made.listen(64)
    return made


def refusal(sysfs: Path) -> str | None:
    """Why this process may not have private namespaces; None: it may. A child tries, lest it fail half-way."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            enter_namespaces(sysfs)
        except (NamespacesForbidden, OSError) as error:
            os.write(write, str(error).encode(errors="replace")[:1000] or b"it failed")
        os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read, "rb") as said:
        return said.read().decode() or None
