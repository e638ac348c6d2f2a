"""What a fleet goes through: replugs, restarts, reboots and outages, on a real node."""

import json
import os
import pathlib
import shutil
import time

import pytest

from tests.cluster.conftest import Node
from tests.cluster.daemon import Liken
from tests.cluster.manifests import claim, pod
from tests.cluster.node import NODE
from tests.cluster.world import Stick

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]


def plugged(node: Node, port: str, tty: int) -> Stick:
    stick = node.stick(port, tty)
    node.world.plug(stick)
    node.cluster.until(lambda: stick.name in node.offered(), f"{stick.name} is published")
    return stick


def replugged(node: Node, stick: Stick, tty: int) -> Stick:
    node.world.unplug(stick)
    node.cluster.until(lambda: stick.name not in node.offered(), f"{stick.name} left")
    return plugged(node, stick.port, tty)


def started(node: Node, name: str, device_class: str = "zigbee-adapter") -> None:
    node.cluster.apply(claim(name, device_class))
    node.cluster.apply(pod(name, claim=name))
    node.running(name)


def ended(node: Node, *names: str) -> None:
    node.gone(*names)
    node.cluster.kubectl("delete", "resourceclaim", "--ignore-not-found", *names)


def numbers(node: Node, name: str, path: str) -> str:
    return node.exec(name, "stat", "-c", "%t:%T", path).strip()


def host_numbers(path: str) -> str:
    found = pathlib.Path(path).stat().st_rdev
    return f"{os.major(found):x}:{os.minor(found):x}"


def test_a_container_restart_after_a_replug_receives_the_new_node(node: Node) -> None:
    stick = plugged(node, "1-6", 40)
    started(node, "replug")
    assert numbers(node, "replug", stick.node) == host_numbers(stick.node)
    moved = replugged(node, stick, 41)
    node.restart_container("replug")
    node.cluster.until(lambda: moved.node[5:] in node.exec("replug", "ls", "/dev"), "the new node is there", 40)
    assert numbers(node, "replug", moved.node) == host_numbers(moved.node)
    assert stick.node[5:] not in node.exec("replug", "ls", "/dev")
    ended(node, "replug")
    node.world.unplug(moved)


def test_a_replug_under_the_same_path_still_gives_the_new_numbers(node: Node) -> None:
    stick = plugged(node, "1-6", 42)
    started(node, "samepath")
    old = numbers(node, "samepath", stick.node)
    again = replugged(node, stick, 42)
    assert host_numbers(again.node) != old
    node.restart_container("samepath")
    node.cluster.until(lambda: numbers(node, "samepath", again.node) == host_numbers(again.node), "new numbers", 40)
    ended(node, "samepath")
    node.world.unplug(again)


def test_a_container_that_starts_after_the_unplug_fails_with_the_devices_name_and_starts_when_it_is_back(
    node: Node,
) -> None:
    stick = plugged(node, "1-6", 43)
    started(node, "unplugged")
    node.world.unplug(stick)
    node.cluster.until(lambda: stick.name not in node.offered(), "it left the slice")
    node.restart_container("unplugged")
    node.cluster.until(lambda: f"/dev/liken-gone-{stick.name}" in node.events("unplugged"), "the device is named", 60)
    again = plugged(node, "1-6", 44)
    node.cluster.until(lambda: again.node[5:] in node.exec("unplugged", "ls", "/dev"), "it runs again", 90)
    ended(node, "unplugged")
    node.world.unplug(again)


def health(node: Node, name: str) -> list[dict[str, str]]:
    statuses = node.cluster.get("pod", name)["status"]["containerStatuses"]
    return [
        found
        for status in statuses
        for each in status.get("allocatedResourcesStatus", [])
        for found in each["resources"]
    ]


