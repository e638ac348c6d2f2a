"""A node without sockets: an API with claims, hardware that can be plugged, and the parts that prepare."""

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel

from liken.claims.directory import FileSystem, SpecDirectory
from liken.claims.ledger import Ledger
from liken.claims.locks import ByteLocks
from liken.claims.ports import ClaimRef, ClaimSettings
from liken.claims.prepare import Preparer
from liken.claims.recovery import Recovery
from liken.claims.refresh import Refresher, brought_up
from liken.metrics import Metrics
from liken.model.api import Json, NotFound
from liken.model.hardware import DeviceFacts, DeviceKey, SystemFacts
from liken.model.offers import Snapshot
from liken.state.store import Store
from tests.unit.fakes_state import NoNames, interface, node, pci, usb_device

NODE = "node-a"
ZIGBEE, GPU, SOUND = "usb-1-4-1-0", "pci-0000-00-02-0", "pci-0000-00-1f-3"
NOON = 1_800_000_000.0  # 08:00:00 UTC


def stick(
    *, tty: str = "ttyUSB0", number: int = 7, ids: str = "10c4:ea60", driver: str | None = "cp210x"
) -> tuple[DeviceFacts, ...]:
    """A zigbee adapter in port 1-4."""
    line = node(tty, "tty", f"188:{tty.removeprefix('ttyUSB')}")
    return usb_device("1-4", number=number, ids=ids), interface("1-4:1.0", driver, [line] if driver else [])


def gpu(*, card: int = 0) -> DeviceFacts:
    nodes = [
        node(f"dri/card{card}", "drm", f"226:{card}"),
        node(f"dri/renderD{128 + card}", "drm", f"226:{128 + card}"),
    ]
    return pci("0000:00:02.0", "i915", nodes)


def sound(*, jack: bool = True) -> DeviceFacts:
    nodes = [node("snd/controlC0", "sound", "116:0")] + ([node("input/event9", "input", "13:73")] if jack else [])
    return pci("0000:00:1f.3", "snd_hda_intel", nodes, ids="8086:54c8", code="040300")


def result(device: str = ZIGBEE, request: str = "adapter", **more: Any) -> Json:
    return {"request": request, "driver": "liken.sh", "pool": NODE, "device": device, **more}


def claim_object(ref: ClaimRef, results: Sequence[Json], config: Sequence[Json] = ()) -> Json:
    devices: Json = {"results": list(results)}
    if config:
        devices["config"] = list(config)
    return {
        "metadata": {"namespace": ref.namespace, "name": ref.name, "uid": ref.uid},
        "status": {"allocation": {"devices": devices}},
    }


def opaque(source: str = "FromClaim", requests: Sequence[str] = (), **fields: Any) -> Json:
    parameters = {"apiVersion": "liken.sh/v1alpha1", "kind": "NodeOptions", **fields}
    entry: Json = {"source": source, "opaque": {"driver": "liken.sh", "parameters": parameters}}
    return entry | ({"requests": list(requests)} if requests else {})


class FakeApi:
    """Claims by namespace and name; `fail` raises for each call, `delay` makes each take its time."""

    def __init__(self) -> None:
        self.claims: dict[tuple[str, str], Json] = {}
        self.fail: Callable[[], Exception | None] = lambda: None
        self.delay = 0.0
        self.asked: list[str] = []

    def put(self, ref: ClaimRef, *results: Json, config: Sequence[Json] = ()) -> ClaimRef:
        self.claims[ref.namespace, ref.name] = claim_object(ref, results or [result()], config)
        return ref

    def delete(self, ref: ClaimRef) -> None:
        self.claims.pop((ref.namespace, ref.name), None)

    async def get_claim(self, namespace: str, name: str) -> Json:
        self.asked.append(f"{namespace}/{name}")
        await anyio.sleep(self.delay)
        if error := self.fail():
            raise error
        if (namespace, name) not in self.claims:
            raise NotFound(f'resourceclaims "{name}" not found', status=404)
        return self.claims[namespace, name]


