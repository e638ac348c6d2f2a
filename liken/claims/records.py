"""The prepared claims of this node, read back from their CDI files, and who holds which device.

In: the spec directory. Out: `Records`, an index in memory that another instance's writes may outdate at any time, so
whoever decides something scans the folder's names first (`scan` in a thread, `apply` on the loop). `prepared_claims` is
the same for a person (`liken claims`). A file of ours that does not read as a record is reported and left alone: the
kubelet's next prepare or unprepare of that claim replaces or removes it.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import structlog

from liken.claims import annotations
from liken.claims.annotations import RecordError
from liken.claims.directory import SpecDirectory
from liken.claims.prepared import PreparedClaim, PreparedDevice
from liken.model.offers import DeviceName, Offer

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """The uids of all files; the claims of those the index does not know; what the index knows and is not there."""

    there: frozenset[str]
    found: Mapping[str, PreparedClaim]
    lost: frozenset[str]


def parsed(directory: SpecDirectory, uid: str, content: bytes) -> PreparedClaim | None:
    """The claim that the bytes of its file record; None, and a line in the log, when they are no record of it."""
    try:
        claim = annotations.claim(json.loads(content))
    except (RecordError, ValueError, RecursionError) as error:
        log.warning("claims.unreadable_file", file=str(directory.path(uid)), error=str(error)[:200])
        return None
    if claim.uid != uid:
        log.warning("claims.foreign_file", file=str(directory.path(uid)), claim=str(claim), uid=claim.uid)
        return None
    return claim


def read(directory: SpecDirectory, uid: str) -> PreparedClaim | None:
    """The claim of one file; None when there is none or it is no record. Blocks; raises DirectoryError."""
    content = directory.read(uid)
    return None if content is None else parsed(directory, uid, content)


def scan(directory: SpecDirectory, known: Collection[str]) -> Scan:
    """Compare the folder with the uids in `known`. Blocks; raises DirectoryError."""
    there = directory.uids()
    found = {uid: claim for uid in sorted(there - set(known)) if (claim := read(directory, uid)) is not None}
    return Scan(there=frozenset(there), found=found, lost=frozenset(set(known) - there))


def prepared_claims(folder: Path) -> tuple[PreparedClaim, ...]:
    """Every prepared claim with a file in `folder`, by namespace and name. Blocks; raises DirectoryError."""
    directory = SpecDirectory(folder)
    found = scan(directory, ()).found.values()
    return tuple(sorted(found, key=lambda claim: (claim.namespace, claim.name, claim.uid)))


class Records:
    """The prepared claims by uid and by device; lives on the event loop and is not thread-safe."""

    def __init__(self) -> None:
        self._claims: dict[str, PreparedClaim] = {}
        self._holders: dict[DeviceName, set[str]] = {}
        self.revision = 0

    def __len__(self) -> int:
        return len(self._claims)

    def __iter__(self) -> Iterator[PreparedClaim]:
        return iter(tuple(self._claims.values()))

    def get(self, uid: str) -> PreparedClaim | None:
        """The claim, as far as this instance knows."""
        return self._claims.get(uid)

    def uids(self) -> frozenset[str]:
        """Every claim known."""
        return frozenset(self._claims)

    def put(self, claim: PreparedClaim) -> None:
        """The claim's file now says this."""
        if self._claims.get(claim.uid) == claim:
            return
        self._forget(claim.uid)
        self._claims[claim.uid] = claim
        for device in claim.devices:
            self._holders.setdefault(device.name, set()).add(claim.uid)
        self.revision += 1

    def drop(self, uid: str) -> None:
        """The claim has no file any more."""
        if self._forget(uid):
            self.revision += 1

    def apply(self, found: Scan) -> None:
        """What a scan found out; a claim put or dropped since is newer than the scan only under its lock."""
        for claim in found.found.values():
            if claim.uid not in self._claims:
                self.put(claim)
        for uid in found.lost:
            self.drop(uid)

    def holders(self, name: DeviceName) -> list[tuple[PreparedClaim, PreparedDevice]]:
        """Each claim that has the device and may keep others from it; admin access keeps nobody."""
        claims = (self._claims[uid] for uid in sorted(self._holders.get(name, ())))
        return [(claim, device) for claim in claims for device in claim.devices if _holds(device, name)]

    def concerned(self, names: Collection[DeviceName]) -> set[str]:
        """The claims that have any of these devices."""
        return {uid for name in names for uid in self._holders.get(name, ())}

    def devices(self) -> frozenset[DeviceName]:
        """Every device of a prepared claim."""
        return frozenset(self._holders)

    def held(self) -> dict[DeviceName, Offer]:
        """The devices that claims hold, as they were when they were last whole."""
        return {
            device.name: device.offer for claim in self._claims.values() for device in claim.devices if not device.admin
        }

    def _forget(self, uid: str) -> bool:
        claim = self._claims.pop(uid, None)
        if claim is None:
            return False
        for device in claim.devices:
            uids = self._holders.get(device.name, set())
            uids.discard(uid)
            if not uids:
                self._holders.pop(device.name, None)
        return True


def _holds(device: PreparedDevice, name: DeviceName) -> bool:
    return device.name == name and not device.admin