def test_the_health_of_a_replugged_device_is_in_the_pods_status(node: Node) -> None:
    stick = plugged(node, "1-6", 45)
    started(node, "health")
    node.cluster.until(lambda: [h["health"] for h in health(node, "health")] == ["Healthy"], "it is healthy")
    node.world.unplug(stick)
    node.cluster.until(lambda: "unplugged at" in json.dumps(health(node, "health")), "the unplug is told")
    again = plugged(node, "1-6", 46)
    node.cluster.until(
        lambda: "restart the pod to receive it" in json.dumps(health(node, "health")), "the replug is told"
    )
    assert [found["health"] for found in health(node, "health")] == ["Unhealthy"]
    ended(node, "health")
    node.world.unplug(again)


def test_a_killed_kubelet_wipes_the_slices_and_they_are_back_within_two_seconds(node: Node) -> None:
    node.cluster.until(lambda: "pci-0000-00-02-0" in node.offered(), "published")
    before = node.cluster.get("resourceslice", "node-1-liken.sh")["metadata"]["uid"]
    node.cluster.kill("kubelet")
    node.cluster.start_kubelet()
    wiped = time.monotonic()

    def anew() -> bool:
        nonlocal wiped
        found = [item for item in node.cluster.get("resourceslices")["items"] if item["metadata"]["uid"] != before]
        if not found:
            gone = not node.cluster.get("resourceslices")["items"]
            wiped = time.monotonic() if not gone and not found else wiped
        return bool(found)

    node.cluster.until(anew, "the slice is there again", 60)
    assert time.monotonic() - wiped < 2.5
    started(node, "afterkubelet", "gpu-render")
    ended(node, "afterkubelet")


def test_a_restart_of_the_daemon_disturbs_no_running_pod_and_writes_nothing(node: Node) -> None:
    started(node, "steady", "gpu-render")
    before = node.cluster.get("resourceslice", "node-1-liken.sh")["metadata"]["resourceVersion"]
    uid = node.cluster.get("pod", "steady")["metadata"]["uid"]
    node.liken.stop()
    assert node.cluster.get("resourceslice", "node-1-liken.sh")["metadata"]["resourceVersion"] == before
    node.liken.start()
    started(node, "after", "gpu-render")
    assert node.cluster.get("resourceslice", "node-1-liken.sh")["metadata"]["resourceVersion"] == before
    found = node.cluster.get("pod", "steady")
    assert found["metadata"]["uid"] == uid
    assert found["status"]["containerStatuses"][0]["restartCount"] == 0
    ended(node, "steady", "after")


def test_a_killed_daemon_comes_back_and_pods_that_ended_meanwhile_are_let_go(node: Node) -> None:
    started(node, "ending", "gpu-render")
    node.liken.kill()
    node.cluster.kubectl("delete", "pod", "ending", "--wait=false")
    time.sleep(3)
    assert node.cluster.get("pod", "ending")["metadata"]["deletionTimestamp"]
    node.liken.start()
    node.cluster.until(lambda: not node.cluster.get("pods")["items"], "the pod is gone", 60)
    assert not list(node.cluster.cdi.glob("liken.sh-*"))
    ended(node, "ending")


def test_a_rolling_update_of_two_instances_loses_no_slice_and_no_claim(node: Node) -> None:
    started(node, "rolling", "gpu-render")
    uid = node.cluster.get("resourceslice", "node-1-liken.sh")["metadata"]["uid"]
    newer = Liken(node.cluster, node.world.sys, "--pod-uid=11111111-1111-4111-8111-111111111111")
    newer.log = node.cluster.root / "newer.log"
    newer.start()
    newer.said("liken.serving")
    node.cluster.until(lambda: list(node.cluster.registry.glob("*11111111*")), "the newer instance registers")
    node.liken.stop()
    started(node, "during", "gpu-render")
    ended(node, "rolling")
    node.liken.start()
    node.liken.said("liken.serving")
    newer.stop()
    started(node, "last", "gpu-render")
    assert node.cluster.get("resourceslice", "node-1-liken.sh")["metadata"]["uid"] == uid
    ended(node, "during", "last")
    assert not list(node.cluster.cdi.glob("liken.sh-*"))


