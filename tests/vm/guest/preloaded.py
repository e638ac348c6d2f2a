"""Runs `liken …` in the guest from a process that imported it before: each command is a fork, and so a fresh process.

Importing the daemon takes half a minute under emulation. One TCP connection on `PRELOADED_PORT` for each command: a
line of JSON `{"arguments", "log"}` in; with a log the command runs on by itself and `{"pid"}` comes back, else
`{"code", "output", "errors"}` when it has ended.
"""

import importlib
import json
import os
import signal
import socket
import sys
from pathlib import Path

PRELOADED_PORT = 9001
READY = "preloaded: ready"
MODULES = (
    "liken.__main__", "liken.cli.run", "liken.daemon", "liken.cli.devices", "liken.cli.explain", "liken.cli.find",
    "liken.cli.hardware", "liken.state.unclaimed", "liken.web", "liken.web.server", "liken.web.status", "uvloop",
    "anyio._backends._asyncio", "pyudev", "aiohttp", "yaml",
)  # fmt: skip
LIBRARY = (
    "kubernetes_asyncio.client.configuration", "kubernetes_asyncio.client.api_client",
    "kubernetes_asyncio.config.kube_config", "kubernetes_asyncio.config.config_exception",
)  # fmt: skip


def run(arguments: list[str]) -> int:
    from liken.__main__ import main  # noqa: PLC0415  (imported by the parent: this costs nothing)

    sys.argv = ["liken", *arguments]
    try:
        main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


def into(path: Path, *descriptors: int) -> None:
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for descriptor in descriptors:
        os.dup2(opened, descriptor)
    os.close(opened)


def answer(arguments: list[str]) -> dict[str, int | str]:
    folder = Path(f"/run/command-of-{os.getpid()}")
    folder.mkdir()
    into(folder / "output", 1)
    into(folder / "errors", 2)
    code = run(arguments)
    sys.stdout.flush()
    sys.stderr.flush()
    said = {name: (folder / name).read_text(errors="replace") for name in ("output", "errors")}
    return {"code": code, **said}


def serve(connection: socket.socket) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with connection, connection.makefile("rwb") as lines:
        command = json.loads(lines.readline())
        if not command["log"]:
            lines.write(json.dumps(answer(command["arguments"])).encode() + b"\n")
            return
        lines.write(json.dumps({"pid": os.getpid()}).encode() + b"\n")
    os.setsid()
    into(Path(command["log"]), 1, 2)
    os._exit(run(command["arguments"]))


def main() -> None:
    for module in MODULES:
        importlib.import_module(module)
    importlib.import_module("liken.kube.lazy").install()
    for module in LIBRARY:
        importlib.import_module(module)
    server = socket.create_server(("0.0.0.0", PRELOADED_PORT))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the children
    sys.stdout.write(f"{READY}\n")
    sys.stdout.flush()
    while True:
        connection, _ = server.accept()
        if os.fork() == 0:
            server.close()
            serve(connection)
            os._exit(0)
        connection.close()


if __name__ == "__main__":
    main()
