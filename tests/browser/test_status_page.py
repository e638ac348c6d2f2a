"""The status page as a person meets it, in a real browser."""

import os
import pathlib
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from liken.demo import hardware
from liken.demo.testbed import Testbed
from liken.events.feed import Feed
from liken.events.mirror import Mirror
from liken.events.sysfs import Sysfs
from liken.metrics import Metrics
from liken.state.ids import IdsFiles
from liken.state.store import Store
from liken.web.server import Web
from liken.web.status import ClaimedDevice, ClaimRow, ConditionRow, MachineRows, Outlook, Part
from tests.browser.devtools import Page, chromium
from tests.unit.fakes_web import STICK_NAME, FakeStore

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.browser,
    pytest.mark.timeout(120),
    pytest.mark.skipif(shutil.which("chromium") is None, reason="Chromium is not installed (package chromium)"),
]

ROW = "document.querySelector('li[data-device=\"usb:1-4:1.0\"]')"


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return "asyncio", {"use_uvloop": True}


def outlook() -> Outlook:
    return Outlook(
        node="shed",
        version="0.1.0",
        parts=(Part(name="events", ok=True, line="following the kernel"),),
        claims=(
            ClaimRow(
                namespace="home",
                name="zigbee",
                uid="u1",
                since=1_796_100_000.0,
                devices=(ClaimedDevice(name=STICK_NAME, nodes=("/dev/ttyUSB0",), health="Healthy"),),
            ),
        ),
        machine=MachineRows(conditions=(ConditionRow(type="Ready", status="True", reason="Ready", message=""),)),
    )


@asynccontextmanager
async def opened(store: FakeStore | Store, *, width: int = 1000) -> AsyncIterator[Page]:
    web = Web(listen="127.0.0.1:0", metrics=Metrics(), store=store, outlook=outlook)
    async with anyio.create_task_group() as tasks:
        await tasks.start(web.run)
        async with chromium(f"http://127.0.0.1:{web.port}/", width=width) as page:
            await page.until("document.getElementById('live')?.textContent === 'live'", 30)
            yield page
        tasks.cancel_scope.cancel()


async def test_a_stick_that_is_plugged_appears_and_goes_without_a_reload() -> None:
    store = FakeStore()
    async with opened(store) as page:
        assert await page.value(f"{ROW} === null")
        store.put(plugged=True)
        await page.until(f"{ROW} !== null")
        assert await page.value(f"{ROW}.textContent.includes('Sonoff Zigbee')")
        assert await page.value(f"{ROW}.className") == "new"
        if folder := os.environ.get("LIKEN_SCREENSHOTS"):
            await page.picture(pathlib.Path(folder) / "status-page.png")
        store.put(plugged=False)
        await page.until(f"{ROW} === null")
        assert page.console == []


async def test_a_stick_plugged_into_the_testbed_appears_through_mirror_and_store(tmp_path: pathlib.Path) -> None:
    feed, metrics, store = Feed(), Metrics(), Store(IdsFiles.read(None))
    bed = Testbed(tmp_path, lambda action, path, _: feed.tell(action, path))
    bed.load(hardware.text("mini-pc").encode())
    sysfs = Sysfs(bed.sys, tmp_path / "proc", tmp_path / "dev")
    mirror = Mirror(sysfs=sysfs, store=store, metrics=metrics, source=lambda: feed)
    stick = "document.querySelector('li[data-device=\"usb:2-1:1.0\"]')"
    async with anyio.create_task_group() as tasks:
        await tasks.start(mirror.run)
        async with opened(store) as page:
            assert await page.value(f"{stick} === null")
            bed.plug(hardware.Stick(number=5, tty=0).recording.encode())
            await page.until(f"{stick} !== null")
            assert await page.value(f"{stick}.textContent.includes('Published')")
            bed.unplug(hardware.STICK)
            await page.until(f"{stick} === null")
        tasks.cancel_scope.cancel()


async def test_names_from_hardware_are_text_and_never_markup() -> None:
    store = FakeStore()
    async with opened(store) as page:
        store.put(plugged=True, title="<img src=x onerror=alert(1)>")
        await page.until(f"{ROW} !== null")
        assert await page.value("document.querySelectorAll('img').length") == 0
        assert await page.value(f"{ROW}.textContent.includes('<img src=x')")


async def test_the_tree_is_used_with_the_keyboard_and_keeps_the_focus_over_a_change() -> None:
    store = FakeStore()
    store.put(plugged=True)
    async with opened(store) as page:
        await page.value(f"{ROW}.querySelector('summary').focus()")
        await page.call(
            "Input.dispatchKeyEvent", type="keyDown", key="Enter", code="Enter", windowsVirtualKeyCode=13, text="\r"
        )
        await page.until(f"{ROW}.querySelector('details').open")
        await page.until(f"{ROW}.querySelector('.offer').textContent.includes('held by home/zigbee')")
        store.put(plugged=True, title="Renamed")
        await page.until(f"{ROW}.textContent.includes('Renamed')")
        assert await page.value(f"{ROW}.querySelector('details').open")
        assert await page.value(f"document.activeElement === {ROW}.querySelector('summary')")


async def test_it_fits_a_phone() -> None:
    store = FakeStore()
    store.put(plugged=True)
    async with opened(store) as page:
        await page.call("Emulation.setDeviceMetricsOverride", width=360, height=740, deviceScaleFactor=2, mobile=True)
        await page.until("document.documentElement.clientWidth === 360")
        assert await page.value("document.documentElement.scrollWidth") <= 360


async def test_it_follows_the_dark_scheme() -> None:
    async with opened(FakeStore()) as page:
        colours = []
        for scheme in ("light", "dark"):
            await page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
            colours.append(await page.value("getComputedStyle(document.body).backgroundColor"))
        assert colours == ["rgb(255, 255, 255)", "rgb(20, 23, 26)"]
