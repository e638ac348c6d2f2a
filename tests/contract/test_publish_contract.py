"""Publishing end to end: the daemon's publisher against the in-memory and the real API server, over real sockets."""

import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import anyio
import pytest

from liken.kube import paths
from liken.kube.events import EventRecorder
from liken.metrics import Metrics
from liken.model.api import Json, WatchKind
from liken.publish.publisher import Publisher
from tests.contract.conftest import Server
from tests.contract.control_plane import ControlPlane
from tests.kubectl import kubectl
from tests.unit.fakes_publish import Shelf, offer

pytestmark = pytest.mark.anyio

PATIENCE_S = 30.0


class Bench:
    def __init__(self, server: Server) -> None:
        self.server = server
        self.kube = server.kube
        self.shelf = Shelf()
        self.metrics = Metrics()
        self.recorder = EventRecorder(server.kube, node_name=server.node)
        self.publisher = Publisher(
            api=server.kube, store=self.shelf, node_name=server.node, metrics=self.metrics, recorder=self.recorder
        )

    async def slices(self) -> list[Json]:
        selector = f"spec.nodeName={self.server.node}"
        listing = await self.kube.list(paths.slices(), field_selector=selector)
        items: list[Json] = listing["items"]
        return items

    async def names(self) -> list[str]:
        return sorted(found["name"] for item in await self.slices() for found in item["spec"].get("devices") or ())

    async def until(self, true: Callable[[list[Json]], bool], limit_s: float = PATIENCE_S) -> list[Json]:
        with anyio.fail_after(limit_s):
            while not true(items := await self.slices()):
                await anyio.sleep(0.01)
        return items

    async def published(self) -> None:
        with anyio.fail_after(PATIENCE_S):
            while self.publisher.revision < self.shelf.snapshot.revision:
                await anyio.sleep(0.01)


@pytest.fixture
async def bench(server: Server) -> AsyncIterator[Bench]:
    await server.kube.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": server.node}})
    found = Bench(server)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(found.publisher.run)
        tasks.start_soon(found.recorder.run)
        yield found
        tasks.cancel_scope.cancel()
    await found.publisher.withdraw()


async def test_a_change_of_the_store_becomes_one_patch(bench: Bench) -> None:
    bench.shelf.offer(*(offer(f"usb-1-{number}-1-0") for number in range(100)))
    await bench.published()
    (before,) = await bench.slices()
    events = bench.kube.watch(
        paths.slices(),
        field_selector=f"spec.nodeName={bench.server.node}",
        resource_version=before["metadata"]["resourceVersion"],
    )
    async with contextlib.aclosing(events):
        bench.shelf.offer(*(offer(f"usb-1-{number}-1-0") for number in range(101)), changed_at=anyio.current_time())
        await bench.published()
        with anyio.fail_after(PATIENCE_S):
            seen = [await anext(events)]
        with anyio.move_on_after(0.3):
            seen += [event async for event in events if event.kind is not WatchKind.BOOKMARK]
    assert [event.kind for event in seen] == [WatchKind.MODIFIED]
    assert len(seen[0].item["spec"]["devices"]) == 101
    assert bench.metrics.registry.get_sample_value("liken_event_to_patch_seconds_count") == 1
    assert seen[0].item["metadata"]["ownerReferences"][0]["uid"]


async def test_a_deleted_slice_is_back_within_a_second(bench: Bench) -> None:
    bench.shelf.offer(offer("usb-1-1-1-0"))
    await bench.published()
    (before,) = await bench.slices()
    await bench.kube.delete(paths.slice(bench.server.slice_name))
    after = await bench.until(bool, limit_s=1.0)
    assert after[0]["metadata"]["uid"] != before["metadata"]["uid"]
    assert after[0]["spec"]["devices"] == before["spec"]["devices"]


async def test_an_edited_slice_is_put_right(bench: Bench) -> None:
    bench.shelf.offer(offer("usb-1-1-1-0"))
    await bench.published()
    (before,) = await bench.slices()
    await bench.kube.merge_patch(paths.slice(bench.server.slice_name), {"spec": {"devices": []}})
    await bench.until(lambda items: items[0]["spec"].get("devices") == before["spec"]["devices"], limit_s=2.0)


