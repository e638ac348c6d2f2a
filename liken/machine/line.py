"""Holding one serial line for a serio driver: set it raw, give it the serio line discipline, and block in a read.

The numbers are those of the kernel's `include/uapi/linux/serio.h` and `tty.h`. The read returns when the line hangs up
(an unplug), or at a signal that this module sends to its own thread when liken ends. The kernel takes the port and
its devices away then.
"""

import errno
import fcntl
import os
import signal
import struct
import termios
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from liken.model.machine import SerioProtocol

TIOCSETD: Final = 0x5423
SPIOCSTYPE: Final = 0x40087101  # _IOW('q', 1, unsigned long)
N_MOUSE: Final = 2
NCCS: Final = 32
SERIO_TYPES: Final = {SerioProtocol.PULSE8_CEC: 0x40, SerioProtocol.RAINSHADOW_CEC: 0x41}
DRIVERS: Final = {SerioProtocol.PULSE8_CEC: "pulse8_cec", SerioProtocol.RAINSHADOW_CEC: "rainshadow_cec"}
WAKE: Final = signal.SIGURG  # ignored by default, so it can end a read and nothing else


class LineError(Exception):
    """The line could not be attached; the message says why, and what to do."""


class Discipline(Protocol):
    """Holds a line until it hangs up or is let go."""

    def hold(self, tty: Path, protocol: SerioProtocol, attached: Callable[[], None]) -> None:
        """Block while attached, calling `attached` once the discipline is on the line; raises LineError."""

    def release(self, thread: threading.Thread) -> None:
        """Make the hold that runs in this thread return."""


class SerialLine:
    """The kernel's own discipline."""

    def __init__(self) -> None:
        """Make the wake-up signal interrupt a read; only possible in the main thread, where the daemon runs."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(WAKE, lambda *_: None)

    def hold(self, tty: Path, protocol: SerioProtocol, attached: Callable[[], None]) -> None:
        """Attach and block; returns at a hang-up."""
        try:
            line = os.open(tty, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise LineError(_cannot(f"open {tty}", error)) from error
        try:
            self._attach(line, tty, protocol)
            os.set_blocking(line, True)
            attached()
            os.read(line, 1)
        except OSError as error:
            if error.errno not in {errno.EIO, errno.ENODEV, errno.ENXIO}:  # a hang-up is the ordinary end
                raise LineError(_cannot(f"hold {tty}", error)) from error
        finally:
            os.close(line)

    def _attach(self, line: int, tty: Path, protocol: SerioProtocol) -> None:
        try:
            _raw(line)
        except (OSError, termios.error) as error:
            raise LineError(f"cannot set {tty} to 9600 8N1: {error}") from error
        try:
            fcntl.ioctl(line, TIOCSETD, struct.pack("i", N_MOUSE))
        except OSError as error:
            if error.errno == errno.EINVAL:
                raise LineError("the kernel has no serio line discipline: declare serport in spec.modules") from error
            raise LineError(_cannot(f"set the line discipline of {tty}", error)) from error
        kind = SERIO_TYPES[protocol]
        try:
            fcntl.ioctl(line, SPIOCSTYPE, struct.pack("L", kind))
        except OSError as error:
            raise LineError(_cannot(f"set the serio type of {tty}", error)) from error

    def release(self, thread: threading.Thread) -> None:
        """Interrupt the read."""
        if thread.ident is not None and thread.is_alive():
            signal.pthread_kill(thread.ident, WAKE)


def _raw(line: int) -> None:
    """9600 baud, 8 data bits, no parity, one stop bit, nothing translated, modem lines ignored."""
    characters: list[bytes | int] = [b"\0"] * NCCS
    characters[termios.VMIN], characters[termios.VTIME] = 1, 0
    control = termios.CS8 | termios.CREAD | termios.HUPCL | termios.CLOCAL
    settings: list[int | list[bytes | int]] = [
        termios.IGNBRK | termios.IGNPAR,
        0,
        control,
        0,
        termios.B9600,
        termios.B9600,
    ]
    settings.append(characters)
    termios.tcsetattr(line, termios.TCSANOW, settings)


def _cannot(what: str, error: OSError) -> str:
    advice = {
        errno.EACCES: "; liken needs the right to open the line: deploy the `serio` overlay",
        errno.EPERM: "; liken needs the right to open the line: deploy the `serio` overlay",
        errno.EBUSY: "; another program has it",
        errno.ENOENT: "; the node is not visible to liken: deploy the `serio` overlay",
    }.get(error.errno or 0, "")
    return f"cannot {what}: {error.strerror}{advice}"
