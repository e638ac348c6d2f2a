"""What the API server holds for the node, as a client of the API sees it: an own watch with the time of each write.

A thread lists and watches ResourceSlices, as the scheduler does. Tests take a `mark` before they act, `wait` for the
state they expect, and count the writes in between. Times are monotonic seconds of the host.
"""

import contextlib
import http.client
import json
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from liken.model.api import Json

SLICES = "/apis/resource.k8s.io/v1/resourceslices"
PATIENCE_S = 90.0  # of an emulated machine on busy cores; the times are printed, not judged
Devices = Mapping[str, Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One write of a slice: when it was seen, and every device published after it."""

    number: int
    at: float
    kind: str
    devices: Devices


class Published:
    """The node's devices on the server, followed from the moment it is made until `close`."""

    def __init__(self, server: str) -> None:
        self._address = urllib.parse.urlsplit(server).netloc
        self._server = server
        self._slices: dict[str, Json] = {}
        self.writes: list[Write] = []
        self._changed = threading.Condition()
        self._connection: http.client.HTTPConnection | None = None
        self._closing = False
        self._thread = threading.Thread(target=self._follow, daemon=True, name="published")
        self._thread.start()

    @property
    def devices(self) -> Devices:
        """Every device by name, as it is published now."""
        with self._changed:
            return self._devices()

    @property
    def slices(self) -> tuple[Json, ...]:
        """The slices as the server holds them."""
        with self._changed:
            return tuple(self._slices.values())

    def mark(self) -> int:
        """A place in the list of writes."""
        with self._changed:
            return len(self.writes)

    def wait(
        self, expected: Callable[[Devices], bool], *, since: int | None = None, within: float = PATIENCE_S
    ) -> Write:
        """The first write from `since` on that makes `expected` true; None: the newest one may do.

        Raises TimeoutError with what is published.
        """
        end = time.monotonic() + within
        with self._changed:
            seen = max(0, len(self.writes) - 1) if since is None else since
            while True:
                for write in self.writes[seen:]:
                    if expected(write.devices):
                        return write
                seen = len(self.writes)
                if not self._changed.wait(max(0.0, end - time.monotonic())):
                    raise TimeoutError(f"not within {within:g} s; published: {sorted(self._devices())}")

    def close(self) -> None:
        """End the watch."""
        self._closing = True
        if self._connection is not None and self._connection.sock is not None:
            with contextlib.suppress(OSError):
                self._connection.sock.shutdown(2)
        self._thread.join(5)

    def _devices(self) -> Devices:
        newest = max((slice_["spec"]["pool"]["generation"] for slice_ in self._slices.values()), default=0)
        return {
            device["name"]: device
            for slice_ in self._slices.values()
            if slice_["spec"]["pool"]["generation"] == newest
            for device in slice_["spec"].get("devices") or ()
        }

    def _follow(self) -> None:
        while not self._closing:
            with contextlib.suppress(OSError, http.client.HTTPException, ValueError, AttributeError):
                listed = request(self._server, "GET", SLICES)
                with self._changed:
                    self._slices = {item["metadata"]["name"]: item for item in listed["items"]}
                    self._note("LISTED")
                self._watch(listed["metadata"]["resourceVersion"])
            time.sleep(0.05)

    def _watch(self, version: str) -> None:
        query = urllib.parse.urlencode({"watch": "true", "resourceVersion": version, "allowWatchBookmarks": "true"})
        connection = self._connection = http.client.HTTPConnection(self._address)
        with contextlib.closing(connection):
            connection.request("GET", f"{SLICES}?{query}")
            with connection.getresponse() as response:
                while line := response.readline():
                    if not self._take(json.loads(line)):
                        return

    def _take(self, event: Json) -> bool:
        match event["type"]:
            case "ADDED" | "MODIFIED":
                with self._changed:
                    self._slices[event["object"]["metadata"]["name"]] = event["object"]
                    self._note(event["type"])
            case "DELETED":
                with self._changed:
                    self._slices.pop(event["object"]["metadata"]["name"], None)
                    self._note(event["type"])
            case "BOOKMARK":
                pass
            case _:
                return False  # an ERROR, such as 410: list again
        return True

    def _note(self, kind: str) -> None:
        number = len(self.writes)
        self.writes.append(Write(number=number, at=time.monotonic(), kind=kind, devices=self._devices()))
        self._changed.notify_all()


def request(server: str, method: str, path: str, body: Any = None, *, kind: str = "application/json") -> Json:
    """One request to the API server and its JSON answer. Raises OSError, and its subclass HTTPError with the status."""
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(f"{server}{path}", data, {"Content-Type": kind}, method=method)
    with urllib.request.urlopen(asked, timeout=30) as answer:
        loaded: Json = json.load(answer)
    return loaded


def names(devices: Devices, prefixes: Iterable[str]) -> frozenset[str]:
    """The names that begin with one of the prefixes."""
    return frozenset(name for name in devices if name.startswith(tuple(prefixes)))
