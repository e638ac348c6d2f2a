"""The user's guide on a real node: its manifests word for word, its commands, and what they print."""

import json

import pytest

from tests.cluster.conftest import Node
from tests.cluster.manifests import GUIDE, PLAYER_GPU, TRANSCODER_GPU, ZIGBEE_TEMPLATE, claim, deployment, pod, pod_spec

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

GPU = "pci-0000-00-02-0"


def allocated(node: Node, name: str, namespace: str = "default") -> list[str]:
    allocation = node.cluster.get("resourceclaim", name, "-n", namespace)["status"].get("allocation", {})
    return [result["device"] for result in allocation.get("devices", {}).get("results", [])]


def test_every_manifest_of_the_guide_is_accepted_as_it_is_written(node: Node) -> None:
    for manifest in GUIDE:
        node.cluster.kubectl("apply", "--dry-run=server", "-f", "-", stdin=manifest)


def test_the_slice_shows_what_the_guide_shows(node: Node) -> None:
    node.cluster.until(lambda: GPU in node.offered(), "the GPU is published")
    item = node.cluster.get("resourceslice", "node-1-liken.sh")
    devices = {device["name"]: device for device in item["spec"]["devices"]}
    assert {GPU, f"{GPU}-display", f"{GPU}-i2c-dev", "pci-0000-00-1f-3"} <= devices.keys()
    assert devices[GPU]["allowMultipleAllocations"] is True
    assert devices[GPU]["attributes"]["renderNode"] == {"bool": True}
    assert devices[f"{GPU}-display"]["attributes"]["displayNode"] == {"bool": True}
    assert "allowMultipleAllocations" not in devices[f"{GPU}-display"]
    addresses = {devices[name]["attributes"]["address"]["string"] for name in devices if name.startswith(GPU)}
    assert addresses == {"0000:00:02.0"}
    assert item["metadata"]["ownerReferences"][0]["kind"] == "Node"


def test_the_machine_reports_the_hardware_it_cannot_drive(node: Node) -> None:
    command = ("get", "machine", "node-1", "-o", "jsonpath={.status.hardware.unclaimed}")
    assert isinstance(json.loads(node.cluster.until(lambda: node.cluster.kubectl(*command), "it reports")), list)


def test_a_deployment_that_recreates_gets_the_render_node_and_nothing_else_of_the_card(node: Node) -> None:
    node.cluster.apply(TRANSCODER_GPU)
    node.cluster.apply(deployment("transcoder", "media", pod_spec(claim="transcoder-gpu", entry="gpu")))
    node.cluster.kubectl("-n", "media", "rollout", "status", "deployment/transcoder", "--timeout=60s")
    shown = node.cluster.kubectl("exec", "-n", "media", "deploy/transcoder", "--", "ls", node.world.dri)
    assert shown.split() == ["renderD128"]
    node.cluster.kubectl("-n", "media", "set", "env", "deployment/transcoder", "A=B")
    node.cluster.kubectl("-n", "media", "rollout", "status", "deployment/transcoder", "--timeout=60s")
    node.cluster.kubectl("-n", "media", "delete", "deployment/transcoder", "--timeout=60s")
    node.cluster.kubectl("-n", "media", "delete", "-f", "-", stdin=TRANSCODER_GPU)


@pytest.mark.parametrize("attribute", ["liken.sh/address", "resource.kubernetes.io/pciBusID"])
def test_two_requests_of_one_card_are_paired_by(node: Node, attribute: str) -> None:
    body = json.loads(claim("pair", "gpu-render"))
    render = {"name": "render", "exactly": {"deviceClassName": "gpu-render"}}
    display = {"name": "display", "exactly": {"deviceClassName": "gpu-display"}}
    constraint = {"requests": ["render", "display"], "matchAttribute": attribute}
    body["spec"]["devices"] = {"requests": [render, display], "constraints": [constraint]}
    node.cluster.apply(json.dumps(body))
    node.cluster.apply(pod("pair", claim="pair"))
    node.running("pair")
    assert sorted(node.exec("pair", "ls", node.world.dri).split()) == ["card0", "renderD128"]
    assert sorted(allocated(node, "pair")) == [GPU, f"{GPU}-display"]
    node.gone("pair")
    node.cluster.kubectl("delete", "resourceclaim", "pair")


def test_a_player_gets_both_halves_and_a_second_display_claim_waits_until_the_first_ends(node: Node) -> None:
    node.cluster.apply(PLAYER_GPU)
    node.cluster.apply(pod("player", "media", claim="player-gpu"))
    node.running("player", "media")
    assert sorted(node.exec("player", "ls", node.world.dri, namespace="media").split()) == [
        "card0",
        "renderD128",
    ]
    node.cluster.apply(claim("second", "gpu-display", "media"))
    node.cluster.apply(pod("second", "media", claim="second"))
    node.cluster.until(lambda: "cannot allocate all claims" in node.events("second", "media"), "the second waits")
    assert node.phase("second", "media") == "Pending"
    node.gone("player", namespace="media")
    node.running("second", "media", 60)
    node.gone("second", namespace="media")
    node.cluster.kubectl("delete", "resourceclaim", "-n", "media", "--all")


