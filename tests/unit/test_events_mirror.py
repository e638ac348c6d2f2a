"""The mirror in virtual time: events say where, sysfs says what, and nothing is looked at without a reason."""

import pathlib
import shutil
from typing import Any

import anyio
import pytest

from liken.events.sysfs import SysfsError
from liken.model.hardware import Reason
from tests.unit.fakes_events import (
    CONTROLLER,
    RECORDINGS,
    Mirrored,
    MirrorLoop,
    built,
    cases,
    controller,
    disk,
    mirrored,
    step_changes,
    stick,
    tree_cases,
    usb,
)

pytestmark = pytest.mark.anyio

STICK = f"{CONTROLLER}/usb1/1-4"
NAME = "usb-1-4-1-0"


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return "asyncio", {"loop_factory": MirrorLoop}


async def test_a_plug_is_one_change_after_its_window(tmp_path: pathlib.Path) -> None:
    async with mirrored(tmp_path, controller()) as m:
        began = anyio.current_time()
        m.bed.plug(stick().encode())
        await m.store.settled(m.store.snapshot.revision)
        assert 0.05 <= anyio.current_time() - began < 2  # beside virtual time runs that of the test itself
        assert m.offered == [NAME]
        assert len(m.deltas) == 1
        assert m.store.snapshot.changed_at == pytest.approx(began, abs=1)
        assert m.equal()


async def test_a_device_that_never_falls_silent_is_taken_over_at_the_limit(tmp_path: pathlib.Path) -> None:
    async with mirrored(tmp_path, controller()) as m:
        began = anyio.current_time()
        m.bed.plug(stick().encode())
        for _ in range(40):
            await anyio.sleep(0.03)
            m.feed.tell("change", STICK)
            if m.offered:
                break
        assert m.offered == [NAME]
        assert 0.5 <= anyio.current_time() - began < 3


async def test_events_that_change_nothing_make_no_revision(tmp_path: pathlib.Path) -> None:
    async with mirrored(tmp_path, controller(), stick()) as m:
        revision = m.store.snapshot.revision
        for _ in range(50):
            m.feed.tell("change", f"{STICK}/1-4:1.0/ttyUSB0/tty/ttyUSB0")
            await anyio.sleep(0.033)
        assert m.store.snapshot.revision == revision
        assert m.deltas == []


async def test_events_on_other_buses_cost_no_look(tmp_path: pathlib.Path) -> None:
    async with mirrored(tmp_path, controller(), stick()) as m:
        m.tree.opened.clear()
        for path in ("/devices/system/cpu/cpu0", "/devices/virtual/net/veth0", "/devices/virtual/block/loop3", "/sdb"):
            m.feed.tell("add", path)
        await anyio.sleep(2)
        assert m.tree.opened == []


async def test_an_event_reads_its_own_device_only(tmp_path: pathlib.Path) -> None:
    async with mirrored(tmp_path, controller(), stick(), stick("1-5", 9, 1)) as m:
        m.tree.opened.clear()
        m.feed.tell("change", f"{STICK}/1-4:1.0")
        await anyio.sleep(1)
        assert m.tree.opened
        assert all(path.startswith((STICK.encode(), b"/class")) or b"console" in path for path in m.tree.opened)


async def test_the_event_of_a_node_makes_the_whole_device_be_read(tmp_path: pathlib.Path) -> None:
    async with mirrored(tmp_path, controller(), stick()) as m:
        m.bed.write(STICK, "serial", b"LATE\n")
        m.feed.tell("add", f"{STICK}/1-4:1.0/ttyUSB0/tty/ttyUSB0")
        await m.store.settled(m.store.snapshot.revision)
        [offer] = m.store.snapshot.offers.values()
        assert offer.attributes["serial"] == "LATE"


async def test_a_hub_that_goes_takes_along_what_hung_there_though_its_events_are_lost(tmp_path: pathlib.Path) -> None:
    text = (RECORDINGS / "usb-serial-ftdi-hub.umockdev").read_text()
    async with mirrored(tmp_path, text) as m:
        hub = "/devices/pci0000:00/0000:00:10.0/usb1/1-1"
        heard, m.bed._announce = m.bed._announce, lambda *_: None
        m.bed.unplug(hub)
        heard("remove", hub, {})
        await m.store.settled(m.store.snapshot.revision)
        assert m.offered == []
        assert m.equal()
        assert not [key for key in m.store.snapshot.inventory.devices if key.address.startswith("1-1")]


