"""Made-up USB devices of any identity, as firmware sees the bus: descriptors, control requests, endpoints.

Numbers and layouts are those of USB 2.0 chapter 9, CDC 1.2 and the Bluetooth core specification.
`tests/vm/usbredir.py` carries a device to QEMU. `CdcAcm` is a serial adapter with a byte peer, `Bluetooth` a
controller that agrees to every command.
"""

import struct
import threading
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

IN = 0x80
NOT_STANDARD = 0x60
GET_DESCRIPTOR = 6
Reply = Callable[[bytes], None]


class Speed(IntEnum):
    """Bus speed, with usbredir's numbers."""

    FULL = 1
    HIGH = 2


class Transfer(IntEnum):
    """Kind of an endpoint (bmAttributes)."""

    ISOCHRONOUS = 1
    BULK = 2
    INTERRUPT = 3


class Stall(Exception):
    """The device does not do that: the control transfer stalls."""


class Control(NamedTuple):
    """A control transfer: the setup packet's type, request, value and length, and what the host sends with it."""

    kind: int
    request: int
    value: int
    length: int
    data: bytes

    @property
    def zeros(self) -> bytes:
        """The empty answer: zeros where the host reads, nothing where it writes."""
        return bytes(self.length) if self.kind & IN else b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One endpoint; bit 7 of `address` is the direction."""

    address: int
    kind: Transfer
    size: int
    interval: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Interface:
    """One interface: (class, subclass, protocol), endpoints, and class-specific descriptors as bytes."""

    classes: tuple[int, int, int]
    endpoints: tuple[Endpoint, ...] = ()
    extra: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What the device descriptor says, and its strings; an empty string has no descriptor."""

    vendor: int
    product: int
    manufacturer: str = ""
    model: str = ""
    serial: str = ""
    release: int = 0x0100
    classes: tuple[int, int, int] = (0, 0, 0)
    speed: Speed = Speed.HIGH

    @property
    def strings(self) -> tuple[str, str, str]:
        """String descriptors 1 to 3."""
        return self.manufacturer, self.model, self.serial


class UsbDevice:
    """A device with its endpoints' queues; subclasses answer class requests and take what the host writes."""

    def __init__(self, identity: Identity, interfaces: tuple[Interface, ...]) -> None:
        self.identity = identity
        self.interfaces = interfaces
        self._ready: defaultdict[int, deque[bytes]] = defaultdict(deque)
        self._waiting: defaultdict[int, deque[tuple[int, int, Reply]]] = defaultdict(deque)
        self._streams: dict[int, Reply] = {}
        self._lock = threading.RLock()

    # What the bus asks of the device.

    def setup(self, control: Control) -> bytes:
        """A control transfer: the bytes for the host (IN) or nothing. Raises Stall."""
        if control.kind & NOT_STANDARD:
            return self.class_request(control)
        if control.request == GET_DESCRIPTOR:
            return self._descriptor(control.value >> 8, control.value & 0xFF)[: control.length]
        return control.zeros

    def read(self, endpoint: int, ticket: int, length: int, reply: Reply) -> None:
        """The host asks for at most `length` bytes; `reply` is called when there are some."""
        with self._lock:
            self._waiting[endpoint].append((ticket, length, reply))
            self._match(endpoint)

    def stream(self, endpoint: int, reply: Reply | None) -> None:
        """The host polls an interrupt endpoint from now on, or (None) no longer."""
        with self._lock:
            if reply is None:
                self._streams.pop(endpoint, None)
                return
            self._streams[endpoint] = reply
            while self._ready[endpoint]:
                reply(self._ready[endpoint].popleft())

    def cancel(self, ticket: int) -> None:
        """The host no longer waits for a read."""
        with self._lock:
            for endpoint, waiting in self._waiting.items():
                self._waiting[endpoint] = deque(entry for entry in waiting if entry[0] != ticket)

    # What the device does.

    def push(self, endpoint: int, data: bytes) -> None:
        """Have `data` read by the host from an IN endpoint."""
        with self._lock:
            if stream := self._streams.get(endpoint):
                stream(data)
                return
            self._ready[endpoint].append(data)
            self._match(endpoint)

    def class_request(self, control: Control) -> bytes:
        """A class or vendor request: by default accepted, with zeros for an answer."""
        return control.zeros

    def written(self, endpoint: int, data: bytes) -> None:
        """The host wrote to an OUT endpoint: by default ignored."""

    def _match(self, endpoint: int) -> None:
        ready, waiting = self._ready[endpoint], self._waiting[endpoint]
        while ready and waiting:
            _, length, reply = waiting.popleft()
            data = ready.popleft()
            if len(data) > length:
                ready.appendleft(data[length:])
            reply(data[:length])

    def _descriptor(self, kind: int, number: int) -> bytes:
        match kind:
            case 1:
                return self._device_descriptor()
            case 2:
                return self._configuration()
            case 3 if number == 0:
                return b"\x04\x03\x09\x04"  # English is the only language
            case 3 if number <= len(self.identity.strings) and self.identity.strings[number - 1]:
                text = self.identity.strings[number - 1].encode("utf-16-le")
                return bytes([2 + len(text), 3]) + text
            case _:
                raise Stall

    def _device_descriptor(self) -> bytes:
        it = self.identity
        numbers = [number if text else 0 for number, text in enumerate(it.strings, 1)]
        return struct.pack(
            "<BBHBBBBHHHBBBB", 18, 1, 0x0200, *it.classes, 64, it.vendor, it.product, it.release, *numbers, 1
        )

    def _configuration(self) -> bytes:
        body = b""
        for number, interface in enumerate(self.interfaces):
            body += (
                struct.pack("<9B", 9, 4, number, 0, len(interface.endpoints), *interface.classes, 0) + interface.extra
            )
            for end in interface.endpoints:
                body += struct.pack("<BBBBHB", 7, 5, end.address, end.kind, end.size, end.interval)
        return struct.pack("<BBHBBBBB", 9, 2, 9 + len(body), len(self.interfaces), 1, 0, 0x80, 50) + body


