"""QEMU's monitor (QMP) on a unix socket: one command, one answer, and the errors in QEMU's words."""

import json
import socket
import threading
from collections.abc import Mapping
from typing import Any


class QmpError(Exception):
    """The monitor refused a command."""


class Monitor:
    """A connected monitor; commands of several threads take turns."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lines = connection.makefile("rw", encoding="utf-8")
        self._lock = threading.Lock()
        self._lines.readline()  # the greeting
        self.execute("qmp_capabilities", {})

    def execute(self, command: str, arguments: Mapping[str, Any]) -> Any:
        """Run one command. Raises QmpError."""
        with self._lock:
            self._lines.write(json.dumps({"execute": command, "arguments": dict(arguments)}) + "\n")
            self._lines.flush()
            while line := self._lines.readline():
                match json.loads(line):
                    case {"return": answer}:
                        return answer
                    case {"error": {"desc": words}}:
                        raise QmpError(f"{command} {dict(arguments)}: {words}")
                    case _:
                        continue  # an asynchronous event
        raise QmpError(f"{command}: the monitor closed")

    def close(self) -> None:
        """Hang up."""
        self._lines.close()
        self._connection.close()
