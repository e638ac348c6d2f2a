"""What must be written so that the server holds the wanted slices: creations, patches, deletions. Pure.

Deletions come last, so that a reader never misses a device that moved to another slice. A stored slice of our name
whose pool has another name cannot be patched (that field is immutable): it is deleted and created anew.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from liken.model.api import Json
from liken.publish.stored import names
from liken.state.slices import json_patch

GUARD = "/metadata/resourceVersion"


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    """A slice that is not there."""

    body: Json

    @property
    def name(self) -> str:
        """Name of the slice."""
        return str(self.body["metadata"]["name"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """A slice that differs; `body` is what it shall be, `ops` turn the stored one into it."""

    body: Json
    ops: tuple[Json, ...]

    @property
    def name(self) -> str:
        """Name of the slice."""
        return str(self.body["metadata"]["name"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """A slice that shall not be."""

    name: str


Change: TypeAlias = Create | Patch | Delete


def changes(
    wanted: Sequence[Json], stored: Sequence[Json], tolerated: Mapping[str, tuple[Json, ...]]
) -> tuple[Change, ...]:
    """The writes that are due. `tolerated`: a slice's difference that the server makes again and again."""
    held = {item["metadata"]["name"]: item for item in stored}
    found: list[Change] = []
    for body in wanted:
        name = body["metadata"]["name"]
        old = held.get(name)
        if old is None:
            found.append(Create(body=_unborn(body)))
        elif old["spec"]["pool"]["name"] != body["spec"]["pool"]["name"]:
            found.append(Delete(name=name))
        else:
            ops = tuple(json_patch(old, body))
            if ops and difference(ops) != tolerated.get(name):
                found.append(Patch(body=body, ops=ops))
    found.extend(Delete(name=name) for name in sorted(held.keys() - names(wanted)))
    return tuple(found)


def difference(ops: Sequence[Json]) -> tuple[Json, ...]:
    """The operations without their guard: what differs, whatever the version."""
    return tuple(entry for entry in ops if entry["path"] != GUARD)


def _unborn(body: Json) -> Json:
    """The slice without what only the server sets: one that was stored before can be created again."""
    metadata = body["metadata"]
    if "resourceVersion" not in metadata:
        return body
    return {**body, "metadata": {key: metadata[key] for key in ("name", "ownerReferences") if key in metadata}}
