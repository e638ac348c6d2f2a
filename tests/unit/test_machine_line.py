"""The thread that holds a line, on a pty: its settings, its hang-up, its refusals, and its end at a signal.

This kernel may be without serport; where a test needs the line held, the terminal's own discipline is left on it, whose
read blocks and ends in the same way.
"""

import contextlib
import fcntl
import os
import pty
import signal
import struct
import termios
import threading
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from liken.machine.line import WAKE, LineError, SerialLine, set_raw, set_serio
from liken.model.machine import SerioProtocol

pytestmark = pytest.mark.anyio

PULSE8 = SerioProtocol.PULSE8_CEC


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return "asyncio", {"use_uvloop": True}


@pytest.fixture
def terminal() -> Iterator[tuple[int, Path]]:
    """The master's descriptor and the path of the line."""
    master, slave = pty.openpty()
    path = Path(os.ttyname(slave))
    os.close(slave)
    yield master, path
    with contextlib.suppress(OSError):  # the test may have hung up
        os.close(master)


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("liken-serio")]


def as_it_is(line: int, tty: Path, protocol: SerioProtocol) -> None:
    """Leave the discipline that the line has."""


async def test_a_hang_up_ends_the_hold(terminal: tuple[int, Path]) -> None:
    master, path = terminal
    async with SerialLine(as_it_is).hold(path, PULSE8) as hold:
        with anyio.move_on_after(0.2) as waiting:
            await hold.ended()
        assert waiting.cancelled_caught
        os.close(master)
        with anyio.fail_after(5):
            await hold.ended()
    assert threads() == []


async def test_letting_go_ends_the_read_and_the_thread(terminal: tuple[int, Path]) -> None:
    _, path = terminal
    async with SerialLine(as_it_is).hold(path, PULSE8):
        assert threads() == [f"liken-serio-{path.name}"]
    assert threads() == []


async def test_a_cancelled_holder_lets_the_line_go(terminal: tuple[int, Path]) -> None:
    _, path = terminal
    with anyio.move_on_after(0.2):
        async with SerialLine(as_it_is).hold(path, PULSE8) as hold:
            await hold.ended()
    assert threads() == []


async def test_no_other_signal_reaches_the_thread(terminal: tuple[int, Path]) -> None:
    _, path = terminal
    previous = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        async with SerialLine(as_it_is).hold(path, PULSE8) as hold:
            (thread,) = (found for found in threading.enumerate() if found.name.startswith("liken-serio"))
            assert thread.ident is not None
            await anyio.sleep(0.2)  # it is in the read now
            signal.pthread_kill(thread.ident, signal.SIGUSR1)
            with anyio.move_on_after(0.2) as waiting:
                await hold.ended()
            assert waiting.cancelled_caught
            signal.pthread_kill(thread.ident, WAKE)
            with anyio.fail_after(5):
                await hold.ended()
    finally:
        signal.signal(signal.SIGUSR1, previous)


async def test_a_line_that_cannot_be_opened_or_is_none_says_so(tmp_path: Path) -> None:
    with pytest.raises(LineError, match=r"cannot open .*ttyACM0: No such file or directory; liken needs the right"):
        async with SerialLine().hold(tmp_path / "ttyACM0", PULSE8):
            pytest.fail("attached")
    (tmp_path / "file").touch()
    with pytest.raises(LineError, match=r"cannot set .*file to 9600 8N1: .* is it a serial line\?"):
        async with SerialLine().hold(tmp_path / "file", PULSE8):
            pytest.fail("attached")
    assert threads() == []


async def test_without_the_kernels_discipline_the_module_is_named(terminal: tuple[int, Path]) -> None:
    if Path("/sys/module/serport").exists():
        pytest.skip("this kernel has serport")
    _, path = terminal
    with pytest.raises(LineError, match=r"declare serport in spec\.modules"):
        async with SerialLine().hold(path, PULSE8):
            pytest.fail("attached")


def test_the_line_is_set_to_9600_8n1_raw(terminal: tuple[int, Path]) -> None:
    _, path = terminal
    line = os.open(path, os.O_RDWR | os.O_NOCTTY)
    try:
        set_raw(line, path)
        inputs, outputs, control, local, from_line, to_line, _ = termios.tcgetattr(line)
    finally:
        os.close(line)
    assert (from_line, to_line) == (termios.B9600, termios.B9600)
    assert control & termios.CSIZE == termios.CS8
    assert not control & (termios.PARENB | termios.CSTOPB | termios.CRTSCTS)
    assert control & termios.CLOCAL
    assert (outputs, local, inputs) == (0, 0, termios.IGNBRK | termios.IGNPAR)


def test_the_numbers_are_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, int]] = []

    def ioctl(line: int, request: int, argument: bytes) -> int:
        assert line == 3
        calls.append((request, struct.unpack("i" if len(argument) == 4 else "L", argument)[0]))
        return 0

    monkeypatch.setattr(fcntl, "ioctl", ioctl)
    for protocol in SerioProtocol:
        set_serio(3, Path("/dev/ttyACM0"), protocol)
    # include/uapi/linux/tty.h N_MOUSE; include/uapi/linux/serio.h SPIOCSTYPE, SERIO_PULSE8_CEC, SERIO_RAINSHADOW_CEC
    assert calls == [(0x5423, 2), (0x40087101, 0x40), (0x5423, 2), (0x40087101, 0x41)]
