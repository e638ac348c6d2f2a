"""The firmware of a Pulse-Eight USB-CEC adapter, as far as Linux' `pulse8-cec` asks it when it binds.

A message is 0xFF, bytes, 0xFE; a byte from 0xFD on travels as 0xFD and the byte less 3 (kernel:
drivers/media/cec/usb/pulse8). A peer for `tests/vm/usb_device.CdcAcm`.
"""

from tests.vm.usb_device import CdcAcm, Identity

START, END, ESCAPE, OFFSET = 0xFF, 0xFE, 0xFD, 3
ACCEPTED = 8
TRANSMIT_SUCCEEDED = 16
TRANSMIT_END = 12
COMMAND_MASK = 0x3F

# Command -> what the adapter answers after the command's own number.
ANSWERS = {
    21: b"\x00\x0c",  # firmware version 12
    23: b"\x5f\x00\x00\x00",  # build date
    25: b"\x01",  # auto enabled
    27: b"\x04",  # default logical address
    29: b"\x00\x10",  # logical address mask
    31: b"\x10\x00",  # physical address 1.0.0.0
    33: b"\x04",  # device type
    35: b"\x05",  # HDMI version
    37: b"liken",  # OSD name
    40: b"\x01",  # adapter type
    42: b"\x00",
    43: b"\x00",
    44: b"\x00",
}


class Pulse8Firmware:
    """Bytes in, bytes out; keeps a half-received message between calls."""

    def __init__(self) -> None:
        self._message: bytearray | None = None
        self._escaped = False

    def __call__(self, data: bytes) -> bytes:
        """What the adapter says to these bytes."""
        answer = b""
        for byte in data:
            if byte == START:
                self._message, self._escaped = bytearray(), False
            elif self._message is None:
                continue
            elif byte == END:
                answer += self._answer(bytes(self._message))
                self._message = None
            elif byte == ESCAPE:
                self._escaped = True
            else:
                self._message.append(byte + OFFSET if self._escaped else byte)
                self._escaped = False
        return answer

    def _answer(self, message: bytes) -> bytes:
        if not message:
            return b""
        command = message[0] & COMMAND_MASK
        if command in ANSWERS:
            return _framed(bytes([command]) + ANSWERS[command])
        accepted = _framed(bytes([ACCEPTED, command]))
        return accepted + _framed(bytes([TRANSMIT_SUCCEEDED])) if command == TRANSMIT_END else accepted


def pulse8_adapter(serial: str = "") -> CdcAcm:
    """The adapter as the kernel sees it: 2548:1002, CDC-ACM."""
    identity = Identity(
        vendor=0x2548, product=0x1002, manufacturer="Pulse-Eight", model="CEC Adapter", serial=serial,
        release=0x1000, classes=(2, 0, 0),
    )  # fmt: skip
    return CdcAcm(identity, Pulse8Firmware())


def _framed(message: bytes) -> bytes:
    body = b"".join(bytes([ESCAPE, byte - OFFSET]) if byte >= ESCAPE else bytes([byte]) for byte in message)
    return bytes([START]) + body + bytes([END])
