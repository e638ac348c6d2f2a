"""The DaemonSet from the project's own image on a real node: install, claims, upgrade under load, uninstall."""

import base64
import contextlib
import json
import threading
from collections.abc import Iterator
from typing import Any, Self

import pytest

from tests.cluster.conftest import Node
from tests.cluster.installation import NAMESPACE, Installation
from tests.cluster.manifests import claim, pod
from tests.image import building

pytestmark = [pytest.mark.cluster, pytest.mark.image, pytest.mark.timeout(400)]

GPU = "pci-0000-00-02-0"
SECOND = "localhost/liken:second"
SYS_MODULE = 1 << 16


@pytest.fixture(scope="module")
def images(newest: Node) -> str:
    """The image on the node, under two names."""
    if reason := building.missing():
        pytest.skip(reason)
    newest.cluster.import_image(building.built())
    newest.cluster.ctr("images", "tag", building.NAME, SECOND)
    return building.NAME


@contextlib.contextmanager
def installed(node: Node, overlay: str, image: str) -> Iterator[Installation]:
    """The overlay in the place of the daemon on the host."""
    if node.liken.runs:
        node.liken.stop()
    installation = Installation(node, overlay, image)
    installation.apply()
    try:
        installation.rolled_out()
        node.cluster.until(lambda: list(node.cluster.registry.glob("liken.sh-*")), "it registers", 30)
        yield installation
    finally:
        installation.delete()


def capabilities(installation: Installation) -> int:
    status = installation.shell("cat /proc/self/status")
    return next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith("CapEff"))


def opened(installation: Installation, node: str) -> str:
    return installation.shell(f"dd if={node} of=/dev/null count=0 && echo opened")


def test_minimal_publishes_and_prepares_and_may_do_nothing_else(node: Node, images: str) -> None:
    node.liken.stop()
    node.cluster.kubectl("delete", "machines", "--all")
    with installed(node, "overlays/minimal", images) as installation:
        node.cluster.until(lambda: GPU in node.offered(), "the GPU is published")
        node.cluster.apply(claim("first", "gpu-render"))
        node.cluster.apply(pod("first", claim="first"))
        node.running("first", limit_s=100)
        assert node.exec("first", "ls", node.world.dri).split() == ["renderD128"]
        assert capabilities(installation) == 0
        assert "Read-only file system" in installation.shell("touch /x")
        assert "Read-only file system" in installation.shell("touch /sys/x")
        assert "Operation not permitted" in opened(installation, f"/host{node.world.dri}/card0")
        assert not node.cluster.get("machines")["items"]
        node.gone("first")
        node.cluster.kubectl("delete", "resourceclaim", "first")


def test_modules_adds_the_machine_and_the_right_to_load_a_module(node: Node, images: str) -> None:
    with installed(node, "overlays/modules", images) as installation:
        machine = node.cluster.until(lambda: node.cluster.get("machine", "node-1").get("status"), "it reports")
        assert "unclaimed" in machine["hardware"]
        assert capabilities(installation) == SYS_MODULE
        assert "Read-only file system" in installation.shell("touch /lib/modules/x")
        assert "Operation not permitted" in opened(installation, f"/host{node.world.dri}/card0")


def test_serio_may_open_a_tty(node: Node, images: str) -> None:
    with installed(node, "overlays/serio", images) as installation:
        assert capabilities(installation) & (1 << 21)  # CAP_SYS_ADMIN, for the line discipline
        assert "Read-only file system" in installation.shell("touch /x")
        # The node has no driver behind it, so it is the kernel and not the device cgroup that refuses.
        assert "No such device" in opened(installation, f"{node.world.dri}/card0")


def token_of(installation: Installation) -> str:
    return installation.shell("cat /var/run/secrets/kubernetes.io/serviceaccount/token").strip()


def slice_of(node_name: str, driver: str = "liken.sh", name: str = "") -> dict[str, Any]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name or f"{node_name}-{driver}-forged"},
        "spec": {
            "driver": driver,
            "nodeName": node_name,
            "pool": {"name": f"{node_name}-forged", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "forged"}],
        },
    }


