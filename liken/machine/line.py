"""Holding one serial line for a serio driver: set it raw, give it the serio line discipline, and block in a read.

The numbers are those of the kernel's `include/uapi/linux/serio.h` and `tty.h`, the order is inputattach's. The serio
port lives exactly as long as the read, so each line has a thread of its own. The read returns when the line hangs up
(an unplug), or at a signal to the thread, and the kernel takes the port and its devices away then. Any handled signal
ends it, so the thread blocks all others; and it is libc's read, because Python's own begins again after a signal. A
thread that does not end is left to the end of the process, which has the same effect.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import signal
import struct
import termios
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final, Protocol

import anyio
import anyio.from_thread
import anyio.lowlevel

from liken.model.machine import SerioProtocol

TIOCSETD: Final = 0x5423
SPIOCSTYPE: Final = 0x40087101  # _IOW('q', 1, unsigned long)
N_TTY: Final = 0
N_MOUSE: Final = 2
NCCS: Final = 32
SERIO_TYPES: Final = {SerioProtocol.PULSE8_CEC: 0x40, SerioProtocol.RAINSHADOW_CEC: 0x41}
WAKE: Final = signal.SIGURG  # ignored by default, so it can end a read and nothing else
RELEASE_S: Final = 2.0
RELEASE_STEP_S: Final = 0.01
RIGHTS: Final = "; liken needs the right to open it: deploy the `serio` overlay (privileged, with the host's /dev)"


class LineError(Exception):
    """The line could not be attached or kept; the message says why, and what to do."""


class Hold(Protocol):
    """One attached line."""

    async def ended(self) -> None:
        """Wait for the hang-up; raises LineError when something else ended it."""


class Discipline(Protocol):
    """Attaches lines."""

    def hold(self, tty: Path, protocol: SerioProtocol) -> AbstractAsyncContextManager[Hold]:
        """Attach on entry (raises LineError), let go on exit."""


Attach = Callable[[int, Path, SerioProtocol], None]
"""Puts a discipline on an open line that is set raw; raises LineError."""


class SerialLine:
    """The kernel's own discipline. Make it in the main thread, where the wake-up signal can be given a handler."""

    def __init__(self, attach: Attach | None = None) -> None:
        """Let the wake-up signal end a read instead of being ignored; `attach` is for kernels without serport."""
        self._attach = attach or set_serio
        if threading.current_thread() is threading.main_thread() and signal.getsignal(WAKE) is signal.SIG_DFL:
            signal.signal(WAKE, lambda *_: None)

    @contextlib.asynccontextmanager
    async def hold(self, tty: Path, protocol: SerioProtocol) -> AsyncIterator[Hold]:
        """Attach in a thread and stay attached until left."""
        held = _Thread(tty, protocol, self._attach)
        held.start()
        try:
            await held.attached()
            yield held
        finally:
            await held.release()


