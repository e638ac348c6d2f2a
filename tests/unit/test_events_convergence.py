"""The property everything rests on: whatever happens to the events, the view ends equal to a fresh enumeration."""

import pathlib
import shutil
from collections.abc import Callable
from tempfile import TemporaryDirectory

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from liken.demo.testbed import Testbed
from liken.events.blocks import Block  # noqa: TC001 - hypothesis resolves it
from liken.events.feed import Feed
from liken.events.kernel import Changed, Heard, Resync
from liken.events.mirror import Mirror, MirrorSettings
from liken.events.sysfs import Sysfs
from liken.metrics import Metrics
from liken.model.hardware import DevPath
from liken.state.store import Store
from tests.unit.fakes_events import RECORDINGS, MirrorLoop, controller, stick
from tests.unit.fakes_state import NoNames

SMALL = {
    "a hub with a serial adapter": [(RECORDINGS / "usb-serial-ftdi-hub.umockdev").read_text()],
    "a graphics card": [(RECORDINGS / "virtio-gpu.umockdev").read_text()],
    "a CEC adapter": [(RECORDINGS / "pulse8-cec.umockdev").read_text()],
    "two sticks": [controller(), stick(), stick("1-5", 9, 1)],
}


class History:
    """Drives one mirror by hand: things happen, events wait, and are heard in any order, doubled or never."""

    def __init__(self, root: pathlib.Path, texts: list[str], draw: Callable[[int], int]) -> None:
        self.queued: list[Heard] = []
        self.missed = False
        self.draw = draw
        self.bed = Testbed(root, lambda action, path, _: self.queued.append(Changed(DevPath(path), action)))
        for text in texts:
            self.bed.load(text.encode())
        self.away: list[list[Block]] = []
        self.sysfs = Sysfs(self.bed.sys, root / "proc", root / "dev")
        self.store = Store(NoNames())
        times = MirrorSettings(quiet_s=0, limit_s=0)
        self.mirror = Mirror(sysfs=self.sysfs, store=self.store, settings=times, metrics=Metrics(), source=Feed)

    async def start(self) -> None:
        await self.mirror._enumerate({"start"})
        self.mirror._safety = float("inf")

    def happen(self) -> None:
        """One thing: a device or a whole subtree goes, comes back, loses its driver, or gets one."""
        paths = sorted(
            block.path.decode() for block in self.bed._blocks.values() if block.subsystem in (b"usb", b"pci")
        )
        match self.draw(5):
            case 0 | 1 if paths:
                self.away.append(self.bed.unplug(paths[self.draw(len(paths))]))
            case 2 if self.away:
                self.bed.plug(self.away.pop(self.draw(len(self.away))))
            case 3 if paths:
                below = self.bed.unbind(paths[self.draw(len(paths))])
                if below:
                    self.away.append(below)
            case _ if paths:
                path = paths[self.draw(len(paths))]
                if not (self.bed.sys / path.lstrip("/") / "driver").is_symlink():
                    self.bed.bind(path, "another")

    def hear(self) -> None:
        """Some of what waits is heard, in any order; some of it stays to be heard again; some is lost."""
        for _ in range(self.draw(6)):
            if not self.queued:
                return
            index = self.draw(len(self.queued))
            match self.draw(6):
                case 0:
                    self.missed = True  # lost: then the kernel says so
                    del self.queued[index]
                case 1:
                    self.mirror._hear([self.queued[index]])  # and once more later
                case _:
                    self.mirror._hear([self.queued.pop(index)])

    async def look(self) -> None:
        await self.mirror._look_again()

    async def end(self) -> None:
        self.mirror._hear(self.queued)
        if self.missed:
            self.mirror._hear([Resync("overflow")])
        self.mirror._not_before = 0.0
        await self.look()

    def equal(self) -> None:
        fresh = {facts.key: facts for facts in self.sysfs.everything()}
        assert dict(self.store.snapshot.inventory.devices) == fresh
        again = Store(NoNames())
        again.replace(fresh.values(), system=self.sysfs.system(), complete=True, everything=True)
        assert dict(self.store.snapshot.offers) == dict(again.snapshot.offers)
        assert dict(self.store.snapshot.verdicts) == dict(again.snapshot.verdicts)


def run(texts: list[str], draw: Callable[[int], int], steps: int) -> None:
    async def history(root: pathlib.Path) -> None:
        events = History(root, texts, draw)
        await events.start()
        for _ in range(steps):
            events.happen()
            events.hear()
            if draw(3) == 0:
                await events.look()
        await events.end()
        events.equal()

    folder = "/dev/shm" if pathlib.Path("/dev/shm").is_dir() else None
    with TemporaryDirectory(prefix="liken-history-", dir=folder) as root:
        anyio.run(history, pathlib.Path(root), backend_options={"loop_factory": MirrorLoop})


@pytest.mark.parametrize("machine", SMALL)
@given(data=st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_order_loss_and_doubling_ends_in_what_is_there(machine: str, data: st.DataObject) -> None:
    def draw(below: int) -> int:
        return data.draw(st.integers(0, below - 1))

    run(SMALL[machine], draw, data.draw(st.integers(1, 8)))


@pytest.mark.shared
@given(data=st.data())
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_it_holds_for_a_whole_recorded_guest(shared: pathlib.Path, data: st.DataObject) -> None:
    text = (shared / "recordings/qemu-6.12/all.umockdev").read_text(errors="surrogateescape")

    def draw(below: int) -> int:
        return data.draw(st.integers(0, below - 1))

    run([text], draw, data.draw(st.integers(1, 6)))


def test_a_view_that_heard_nothing_is_not_equal(tmp_path: pathlib.Path) -> None:
    """The property can fail: without the events and without a comparison it does."""

    async def history() -> None:
        events = History(tmp_path, SMALL["two sticks"], lambda _: 0)
        await events.start()
        events.happen()
        events.queued.clear()
        await events.end()
        with pytest.raises(AssertionError):
            events.equal()

    anyio.run(history, backend_options={"loop_factory": MirrorLoop})
    shutil.rmtree(tmp_path / "sys")
