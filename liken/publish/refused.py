"""Which devices of a refused slice the server does not take, found by dry runs.

One bad field makes the server refuse a whole slice. Adding devices one after another, a refusal once there stays,
so the first device that brings it is found by bisecting over the length of the list; it is left out and the search
goes on behind it. This also finds a device that is refused only beside another one.
"""

from collections.abc import Sequence

from liken.model.api import Invalid, Json
from liken.publish.ports import SLICES, SliceApi

PROBES_LIMIT = 256
"""After so many requests the search stops; the devices found are held back and the rest is tried at the next write."""


class WholeSliceRefused(Exception):
    """The server refuses the slice even without devices, or takes all of them in a dry run: no device is at fault."""


async def refused_devices(api: SliceApi, body: Json) -> tuple[tuple[str, str], ...]:
    """Names of the refused devices with the server's words. Raises WholeSliceRefused, and other errors of the API."""
    search = _Search(api, body)
    devices = body["spec"].get("devices") or []
    if await search.refusal(devices) is None or await search.refusal([]) is not None:
        raise WholeSliceRefused
    good: list[Json] = []
    found: list[tuple[str, str]] = []
    rest = list(devices)
    while rest and search.probes < PROBES_LIMIT:
        if await search.refusal([*good, *rest]) is None:
            break
        taken = await search.taken(good, rest)
        words = await search.refusal([*good, *rest[: taken + 1]])
        found.append((rest[taken]["name"], words or ""))
        good += rest[:taken]
        rest = rest[taken + 1 :]
    return tuple(found)


class _Search:
    def __init__(self, api: SliceApi, body: Json) -> None:
        self._api = api
        self._body = body
        self.probes = 0

    async def refusal(self, devices: Sequence[Json]) -> str | None:
        """Why a slice with these devices is refused; None: it is not."""
        self.probes += 1
        metadata = {**self._body["metadata"], "generateName": "liken-probe-"}
        for name in ("name", "resourceVersion", "uid"):
            metadata.pop(name, None)
        probe = {**self._body, "metadata": metadata, "spec": {**self._body["spec"], "devices": list(devices)}}
        try:
            await self._api.create(SLICES, probe, dry_run=True)
        except Invalid as error:
            return str(error)
        return None

    async def taken(self, good: Sequence[Json], rest: Sequence[Json]) -> int:
        """How many devices of `rest` are taken after `good` before the first that is not; all of them are not."""
        low, high = 0, len(rest)
        while high - low > 1:
            middle = (low + high) // 2
            if await self.refusal([*good, *rest[:middle]]) is None:
                low = middle
            else:
                high = middle
        return low