class _Thread:
    """The thread that blocks in the read, and what the loop knows of it."""

    def __init__(self, tty: Path, protocol: SerioProtocol, attach: Attach) -> None:
        self._tty = tty
        self._attach = attach
        self._protocol = protocol
        self._token = anyio.lowlevel.current_token()
        self._ready, self._over = anyio.Event(), anyio.Event()
        self._error: LineError | None = None
        self._leaving = False
        self._thread = threading.Thread(target=self._run, name=f"liken-serio-{tty.name}", daemon=True)

    def start(self) -> None:
        """Begin to attach."""
        self._thread.start()

    async def attached(self) -> None:
        """Wait until the discipline is on the line; raises LineError."""
        await self._ready.wait()
        if self._error is not None:
            raise self._error

    async def ended(self) -> None:
        """Wait for the end of the read; raises LineError unless it was a hang-up."""
        await self._over.wait()
        if self._error is not None:
            raise self._error

    async def release(self) -> None:
        """End the read and wait for the thread, for a while."""
        self._leaving = True
        with anyio.CancelScope(shield=True), anyio.move_on_after(RELEASE_S):
            while self._thread.is_alive():
                if self._thread.ident is not None and not self._over.is_set():
                    with contextlib.suppress(ProcessLookupError):
                        signal.pthread_kill(self._thread.ident, WAKE)
                await anyio.sleep(RELEASE_STEP_S)

    def _run(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals() - {WAKE})
        try:
            self._hold()
        except LineError as error:
            self._error = error
        finally:
            with contextlib.suppress(RuntimeError):  # the loop ended before us
                anyio.from_thread.run_sync(self._finished, token=self._token)

    def _hold(self) -> None:
        try:
            line = os.open(self._tty, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise LineError(_cannot(f"open {self._tty}", error)) from error
        try:
            set_raw(line, self._tty)
            self._attach(line, self._tty, self._protocol)
            os.set_blocking(line, True)
            if self._on_the_line():
                wait(line, self._tty)
            with contextlib.suppress(OSError):  # after a hang-up
                fcntl.ioctl(line, TIOCSETD, struct.pack("i", N_TTY))
        finally:
            with contextlib.suppress(OSError):
                os.close(line)

    def _finished(self) -> None:
        self._over.set()
        self._ready.set()

    def _on_the_line(self) -> bool:
        """Tell the loop that the discipline is set; False: nobody wants the line any more."""
        try:
            anyio.from_thread.run_sync(self._ready.set, token=self._token)
        except RuntimeError:  # the loop ended before us
            return False
        return not self._leaving


def wait(line: int, tty: Path) -> None:
    """Block in one read until the line hangs up or a signal ends it; raises LineError for anything else."""
    if ctypes.CDLL(None, use_errno=True).read(line, ctypes.create_string_buffer(1), 1) >= 0:
        return
    number = ctypes.get_errno()
    if number not in {errno.EINTR, errno.EIO, errno.ENODEV, errno.ENXIO}:
        raise LineError(_cannot(f"hold {tty}", OSError(number, os.strerror(number))))


def set_raw(line: int, tty: Path) -> None:
    """9600 baud, 8 data bits, no parity, one stop bit, nothing translated, modem lines ignored; raises LineError."""
    characters: list[bytes | int] = [b"\0"] * NCCS
    characters[termios.VMIN], characters[termios.VTIME] = 1, 0
    control = termios.CS8 | termios.CREAD | termios.HUPCL | termios.CLOCAL
    speed = termios.B9600
    settings: list[int | list[bytes | int]] = [termios.IGNBRK | termios.IGNPAR, 0, control, 0, speed, speed, characters]
    try:
        termios.tcsetattr(line, termios.TCSANOW, settings)
    except termios.error as error:
        raise LineError(f"cannot set {tty} to 9600 8N1: {error.args[-1]}: is it a serial line?") from error


def set_serio(line: int, tty: Path, protocol: SerioProtocol) -> None:
    """Put the serio line discipline on the line and say what is at its end; raises LineError."""
    try:
        fcntl.ioctl(line, TIOCSETD, struct.pack("i", N_MOUSE))
    except OSError as error:
        if error.errno == errno.EINVAL:
            raise LineError("the kernel has no serio line discipline: declare serport in spec.modules") from error
        raise LineError(_cannot(f"set the line discipline of {tty}", error)) from error
    try:
        fcntl.ioctl(line, SPIOCSTYPE, struct.pack("L", SERIO_TYPES[protocol]))
    except OSError as error:
        raise LineError(_cannot(f"set the serio type of {tty}", error)) from error


def _cannot(what: str, error: OSError) -> str:
    advice = {
        errno.EACCES: RIGHTS,
        errno.EPERM: RIGHTS,
        errno.ENOENT: RIGHTS,
        errno.EBUSY: "; another program has it: end that program",
    }
    return f"cannot {what}: {error.strerror}{advice.get(error.errno or 0, '')}"
