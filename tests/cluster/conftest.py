"""One real cluster for a session of tests, with the test node's hardware and the daemon on it."""

import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.daemon import Liken
from tests.cluster.images import BUSYBOX
from tests.cluster.manifests import CLASSES
from tests.cluster.network import private_network
from tests.cluster.node import NEEDED, Cluster
from tests.cluster.world import Stick, World


def _missing(assets: pathlib.Path) -> str:
    if os.geteuid() != 0:
        return "a real node needs root"
    if absent := [name for name in NEEDED if not (assets / name).exists()]:
        return f"KUBEBUILDER_ASSETS={assets} lacks {', '.join(absent)} (CONTRIBUTING.md says how to get them)"
    if shutil.which("runc") is None or not BUSYBOX.exists():
        return "runc or busybox is not installed (packages runc, busybox-static)"
    return ""


CRD = pathlib.Path(__file__).parents[2] / "container/crd/machines.liken.sh.yaml"


class Node:
    """What a test is given: the cluster, its hardware and the daemon."""

    def __init__(self, cluster: Cluster, world: World, liken: Liken) -> None:
        self.cluster, self.world, self.liken = cluster, world, liken
        self.devnum = 10

    def stick(self, port: str, tty: int, serial: str = "0001") -> Stick:
        """An adapter that is new to the bus."""
        self.devnum += 1
        return Stick(port=port, serial=serial, devnum=self.devnum, tty=tty, prefix=self.world.prefix)

    def offered(self) -> set[str]:
        """Names of the devices in the slices."""
        slices = self.cluster.get("resourceslices")["items"]
        return {device["name"] for item in slices for device in item["spec"].get("devices") or []}

    def phase(self, pod: str, namespace: str = "default") -> str:
        """A pod's phase."""
        return str(self.cluster.get("pod", pod, "-n", namespace)["status"].get("phase"))

    def running(self, pod: str, namespace: str = "default", limit_s: float = 40.0) -> None:
        """Wait until a pod runs; its events are the message when it does not."""
        try:
            self.cluster.until(lambda: self.phase(pod, namespace) == "Running", f"{pod} runs", limit_s)
        except AssertionError as error:
            told = self.cluster.kubectl("describe", "pod", pod, "-n", namespace, check=False)[-3000:]
            raise AssertionError(f"{error}\n{told}\n{self.liken.tail()}") from None

    def gone(self, *pods: str, namespace: str = "default") -> None:
        """Delete pods and wait until they are gone."""
        self.cluster.kubectl("delete", "pod", "-n", namespace, "--ignore-not-found", "--timeout=60s", *pods)

    def restart_container(self, pod: str) -> None:
        """Kill a pod's container, and wait until the kubelet makes it anew."""

        def status() -> dict[str, Any]:
            found: dict[str, Any] = self.cluster.get("pod", pod)["status"]["containerStatuses"][0]
            return found

        before = status()["containerID"]
        self.cluster.ctr("tasks", "kill", "-s", "SIGKILL", before.removeprefix("containerd://"))
        self.cluster.until(
            lambda: status()["containerID"] != before or status()["state"].get("waiting"),
            "the container is made anew",
            40,
        )

    def exec(self, pod: str, *command: str, namespace: str = "default") -> str:
        """What a command in a pod prints."""
        return self.cluster.kubectl("exec", "-n", namespace, pod, "--", *command)

    def restore(self) -> None:
        """Whatever a test left or ended: every program runs, no pod, no claim, no adapter."""
        if not self.cluster.lives("kube-apiserver"):
            self.cluster.start_api_server()
        if not self.cluster.lives("kubelet"):
            self.cluster.start_kubelet()
        if not self.liken.runs:
            self.liken.start()
        for namespace in ("default", "media", "home"):
            kinds = "deployments,daemonsets,pods,resourceclaims"
            self.cluster.kubectl("delete", kinds, "--all", "-n", namespace, "--timeout=90s", check=False)
        for stick in tuple(self.world.plugged):
            self.world.unplug(stick)

    def events(self, pod: str, namespace: str = "default") -> str:
        """The messages of a pod's events."""
        items = self.cluster.get("events", "-n", namespace, f"--field-selector=involvedObject.name={pod}")["items"]
        return "\n".join(f"{item['reason']}: {item['message']}" for item in items)


@pytest.fixture(scope="session")
def assets() -> pathlib.Path:
    folder = pathlib.Path(os.environ.get("KUBEBUILDER_ASSETS") or "/nonexistent")
    if reason := _missing(folder):
        pytest.skip(reason)
    return folder


@pytest.fixture(scope="session")
def oldest_assets() -> pathlib.Path:
    folder = pathlib.Path(os.environ.get("LIKEN_KUBE_OLDEST") or "/nonexistent")
    if reason := _missing(folder):
        pytest.skip(reason.replace("KUBEBUILDER_ASSETS", "LIKEN_KUBE_OLDEST"))
    return folder


def started_node(assets: pathlib.Path) -> Iterator[Node]:
    """A cluster with its hardware and the daemon; the private network is entered until it is closed."""
    root = pathlib.Path(tempfile.mkdtemp(prefix="lk", dir="/tmp"))
    world = World(sys=root / "sys")
    with private_network(), Cluster(root, assets) as cluster:
        world.build()
        liken = Liken(cluster, world.sys)
        try:
            liken.start()
            cluster.kubectl("apply", "-f", str(CRD))
            cluster.apply(CLASSES)
            for namespace in ("media", "home"):
                cluster.kubectl("create", "namespace", namespace)
            yield Node(cluster, world, liken)
        finally:
            if liken.runs:
                liken.kill()
            world.clear()
    if "LIKEN_KEEP" not in os.environ:
        shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(scope="session")
def newest(assets: pathlib.Path) -> Iterator[Node]:
    """The newest minor's cluster, for the whole session."""
    yield from started_node(assets)


@pytest.fixture
def node(newest: Node) -> Iterator[Node]:
    """The newest minor's node; what a test leaves behind is taken away after it."""
    yield newest
    newest.restore()
