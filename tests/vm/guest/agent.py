"""Process 1 of the guest: runs commands, tells each kernel uevent, and carries TCP into unix sockets.

Standard library only and few imports: under emulation each costs time, and this file is what the boot waits for.
Lines of JSON on a virtio serial port, both ways. To the guest: `{"id", "command", "timeout", "environment"}`. To the
host: `{"hello"}`, `{"id", "code", "output"}`, `{"uevent", "at"}`. A TCP connection to `RELAY_PORT` names a unix
socket in its first line.
"""

import contextlib
import json
import os
import socket
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

PORT_NAME = "liken.agent"
RELAY_PORT = 9000
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
            line.send({"uevent": {name: event[name] for name in SHOWN if name in event}, "at": time.monotonic()})


def relay(listener: socket.socket) -> None:
    while True:
        outside, _ = listener.accept()
        threading.Thread(target=join, args=(outside,), daemon=True).start()


def join(outside: socket.socket) -> None:
    path = b""
    while not path.endswith(b"\n"):
        path += outside.recv(1) or b"\n"
    inside = socket.socket(socket.AF_UNIX)
    try:
        inside.connect(path.strip())
    except OSError:
        outside.close()
        return
    threading.Thread(target=pump, args=(outside, inside), daemon=True).start()
    pump(inside, outside)


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
    listener = socket.create_server(("0.0.0.0", RELAY_PORT))
    line = Line()
    line.send({"hello": os.uname().release})
    threading.Thread(target=tell_uevents, args=(line, uevents), daemon=True).start()
    threading.Thread(target=relay, args=(listener,), daemon=True).start()
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
