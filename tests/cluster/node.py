"""A whole cluster of one real node, below one folder: control plane, scheduler, controllers, containerd, kubelet."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from typing import Any, Self

from tests.cluster.images import archive
from tests.cluster.network import NODE_IP
from tests.contract.control_plane import ControlPlane, free_port

NODE = "node-1"
POD_NETWORK = pathlib.Path(__file__).with_name("pod_network.py")
IMAGES = ("docker.io/test/pause:1", "docker.io/test/busybox:1")
NEEDED = (
    "etcd",
    "kube-apiserver",
    "kube-scheduler",
    "kube-controller-manager",
    "kubelet",
    "kubectl",
    "containerd",
    "ctr",
)


class Cluster(ControlPlane):
    """The control plane with a node; `run` is the node's folder (`cdi`, `kubelet/plugins`, `containerd.sock`)."""

    bind = "0.0.0.0"  # of the private network: pods reach it at POD_GATEWAY

    def __init__(self, root: pathlib.Path, assets: pathlib.Path, gates: str = "") -> None:
        super().__init__(root, assets, gates)
        self.run = self.root / "node"
        self.cdi = self.run / "cdi"
        self.plugins = self.run / "kubelet" / "plugins"
        self.registry = self.run / "kubelet" / "plugins_registry"
        self._kubelet_command: tuple[str, ...] = ()

    def start(self) -> None:
        """Start everything; the node is Ready at the end."""
        super().start()
        gates = [f"--feature-gates={self.gates}"] if self.gates else []
        for name in ("kube-scheduler", "kube-controller-manager"):
            extra = (
                [
                    f"--service-account-private-key-file={self.root}/sa.key",
                    f"--root-ca-file={self.root}/ca.crt",
                    "--controllers=*,-node-ipam-controller",
                    "--use-service-account-credentials=false",
                ]
                if name.endswith("manager")
                else []
            )
            self.spawn(
                name,
                f"--kubeconfig={self.kubeconfig}",
                f"--authentication-kubeconfig={self.kubeconfig}",
                f"--authorization-kubeconfig={self.kubeconfig}",
                "--leader-elect=false",
                "--bind-address=127.0.0.1",
                f"--secure-port={free_port()}",
                f"--cert-dir={self.root}/{name}",
                *extra,
                *gates,
            )
        self._start_runtime()
        self._configure_kubelet()
        self.start_kubelet()
        self.until(lambda: self._ready(NODE), "the node is Ready", 90)

    def _start_runtime(self) -> None:
        for folder in ("cni", "static", "kubelet", "containerd", "cdi"):
            (self.run / folder).mkdir(parents=True, exist_ok=True)
        network = {"cniVersion": "1.0.0", "name": "test", "plugins": [{"type": "liken-test-net"}]}
        (self.run / "cni" / "10-test.conflist").write_text(json.dumps(network))
        for name in ("liken-test-net", "loopback"):
            plugin = self.run / "cni" / name
            plugin.write_text(f"#!/bin/sh\nexec {sys.executable} {POD_NETWORK}\n")
            plugin.chmod(0o755)
        (self.run / "containerd.toml").write_text(CONTAINERD.format(run=self.run))
        os.environ["PATH"] = f"{self.assets}:{os.environ['PATH']}"  # containerd finds its shim and runc there
        self.spawn("containerd", "--config", str(self.run / "containerd.toml"))
        for image in IMAGES:
            self.import_image(archive(image, self.root / "image.tar"))

    def import_image(self, path: pathlib.Path) -> None:
        """Load an image archive into the node's runtime."""
        until = time.monotonic() + 60
        while True:
            done = self.ctr("images", "import", "--local", "--snapshotter", "native", str(path))
            if done.returncode == 0:
                return
            if time.monotonic() > until:
                raise RuntimeError(f"cannot import {path}: {done.stderr}")
            time.sleep(0.2)

    def ctr(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Call the runtime's own client."""
        command = [str(self.assets / "ctr"), "--address", f"{self.run}/containerd.sock", "-n", "k8s.io", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def _configure_kubelet(self) -> None:
        gates = dict(gate.split("=") for gate in self.gates.split(",") if gate)
        known = {gate: value == "true" for gate, value in gates.items()}
        configuration = KUBELET | {
            "containerRuntimeEndpoint": f"unix://{self.run}/containerd.sock",
            "healthzPort": free_port(),
            "port": free_port(),
            "staticPodPath": f"{self.run}/static",
            "featureGates": known,
        }
        (self.run / "kubelet.yaml").write_text(json.dumps(configuration))

    def start_kubelet(self) -> None:
        """Start the kubelet (again, with the same folders)."""
        self.spawn(
            "kubelet",
            f"--config={self.run}/kubelet.yaml",
            f"--kubeconfig={self.kubeconfig}",
            f"--root-dir={self.run}/kubelet",
            f"--hostname-override={NODE}",
            f"--node-ip={NODE_IP}",
            f"--cert-dir={self.run}/pki",
            "--v=2",
        )

    def lives(self, name: str) -> bool:
        """Whether that program runs."""
        return name in self._processes and self._processes[name].poll() is None

    def kill(self, name: str) -> None:
        """End one program with SIGKILL."""
        process = self._processes.pop(name)
        process.kill()
        process.wait()

    def kubectl(self, *arguments: str, stdin: str | None = None, check: bool = True) -> str:
        """What kubectl prints; raises AssertionError with its words when it fails and `check` is set."""
        command = [str(self.assets / "kubectl"), f"--kubeconfig={self.kubeconfig}", *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=120)
        assert not check or done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}{done.stdout}"
        return done.stdout if check else done.stdout + done.stderr

    def get(self, *arguments: str) -> Any:
        """One object or list as JSON."""
        return json.loads(self.kubectl("get", *arguments, "-o", "json"))

    def apply(self, manifest: str) -> None:
        """Apply a manifest, as a person would."""
        self.kubectl("apply", "-f", "-", stdin=manifest)

    def until(self, true: Any, what: str, limit_s: float = 30.0) -> Any:
        """Wait until a condition gives something true and return that; the AssertionError says what was awaited."""
        end = time.monotonic() + limit_s
        while True:
            with contextlib.suppress(AssertionError, KeyError, IndexError):
                if found := true():
                    return found
            assert time.monotonic() < end, f"waited {limit_s:.0f} s in vain until {what}"
            time.sleep(0.1)

    def _ready(self, node: str) -> bool:
        conditions = self.get("node", node)["status"].get("conditions", [])
        return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)

    def stop(self) -> None:
        """End the containers, then every program, and unmount what is left."""
        if "containerd" in self._processes:
            self.end("kubelet")
            for task in self.ctr("tasks", "ls", "-q").stdout.split():
                self.ctr("tasks", "rm", "--force", task)
        super().stop()
        for process in pathlib.Path("/proc").glob("[0-9]*"):  # shims outlive containerd and name our socket
            with contextlib.suppress(OSError):
                if f"{self.run}/containerd.sock".encode() in (process / "cmdline").read_bytes():
                    os.kill(int(process.name), signal.SIGKILL)
        mounts = [line.split()[1] for line in pathlib.Path("/proc/mounts").read_text().splitlines()]
        for mount in reversed([mount for mount in mounts if mount.startswith(f"{self.root}/")]):
            subprocess.run(["umount", "-l", mount], check=False, capture_output=True)

    def __enter__(self) -> Self:
        super().__enter__()
        return self


CONTAINERD = """version = 3
root = "{run}/containerd/root"
state = "{run}/containerd/state"
[grpc]
  address = "{run}/containerd.sock"
[plugins.'io.containerd.cri.v1.images']
  snapshotter = "native"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = "docker.io/test/pause:1"
[plugins.'io.containerd.cri.v1.runtime']
  enable_cdi = true
  cdi_spec_dirs = ["{run}/cdi"]
  disable_apparmor = true
  restrict_oom_score_adj = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ["{run}/cni"]
  conf_dir = "{run}/cni"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
"""
KUBELET: dict[str, Any] = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
    "authorization": {"mode": "AlwaysAllow"},
    "cgroupDriver": "cgroupfs",
    "cgroupsPerQOS": False,
    "enforceNodeAllocatable": [],
    "failCgroupV1": False,
    "failSwapOn": False,
    "localStorageCapacityIsolation": False,
    "makeIPTablesUtilChains": False,
    "nodeStatusUpdateFrequency": "4s",
    "imageMinimumGCAge": "240h",
    "evictionHard": {},
}
