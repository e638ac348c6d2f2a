"""Process 1 of the guest: runs commands, tells each kernel uevent, and carries TCP into unix sockets.

Standard library only and few imports: under emulation each costs time, and this file is what the boot waits for.
Lines of JSON on a virtio serial port, both ways. To the guest: `{"id", "command", "timeout", "environment"}`. To the
host: `{"hello"}`, `{"id", "code", "output"}`, `{"uevent"}`. TCP to `INWARD_PORT` goes to a unix socket of the guest;
the guest's own loopback at `OUTWARD_PORT` goes to a port of the host, because a daemon refuses plain HTTP elsewhere.
"""

import contextlib
import json
import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PORT_NAME = "liken.agent"
HOST = "10.0.2.2"
INWARD_PORT = 9000
INWARD = "/run/inward"  # a link to the unix socket that the host wants to reach
OUTWARD_PORT = 9002
OUTWARD = "/run/outward"  # holds the port of the host's loopback that the guest wants on its own
KERNEL_MULTICAST = 1
SHOWN = ("ACTION", "DEVPATH", "SUBSYSTEM", "DEVTYPE", "DRIVER", "DEVNAME")
NETLINK_KOBJECT_UEVENT = 15
SO_RCVBUFFORCE = 33


class Line:
    """The serial port to the host; one message at a time."""

    def __init__(self) -> None:
        self._descriptor = os.open(self._device(), os.O_RDWR)
        self._lock = threading.Lock()

    @staticmethod
    def _device() -> str:
        while True:
            for name in Path("/sys/class/virtio-ports").glob("*/name"):
                if name.read_text().strip() == PORT_NAME:
                    return f"/dev/{name.parent.name}"
            time.sleep(0.02)

    def send(self, message: dict[str, Any]) -> None:
        rest = json.dumps(message).encode() + b"\n"
        with self._lock:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]

    def requests(self) -> Any:
        rest = b""
        while True:
            chunk = os.read(self._descriptor, 65536)
            if not chunk:  # nobody has opened the host's end yet
                time.sleep(0.02)
            *lines, rest = (rest + chunk).split(b"\n")
            yield from (json.loads(line) for line in lines)


def answer(line: Line, request: dict[str, Any]) -> None:
    environment = {**os.environ, **request["environment"]}
    command = request["command"]
    # A command's children may outlive it with its output open (`daemon &`): so a file, not a pipe.
    path = Path(f"/run/command-{request['id']}")
    with path.open("wb") as output:
        try:
            code = subprocess.run(
                command,
                shell=isinstance(command, str),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=request["timeout"],
                env=environment,
                check=False,
                start_new_session=True,
            ).returncode
        except subprocess.TimeoutExpired:
            code = 124
        except OSError as problem:
            code = 127
            output.write(str(problem).encode())
    text = path.read_text(errors="replace")
    path.unlink()
    line.send({"id": request["id"], "code": code, "output": text})


def tell_uevents(line: Line, source: socket.socket) -> None:
    while True:
        pairs = [part.split("=", 1) for part in source.recv(65536).decode(errors="replace").split("\0") if "=" in part]
        event = dict(pairs)
        if "SYNTH_UUID" not in event:  # a storm that a test makes itself needs no report
            line.send({"uevent": {name: event[name] for name in SHOWN if name in event}})


def relay(listener: socket.socket, dial: Callable[[], socket.socket]) -> None:
    while True:
        client, _ = listener.accept()
        threading.Thread(target=join, args=(client, dial), daemon=True).start()


def join(client: socket.socket, dial: Callable[[], socket.socket]) -> None:
    try:
        server = dial()
    except OSError:
        client.close()
        return
    threading.Thread(target=pump, args=(client, server), daemon=True).start()
    pump(server, client)


def to_unix_socket() -> socket.socket:
    inside = socket.socket(socket.AF_UNIX)
    inside.connect(INWARD)
    return inside


def to_host() -> socket.socket:
    return socket.create_connection((HOST, int(Path(OUTWARD).read_text())))


def pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while chunk := source.recv(65536):
            sink.sendall(chunk)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


def serve() -> None:
    uevents = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_KOBJECT_UEVENT)
    uevents.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 16 << 20)
    uevents.bind((0, KERNEL_MULTICAST))
    inward = socket.create_server(("0.0.0.0", INWARD_PORT))
    outward = socket.create_server(("127.0.0.1", OUTWARD_PORT))
    line = Line()
    line.send({"hello": os.uname().release})
    threading.Thread(target=tell_uevents, args=(line, uevents), daemon=True).start()
    threading.Thread(target=relay, args=(inward, to_unix_socket), daemon=True).start()
    threading.Thread(target=relay, args=(outward, to_host), daemon=True).start()
    for request in line.requests():
        threading.Thread(target=answer, args=(line, request), daemon=True).start()


def main() -> None:
    agent = os.fork()
    if agent == 0:
        serve()
    while os.wait()[0] != agent:  # the first process takes every orphan; without its agent the guest ends
        pass


if __name__ == "__main__":
    main()
