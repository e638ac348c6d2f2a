"""Enumerating a machine of a thousand devices: from an empty store to a complete one."""

import pathlib
import tempfile
from collections.abc import Iterator

from benchmarks import trees
from benchmarks.rows import Row, cpu_of, milliseconds, wall_of
from liken.events.sysfs import Sysfs
from liken.state.ids import IdsFiles
from liken.state.store import Store

ADAPTERS = 480  # with their interfaces, hubs and the controller about a thousand bus entries


def rows() -> Iterator[Row]:
    """The rows of this module."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        root = pathlib.Path(folder)
        trees.machine(root, ADAPTERS)
        sysfs = Sysfs(root)
        entries = len(sysfs.keys())
        names = IdsFiles.read(None)

        def coldplug() -> None:
            store = Store(names)
            store.replace(sysfs.everything(), system=sysfs.system(), everything=True, complete=True)
            assert len(store.snapshot.offers) == ADAPTERS

        wall = wall_of(coldplug)
        yield Row(f"coldplug of {entries:,} bus entries", milliseconds(wall), "300 ms", wall < 0.3)
        yield Row("the same: CPU", milliseconds(cpu_of(coldplug)), "", None)
