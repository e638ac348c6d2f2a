"""The in-memory API server as the real kubectl sees it."""

import json
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import anyio
import pytest

from liken.demo.apiserver import ApiServer
from tests.kubectl import program

pytestmark = pytest.mark.anyio

SLICE = """
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: node-a-liken.sh}
spec:
  driver: liken.sh
  nodeName: node-a
  pool: {name: node-a, generation: 1, resourceSliceCount: 1}
  devices: [{name: usb-1-1-1-0, attributes: {bus: {string: usb}}}]
"""

DEFINITION = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.test}
spec:
  group: example.test
  scope: Cluster
  names: {plural: things, kind: Thing, shortNames: [th]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    additionalPrinterColumns: [{name: Size, type: integer, jsonPath: .spec.size}]
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}}}}}}
"""

THING = """
apiVersion: example.test/v1
kind: Thing
metadata: {name: one}
spec: {size: 3}
"""


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return "asyncio", {"use_uvloop": True}


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with ApiServer.serve() as found:
        yield found


class Kubectl:
    def __init__(self, server: ApiServer, folder: Path) -> None:
        kubeconfig = server.kubeconfig(folder / "kubeconfig")
        self.base = [program(), "--kubeconfig", str(kubeconfig), "--cache-dir", str(folder / "cache")]

    async def __call__(self, *arguments: str, text: str = "", code: int = 0) -> str:
        def run() -> subprocess.CompletedProcess[str]:
            command = [*self.base, *arguments]
            return subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=30)

        done = await anyio.to_thread.run_sync(run)
        assert done.returncode == code, done.stderr
        return done.stdout if code == 0 else done.stderr


@pytest.fixture
def kubectl(server: ApiServer, tmp_path: Path) -> Kubectl:
    return Kubectl(server, tmp_path)


async def test_slices_are_applied_shown_patched_and_deleted(kubectl: Kubectl) -> None:
    assert "created" in await kubectl("apply", "-f", "-", text=SLICE)
    assert "unchanged" in await kubectl("apply", "-f", "-", text=SLICE)
    assert "configured" in await kubectl("apply", "-f", "-", text=SLICE.replace("string: usb", "string: pci"))
    header, row = (await kubectl("get", "resourceslices")).splitlines()
    assert header.split() == ["NAME", "NODE", "DRIVER", "POOL", "AGE"]
    assert row.split()[:4] == ["node-a-liken.sh", "node-a", "liken.sh", "node-a"]
    assert "Node Name:" in await kubectl("describe", "resourceslice", "node-a-liken.sh")
    patch = json.dumps([{"op": "replace", "path": "/spec/pool/generation", "value": 7}])
    await kubectl("patch", "resourceslice", "node-a-liken.sh", "--type=json", "-p", patch)
    path = "-o=jsonpath={.spec.pool.generation}"
    assert await kubectl("get", "resourceslice", "node-a-liken.sh", path) == "7"
    wait = "--for=jsonpath={.spec.pool.generation}=7"
    await kubectl("wait", wait, "resourceslice/node-a-liken.sh", "--timeout=5s")
    assert "AlreadyExists" in await kubectl("create", "-f", "-", text=SLICE, code=1)
    await kubectl("delete", "resourceslice", "node-a-liken.sh")
    assert "NotFound" in await kubectl("get", "resourceslice", "node-a-liken.sh", code=1)


async def test_a_typing_error_is_caught_by_strict_validation(kubectl: Kubectl) -> None:
    said = await kubectl("apply", "-f", "-", text=SLICE.replace("devices:", "devises:"), code=1)
    assert 'unknown field "spec.devises"' in said


async def test_a_server_side_apply_and_a_dry_run(kubectl: Kubectl, server: ApiServer) -> None:
    await kubectl("apply", "--server-side", "--dry-run=server", "-f", "-", text=SLICE)
    assert server.items("resourceslices") == []
    await kubectl("apply", "--server-side", "-f", "-", text=SLICE)
    await kubectl("apply", "--server-side", "-f", "-", text=SLICE)
    assert len(server.items("resourceslices")) == 1


async def test_custom_resources_come_and_go_with_their_definition(kubectl: Kubectl) -> None:
    await kubectl("apply", "-f", "-", text=DEFINITION)
    await kubectl("wait", "--for=condition=established", "crd/things.example.test", "--timeout=5s")
    await kubectl("apply", "-f", "-", text=THING)
    header, row = (await kubectl("get", "th")).splitlines()
    assert (header.split(), row.split()[:2]) == (["NAME", "SIZE", "AGE"], ["one", "3"])
    await kubectl("delete", "crd", "things.example.test")
    assert "could not find the requested resource" in await kubectl("get", "things", code=1)


async def test_a_live_view_shows_each_change(kubectl: Kubectl, server: ApiServer) -> None:
    await kubectl("apply", "-f", "-", text=SLICE)
    command = [*kubectl.base, "get", "resourceslices", "-w", "-o", "name"]
    shown = bytearray()

    async def until(true: Callable[[int], bool]) -> None:
        with anyio.fail_after(10):
            while not true(shown.count(b"node-a-liken.sh")):
                shown.extend(await stdout.receive())

    async with await anyio.open_process(command) as process:
        assert process.stdout is not None
        stdout = process.stdout
        await until(lambda lines: lines >= 1)
        (item,) = server.items("resourceslices")
        item["spec"]["pool"]["generation"] = 2
        server.put(item)
        await until(lambda lines: lines >= 2)
        server.remove("resourceslices", "node-a-liken.sh")
        await until(lambda lines: lines >= 3)
        process.terminate()


async def test_rights_events_and_versions_are_told(kubectl: Kubectl, server: ApiServer) -> None:
    about = {"apiVersion": "v1", "kind": "Node", "name": "node-a"}
    metadata = {"name": "e.1", "namespace": "default"}
    event = {"apiVersion": "v1", "kind": "Event", "metadata": metadata, "involvedObject": about}
    server.put({**event, "reason": "FieldDropped", "message": "words", "type": "Warning"})
    assert "FieldDropped" in await kubectl("get", "events")
    assert "resourceslices" in await kubectl("api-resources")
    assert "v1.37.2" in await kubectl("version")
