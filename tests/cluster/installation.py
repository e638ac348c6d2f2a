"""The shipped manifests on the test node: one overlay, with the folders and the address of this cluster put in."""

import json
import pathlib
from collections.abc import Iterator
from typing import Any

import yaml

from tests.cluster.conftest import Node
from tests.cluster.pod_network import POD_GATEWAY

DEPLOY = pathlib.Path(__file__).parents[2] / "container/deploy"
NAMESPACE = "liken-system"


class Installation:
    """Applies an overlay with an image; the objects are the shipped ones but for what `_here` changes."""

    def __init__(self, node: Node, overlay: str, image: str) -> None:
        self._node, self._overlay, self._image = node, overlay, image

    def objects(self) -> Iterator[Any]:
        """The overlay's objects for this cluster."""
        text = self._node.cluster.kubectl("kustomize", str(DEPLOY / self._overlay))
        for each in yaml.safe_load_all(text):
            if each["kind"] in ("DaemonSet", "Job"):
                self._here(each["spec"]["template"]["spec"])
            yield each

    def apply(self) -> None:
        """Apply them."""
        for each in self.objects():
            self._node.cluster.apply(json.dumps(each))

    def delete(self) -> None:
        """Delete them, and wait; the definition of Machine stays for the other tests of the session."""
        for each in reversed(list(self.objects())):
            if each["kind"] == "CustomResourceDefinition":
                continue
            stdin = json.dumps(each)
            self._node.cluster.kubectl("delete", "--ignore-not-found", "--timeout=90s", "-f", "-", stdin=stdin)

    def rolled_out(self) -> None:
        """Wait until every instance is the newest."""
        try:
            self._node.cluster.kubectl("-n", NAMESPACE, "rollout", "status", "daemonset/liken", "--timeout=110s")
        except AssertionError as error:
            told = self._node.cluster.kubectl("-n", NAMESPACE, "describe", "pods", check=False)[-3000:]
            logs = self._node.cluster.kubectl("-n", NAMESPACE, "logs", "daemonset/liken", check=False)[-3000:]
            raise AssertionError(f"{error}\n{told}\n{logs}") from None

    def shell(self, script: str) -> str:
        """What a script in the daemon's container prints, both streams."""
        return self._node.cluster.kubectl(
            *("-n", NAMESPACE, "exec", "daemonset/liken", "--", "sh", "-c", f"exec 2>&1; {script}"), check=False
        )

    def _here(self, pod: Any) -> None:
        cluster, world = self._node.cluster, self._node.world
        # There is no Service network here: the API server by its certificate's name.
        pod["hostAliases"] = [{"ip": POD_GATEWAY, "hostnames": ["kubernetes.default.svc"]}]
        container = pod["containers"][0]
        container |= {"image": self._image, "imagePullPolicy": "Never"}
        container["env"] = [
            *container.get("env", []),
            {"name": "KUBERNETES_SERVICE_HOST", "value": "kubernetes.default.svc"},
            {"name": "KUBERNETES_SERVICE_PORT", "value": str(cluster.port)},
        ]
        if "volumes" not in pod:
            return
        folders = {
            "kubelet": cluster.run / "kubelet",
            "cdi": cluster.cdi,
            "modules": cluster.root / "modules",
            "modprobe": cluster.root / "modprobe.d",
        }
        for volume in pod["volumes"]:
            if folder := folders.get(volume["name"]):
                folder.mkdir(exist_ok=True)
                volume["hostPath"]["path"] = str(folder)
        pod["volumes"].append({"name": "world", "hostPath": {"path": str(world.sys), "type": "Directory"}})
        for mount in container["volumeMounts"]:
            if mount["name"] == "kubelet":  # the kubelet dials the path that the daemon names
                mount["mountPath"] = str(folders["kubelet"])
        container["volumeMounts"].append({"name": "world", "mountPath": "/world", "readOnly": True})
        container["env"] += [
            {"name": "LIKEN_SYSFS", "value": "/world"},
            {"name": "LIKEN_PLUGINS_DIR", "value": str(cluster.plugins)},
            {"name": "LIKEN_REGISTRY_DIR", "value": str(cluster.registry)},
        ]
