"""Hardware that a test plugs in and pulls out again: USB below the machine's xHCI, PCI in its hot-plug slots.

A port is written as below the controller's root hub (`"3"`, behind a hub `"1.2"`); the kernel calls it `1-3`,
`1-1.2`. Each method returns the monitor's id of the device; `unplug` takes it. What a test leaves plugged in, `clear`
removes.
"""

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.vm.machine import VirtualMachine
from tests.vm.qmp import QmpError
from tests.vm.usb_device import UsbDevice
from tests.vm.usbredir import UsbRedirection


class Hardware:
    """Plugs devices in and pulls them out through the monitor."""

    def __init__(self, machine: VirtualMachine) -> None:
        self._machine = machine
        self._backends: dict[str, tuple[str, dict[str, Any]]] = {}
        self._redirections: dict[str, UsbRedirection] = {}
        self.plugged: list[str] = []

    def serial_adapter(self, port: str, serial: str = "") -> str:
        """An FTDI 0403:6001; its driver is ftdi_sio."""
        device = self._id("serial")
        backend = self._character(device, {"type": "null", "data": {}})
        named = {"serial": serial} if serial else {}
        return self._usb("usb-serial", port, device, chardev=backend, always_plugged=True, **named)

    def storage(self, port: str, image: Path) -> str:
        """A USB stick with the raw image `image`; its drivers are usb-storage and sd."""
        device = self._id("disk")
        node = f"{device}-image"
        self._machine.qmp("blockdev-add", driver="raw", node_name=node, file={"driver": "file", "filename": str(image)})
        self._backends[device] = ("blockdev-del", {"node_name": node})
        return self._usb("usb-storage", port, device, drive=node)

    def hub(self, port: str) -> str:
        """A full-speed hub with eight ports."""
        return self._usb("usb-hub", port, self._id("hub"), ports=8)

    def audio(self, port: str) -> str:
        """A sound card; its driver is snd-usb-audio."""
        return self._usb("usb-audio", port, self._id("audio"), audiodev="silence")

    def keyboard(self, port: str) -> str:
        """A keyboard; its driver is usbhid."""
        return self._usb("usb-kbd", port, self._id("keyboard"))

    def card_reader(self, port: str) -> str:
        """A smart card reader: the kernel has no driver for its class, programs use libusb."""
        return self._usb("usb-ccid", port, self._id("reader"))

    def made_up(self, port: str, device: UsbDevice) -> str:
        """Any USB device that we play ourselves."""
        name = self._id("redirected")
        path = self._machine.folder / name
        address = {"type": "unix", "data": {"path": str(path)}}
        backend = {"type": "socket", "data": {"addr": address, "server": True, "wait": False}}
        character = self._character(name, backend)
        self._usb("usb-redir", port, name, chardev=character)
        self._redirections[name] = UsbRedirection(device, path)
        return name

    def pci(self, driver: str, slot: str, **options: Any) -> str:
        """A PCI device in a slot of `tests/vm/machine.SLOTS`; QEMU takes a bochs-display in each slot once only."""
        return self._add(driver, self._id("card"), bus=slot, **options)

    def unplug(self, device: str) -> None:
        """Pull a device out; the guest learns of it by an event of its bus."""
        self._machine.qmp("device_del", id=device)
        self.plugged.remove(device)
        if redirection := self._redirections.pop(device, None):
            redirection.close()
        self._forget(device)

    def gone(self, device: str) -> None:
        """Note that a device went with the hub above it."""
        self.plugged.remove(device)
        self._forget(device)

    def clear(self) -> None:
        """Pull out everything, children before their hubs."""
        for device in reversed(self.plugged.copy()):
            self.unplug(device)

    def _forget(self, device: str) -> None:
        command, arguments = self._backends.pop(device, ("", {}))
        if command:
            try:
                self._machine.qmp(command, **arguments)
            except QmpError:
                return  # a device that goes with its hub is gone a moment later: its backend, of a new name each, stays

    @staticmethod
    def _id(kind: str) -> str:
        return f"{kind}-{uuid.uuid4().hex[:8]}"

    def _character(self, device: str, backend: dict[str, Any]) -> str:
        name = f"{device}-line"
        self._machine.qmp("chardev-add", id=name, backend=backend)
        self._backends[device] = ("chardev-remove", {"id": name})
        return name

    def _usb(self, driver: str, port: str, device: str, **options: Any) -> str:
        return self._add(driver, device, bus="xhci.0", port=port, **options)

    def _add(self, driver: str, device: str, **options: Any) -> str:
        self._machine.qmp("device_add", driver=driver, id=device, **options)
        self.plugged.append(device)
        return device


def ports(hub: str) -> Iterator[str]:
    """The eight ports of the hub in port `hub`."""
    return (f"{hub}.{number}" for number in range(1, 9))
