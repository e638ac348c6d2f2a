"""The oldest supported minor, with its features as they are by default: no sharing between claims, no taints."""

import pathlib
import time
from collections.abc import Iterator

import pytest

from tests.cluster.conftest import Node, started_node
from tests.cluster.manifests import claim, pod

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

GPU = "pci-0000-00-02-0"


@pytest.fixture(scope="module")
def oldest(oldest_assets: pathlib.Path) -> Iterator[Node]:
    """A cluster of its own, which lives as long as this module's tests."""
    yield from started_node(oldest_assets)


@pytest.fixture
def node(oldest: Node) -> Iterator[Node]:
    yield oldest
    oldest.restore()


def test_a_field_the_server_drops_is_said_once_and_never_written_again(node: Node) -> None:
    node.cluster.until(lambda: GPU in node.offered(), "the GPU is published")
    item = node.cluster.get("resourceslice", "node-1-liken.sh")
    device = next(each for each in item["spec"]["devices"] if each["name"] == GPU)
    assert "allowMultipleAllocations" not in device
    time.sleep(5)
    again = node.cluster.get("resourceslice", "node-1-liken.sh")
    assert again["metadata"]["resourceVersion"] == item["metadata"]["resourceVersion"]
    assert "DRAConsumableCapacity" in node.liken.log.read_text()


def test_a_claimed_device_is_in_its_container(node: Node) -> None:
    node.cluster.apply(claim("old", "gpu-render"))
    node.cluster.apply(pod("old", claim="old"))
    node.running("old")
    assert node.exec("old", "ls", node.world.dri).split() == ["renderD128"]
    node.gone("old")
    assert not list(node.cluster.cdi.glob("liken.sh-*"))


def test_without_the_gate_a_second_claim_on_a_render_node_waits_for_the_first(node: Node) -> None:
    for name in ("one", "two"):
        node.cluster.apply(claim(name, "gpu-render"))
        node.cluster.apply(pod(name, claim=name))
    running = node.cluster.until(
        lambda: next((name for name in ("one", "two") if node.phase(name) == "Running"), None), "one runs", 40
    )
    waiting = "two" if running == "one" else "one"
    node.cluster.until(lambda: "cannot allocate all claims" in node.events(waiting), "the other waits")
    node.gone(running)
    node.running(waiting, limit_s=60)


def test_a_container_restart_after_a_replug_receives_the_new_node(node: Node) -> None:
    stick = node.stick("1-6", 90)
    node.world.plug(stick)
    node.cluster.until(lambda: stick.name in node.offered(), "it is published")
    node.cluster.apply(claim("replug", "zigbee-adapter"))
    node.cluster.apply(pod("replug", claim="replug"))
    node.running("replug")
    node.world.unplug(stick)
    node.cluster.until(lambda: stick.name not in node.offered(), "it left")
    moved = node.stick("1-6", 91)
    node.world.plug(moved)
    node.cluster.until(lambda: moved.name in node.offered(), "it is back")
    node.restart_container("replug")
    node.cluster.until(lambda: moved.node[5:] in node.exec("replug", "ls", "/dev"), "the new node is there", 40)


def test_a_killed_kubelet_wipes_the_slices_and_they_come_back(node: Node) -> None:
    node.cluster.until(lambda: GPU in node.offered(), "published")
    before = node.cluster.get("resourceslice", "node-1-liken.sh")["metadata"]["uid"]
    node.cluster.kill("kubelet")
    node.cluster.start_kubelet()
    node.cluster.until(
        lambda: node.cluster.get("resourceslice", "node-1-liken.sh")["metadata"]["uid"] != before, "they are back", 60
    )
