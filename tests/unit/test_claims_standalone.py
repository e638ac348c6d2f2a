import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from liken.claims import schema
from liken.claims.directory import SpecDirectory
from liken.claims.standalone import Standalone
from liken.metrics import Metrics
from liken.state.store import Store
from tests.unit.fakes_claims import FakeHardware, gpu, stick
from tests.unit.fakes_state import NoNames
from tests.unit.test_claims_directory import Failing

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def running(folder: Path, files: Failing | None = None) -> AsyncIterator[tuple[Standalone, FakeHardware]]:
    store = Store(NoNames())
    hardware = FakeHardware(store)
    hardware.plug(stick(), gpu())
    hardware.event()
    directory = SpecDirectory(folder, files) if files else None
    standalone = Standalone(store=store, cdi_dir=folder, metrics=Metrics(), directory=directory)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(standalone.run)
        await anyio.sleep(1)
        yield standalone, hardware
        tasks.cancel_scope.cancel()


def devices(standalone: Standalone) -> dict[str, list[str]]:
    document: dict[str, Any] = json.loads(standalone.path.read_bytes())
    assert schema.problems(document) == ()
    return {
        device["name"]: [node["path"] for node in device["containerEdits"]["deviceNodes"]]
        for device in document["devices"]
    }


async def test_every_device_is_there_by_the_name_of_its_slot(tmp_path: Path) -> None:
    async with running(tmp_path / "cdi") as (standalone, _):
        assert devices(standalone) == {
            "pci-0000-00-02-0": ["/dev/dri/renderD128"],
            "pci-0000-00-02-0-display": ["/dev/dri/card0"],
            "usb-1-4-1-0": ["/dev/bus/usb/001/007", "/dev/ttyUSB0"],
        }
        assert standalone.path.stat().st_mode & 0o777 == 0o644
    assert list((tmp_path / "cdi").iterdir()) == []


async def test_the_file_is_always_current(tmp_path: Path) -> None:
    async with running(tmp_path) as (standalone, hardware):
        hardware.unplug(stick())
        hardware.event()
        await anyio.sleep(1)
        assert "usb-1-4-1-0" not in devices(standalone)
        hardware.plug(stick(tty="ttyUSB1", number=9))
        hardware.event()
        await anyio.sleep(1)
        assert devices(standalone)["usb-1-4-1-0"] == ["/dev/bus/usb/001/009", "/dev/ttyUSB1"]
        hardware.unplug(stick(), gpu())
        hardware.event()
        await anyio.sleep(1)
        assert not standalone.path.exists()


async def test_numbers_that_changed_are_written_though_the_text_is_the_same(tmp_path: Path) -> None:
    async with running(tmp_path) as (standalone, hardware):
        inode, text = standalone.path.stat().st_ino, standalone.path.read_text()
        hardware.store.replace([*stick()], complete=True)
        await anyio.sleep(1)
        assert standalone.path.stat().st_ino == inode
        adapter, line = stick()
        renumbered = replace(line, nodes=(replace(line.nodes[0], number=None),))
        hardware.store.replace([adapter, renumbered])
        await anyio.sleep(1)
        assert standalone.path.read_text() == text
        assert standalone.path.stat().st_ino != inode


async def test_a_full_disk_is_waited_out(tmp_path: Path) -> None:
    files = Failing("write", 28)
    async with running(tmp_path, files) as (standalone, _):
        assert not standalone.path.exists()
        files.on = False
        await anyio.sleep(10)
        assert "usb-1-4-1-0" in devices(standalone)


async def test_what_a_killed_process_left_is_swept_and_claims_files_stay(tmp_path: Path) -> None:
    (tmp_path / ".liken.sh-liken.sh.4242").write_text("half")
    (tmp_path / "liken.sh-c1.json").write_text("{}")
    async with running(tmp_path):
        assert sorted(path.name for path in tmp_path.iterdir()) == ["liken.sh-c1.json", "liken.sh.json"]