def test_hardware_follows_while_the_api_server_is_away_and_one_write_catches_up(node: Node) -> None:
    node.cluster.until(lambda: "pci-0000-00-02-0" in node.offered(), "published")
    node.cluster.end("kube-apiserver")
    sticks = [node.stick("1-6", 50), node.stick("1-7", 51)]
    for _ in range(3):
        for stick in sticks:
            node.world.plug(stick)
        time.sleep(0.3)
        for stick in sticks:
            node.world.unplug(stick)
        time.sleep(0.3)
    node.world.plug(sticks[0])
    time.sleep(60)
    node.cluster.start_api_server()
    node.cluster.until(lambda: sticks[0].name in node.offered(), "the newest state is published", 90)
    assert sticks[1].name not in node.offered()
    node.world.unplug(sticks[0])
    node.cluster.until(lambda: sticks[0].name not in node.offered(), "and follows again", 60)


def test_slices_that_somebody_deletes_are_back_within_a_second(node: Node) -> None:
    before = node.cluster.get("resourceslice", "node-1-liken.sh")["metadata"]["uid"]
    node.cluster.kubectl("delete", "resourceslices", "--all")
    began = time.monotonic()
    node.cluster.until(
        lambda: node.cluster.get("resourceslice", "node-1-liken.sh")["metadata"]["uid"] != before, "it is back", 10
    )
    assert time.monotonic() - began < 2.0  # a second, and what kubectl itself takes


def test_after_a_reboot_a_claim_gets_the_live_nodes(node: Node) -> None:
    stick = plugged(node, "1-6", 60)
    started(node, "reboot")
    node.liken.kill()
    node.cluster.kill("kubelet")
    for sandbox in node.cluster.ctr("tasks", "ls", "-q").stdout.split():
        node.cluster.ctr("tasks", "kill", "-s", "SIGKILL", sandbox)
    shutil.rmtree(node.cluster.cdi)
    node.cluster.cdi.mkdir()
    node.world.unplug(stick)
    moved = node.stick("1-6", 61)
    node.world.plug(moved)
    node.liken.start(registered=False, boot_id="5c1e7e0a-8f0e-4d0c-9a55-3f2f0d8a1b17")
    node.cluster.start_kubelet()
    node.cluster.until(lambda: moved.node[5:] in node.exec("reboot", "ls", "/dev"), "the live node is there", 120)
    assert numbers(node, "reboot", moved.node) == host_numbers(moved.node)
    ended(node, "reboot")
    machine = node.cluster.get("machine", NODE)
    assert machine["status"]["bootID"] == "5c1e7e0a-8f0e-4d0c-9a55-3f2f0d8a1b17"
    node.liken.stop()
    node.liken.start()
    node.world.unplug(moved)


def test_a_device_that_vanishes_under_a_claim_evicts_its_pod_when_that_is_on(node: Node) -> None:
    node.liken.stop()
    tainting = Liken(node.cluster, node.world.sys, "--taint-gone")
    tainting.start()
    try:
        stick = plugged(node, "1-6", 70)
        started(node, "evicted")
        node.world.unplug(stick)
        node.cluster.until(lambda: "DeviceTaintManagerEviction" in node.events("evicted"), "the pod is evicted", 30)
        node.gone("evicted")
        node.cluster.until(lambda: stick.name not in node.offered(), "the device leaves with its claim", 30)
        ended(node, "evicted")
    finally:
        tainting.stop()
        node.liken.start()
        node.liken.said("liken.serving")


def test_foreign_files_in_the_cdi_folder_are_never_touched(node: Node) -> None:
    foreign = pathlib.Path(node.cluster.cdi) / "vendor.example-device.json"
    foreign.write_text('{"cdiVersion": "0.6.0", "kind": "vendor.example/device", "devices": []}')
    stamp = foreign.stat().st_mtime_ns
    started(node, "foreign", "gpu-render")
    ended(node, "foreign")
    assert foreign.stat().st_mtime_ns == stamp
    foreign.unlink()
