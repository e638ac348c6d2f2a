"""What one changed device costs among ten thousand: files opened, CPU to the patch, bytes of it."""

import json
import pathlib
import statistics
import tempfile
import time
from collections.abc import Iterator

from benchmarks import trees
from benchmarks.rows import Row, milliseconds, percentile
from liken.events.sysfs import Sysfs
from liken.events.tree import Listing, Tree
from liken.model.api import Json
from liken.model.hardware import Bus, BusAddress, DeviceKey
from liken.state.ids import IdsFiles
from liken.state.slices import Composer, NodeRef, json_patch
from liken.state.store import Store

DEVICES = 10_000
REPLUGS = 60


class CountingTree(Tree):
    """Counts what it opens."""

    opened = 0

    def read(self, path: bytes, limit: int = 4096) -> bytes:
        """Read a file."""
        self.opened += 1
        return super().read(path, limit)

    def listing(self, path: bytes) -> Listing:
        """List a folder."""
        self.opened += 1
        return super().listing(path)


def rows() -> Iterator[Row]:
    """The rows of this module."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        root = pathlib.Path(folder)
        addresses = trees.machine(root, DEVICES)
        yield from _one_of_many(root, addresses)


def _one_of_many(root: pathlib.Path, addresses: list[str]) -> Iterator[Row]:
    tree = CountingTree(root)
    sysfs = Sysfs(root, tree=tree)
    store = Store(IdsFiles.read(None))
    store.replace(sysfs.everything(), system=sysfs.system(), everything=True, complete=True)
    composer = Composer(NodeRef(name="node-1", uid="u"))
    stored = [_stored(item, 1) for item in composer.slices(store.snapshot.offers)]
    target = addresses[len(addresses) // 2]
    keys = [DeviceKey(Bus.USB, BusAddress(name)) for name in (target, f"{target}:1.0")]
    place = root / trees.CONTROLLER / "usb1" / target.split(".")[0] / target
    cpu, opened, patches = [], [], []
    for turn in range(REPLUGS):
        (place / "serial").write_text(f"REPLUG{turn:04}\n")
        tree.opened = 0
        began = time.process_time()
        facts = [found for key in keys if (found := sysfs.device(key)) is not None]
        store.replace(facts)
        wanted = composer.slices(store.snapshot.offers, previous=stored)
        changed = [(old, new) for old, new in zip(stored, wanted, strict=True) if new is not old]
        bodies = [json.dumps(json_patch(old, new)) for old, new in changed]
        cpu.append(time.process_time() - began)
        opened.append(tree.opened)
        patches += [len(body) for body in bodies]
        stored = [_stored(new, turn + 2) if new is not old else old for old, new in zip(stored, wanted, strict=True)]
    assert len(patches) == REPLUGS, "one changed device must be one patch"
    figure = f"{milliseconds(statistics.median(cpu))}, p99 {milliseconds(percentile(cpu, 0.99))}"
    what = f"one changed USB device among {DEVICES:,}: CPU from the read to the patch"
    yield Row(what, figure, "5 ms", statistics.median(cpu) < 0.005)
    yield Row("the same: files and folders opened", str(max(opened)), "80", max(opened) < 80)
    yield Row("bytes of the patch for one device in a slice of 128", str(max(patches)), "2048", max(patches) < 2048)


def _stored(item: Json, version: int) -> Json:
    return {**item, "metadata": {**item["metadata"], "resourceVersion": str(version)}}
