"""`liken run` as a host process on the test node."""

import os
import pathlib
import signal
import subprocess
import sys
import time

from liken.daemon import BOOT_ID
from tests.cluster.node import NODE, Cluster


class Liken:
    """One instance of the daemon; several may run at once with `pod_uid`s of their own."""

    def __init__(
        self, cluster: Cluster, sysfs: pathlib.Path, *options: str, kubeconfig: pathlib.Path | None = None
    ) -> None:
        self._cluster = cluster
        self._command = [
            *(sys.executable, "-m", "liken", "run", f"--sysfs={sysfs}", f"--node-name={NODE}"),
            f"--kubeconfig={kubeconfig or cluster.kubeconfig}",
            f"--cdi-dir={cluster.cdi}",
            f"--plugins-dir={cluster.plugins}",
            f"--registry-dir={cluster.registry}",
            *("--log-format=json", "--web-listen=off"),
            *options,
        ]
        self.log = cluster.root / "liken.log"
        self.process: subprocess.Popen[bytes] | None = None
        self._from = 0

    def start(self, *, registered: bool = True, boot_id: str = "") -> None:
        """Start it, and wait until the kubelet knows it: a pod that comes earlier waits a minute for the next try.

        With `boot_id` it reads this one from /proc, in a mount namespace of its own.
        """
        command = self._command
        if boot_id:
            file = self._cluster.root / "boot_id"
            file.write_text(f"{boot_id}\n")
            script = f'mount --bind "{file}" {BOOT_ID} && exec "$@"'
            command = ["unshare", "--mount", "sh", "-c", script, "sh", *command]
        self._from = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        if registered:
            self.said("claims.registered", 40)

    @property
    def runs(self) -> bool:
        """Whether its process lives."""
        return self.process is not None and self.process.poll() is None

    def stop(self) -> None:
        """SIGTERM, and wait for the end."""
        assert self.process is not None
        self.process.terminate()
        try:
            assert self.process.wait(15) == 0, self.tail()
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()

    def kill(self) -> None:
        """SIGKILL."""
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def tail(self) -> str:
        """The end of its log."""
        return self.log.read_text()[-4000:]

    def said(self, words: str, limit_s: float = 20.0) -> None:
        """Wait until a log line since its start has these words."""
        end = time.monotonic() + limit_s
        while words not in self.log.read_text()[self._from :]:
            assert self.runs, f"it ended: {self.tail()}"
            assert time.monotonic() < end, f"never said {words!r}: {self.tail()}"
            time.sleep(0.1)