async def test_what_is_new_below_a_device_is_found_with_it_though_its_own_event_is_lost(tmp_path: pathlib.Path) -> None:
    async with mirrored(tmp_path, controller()) as m:
        m.bed._announce = lambda *_: None
        m.bed.plug(stick().encode())
        m.feed.tell("change", f"{CONTROLLER}/usb1")
        await m.store.settled(m.store.snapshot.revision)
        assert m.offered == [NAME]


async def test_a_removed_device_heard_of_under_its_parent_alone_is_gone(tmp_path: pathlib.Path) -> None:
    async with mirrored(tmp_path, controller(), stick()) as m:
        m.bed._announce = lambda *_: None
        m.bed.unplug(STICK)
        m.feed.tell("change", f"{CONTROLLER}/usb1")
        await m.store.settled(m.store.snapshot.revision)
        assert m.offered == []
        assert m.equal()


async def test_a_move_is_looked_at_on_both_sides(tmp_path: pathlib.Path) -> None:
    async with mirrored(tmp_path, controller(), stick()) as m:
        old, new = tmp_path / f"sys{STICK}", tmp_path / f"sys{CONTROLLER}/usb1/1-9"
        for name in ("1-4", "1-4:1.0"):
            (tmp_path / "sys/bus/usb/devices" / name).unlink()
        old.rename(new)
        (new / "1-4:1.0").rename(new / "1-9:1.0")
        for name, path in (("1-9", "1-9"), ("1-9:1.0", "1-9/1-9:1.0")):
            (tmp_path / "sys/bus/usb/devices" / name).symlink_to(f"../../..{CONTROLLER}/usb1/{path}")
        m.feed.tell("move", f"{CONTROLLER}/usb1/1-9")
        m.feed.tell("move", STICK)
        await m.store.settled(m.store.snapshot.revision)
        assert m.offered == ["usb-1-9-1-0"]
        assert m.equal()


async def test_an_overflow_and_its_neighbours_are_one_comparison(tmp_path: pathlib.Path) -> None:
    async with mirrored(tmp_path, controller(), stick()) as m:
        m.bed._announce = lambda *_: None
        m.bed.unplug(STICK)
        m.bed.plug(stick("1-5", 9, 1).encode())
        for cause in ("overflow", "overflow", "truncated"):
            m.feed.overflow(cause)
        await m.store.settled(m.store.snapshot.revision)
        await anyio.sleep(1)
        assert m.offered == ["usb-1-5-1-0"]
        assert m.count("liken_resyncs_total", cause="overflow") == 1
        assert m.count("liken_resyncs_total", cause="truncated") == 1
        assert len(m.deltas) == 1
        assert m.equal()


async def test_a_socket_that_breaks_is_opened_anew_and_everything_compared(tmp_path: pathlib.Path) -> None:
    async with mirrored(tmp_path, controller(), stick()) as m:
        m.bed._announce = lambda *_: None
        m.bed.unplug(STICK)
        m.feed.fail(OSError(100, "Network is down"))
        await m.store.settled(m.store.snapshot.revision)
        assert m.offered == []
        assert m.count("liken_resyncs_total", cause="reader") == 1


async def test_the_safety_comparison_counts_what_no_event_told_and_says_so_twice_at_most(
    tmp_path: pathlib.Path,
) -> None:
    async with mirrored(tmp_path, controller(), stick()) as m:
        m.bed._announce = lambda *_: None
        for turn in range(4):
            if turn % 2:
                m.bed.plug(stick().encode())
            else:
                m.bed.unplug(STICK)
            await anyio.sleep(601)
        assert m.offered == [NAME]
        assert m.count("liken_corrections_total") == 8  # the device and its interface, each time
        [(what, words)] = m.told
        assert what == "node Warning UeventsMissing"
        assert "host's network namespace" in words