def test_the_daemons_account_may_do_its_work_and_nothing_more(node: Node, images: str) -> None:
    with installed(node, "overlays/modules", images) as installation:
        token = token_of(installation)
        claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
        assert claims["kubernetes.io"]["node"]["name"] == "node-1"
        (node.cluster.root / "daemon.kubeconfig").write_text(node.cluster.kubeconfig_for(token))

        def asked(*command: str, body: dict[str, Any] | None = None) -> str:
            stdin = json.dumps(body) if body else None
            return node.cluster.kubectl(
                f"--kubeconfig={node.cluster.root}/daemon.kubeconfig", *command, stdin=stdin, check=False
            )

        forged = slice_of("node-2")
        node.cluster.apply(json.dumps(forged))
        machine = {"apiVersion": "liken.sh/v1alpha1", "kind": "Machine", "metadata": {"name": "node-2"}, "spec": {}}
        refused = {
            "create a slice of another node": asked("create", "-f", "-", body=slice_of("node-3")),
            "create a slice of another driver": asked("create", "-f", "-", body=slice_of("node-1", "gpu.example")),
            "change a slice of another node": asked("label", "resourceslice", forged["metadata"]["name"], "a=b"),
            "delete a slice of another node": asked("delete", "resourceslice", forged["metadata"]["name"]),
            "create a Machine of another node": asked("create", "-f", "-", body=machine),
        }
        for what, said in refused.items():
            assert "ValidatingAdmissionPolicy" in said, (what, said)
        for command in (
            ("get", "secrets", "-A"),
            ("get", "pods", "-A"),
            ("get", "nodes"),
            ("get", "resourceclaims", "-A"),
            ("delete", "node", "node-1"),
            ("create", "token", "-n", NAMESPACE, "liken"),
            ("label", "node", "node-1", "a=b"),
            ("delete", "machine", "node-1"),
        ):
            assert "Forbidden" in (said := asked(*command)) or "forbidden" in said, (command, said)
        node.cluster.kubectl("delete", "resourceslice", forged["metadata"]["name"])


class Watched:
    """Looks at the slices again and again; `absent` counts the looks that did not find the GPU."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._over = threading.Event()
        self.looks = self.absent = 0
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.3):
            self.looks += 1
            self.absent += GPU not in self._node.offered()


def test_an_upgrade_under_load_loses_no_slice_and_no_claim(node: Node, images: str) -> None:
    with installed(node, "overlays/minimal", images) as installation:
        node.cluster.until(lambda: GPU in node.offered(), "the GPU is published")
        node.cluster.apply(claim("held", "gpu-render"))
        node.cluster.apply(pod("held", claim="held"))
        node.running("held", limit_s=100)
        uid = node.cluster.get("resourceslice", "node-1-liken.sh")["metadata"]["uid"]
        with Watched(node) as watched:
            node.cluster.kubectl("-n", NAMESPACE, "set", "image", "daemonset/liken", f"liken={SECOND}")
            for number in range(3):
                node.cluster.apply(claim(f"load-{number}", "gpu-render"))
                node.cluster.apply(pod(f"load-{number}", claim=f"load-{number}"))
            installation.rolled_out()
            for number in range(3):
                node.running(f"load-{number}", limit_s=120)
        assert watched.looks > 3
        assert watched.absent == 0
        assert node.cluster.get("resourceslice", "node-1-liken.sh")["metadata"]["uid"] == uid
        held = node.cluster.get("pod", "held")["status"]["containerStatuses"][0]
        assert held["restartCount"] == 0
        node.gone("held", *(f"load-{number}" for number in range(3)))
        assert not list(node.cluster.cdi.glob("liken.sh-*"))
        node.cluster.kubectl("delete", "resourceclaims", "--all")


def test_uninstalling_leaves_nothing_behind(node: Node, images: str) -> None:
    with installed(node, "overlays/minimal", images):
        node.cluster.until(lambda: GPU in node.offered(), "the GPU is published")
    uninstall = Installation(node, "uninstall", images)
    uninstall.apply()
    node.cluster.kubectl(
        *("-n", "kube-system", "wait", "--for=condition=complete", "job/liken-uninstall", "--timeout=60s")
    )
    uninstall.delete()
    assert node.offered() == set()
    assert not list(node.cluster.registry.glob("*"))
    assert not list(node.cluster.cdi.glob("liken*"))
    left = node.cluster.kubectl(
        *("get", "clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings"),
        *("-l", "app.kubernetes.io/name=liken", "-o", "name"),
    )
    assert left == ""
