"""Objects by type, namespace and name, one growing resource version, and the log that watches read.

Every change is a `Change` with the object before and after, so that a watch with a selector can tell an object
that left it from one that was deleted. `compact` forgets the past, as etcd does: who asks for it gets a 410.
"""

import copy
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import takewhile
from typing import NamedTuple

import anyio

from liken.demo.apiserver_types import TypeKey
from liken.model.api import Json

LOG_LIMIT = 4096


class ObjectKey(NamedTuple):
    """Where an object is kept; `namespace` is empty for cluster-scoped ones. Versions of a type share objects."""

    group: str
    plural: str
    namespace: str
    name: str

    @classmethod
    def of(cls, key: TypeKey, namespace: str, name: str) -> "ObjectKey":
        """The key of one object of a type."""
        return cls(key.group, key.plural, namespace, name)


@dataclass(frozen=True, slots=True)
class Change:
    """One write: before is None for a creation, after is None for a deletion (`last` then has its version)."""

    version: int
    key: ObjectKey
    before: Json | None
    after: Json | None
    last: Json


class Objects:
    """The stored objects. Everything handed out is a copy; `changed` wakes the watches."""

    def __init__(self, first_version: int = 1000) -> None:
        self.version = first_version
        self.floor = first_version
        self._objects: dict[ObjectKey, Json] = {}
        self._log: deque[Change] = deque()
        self._wakes: anyio.Event | None = None

    def get(self, key: ObjectKey) -> Json | None:
        """One object."""
        found = self._objects.get(key)
        return None if found is None else copy.deepcopy(found)

    def select(self, matches: Callable[[ObjectKey, Json], bool]) -> list[tuple[ObjectKey, Json]]:
        """Objects in the order of their keys."""
        return [(key, copy.deepcopy(item)) for key, item in sorted(self._objects.items()) if matches(key, item)]

    def put(self, key: ObjectKey, item: Json) -> Json:
        """Store an object under a new version; returns it."""
        self.version += 1
        stored = copy.deepcopy(item)
        stored["metadata"]["resourceVersion"] = str(self.version)
        before = self._objects.get(key)
        self._objects[key] = stored
        self._note(Change(self.version, key, before, stored, stored))
        return copy.deepcopy(stored)

    def remove(self, key: ObjectKey) -> Json:
        """Delete an object; returns it as the last event has it."""
        self.version += 1
        before = self._objects.pop(key)
        last = {**before, "metadata": {**before["metadata"], "resourceVersion": str(self.version)}}
        self._note(Change(self.version, key, before, None, last))
        return copy.deepcopy(last)

    def since(self, version: int) -> list[Change]:
        """The changes after a version, oldest first."""
        newest_first = takewhile(lambda change: change.version > version, reversed(self._log))
        return list(newest_first)[::-1]

    def compact(self) -> None:
        """Forget every change so far."""
        self.version += 1
        self.floor = self.version
        self._log.clear()

    async def changed(self, after: int) -> None:
        """Wait until something was written after a version, or `wake` was called."""
        if self.version <= after:
            if self._wakes is None:
                self._wakes = anyio.Event()
            await self._wakes.wait()

    def wake(self) -> None:
        """Let everybody who waits for a change look again."""
        if self._wakes is not None:
            self._wakes.set()
            self._wakes = None

    def _note(self, change: Change) -> None:
        self._log.append(change)
        while len(self._log) > LOG_LIMIT:
            self.floor = self._log.popleft().version
        self.wake()
