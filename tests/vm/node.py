"""A node of a cluster: the real daemon in the guest, and the API server outside that it publishes to.

The daemon reaches the server on its own loopback, from where the agent carries it to the host's. Its folders are
below `/run/liken` in the guest. `agree` is the question behind every test: is what the server holds what a fresh
`liken devices` finds in the guest?
"""

import json
import shlex
import signal
import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from liken.model.api import Json
from tests.metrics import told
from tests.vm.guest.agent import INWARD, INWARD_PORT, OUTWARD, OUTWARD_PORT
from tests.vm.guest.preloaded import PRELOADED_PORT, READY
from tests.vm.machine import GUEST_FILES, WEB_PORT, VirtualMachine
from tests.vm.published import Published, request

NAME = "guest"
FOLDER = "/run/liken"
CDI = f"{FOLDER}/cdi"
SOCKET = "dra.sock"
MACHINES = "/apis/liken.sh/v1alpha1/machines"
LOG = f"{FOLDER}/daemon.log"
SETTLES_WITHIN_S = 90.0


class Disagreement(AssertionError):
    """The server holds something else than the hardware says."""


class Node:
    """Starts, stops and questions the daemon; `published` follows what it writes."""

    def __init__(self, machine: VirtualMachine, server: str) -> None:
        self.machine = machine
        self.server = server
        self.pid = 0
        self.at_rest: frozenset[str] = frozenset()  # what is published while nothing is plugged in
        port = server.rsplit(":", 1)[1].rstrip("/")
        machine.guest.run(f"echo {port} >{OUTWARD}")
        machine.guest.run(f"mkdir -p {FOLDER}/plugins {FOLDER}/registry {CDI}")
        kubeconfig = json.dumps(_kubeconfig(f"http://127.0.0.1:{OUTWARD_PORT}"))
        machine.guest.run(f"printf %s {shlex.quote(kubeconfig)} >{FOLDER}/kubeconfig")
        request(server, "POST", "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NAME}})
        self.published = Published(server)

    def start(self, *options: str) -> float:
        """Start the daemon and wait until it is ready; seconds that took."""
        began = time.monotonic()
        self.pid = int(self._command("run", *_options(), *options, log=LOG)["pid"])
        while not self._ready():
            if time.monotonic() > began + 180 or not self.alive():
                raise TimeoutError(f"the daemon is not ready: {self.log()[-4000:]}")
            time.sleep(0.2)
        return time.monotonic() - began

    def preload(self) -> None:
        """Start the process that runs every `liken …` of the guest."""
        command = shlex.join([sys.executable, str(GUEST_FILES / "preloaded.py")])
        log = f"{FOLDER}/preloaded.log"
        ended = f"{{ cat {log}; dmesg | tail -5; exit 1; }}"
        waiting = f"until grep -q {shlex.quote(READY)} {log}; do kill -0 $! || {ended}; sleep 0.2; done"
        self.machine.guest.run(f"{command} >{log} 2>&1 & {waiting}", within=150)

    def signal(self, number: signal.Signals) -> None:
        """Send the daemon a signal."""
        self.machine.guest.run(["kill", f"-{number.value}", str(self.pid)])

    def alive(self) -> bool:
        """Whether the daemon runs."""
        return self.machine.guest.run(f"kill -0 {self.pid} 2>/dev/null && echo yes", check=False) == "yes\n"

    def ended(self) -> None:
        """Wait until the daemon is gone."""
        self.machine.guest.run(f"while kill -0 {self.pid} 2>/dev/null; do sleep 0.1; done", within=30)

    def log(self) -> str:
        """What the daemon said so far."""
        return self.machine.guest.run(["cat", LOG])

    def metric(self, name: str) -> float:
        """The sum of a metric's samples."""
        return told(self._web("/metrics"), name)

    def fresh(self, *arguments: str) -> Any:
        """The JSON that a fresh `liken …` prints in the guest."""
        said = self._command(*arguments)
        if said["code"]:
            raise Disagreement(f"liken {shlex.join(arguments)} ended with {said['code']}: {said['errors']}")
        return json.loads(said["output"])

    def hardware(self) -> Mapping[str, Json]:
        """Every device that a fresh `liken devices` offers, by name, as a slice has it."""
        return {device["name"]: device for device in self.fresh("devices", "-o", "json")}

    def agree(self) -> None:
        """Wait until the server holds what the hardware says. Raises Disagreement."""
        end = time.monotonic() + SETTLES_WITHIN_S
        while (difference := self._difference()) and time.monotonic() < end:
            time.sleep(0.2)
        if difference:
            raise Disagreement("\n".join([*difference, self.log()[-3000:]]))

    def cdi(self, uid: str) -> Json:
        """A claim's CDI file."""
        loaded: Json = json.loads(self.machine.guest.run(["cat", f"{CDI}/liken.sh-{uid}.json"]))
        return loaded

    def cdi_paths(self, uid: str) -> frozenset[str]:
        """The host paths of the device nodes that a claim's CDI file names."""
        edits = [device["containerEdits"] for device in self.cdi(uid)["devices"]]
        return frozenset(node.get("hostPath", node["path"]) for edit in edits for node in edit.get("deviceNodes") or ())

    def cdi_files(self) -> list[str]:
        """Every file of the CDI folder, temporary ones too."""
        return sorted(self.machine.guest.run(["ls", "-A", CDI]).split())

    def reason(self, address: str) -> str:
        """Why a fresh `liken explain` withholds a bus entry."""
        entries = self.fresh("explain", "-o", "json")
        return next(str(entry["verdict"]) for entry in entries if entry["address"] == address)

    def plugin_port(self) -> int:
        """The host's port that leads to the daemon's plugin socket."""
        self.machine.guest.run(f"ln -sfn {FOLDER}/plugins/liken.sh/{SOCKET} {INWARD}")
        return self.machine.ports[INWARD_PORT]

    def restart(self, *options: str) -> float:
        """End the daemon in good order and start it with other options; seconds the start took."""
        self.signal(signal.SIGTERM)
        self.ended()
        return self.start(*options)

    @staticmethod
    def until(true: Callable[[], bool], *, within: float = SETTLES_WITHIN_S) -> None:
        """Ask again until it is true. Raises TimeoutError."""
        end = time.monotonic() + within
        while not true():
            if time.monotonic() > end:
                raise TimeoutError(f"still not after {within:g} s")
            time.sleep(0.1)

    def close(self) -> None:
        """End the watch."""
        self.published.close()

    def _command(self, *arguments: str, log: str = "") -> Json:
        port = self.machine.ports[PRELOADED_PORT]
        with socket.create_connection(("127.0.0.1", port), timeout=90) as connection:
            connection.sendall(json.dumps({"arguments": arguments, "log": log}).encode() + b"\n")
            with connection.makefile("rb") as lines:
                said: Json = json.loads(lines.readline())
        return said

    def _difference(self) -> Sequence[str]:
        published, found = self.published.devices, self.hardware()
        return [
            f"{name}: published {published.get(name)}, found {found.get(name)}"
            for name in sorted(published.keys() | found.keys())
            if published.get(name) != found.get(name)
        ]

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(self._web("/readyz"), timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def _web(self, path: str) -> str:
        return f"http://127.0.0.1:{self.machine.ports[WEB_PORT]}{path}"


def _options() -> list[str]:
    options = {
        "kubeconfig": f"{FOLDER}/kubeconfig",
        "node-name": NAME,
        "plugins-dir": f"{FOLDER}/plugins",
        "registry-dir": f"{FOLDER}/registry",
        "cdi-dir": CDI,
        "web-listen": f"0.0.0.0:{WEB_PORT}",
        "log-format": "json",
        "read-deadline": "30s",  # emulation is slow, not sick
    }
    return [word for name, value in options.items() for word in (f"--{name}", value)]


def _kubeconfig(server: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "outside", "cluster": {"server": server}}],
        "users": [{"name": "node", "user": {}}],
        "contexts": [{"name": "outside", "context": {"cluster": "outside", "user": "node"}}],
        "current-context": "outside",
    }
