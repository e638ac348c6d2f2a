"""Starts a real API server with its etcd on loopback, from the binaries of `KUBEBUILDER_ASSETS`.

    with ControlPlane(folder, assets) as plane:
        plane.kubeconfig       # an administrator's

Everything lives below one folder and ends with the block, in reverse order: an API server whose etcd ended first
never ends. Needs `openssl` for the certificates. `further` processes (a scheduler, a kubelet) may be added with
`spawn`; they end first.
"""

import contextlib
import os
import pathlib
import socket
import ssl
import subprocess
import time
import urllib.request
from types import TracebackType
from typing import Self

TOKEN = "administrator"  # the test server's own
HOW_TO_GET = (
    "KUBEBUILDER_ASSETS names no folder with etcd and kube-apiserver: get them with "
    "`setup-envtest use -p path` (sigs.k8s.io/controller-runtime), or from https://dl.k8s.io and "
    "https://github.com/etcd-io/etcd/releases"
)


def assets() -> pathlib.Path | None:
    """The folder of `KUBEBUILDER_ASSETS`, when it has what a control plane needs."""
    folder = pathlib.Path(os.environ.get("KUBEBUILDER_ASSETS") or "/nonexistent")
    return folder if all((folder / name).is_file() for name in ("etcd", "kube-apiserver")) else None


def free_port() -> int:
    """A TCP port of loopback that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class ControlPlane:
    """etcd and kube-apiserver; `gates` as the flag has them (`A=true,B=false`)."""

    bind = "127.0.0.1"

    def __init__(self, root: pathlib.Path, assets: pathlib.Path, gates: str = "") -> None:
        self.root, self.assets, self.gates = root.absolute(), assets.absolute(), gates
        self.kubeconfig = self.root / "kubeconfig"
        self.server = ""
        self._etcd_port = 0
        self._port = 0
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        self.root.mkdir(parents=True, exist_ok=True)
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def spawn(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Start one program of the assets; its output goes to `<name>.log`."""
        with (self.root / f"{name}.log").open("ab") as log:
            command = [str(self.assets / name), *arguments]
            process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        (self.root / f"{name}.pid").write_text(f"{process.pid}\n")
        self._processes[name] = process
        return process

    def end(self, name: str, limit_s: float = 10.0) -> None:
        """End one program."""
        process = self._processes.pop(name, None)
        if process is None:
            return
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(limit_s)
        process.kill()
        process.wait()

    def start(self) -> None:
        """Start etcd and the API server and wait until it is ready."""
        self._etcd_port, self._port = free_port(), free_port()
        self.server = f"https://127.0.0.1:{self._port}"
        self._certificates()
        (self.root / "tokens.csv").write_text(f"{TOKEN},admin,admin,system:masters\n")
        self.kubeconfig.write_text(self.kubeconfig_for(TOKEN))
        self._start_etcd()
        self.start_api_server()

    def kubeconfig_for(self, token: str) -> str:
        """A kubeconfig with this token, as text."""
        return (
            "apiVersion: v1\nkind: Config\ncurrent-context: test\n"
            f"clusters: [{{name: test, cluster: {{server: '{self.server}', "
            f"certificate-authority: {self.root}/ca.crt}}}}]\n"
            f"users: [{{name: user, user: {{token: {token}}}}}]\n"
            "contexts: [{name: test, context: {cluster: test, user: user}}]\n"
        )

    def stop(self) -> None:
        """End everything, the last started first."""
        for name in reversed(list(self._processes)):
            self.end(name)

    @property
    def port(self) -> int:
        """The API server's."""
        return self._port

    def start_api_server(self) -> None:
        """Start the API server (again, on the same port and with the same etcd)."""
        gates = [f"--feature-gates={self.gates}"] if self.gates else []
        self.spawn(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            f"--bind-address={self.bind}",
            "--advertise-address=192.0.2.1",  # nobody calls it; without one a machine without a network has none
            "--endpoint-reconciler-type=none",
            "--allow-privileged=true",
            f"--secure-port={self._port}",
            f"--cert-dir={self.root}",
            f"--tls-cert-file={self.root}/api.crt",
            f"--tls-private-key-file={self.root}/api.key",
            f"--client-ca-file={self.root}/ca.crt",
            f"--token-auth-file={self.root}/tokens.csv",
            "--authorization-mode=Node,RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self.root}/sa.key",
            f"--service-account-signing-key-file={self.root}/sa.key",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--kubelet-preferred-address-types=InternalIP",
            "--disable-admission-plugins=TaintNodesByCondition",
            *gates,
        )
        self.wait_ready()

    def wait_ready(self, limit_s: float = 60.0) -> None:
        """Wait for `/readyz`; raises RuntimeError that names the log."""
        context = ssl.create_default_context(cafile=str(self.root / "ca.crt"))
        request = urllib.request.Request(f"{self.server}/readyz", headers={"Authorization": f"Bearer {TOKEN}"})
        until = time.monotonic() + limit_s
        while time.monotonic() < until:
            for name, process in self._processes.items():
                if process.poll() is not None:
                    raise RuntimeError(f"{name} ended: {self._last_words(name)}")
            with contextlib.suppress(OSError), urllib.request.urlopen(request, context=context, timeout=2) as answer:
                if answer.status == 200:
                    return
            time.sleep(0.05)
        raise RuntimeError(f"the API server did not become ready: {self._last_words('kube-apiserver')}")

    def _last_words(self, name: str) -> str:
        """The end of a program's log."""
        return (self.root / f"{name}.log").read_text(errors="replace")[-1500:]

    def _start_etcd(self) -> None:
        client, peer = f"http://127.0.0.1:{self._etcd_port}", f"http://127.0.0.1:{free_port()}"
        self.spawn(
            "etcd",
            f"--data-dir={self.root}/etcd",
            "--unsafe-no-fsync",
            "--log-level=error",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
        )

    def _certificates(self) -> None:
        def openssl(*arguments: str) -> None:
            subprocess.run(["openssl", *arguments], cwd=self.root, check=True, capture_output=True)

        key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30")
        openssl("req", "-x509", *key, "-subj", "/CN=test-ca", "-keyout", "ca.key", "-out", "ca.crt")
        signed = ("-CA", "ca.crt", "-CAkey", "ca.key", "-addext", "basicConstraints=CA:FALSE")
        names = "subjectAltName=IP:127.0.0.1,DNS:localhost,DNS:kubernetes.default.svc"
        server = ("-subj", "/CN=kube-apiserver", "-addext", names, "-keyout", "api.key", "-out", "api.crt")
        openssl("req", "-x509", *key, *signed, *server)
        client = ("-subj", "/O=system:masters/CN=admin", "-keyout", "client.key", "-out", "client.crt")
        openssl("req", "-x509", *key, *signed, *client)
        openssl("genrsa", "-out", "sa.key", "2048")
