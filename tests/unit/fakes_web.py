"""A store with one adapter that can be plugged, for the tests of the web."""

import anyio

from liken.model.hardware import Bus, BusAddress, DeviceFacts, DeviceKey, DevPath, Inventory, Reason
from liken.model.offers import DeviceName, DeviceNode, Offer, Rules, Snapshot, Verdict

CONTROLLER = DeviceKey(Bus.PCI, BusAddress("0000:00:14.0"))
STICK = DeviceKey(Bus.USB, BusAddress("1-4:1.0"))
STICK_NAME = DeviceName("usb-1-4-1-0")


def snapshot(revision: int, *, plugged: bool, title: str = "Sonoff Zigbee") -> Snapshot:
    devices = {
        CONTROLLER: DeviceFacts(key=CONTROLLER, path=DevPath("/devices/pci0000:00/0000:00:14.0"), driver="xhci_hcd")
    }
    verdicts = {CONTROLLER: Verdict(key=CONTROLLER, title="xHCI", reason=Reason.NOTHING_TO_DELIVER, detail="no node")}
    offers = {}
    if plugged:
        path = DevPath("/devices/pci0000:00/0000:00:14.0/usb1/1-4/1-4:1.0")
        devices[STICK] = DeviceFacts(key=STICK, path=path, driver="cp210x")
        verdicts[STICK] = Verdict(key=STICK, title=title, offers=(STICK_NAME,))
        nodes = (DeviceNode(path="/dev/ttyUSB0", kind="tty"),)
        offers[STICK_NAME] = Offer(name=STICK_NAME, key=STICK, nodes=nodes)
    return Snapshot(
        revision=revision,
        complete=True,
        inventory=Inventory(devices=devices),
        rules=Rules(),
        offers=offers,
        verdicts=verdicts,
    )


class FakeStore:
    """Implements the web's Snapshots Protocol."""

    def __init__(self) -> None:
        self.snapshot = snapshot(1, plugged=False)
        self._changed = anyio.Event()

    def put(self, *, plugged: bool, title: str = "Sonoff Zigbee") -> None:
        self.snapshot = snapshot(self.snapshot.revision + 1, plugged=plugged, title=title)
        self._changed.set()
        self._changed = anyio.Event()

    async def settled(self, after: int) -> Snapshot:
        while self.snapshot.revision <= after:
            await self._changed.wait()
        return self.snapshot