async def test_an_empty_machine_has_an_empty_slice(bench: Bench) -> None:
    bench.shelf.offer()
    items = await bench.until(bool)
    assert not items[0]["spec"].get("devices")
    await bench.published()
    assert bench.publisher.published


async def test_a_pool_of_several_slices_is_whole(bench: Bench) -> None:
    bench.shelf.offer(*(offer(f"usb-1-{number}-1-0") for number in range(257)))
    await bench.published()
    items = await bench.slices()
    assert [item["spec"]["pool"]["resourceSliceCount"] for item in items] == [3, 3, 3]
    assert len({item["spec"]["pool"]["generation"] for item in items}) == 1
    assert len(set(await bench.names())) == 257


async def test_a_refused_device_is_held_back_and_the_rest_published(bench: Bench) -> None:
    bench.shelf.offer(offer("usb-1-1-1-0"), offer("usb-1-2-1-0", serial="x" * 65), offer("usb-1-3-1-0"))
    await bench.published()
    assert await bench.names() == ["usb-1-1-1-0", "usb-1-3-1-0"]
    assert bench.publisher.held_back == {"usb-1-2-1-0"}
    await _event(bench, "DeviceRefused")


async def test_a_dropped_field_is_noticed_once_and_not_fought(bench: Bench) -> None:
    bench.shelf.offer(offer("pci-0000-00-02-0", shareable=True))
    await bench.published()
    await anyio.sleep(1.0)
    (item,) = await bench.slices()
    assert item["metadata"]["generation"] == 1
    if bench.server.drops:
        event = await _event(bench, "FieldDropped")
        assert "DRAConsumableCapacity" in event["message"]
        assert event["count"] == 1
    else:
        assert item["spec"]["devices"][0]["allowMultipleAllocations"] is True


async def test_withdrawing_removes_every_slice(server: Server) -> None:
    await server.kube.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": server.node}})
    bench = Bench(server)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(bench.publisher.run)
        bench.shelf.offer(*(offer(f"usb-1-{number}-1-0") for number in range(200)))
        await bench.published()
        tasks.cancel_scope.cancel()
    assert len(await bench.slices()) == 2
    assert await bench.publisher.withdraw() == 2
    assert await bench.slices() == []


async def _event(bench: Bench, reason: str) -> Json:
    selector = f"involvedObject.name={bench.server.node},reason={reason}"
    with anyio.fail_after(PATIENCE_S):
        while True:
            found = await bench.kube.list(paths.events("default"), field_selector=selector)
            if found["items"]:
                item: Json = found["items"][0]
                return item
            await anyio.sleep(0.05)


@pytest.mark.contract
@pytest.mark.timeout(180)
async def test_a_restarted_api_server_is_found_again(tmp_path: Path, control_plane: ControlPlane) -> None:
    from liken.kube.client import Kube  # noqa: PLC0415

    with ControlPlane(tmp_path / "own", control_plane.assets) as plane:
        async with Kube.connect(kubeconfig=plane.kubeconfig) as kube:
            server = Server(kube=kube, kubeconfig=plane.kubeconfig, node="node-a", minor=0)
            await kube.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-a"}})
            bench = Bench(server)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(bench.publisher.run)
                bench.shelf.offer(offer("usb-1-1-1-0"))
                await bench.published()
                await anyio.to_thread.run_sync(plane.end, "kube-apiserver")
                for number in range(20):
                    bench.shelf.offer(offer(f"usb-1-{number}-1-0"))
                await anyio.sleep(0.5)
                assert not bench.publisher.published
                await anyio.to_thread.run_sync(plane.start_api_server)
                with anyio.fail_after(90):
                    await bench.published()
                (item,) = await bench.slices()
                assert [found["name"] for found in item["spec"]["devices"]] == ["usb-1-19-1-0"]
                assert item["metadata"]["generation"] == 2
                tasks.cancel_scope.cancel()


@pytest.mark.parametrize("command", [["get", "resourceslices"], ["get", "resourceslices", "-o", "yaml"]])
async def test_kubectl_reads_what_is_published(bench: Bench, command: list[str]) -> None:
    bench.shelf.offer(offer("usb-1-1-1-0"))
    await bench.published()
    assert bench.server.slice_name in await kubectl(bench.server.kubeconfig, *command)