class CdcAcm(UsbDevice):
    """A USB serial adapter of the CDC-ACM class; `peer` receives what the host writes and says what it answers."""

    _DATA_IN, _DATA_OUT, _NOTIFY = 0x81, 0x01, 0x82
    # Header, call management, abstract control, union (CDC 1.2, section 5.2.3).
    _FUNCTIONAL = bytes([5, 0x24, 0, 0x10, 1, 5, 0x24, 1, 0, 1, 4, 0x24, 2, 2, 5, 0x24, 6, 0, 1])
    _GET_LINE_CODING = 0x21

    def __init__(self, identity: Identity, peer: Callable[[bytes], bytes] | None = None) -> None:
        control = Endpoint(address=self._NOTIFY, kind=Transfer.INTERRUPT, size=16, interval=9)
        data = (
            Endpoint(address=self._DATA_IN, kind=Transfer.BULK, size=512),
            Endpoint(address=self._DATA_OUT, kind=Transfer.BULK, size=512),
        )
        super().__init__(
            identity,
            (
                Interface(classes=(2, 2, 1), endpoints=(control,), extra=self._FUNCTIONAL),
                Interface(classes=(0x0A, 0, 0), endpoints=data),
            ),
        )
        self._peer = peer

    def written(self, endpoint: int, data: bytes) -> None:
        """Hand the bytes to the peer and its answer to the host."""
        if endpoint == self._DATA_OUT and self._peer is not None and (answer := self._peer(data)):
            self.push(self._DATA_IN, answer)

    def class_request(self, control: Control) -> bytes:
        """Line coding is always 9600 8N1."""
        if control.request == self._GET_LINE_CODING:
            return struct.pack("<IBBB", 9600, 0, 0, 8)[: control.length]
        return control.zeros


class Bluetooth(UsbDevice):
    """A Bluetooth controller whose every HCI command completes well; btusb binds its two interfaces together."""

    _EVENTS = 0x81
    _COMMAND = 0x20
    # Command -> the answer after its status, or how many zeros it has (core specification, volume 4 part E).
    _ANSWERS: dict[int, bytes] = {  # noqa: RUF012  (a table that nobody writes)
        0x1001: b"\0\x06\0\0\x06\x0a\0\0\0",  # version
        0x1005: b"\0" + struct.pack("<HBHH", 1021, 64, 8, 8),  # buffer sizes
        0x1009: b"\0" + bytes.fromhex("665544332211"),  # address
    }
    _LENGTHS: dict[int, int] = {  # noqa: RUF012  (the same)
        0x1002: 65, 0x1003: 9, 0x1004: 11, 0x0C0D: 3, 0x0C14: 249, 0x0C16: 3, 0x0C1B: 5, 0x0C23: 4, 0x0C25: 3,
        0x0C38: 2, 0x0C39: 4, 0x0C46: 2, 0x0C47: 2,
    }  # fmt: skip

    def __init__(self, identity: Identity) -> None:
        classes = (0xE0, 1, 1)
        voice = tuple(
            Endpoint(address=address, kind=Transfer.ISOCHRONOUS, size=0, interval=1) for address in (0x83, 0x03)
        )
        radio = (
            Endpoint(address=self._EVENTS, kind=Transfer.INTERRUPT, size=16, interval=1),
            Endpoint(address=0x82, kind=Transfer.BULK, size=64),
            Endpoint(address=0x02, kind=Transfer.BULK, size=64),
        )
        super().__init__(
            identity, (Interface(classes=classes, endpoints=radio), Interface(classes=classes, endpoints=voice))
        )

    def class_request(self, control: Control) -> bytes:
        """An HCI command: the event that says it is complete, in packets of the endpoint's size."""
        if control.kind != self._COMMAND or not control.data:
            return control.zeros
        command = struct.unpack_from("<H", control.data)[0]
        answer = self._ANSWERS.get(command, bytes(self._LENGTHS.get(command, 1)))
        event = bytes([0x0E, 3 + len(answer), 1]) + control.data[:2] + answer
        for start in range(0, len(event), 16):
            self.push(self._EVENTS, event[start : start + 16])
        return b""