async def test_a_safety_comparison_that_meets_a_change_just_heard_of_counts_nothing(tmp_path: pathlib.Path) -> None:
    async with mirrored(tmp_path, controller()) as m:
        await anyio.sleep(599.99)
        m.bed.plug(stick().encode())
        await anyio.sleep(2)
        assert m.offered == [NAME]
        assert m.count("liken_resyncs_total", cause="safety") == 1
        assert m.count("liken_corrections_total") == 0


async def test_an_idle_hour_reads_sysfs_six_times_and_changes_nothing(tmp_path: pathlib.Path) -> None:
    async with mirrored(tmp_path, controller(), stick()) as m:
        revision = m.store.snapshot.revision
        await anyio.sleep(3601)
        assert m.count("liken_resyncs_total", cause="safety") == 6
        assert m.store.snapshot.revision == revision


async def test_a_rescan_is_a_comparison(tmp_path: pathlib.Path) -> None:
    async with mirrored(tmp_path, controller(), stick()) as m:
        m.bed._announce = lambda *_: None
        m.bed.unplug(STICK)
        await m.mirror.rescan()
        await m.store.settled(m.store.snapshot.revision)
        assert m.offered == []


async def test_sysfs_that_cannot_be_listed_later_leaves_the_last_view(tmp_path: pathlib.Path) -> None:
    async with mirrored(tmp_path, controller(), stick()) as m:
        (tmp_path / "sys/bus").rename(tmp_path / "away")
        await m.mirror.rescan()
        await anyio.sleep(2)
        assert m.offered == [NAME]
        (tmp_path / "away").rename(tmp_path / "sys/bus")
        m.bed.unplug(STICK)
        await anyio.sleep(1)
        assert m.offered == []


async def test_no_sysfs_at_the_start_is_an_error(tmp_path: pathlib.Path) -> None:
    async def start() -> None:
        async with mirrored(tmp_path / "other", controller()) as m:
            shutil.rmtree(tmp_path / "other/sys/bus")
            await m.mirror.run()

    with pytest.raises(ExceptionGroup) as raised:
        await start()
    assert raised.group_contains(SysfsError, match="neither bus/pci/devices nor")


async def test_a_fresh_read_waits_for_no_window(tmp_path: pathlib.Path) -> None:
    async with mirrored(tmp_path, controller(), stick(), quiet_s=60, limit_s=60) as m:
        began = anyio.current_time()
        m.bed.replug(STICK, devnum=12, renamed={"ttyUSB0": "ttyUSB3"})
        snapshot = await m.mirror.refresh([usb("1-4:1.0")])
        assert anyio.current_time() - began < 30
        assert snapshot is m.store.snapshot
        assert m.nodes(NAME) == ["/dev/bus/usb/001/012", "/dev/ttyUSB3"]


async def test_a_fresh_read_of_what_is_gone_takes_it_out(tmp_path: pathlib.Path) -> None:
    async with mirrored(tmp_path, controller(), stick()) as m:
        m.bed.unplug(STICK)
        snapshot = await m.mirror.refresh([usb("1-4:1.0")])
        assert not snapshot.offers
        assert snapshot.departed


async def test_a_device_that_dangles_is_looked_at_again_without_an_event(tmp_path: pathlib.Path) -> None:
    async with mirrored(tmp_path, controller()) as m:
        link = tmp_path / "sys/bus/usb/devices/1-4"
        link.symlink_to(f"../../..{STICK}")
        m.feed.tell("add", STICK)
        await m.store.settled(m.store.snapshot.revision)
        assert m.store.snapshot.verdicts[usb("1-4")].reason is Reason.VANISHED
        link.unlink()
        m.bed._announce = lambda *_: None
        m.bed.plug(stick().encode())
        await anyio.sleep(0.6)
        assert m.offered == [NAME]


async def test_a_device_that_stays_vanished_is_not_looked_at_for_ever(tmp_path: pathlib.Path) -> None:
    async with mirrored(tmp_path, controller()) as m:
        (tmp_path / "sys/bus/usb/devices/1-4").symlink_to(f"../../..{STICK}")
        m.feed.tell("add", STICK)
        await anyio.sleep(60)
        m.tree.opened.clear()
        await anyio.sleep(300)
        assert m.tree.opened == []