def test_two_claims_on_a_render_node_run_together(node: Node) -> None:
    for name in ("one", "two"):
        node.cluster.apply(claim(name, "gpu-render"))
        node.cluster.apply(pod(name, claim=name))
    for name in ("one", "two"):
        node.running(name)
        assert node.exec(name, "ls", node.world.dri).split() == ["renderD128"]
        assert allocated(node, name) == [GPU]
    node.gone("one", "two")
    node.cluster.kubectl("delete", "resourceclaim", "one", "two")


def test_one_claim_named_by_two_pods_serves_both(node: Node) -> None:
    node.cluster.apply(claim("both", "gpu-display"))
    for name in ("left", "right"):
        node.cluster.apply(pod(name, claim="both"))
    for name in ("left", "right"):
        node.running(name)
        assert node.exec(name, "ls", node.world.dri).split() == ["card0"]
    node.gone("left", "right")
    node.cluster.kubectl("delete", "resourceclaim", "both")


def test_a_template_gives_two_of_three_pods_an_adapter_and_the_third_waits_for_a_release(node: Node) -> None:
    first, second = node.stick("1-2", 20), node.stick("1-3", 21)
    node.world.plug(first)
    node.world.plug(second)
    node.cluster.until(lambda: {first.name, second.name} <= node.offered(), "both adapters are published")
    node.cluster.apply(ZIGBEE_TEMPLATE)
    pods = ("z1", "z2", "z3")
    for name in pods:
        node.cluster.apply(pod(name, "home", template="zigbee"))
    running = node.cluster.until(
        lambda: found if len(found := [p for p in pods if node.phase(p, "home") == "Running"]) == 2 else None,
        "two pods run",
        60,
    )
    (waiting,) = set(pods) - set(running)
    assert node.phase(waiting, "home") == "Pending"
    holders = node.cluster.kubectl("get", "resourceclaims", "-A", "-o", "wide")
    assert holders.count("allocated,reserved") == 2
    nodes = {node.exec(name, "ls", "/dev", namespace="home") for name in running}
    assert len(nodes) == 2
    node.gone(running[0], namespace="home")
    node.running(waiting, "home", 60)
    node.gone(*pods, namespace="home")
    node.world.unplug(first)
    node.world.unplug(second)
    node.cluster.until(lambda: not {first.name, second.name} & node.offered(), "both are gone")


def test_a_container_may_open_its_own_node_and_no_other(node: Node) -> None:
    node.cluster.apply(claim("own", "gpu-render"))
    node.cluster.apply(pod("own", claim="own"))
    node.running("own")
    stat = node.exec("own", "stat", "-c", "%t:%T", f"{node.world.dri}/renderD128").strip()
    major, minor = (int(part, 16) for part in stat.split(":"))
    nodes = (("/dev/x", minor + 1), ("/dev/y", minor))
    tries = [f"mknod {path} c {major} {number}; dd if={path} of=/dev/null count=0" for path, number in nodes]
    script = f"exec 2>&1; {'; '.join(tries)}"
    said = node.cluster.kubectl("exec", "own", "--", "sh", "-c", script, check=False)
    assert "can't open '/dev/x': Operation not permitted" in said
    assert "can't open '/dev/y': Operation not permitted" not in said
    node.gone("own")
    node.cluster.kubectl("delete", "resourceclaim", "own")


class TestWhenAClaimDoesNotSchedule:
    """The guide's last section, followed as a person would: each diagnosis is true."""

    def test_a_device_that_is_not_published_is_not_in_the_slices(self, node: Node) -> None:
        node.cluster.apply(claim("absent", "zigbee-adapter"))
        node.cluster.apply(pod("absent", claim="absent"))
        node.cluster.until(lambda: "cannot allocate all claims" in node.events("absent"), "the pod waits")
        assert "10c4" not in node.cluster.kubectl("get", "resourceslices", "-o", "yaml")
        stick = node.stick("1-5", 25)
        node.world.plug(stick)
        node.running("absent", limit_s=60)
        node.gone("absent")
        node.cluster.kubectl("delete", "resourceclaim", "absent")
        node.world.unplug(stick)

    def test_an_unguarded_read_aborts_the_allocation(self, node: Node) -> None:
        unguarded = 'device.attributes["liken.sh"].displayNode'
        body = json.loads(claim("unguarded", "gpu-render"))
        bare = json.dumps({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "bare"},
                           "spec": {"selectors": [{"cel": {"expression": unguarded}}]}})  # fmt: skip
        node.cluster.apply(bare)
        body["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] = "bare"
        node.cluster.apply(json.dumps(body))
        node.cluster.apply(pod("unguarded", claim="unguarded"))
        node.cluster.until(lambda: "no such key: displayNode" in node.events("unguarded"), "the error is told")
        assert node.phase("unguarded") == "Pending"
        node.gone("unguarded")
        node.cluster.kubectl("delete", "resourceclaim", "unguarded")
        node.cluster.kubectl("delete", "deviceclass", "bare")

    def test_the_holder_is_found_with_the_guides_command(self, node: Node) -> None:
        node.cluster.apply(claim("holder", "gpu-display"))
        node.cluster.apply(pod("holder", claim="holder"))
        node.running("holder")
        line = next(
            line
            for line in node.cluster.kubectl("get", "resourceclaims", "-A", "-o", "wide").splitlines()
            if " holder " in line
        )
        assert "allocated,reserved" in line
        node.gone("holder")
        node.cluster.kubectl("delete", "resourceclaim", "holder")
