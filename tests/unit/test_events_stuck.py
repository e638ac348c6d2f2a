"""A device whose files do not answer, in real time: nobody waits for it, one thread does, and it comes back."""

import os
import pathlib
import threading
import time
from collections.abc import Callable

import anyio
import anyio.to_thread
import pytest

from liken.events.readers import THREAD_NAME, Answer, Call, Readers
from liken.events.sysfs import Reading
from liken.model.hardware import DeviceFacts, DeviceKey, DevPath, Reason
from tests.unit.fakes_events import CONTROLLER, controller, mirrored, stick, usb

pytestmark = pytest.mark.anyio

STICK = f"{CONTROLLER}/usb1/1-4"


@pytest.fixture(params=[True, False], ids=["uvloop", "asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, object]]:
    return "asyncio", {"use_uvloop": request.param}


async def until(what: Callable[[], object]) -> float:
    began = time.monotonic()
    with anyio.fail_after(20):
        while not what():
            await anyio.sleep(0.005)
    return time.monotonic() - began


def threads() -> int:
    return sum(thread.name == THREAD_NAME for thread in threading.enumerate())


def stop_answering(root: pathlib.Path, port: str = "1-4") -> pathlib.Path:
    fifo = root / f"sys{CONTROLLER}/usb1/{port}/serial"
    fifo.unlink()
    os.mkfifo(fifo)
    return fifo


async def answer(fifo: pathlib.Path, content: bytes = b"BACK\n") -> None:
    """Let whoever waits for the file read it, and make it a file that answers at once."""

    def write() -> None:
        with fifo.open("wb") as waiting:
            usual = fifo.with_name("spare")
            usual.write_bytes(content)
            usual.replace(fifo)
            waiting.write(content)

    await anyio.to_thread.run_sync(write)


async def test_a_device_that_does_not_answer_delays_nobody_and_comes_back(tmp_path: pathlib.Path) -> None:
    async with mirrored(tmp_path, controller(), stick(), read_deadline_s=0.5) as m:
        before = threads()
        fifo = stop_answering(tmp_path)
        m.feed.tell("change", STICK)
        m.bed.plug(stick("1-7", 9, 1).encode())
        assert await until(lambda: "usb-1-7-1-0" in m.offered) < 0.5
        assert "usb-1-4-1-0" in m.offered  # as it was, until its deadline
        await until(lambda: m.store.snapshot.verdicts[usb("1-4")].reason is Reason.UNREADABLE)
        assert "it has not answered for" in m.store.snapshot.verdicts[usb("1-4")].detail
        assert m.count("liken_sysfs_reads_stuck") == 1
        for _ in range(5):
            m.feed.tell("change", STICK)
            await anyio.sleep(0.1)
        assert threads() <= before + 1
        await answer(fifo)
        await until(lambda: m.store.snapshot.verdicts[usb("1-4")].reason is not Reason.UNREADABLE)
        await until(lambda: m.store.snapshot.inventory.devices[usb("1-4")].files["serial"] == b"BACK\n")
        await until(lambda: "usb-1-4-1-0" in m.offered)
        await until(lambda: threads() <= before)


async def test_a_machine_starts_although_a_device_does_not_answer(tmp_path: pathlib.Path) -> None:
    async with mirrored(tmp_path / "other", controller()):
        pass  # everything is imported now
    root = tmp_path / "machine"
    async with mirrored(root, controller(), stick(), stick("1-5", 9, 1)) as m:
        assert len(m.offered) == 2
    fifo = stop_answering(root)
    began = time.monotonic()
    async with mirrored(root, read_deadline_s=5.0) as m:
        assert time.monotonic() - began < 3
        assert "usb-1-5-1-0" in m.offered
        assert m.store.snapshot.complete
        await answer(fifo)
        await until(lambda: "usb-1-4-1-0" in m.offered)


async def test_a_fresh_read_is_answered_in_time_whatever_another_device_does(tmp_path: pathlib.Path) -> None:
    async with mirrored(tmp_path, controller(), stick(), stick("1-5", 9, 1), read_deadline_s=0.6) as m:
        fifo = stop_answering(tmp_path)
        m.feed.tell("change", STICK)
        await anyio.sleep(0.2)
        began = time.monotonic()
        await m.mirror.refresh([usb("1-5:1.0")])
        assert time.monotonic() - began < 0.5
        snapshot = await m.mirror.refresh([usb("1-4:1.0")])
        assert 0.2 < time.monotonic() - began < 2
        assert snapshot.verdicts[usb("1-4")].reason is Reason.UNREADABLE
        await answer(fifo)
        await until(lambda: m.count("liken_sysfs_reads_stuck") == 0)


async def test_many_devices_that_do_not_answer_hold_one_thread_each(tmp_path: pathlib.Path) -> None:
    ports = [f"1-{number}" for number in range(1, 8)]
    async with mirrored(tmp_path, controller(), *(stick(port, 10 + i, i) for i, port in enumerate(ports))) as m:
        fifos = [stop_answering(tmp_path, port) for port in ports]
        before = threads()
        await m.mirror.rescan()
        await anyio.sleep(1.2)
        await m.mirror.rescan()
        await anyio.sleep(0.5)
        assert threads() <= before + len(ports)
        for fifo in fifos:
            await answer(fifo)
        await until(lambda: threads() <= before)
        assert len(m.offered) == len(ports)


def reading(key: DeviceKey) -> Reading:
    return Reading(DeviceFacts(key=key, path=DevPath(f"/devices/{key.address}")))


async def test_one_thread_reads_many_devices() -> None:
    seen: set[str] = set()

    def read(key: DeviceKey) -> Reading | None:
        seen.add(threading.current_thread().name + str(threading.get_ident()))
        return reading(key)

    late: list[DeviceKey] = []
    readers = Readers(read, deadline_s=5, patience_s=2, on_answer=lambda key, _: late.append(key))
    keys = [usb(f"1-{number}") for number in range(500)]
    answers = await readers.read(keys)
    assert list(answers) == keys
    assert len(seen) == 1
    assert readers.idle
    assert not late


async def test_a_late_answer_is_delivered_once() -> None:
    go = threading.Event()

    def read(key: DeviceKey) -> Reading | None:
        if key == usb("1-1"):
            go.wait(20)
        return reading(key)

    late: list[tuple[DeviceKey, Answer]] = []
    readers = Readers(read, deadline_s=0.3, patience_s=0.05, on_answer=lambda key, answer: late.append((key, answer)))
    answers = await readers.read([usb("1-1"), usb("1-2")])
    assert list(answers) == [usb("1-2")]
    assert not readers.idle
    assert await readers.read([usb("1-1")]) == {}
    assert not readers.expired()
    await readers.answered([usb("1-1"), usb("1-2")])
    assert list(readers.expired()) == [usb("1-1")]
    assert readers.stuck == 1
    assert not readers.expired()
    go.set()
    await until(lambda: late)
    assert [key for key, _ in late] == [usb("1-1")]
    assert readers.idle
    assert readers.stuck == 0


async def test_a_fault_of_the_reader_itself_is_no_silence() -> None:
    def read(key: DeviceKey) -> Reading | None:
        raise ZeroDivisionError(key)

    readers = Readers(read, deadline_s=5, patience_s=1, on_answer=lambda *_: None)
    with pytest.raises(ZeroDivisionError):
        await readers.read([usb("1-1")])


async def test_a_call_ends_with_its_result_its_error_or_its_deadline() -> None:
    assert await Call(lambda: 7).within(5) == 7
    with pytest.raises(FileNotFoundError):
        await Call(lambda: os.stat("/nothing/there")).within(5)  # noqa: PTH116
    with pytest.raises(TimeoutError):
        await Call(lambda: time.sleep(0.3)).within(0.05)