async def test_what_is_stacked_on_a_disk_later_is_seen_at_its_own_event(tmp_path: pathlib.Path) -> None:
    async with mirrored(tmp_path, disk("0000:00:17.0", "sda", 0)) as m:
        assert m.offered == ["pci-0000-00-17-0"]
        block = "devices/pci0000:00/0000:00:17.0/ata1/host0/target0:0:0/0:0:0:0/block/sda"
        (tmp_path / "sys" / block / "holders").mkdir()
        (tmp_path / "sys" / block / "holders/dm-0").symlink_to("anywhere")
        m.feed.tell("change", "/devices/virtual/block/dm-0")
        await m.store.settled(m.store.snapshot.revision)
        assert m.offered == []


async def test_uhid_rides_with_a_bluetooth_adapter_from_the_moment_it_is_loaded(tmp_path: pathlib.Path) -> None:
    async with mirrored(tmp_path, (RECORDINGS / "btusb.umockdev").read_text()) as m:
        [name] = m.offered
        assert "/dev/uhid" not in m.nodes(name)
        (tmp_path / "sys/module/uhid").mkdir(parents=True)
        m.feed.tell("add", "/module/uhid")
        await m.store.settled(m.store.snapshot.revision)
        assert "/dev/uhid" in m.nodes(name)


async def test_the_kernel_is_asked_to_bind_a_driver_again(tmp_path: pathlib.Path) -> None:
    async with mirrored(tmp_path, controller(), stick()) as m:
        probe = tmp_path / "sys/bus/usb/drivers_probe"
        problem = await m.mirror.reprobe(usb("1-4:1.0"))
        assert problem is not None
        assert "No such file or directory" in problem
        assert not probe.exists()
        probe.touch()
        assert await m.mirror.reprobe(usb("1-4:1.0")) is None
        assert probe.read_text() == "1-4:1.0"


async def test_a_storm_of_suffixes_keeps_nothing(tmp_path: pathlib.Path) -> None:
    async with mirrored(tmp_path, controller(), stick()) as m:
        for number in range(3_000):
            m.feed.tell("add", f"{STICK}/1-4:1.0/0003:1038:1202.{number:04X}/hidraw/hidraw0")
        await anyio.sleep(1)
        places = m.mirror._places
        assert len(places._answers) <= 4096
        assert set(places) == set(m.store.snapshot.inventory.devices)
        assert not m.mirror._dirty
        assert not m.mirror._began


def check_published(m: Mirrored, published: dict[str, Any], case: str) -> None:
    assert set(m.offered) == set(published), case
    for name, wanted in published.items():
        assert m.nodes(name) == wanted["nodes"], case


@pytest.mark.shared
@pytest.mark.parametrize("file", ["events.yaml", "faults.yaml", "ownership.yaml"])
async def test_each_shared_sequence_ends_as_it_should(shared: pathlib.Path, tmp_path: pathlib.Path, file: str) -> None:
    checked = 0
    for case in tree_cases(shared, file):
        steps = case["input"].get("events", [])
        if not steps or any("times" in step for step in steps):
            continue
        root = tmp_path / case["id"]
        built(shared, case, root)
        async with mirrored(root) as m:
            await follow(m, case, cases(shared), root)
        checked += 1
    assert checked >= {"events.yaml": 6, "faults.yaml": 1, "ownership.yaml": 1}[file]


async def follow(m: Mirrored, case: dict[str, Any], module: Any, root: pathlib.Path) -> None:
    began = anyio.current_time()
    expect = case["expect"]
    states = {state["after"]: state for state in expect.get("steps", ())}
    for index, step in enumerate(case["input"]["events"]):
        await anyio.sleep(max(0.0, began + step["at_ms"] / 1000 - anyio.current_time()))
        step_changes(m, module, step, root)
        if index in states:
            await anyio.sleep(1)
            check_published(m, states[index].get("published", {}), case["id"])
    await anyio.sleep(1300)
    if "published" in expect:
        check_published(m, expect["published"], case["id"])
    for address, reason in expect.get("withheld", {}).items():
        found = {verdict.key.address: verdict.reason for verdict in m.store.snapshot.verdicts.values()}
        assert found[address] == reason, case["id"]
    if "writes" in expect:
        assert len([delta for delta in m.deltas if delta.names]) == expect["writes"], case["id"]
    assert m.equal(), case["id"]