class FakeHardware:
    """The kernel's devices; the store learns of a change by `event` or by a refresh of the device concerned."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.devices: dict[DeviceKey, DeviceFacts] = {}
        self.refreshed: list[frozenset[DeviceKey]] = []
        self.probed: list[str] = []
        self.probe: Callable[[DeviceKey], str | None] = lambda _: None
        self.delay = 0.0

    def plug(self, *facts: DeviceFacts | Iterable[DeviceFacts]) -> None:
        for one in facts:
            for fact in [one] if isinstance(one, DeviceFacts) else one:
                self.devices[fact.key] = fact

    def unplug(self, *facts: DeviceFacts | Iterable[DeviceFacts]) -> None:
        for one in facts:
            for fact in [one] if isinstance(one, DeviceFacts) else one:
                self.devices.pop(fact.key, None)

    def event(self) -> Snapshot:
        """The mirror has seen everything."""
        self.store.replace(self.devices.values(), everything=True, system=SystemFacts(), complete=True)
        return self.store.snapshot

    async def refresh(self, keys: Collection[DeviceKey]) -> Snapshot:
        self.refreshed.append(frozenset(keys))
        await anyio.sleep(self.delay)
        there = [self.devices[key] for key in keys if key in self.devices]
        self.store.replace(there, gone=[key for key in keys if key not in self.devices])
        return self.store.snapshot

    async def reprobe(self, key: DeviceKey) -> str | None:
        self.probed.append(key.address)
        await anyio.lowlevel.checkpoint()
        return self.probe(key)


class Node:
    """Everything that prepares, on one folder; `again()` is the next process on the same folder."""

    def __init__(self, folder: Path, *, files: FileSystem | None = None, boot: str = "boot-1") -> None:
        self.folder = folder
        self.now = NOON
        self.store = Store(NoNames(), wall=lambda: self.now)
        self.api = FakeApi()
        self.hardware = FakeHardware(self.store)
        self.hardware.plug(stick(), gpu(), sound())
        self.hardware.event()
        self.metrics = Metrics()
        self.settings = ClaimSettings(
            node_name=NODE,
            cdi_dir=folder / "cdi",
            plugins_dir=folder / "plugins",
            registry_dir=folder / "registry",
            dev=folder / "dev",
            boot_id=boot,
        )
        self.directory = SpecDirectory(self.settings.cdi_dir, files)
        self.locks = ByteLocks(folder / "claims.lock")
        self.ledger = Ledger(directory=self.directory, locks=self.locks, store=self.store, metrics=self.metrics)
        self.preparer = Preparer(
            api=self.api,
            hardware=self.hardware,
            store=self.store,
            ledger=self.ledger,
            settings=self.settings,
            wall=lambda: self.now,
        )
        self.refresher = Refresher(store=self.store, ledger=self.ledger, settings=self.settings, metrics=self.metrics)
        self.recovery = Recovery(api=self.api, ledger=self.ledger, preparer=self.preparer, settings=self.settings)

    async def again(self, *, files: FileSystem | None = None, boot: str = "boot-1") -> "Node":
        """A new process: the same folder, API and hardware, nothing in memory."""
        self.locks.close()
        after = Node(self.folder, files=files, boot=boot)
        after.now = self.now
        after.api.claims = self.api.claims
        after.api.fail = self.api.fail
        after.hardware.devices = self.hardware.devices
        await after.recovery.load()
        after.hardware.event()
        return after

    def document(self, uid: str) -> Json | None:
        path = self.directory.path(uid)
        return json.loads(path.read_bytes()) if path.exists() else None

    def nodes(self, uid: str) -> list[str] | None:
        """The node paths of a claim's file; None: it has none."""
        document = self.document(uid)
        if document is None:
            return None
        return [node["path"] for device in document["devices"] for node in device["containerEdits"]["deviceNodes"]]

    def files(self) -> list[str]:
        """What the folder holds."""
        return sorted(path.name for path in self.settings.cdi_dir.iterdir()) if self.settings.cdi_dir.exists() else []


async def caught_up(machine: Node) -> None:
    """Wait until every file agrees with the newest snapshot; whoever keeps them must be running."""
    for _ in range(400):
        await anyio.sleep(0.05)
        claims = list(machine.ledger.records)
        if all(brought_up(claim, machine.store.snapshot) is claim for claim in claims):
            return
    raise AssertionError("the files did not follow")


def ref(uid: str = "c1", name: str = "zigbee", namespace: str = "home") -> ClaimRef:
    return ClaimRef(namespace=namespace, name=name, uid=uid)
