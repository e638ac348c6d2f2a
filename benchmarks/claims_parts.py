"""The processes of the claims benchmark: an API server, a node that serves claims, and a bare grpclib server.

`python -m benchmarks.claims_parts ROLE FOLDER [WAIT]` with the roles `api`, `node` (asks that API server), `slow` (a
node whose API takes 100 ms) and `bare`. Each writes FOLDER/<role>.ready when it serves.
"""

import asyncio
import json
import pathlib
import sys
from collections.abc import Collection

import anyio
import anyio.to_thread
import structlog

from liken.claims.ports import ClaimSettings
from liken.claims.server import Endpoint
from liken.claims.service import Claims
from liken.demo.apiserver import ApiServer
from liken.events.sysfs import Sysfs
from liken.kube import paths
from liken.kube.client import Kube
from liken.metrics import Metrics
from liken.model.api import Json
from liken.model.hardware import DeviceKey
from liken.model.offers import Snapshot
from liken.state.ids import IdsFiles
from liken.state.store import Store
from liken.wire.k8s.io.kubelet.pkg.apis.dra import v1 as dra

NODE = "node-1"
REPLUG_POLL_S = 0.005


def claim(name: str, device: str) -> Json:
    """A ResourceClaim with one allocated device of this node."""
    result = {"request": "adapter", "driver": "liken.sh", "pool": NODE, "device": device}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"namespace": "default", "name": name},
        "spec": {"devices": {"requests": [{"name": "adapter", "exactly": {"deviceClassName": "serial"}}]}},
        "status": {"allocation": {"devices": {"results": [result]}}},
    }


class Reader:
    """Hardware as the mirror serves it: a fresh read in a worker thread, then the store."""

    def __init__(self, sysfs: Sysfs, store: Store) -> None:
        self._sysfs = sysfs
        self._store = store

    async def refresh(self, keys: Collection[DeviceKey]) -> Snapshot:
        """Read these entries anew."""
        found = await anyio.to_thread.run_sync(lambda: {key: self._sysfs.device(key) for key in keys})
        there = [facts for facts in found.values() if facts is not None]
        self._store.replace(there, gone=[key for key, facts in found.items() if facts is None])
        return self._store.snapshot

    async def reprobe(self, key: DeviceKey) -> str | None:
        """Nothing to bind here."""
        return f"{key} is made up"

    async def follow(self, folder: pathlib.Path) -> None:
        """Read an entry anew whenever the benchmark names it in `replugged`; the mirror would hear an event."""
        asked = folder / "replugged"
        while True:
            await anyio.sleep(REPLUG_POLL_S)
            if asked.exists():
                address = asked.read_text()
                asked.unlink()
                await self.refresh(
                    [key for key in self._store.snapshot.inventory.devices if key.address.startswith(address)]
                )


class KubeApi:
    """Claims from a real API client."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    async def get_claim(self, namespace: str, name: str) -> Json:
        """The claim as the server has it."""
        return await self._kube.get(paths.claim(namespace, name))


class SlowApi:
    """Claims after a while."""

    def __init__(self, claims: dict[str, Json], wait_s: float) -> None:
        self._claims = claims
        self._wait_s = wait_s

    async def get_claim(self, namespace: str, name: str) -> Json:  # noqa: ARG002 - all are in one
        """The claim, late."""
        await anyio.sleep(self._wait_s)
        return self._claims[name]


class Bare(dra.DraPluginBase):
    """Answers at once."""

    async def node_prepare_resources(
        self, message: dra.NodePrepareResourcesRequest
    ) -> dra.NodePrepareResourcesResponse:
        """One device for each claim."""
        device = dra.Device(
            request_names=["adapter"], pool_name=NODE, device_name="usb", cdi_device_ids=["liken.sh/device=x"]
        )
        return dra.NodePrepareResourcesResponse(
            claims={one.uid: dra.NodePrepareResourceResponse(devices=[device]) for one in message.claims}
        )

    async def node_unprepare_resources(
        self, message: dra.NodeUnprepareResourcesRequest
    ) -> dra.NodeUnprepareResourcesResponse:
        """Nothing to do."""
        return dra.NodeUnprepareResourcesResponse(
            claims={one.uid: dra.NodeUnprepareResourceResponse() for one in message.claims}
        )


def settings(folder: pathlib.Path) -> ClaimSettings:
    """Everything below one folder."""
    return ClaimSettings(
        node_name=NODE, cdi_dir=folder / "cdi", plugins_dir=folder / "p", registry_dir=folder / "r", boot_id="b"
    )


async def serve_api(folder: pathlib.Path) -> None:
    """The in-memory API server with the claims that `wanted.json` lists; tells their uids in `claims.json`."""
    async with ApiServer.serve() as server:
        made = {}
        server.kubeconfig(folder / "kubeconfig")
        async with Kube.connect(kubeconfig=folder / "kubeconfig") as kube:
            for name, device in json.loads((folder / "wanted.json").read_text()).items():
                wanted = claim(name, device)
                made[name] = server.put(wanted)["metadata"]["uid"]
                await kube.merge_patch(f"{paths.claim('default', name)}/status", {"status": wanted["status"]})
        (folder / "claims.json").write_text(json.dumps(made))
        (folder / "api.ready").touch()
        await anyio.sleep_forever()


async def serve_node(folder: pathlib.Path, role: str, wait_s: float) -> None:
    """The claims' part of the daemon on the tree in `sys`."""
    sysfs = Sysfs(folder / "sys")
    store = Store(IdsFiles.read(None))
    store.replace(sysfs.everything(), everything=True, complete=True)
    reader = Reader(sysfs, store)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(reader.follow, folder)
        if role == "slow":
            wanted = json.loads((folder / "wanted.json").read_text())
            uids = json.loads((folder / "claims.json").read_text())
            claims = {name: claim(name, device) for name, device in wanted.items()}
            for name, uid in uids.items():
                claims[name]["metadata"]["uid"] = uid
            await _claims(tasks, SlowApi(claims, wait_s), reader, store, folder)
            (folder / "slow.ready").touch()
            await anyio.sleep_forever()
        async with Kube.connect(kubeconfig=folder / "kubeconfig") as kube:
            await _claims(tasks, KubeApi(kube), reader, store, folder)
            (folder / "node.ready").touch()
            await anyio.sleep_forever()


async def _claims(
    tasks: anyio.abc.TaskGroup, api: KubeApi | SlowApi, reader: Reader, store: Store, folder: pathlib.Path
) -> None:
    service = Claims(api=api, hardware=reader, store=store, settings=settings(folder), metrics=Metrics())
    await tasks.start(service.run)


async def serve_bare(folder: pathlib.Path) -> None:
    """A grpclib server and nothing behind it."""
    await Endpoint(folder / "bare.sock", [Bare()]).open()
    (folder / "bare.ready").touch()
    await asyncio.Event().wait()


def main() -> None:
    """Serve one role until killed."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(30))
    role, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    uvloop = {"use_uvloop": True}
    if role == "api":
        anyio.run(serve_api, folder, backend_options=uvloop)
    elif role == "bare":
        anyio.run(serve_bare, folder, backend_options=uvloop)
    else:
        anyio.run(serve_node, folder, role, float(sys.argv[3]), backend_options=uvloop)


if __name__ == "__main__":
    main()
