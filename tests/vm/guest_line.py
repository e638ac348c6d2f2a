"""The host's end of the agent's line: commands with their answers, and every kernel uevent of the guest as it comes.

Waiting is event-driven: a test takes a `mark` before it acts and waits for the first later uevent that matches.
"""

import contextlib
import itertools
import json
import shlex
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

PATIENCE_S = 60.0


class GuestError(Exception):
    """A command in the guest failed, or the guest is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Uevent:
    """A kernel uevent of the guest and when it reached the host (monotonic seconds)."""

    fields: Mapping[str, str]
    at: float

    def matches(self, wanted: Mapping[str, str]) -> bool:
        """Whether every wanted field is there; DEVPATH by its end."""
        return all(
            self.fields.get(name, "").endswith(value) if name == "DEVPATH" else self.fields.get(name) == value
            for name, value in wanted.items()
        )


@dataclass(slots=True)
class _Call:
    done: threading.Event = field(default_factory=threading.Event)
    answer: dict[str, Any] = field(default_factory=dict)


class GuestLine:
    """Talks to the agent over a connected socket; a thread of its own reads until the guest hangs up."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._numbers = itertools.count(1)
        self._calls: dict[int, _Call] = {}
        self._uevents: list[Uevent] = []
        self._changed = threading.Condition()
        self._hello: str | None = None
        self._gone = False
        self._reader = threading.Thread(target=self._read, daemon=True, name="guest-line")
        self._reader.start()

    def hello(self, alive: Callable[[], bool], *, within: float) -> str:
        """The kernel's release once the agent is up. Raises GuestError when the guest dies or takes too long."""
        end = time.monotonic() + within
        with self._changed:
            while self._hello is None:
                if self._gone or not alive() or time.monotonic() > end:
                    raise GuestError("the guest did not boot")
                self._changed.wait(0.5)
            return self._hello

    def run(
        self,
        command: str | Sequence[str],
        *,
        within: float = PATIENCE_S,
        check: bool = True,
        environment: Mapping[str, str] | None = None,
    ) -> str:
        """What a shell line (or an argument vector) prints in the guest. Raises GuestError on a code other than 0."""
        number, call = next(self._numbers), _Call()
        self._calls[number] = call
        request = {"id": number, "command": command, "timeout": within, "environment": dict(environment or {})}
        self._connection.sendall(json.dumps(request).encode() + b"\n")
        shown = command if isinstance(command, str) else shlex.join(command)
        if not call.done.wait(within + 10) or not call.answer:
            raise GuestError(f"no answer to {shown!r}")
        if check and call.answer["code"] != 0:
            raise GuestError(f"{shown!r} ended with {call.answer['code']}: {call.answer['output']}")
        return str(call.answer["output"])

    def mark(self) -> int:
        """A place in the stream of uevents: everything that comes later is new."""
        with self._changed:
            return len(self._uevents)

    def uevents(self, since: int = 0, **wanted: str) -> tuple[Uevent, ...]:
        """Every uevent so far that matches, e.g. `ACTION="add", SUBSYSTEM="tty"`."""
        with self._changed:
            return tuple(event for event in self._uevents[since:] if event.matches(wanted))

    def uevent(self, since: int = 0, *, within: float = PATIENCE_S, **wanted: str) -> Uevent:
        """The first uevent after `since` that matches, waiting for it. Raises TimeoutError."""
        end = time.monotonic() + within
        with self._changed:
            seen = since
            while True:
                for event in self._uevents[seen:]:
                    if event.matches(wanted):
                        return event
                seen = len(self._uevents)
                if self._gone or not self._changed.wait(max(0.0, end - time.monotonic())):
                    raise TimeoutError(f"no uevent {wanted} within {within:g} s")

    def close(self) -> None:
        """Hang up."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._reader.join(5)
        self._connection.close()

    def _read(self) -> None:
        try:
            with self._connection.makefile("rb") as lines:
                for line in lines:
                    self._take(json.loads(line))
        except OSError:
            pass
        with self._changed:
            self._gone = True
            self._changed.notify_all()
        for call in list(self._calls.values()):
            call.done.set()

    def _take(self, message: dict[str, Any]) -> None:
        if "id" in message:
            call = self._calls.pop(message["id"])
            call.answer = message
            call.done.set()
            return
        with self._changed:
            if "hello" in message:
                self._hello = message["hello"]
            else:
                self._uevents.append(Uevent(fields=message["uevent"], at=time.monotonic()))
            self._changed.notify_all()
