"""Carries a made-up USB device to QEMU's `usb-redir` over a unix socket: the host's half of the usbredir protocol.

Packets are `type, length, id` and a body (usbredir-protocol.txt, version 0.7). Only what QEMU needs for control, bulk
and interrupt transfers is here. To connect is to plug the device in; to close is to pull it out.
"""

import contextlib
import socket
import struct
import threading
from enum import IntEnum
from pathlib import Path

from tests.vm.usb_device import IN, Control, Stall, UsbDevice

VERSION = b"liken tests".ljust(64, b"\0")
CAPABILITIES = 1 << 1 | 1 << 4 | 1 << 5 | 1 << 6  # device version, packet sizes, 64-bit ids, 32-bit bulk lengths
ENDPOINTS = 32
ABSENT = 255
SUCCESS, STALLED = 0, 4


class Packet(IntEnum):
    """Packet types that pass here."""

    HELLO = 0
    DEVICE_CONNECT = 1
    RESET = 3
    INTERFACE_INFO = 4
    ENDPOINT_INFO = 5
    SET_CONFIGURATION = 6
    GET_CONFIGURATION = 7
    CONFIGURATION_STATUS = 8
    SET_ALTERNATE = 9
    GET_ALTERNATE = 10
    ALTERNATE_STATUS = 11
    START_INTERRUPT = 15
    STOP_INTERRUPT = 16
    INTERRUPT_STATUS = 17
    CANCEL = 21
    CONTROL = 100
    BULK = 101
    INTERRUPT = 103


class UsbRedirection:
    """One plugged device: a thread of its own serves QEMU until either side closes."""

    def __init__(self, device: UsbDevice, path: Path) -> None:
        self._device = device
        self._lock = threading.Lock()
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(path))
        self._input = self._socket.makefile("rb")
        self._socket.sendall(struct.pack("<III", Packet.HELLO, 68, 0) + VERSION + struct.pack("<I", CAPABILITIES))
        kind, length, _ = struct.unpack("<III", self._input.read(12))
        theirs = struct.unpack_from("<I", self._input.read(length), 64)[0]
        if kind != Packet.HELLO or theirs & CAPABILITIES != CAPABILITIES:
            raise ConnectionError(f"this QEMU's usbredir lacks capabilities: {theirs:#x}")
        self._introduce()
        self._thread = threading.Thread(target=self._serve, daemon=True, name="usbredir")
        self._thread.start()

    def close(self) -> None:
        """Pull the device out; nothing happens when QEMU did it already."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(5)

    def _introduce(self) -> None:
        interfaces = self._device.interfaces
        classes = zip(*(interface.classes for interface in interfaces), strict=True)
        table = b"".join(bytes(column).ljust(ENDPOINTS, b"\0") for column in (range(len(interfaces)), *classes))
        self._send(Packet.INTERFACE_INFO, 0, struct.pack("<I", len(interfaces)) + table)
        kinds, intervals, owners, sizes = [ABSENT] * ENDPOINTS, [0] * ENDPOINTS, [0] * ENDPOINTS, [0] * ENDPOINTS
        for place in (0, 16):
            kinds[place], sizes[place] = 0, 64
        for number, interface in enumerate(interfaces):
            for end in interface.endpoints:
                place = (end.address & IN) >> 3 | end.address & 0x0F
                kinds[place], intervals[place], owners[place], sizes[place] = end.kind, end.interval, number, end.size
        self._send(Packet.ENDPOINT_INFO, 0, bytes(kinds + intervals + owners) + struct.pack(f"<{ENDPOINTS}H", *sizes))
        it = self._device.identity
        self._send(
            Packet.DEVICE_CONNECT,
            0,
            struct.pack("<BBBBHHH", it.speed, *it.classes, it.vendor, it.product, it.release),
        )

    def _send(self, packet: Packet, ticket: int, body: bytes) -> None:
        with self._lock:
            self._socket.sendall(struct.pack("<IIQ", packet, len(body), ticket) + body)

    def _serve(self) -> None:
        try:
            while len(header := self._input.read(16)) == 16:
                kind, length, ticket = struct.unpack("<IIQ", header)
                self._take(kind, ticket, self._input.read(length))
        except OSError:
            pass  # QEMU took the device away
        self._input.close()
        self._socket.close()

    def _take(self, kind: int, ticket: int, body: bytes) -> None:
        match kind:
            case Packet.CANCEL:
                self._device.cancel(ticket)
            case Packet.CONTROL:
                self._control(ticket, body)
            case Packet.BULK:
                self._bulk(ticket, body)
            case Packet.INTERRUPT:
                self._device.written(body[0], body[4:])
                self._send(Packet.INTERRUPT, ticket, struct.pack("<BBH", body[0], SUCCESS, len(body) - 4))
            case Packet.START_INTERRUPT | Packet.STOP_INTERRUPT:
                self._poll(body[0], ticket, begin=kind == Packet.START_INTERRUPT)
            case _:
                self._configure(kind, ticket, body)

    def _configure(self, kind: int, ticket: int, body: bytes) -> None:
        match kind:
            case Packet.SET_CONFIGURATION:
                self._send(Packet.CONFIGURATION_STATUS, ticket, bytes([SUCCESS, body[0]]))
            case Packet.GET_CONFIGURATION:
                self._send(Packet.CONFIGURATION_STATUS, ticket, bytes([SUCCESS, 1]))
            case Packet.SET_ALTERNATE:
                self._send(Packet.ALTERNATE_STATUS, ticket, bytes([SUCCESS, *body[:2]]))
            case Packet.GET_ALTERNATE:
                self._send(Packet.ALTERNATE_STATUS, ticket, bytes([SUCCESS, body[0], 0]))
            case _:
                pass  # a reset, a filter: nothing to do for a device that is made up

    def _poll(self, end: int, ticket: int, *, begin: bool) -> None:
        self._send(Packet.INTERRUPT_STATUS, ticket, bytes([SUCCESS, end]))
        self._device.stream(end, (lambda data: self._interrupt(end, 0, data)) if begin else None)

    def _interrupt(self, end: int, ticket: int, data: bytes) -> None:
        self._send(Packet.INTERRUPT, ticket, struct.pack("<BBH", end, SUCCESS, len(data)) + data)

    def _control(self, ticket: int, body: bytes) -> None:
        end, request, request_type, _, value, index, length = struct.unpack_from("<BBBBHHH", body)
        data, status, answer = body[10:], SUCCESS, b""
        try:
            answer = self._device.setup(Control(request_type, request, value, length, data))
        except Stall:
            status = STALLED
        moved = len(answer) if request_type & IN else len(data)
        header = struct.pack("<BBBBHHH", end, request, request_type, status, value, index, moved)
        self._send(Packet.CONTROL, ticket, header + answer)

    def _bulk(self, ticket: int, body: bytes) -> None:
        end, _, low, _, high = struct.unpack_from("<BBHIH", body)
        length = high << 16 | low
        if end & IN:
            self._device.read(end, ticket, length, lambda data: self._bulk_done(end, ticket, len(data), data))
        else:
            self._device.written(end, body[10:])
            self._bulk_done(end, ticket, length, b"")

    def _bulk_done(self, end: int, ticket: int, length: int, data: bytes) -> None:
        header = struct.pack("<BBHIH", end, SUCCESS, length & 0xFFFF, 0, length >> 16)
        self._send(Packet.BULK, ticket, header + data)
