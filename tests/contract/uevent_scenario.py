"""In private namespaces: a real uevent, the mirror, the publisher, a real API server; what was seen as JSON on stdout.

`python -m tests.contract.uevent_scenario` with `KUBEBUILDER_ASSETS` set. The API server runs in the same namespaces,
so that its loopback is the daemon's.
"""

import contextlib
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio

from liken.demo.testbed import NamespacesForbidden, Netlink, Testbed, enter_namespaces
from liken.events.mirror import Mirror, MirrorSettings
from liken.events.sysfs import Sysfs
from liken.kube import paths
from liken.kube.client import Kube
from liken.metrics import Metrics
from liken.model.api import Json, ObjectRef, WatchKind
from liken.publish.publisher import Publisher
from liken.state.ids import IdsFiles
from liken.state.store import Store
from tests.contract.control_plane import ControlPlane, assets

HUB = Path(__file__).parents[1] / "fixtures/recordings/usb-serial-ftdi-hub.umockdev"
ADAPTER = "/devices/pci0000:00/0000:00:10.0/usb1/1-1/1-1.1"
DEVICE = "usb-1-1-1-1-0"
NODE = "node-a"
FORBIDDEN = 77
QUIET_AFTER_S = 1.0


async def unplugged(root: Path, kubeconfig: Path) -> dict[str, Any]:
    """Publish the machine, pull one adapter out, and count what reaches the API server."""
    bed = Testbed(root, Netlink())
    bed.load(HUB.read_bytes())
    store, metrics = Store(IdsFiles(b"", b"")), Metrics()
    (root / "proc/1").mkdir(parents=True)
    mirror = Mirror(
        sysfs=Sysfs(Path("/sys"), root / "proc", root / "dev"),
        store=store,
        settings=MirrorSettings(),
        metrics=metrics,
        node=ObjectRef(api_version="v1", kind="Node", name=NODE),
    )
    async with Kube.connect(kubeconfig=kubeconfig) as kube, anyio.create_task_group() as tasks:
        await kube.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
        publisher = Publisher(api=kube, store=store, node_name=NODE, metrics=metrics)
        tasks.start_soon(publisher.run)
        await tasks.start(mirror.run)
        await until(lambda: publisher.revision >= store.snapshot.revision)
        before = await kube.get(paths.slice(f"{NODE}-liken.sh"))
        events = await seen(kube, before, lambda: bed.unplug(ADAPTER))
        took = metrics.registry.get_sample_value("liken_event_to_patch_seconds_sum")
        tasks.cancel_scope.cancel()
    return {"before": names(before), "changes": events, "took_s": took}


async def seen(kube: Kube, before: Json, act: Callable[[], object]) -> list[list[str]]:
    """The devices after each change of our slices, until it is quiet."""
    version = before["metadata"]["resourceVersion"]
    watching = kube.watch(paths.slices(), field_selector=f"spec.nodeName={NODE}", resource_version=version)
    found: list[list[str]] = []
    async with contextlib.aclosing(watching), anyio.create_task_group() as tasks:
        act()

        async def collect() -> None:
            async for event in watching:
                found.extend([names(event.item)] if event.kind is not WatchKind.BOOKMARK else [])

        tasks.start_soon(collect)
        await until(lambda: bool(found))
        await anyio.sleep(QUIET_AFTER_S)
        tasks.cancel_scope.cancel()
    return found


def names(item: Json) -> list[str]:
    return [device["name"] for device in item["spec"].get("devices") or ()]


async def until(true: Callable[[], bool]) -> None:
    with anyio.fail_after(60):
        while not true():
            await anyio.sleep(0.005)


def main() -> int:
    folder = assets()
    assert folder is not None
    scenario: Callable[[Path, Path], Awaitable[dict[str, Any]]] = unplugged
    with TemporaryDirectory(prefix="liken-uevent-") as place:
        root = Path(place)
        (root / "sys").mkdir()
        try:
            enter_namespaces(root / "sys")
        except NamespacesForbidden as reason:
            sys.stdout.write(f"{reason}\n")
            return FORBIDDEN
        with ControlPlane(root / "plane", folder) as plane:
            result = anyio.run(scenario, root, plane.kubeconfig, backend_options={"use_uvloop": True})
    sys.stdout.write(json.dumps(result) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
