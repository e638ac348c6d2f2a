"""What the API server holds of this node's slices, as far as it was seen: list, watch events, answers to writes.

Answers and events arrive in any order, so an older version never replaces a newer one, and the late answer to a
patch does not bring a slice back whose deletion was already seen. Objects are kept as the
server sent them and never changed, so that unchanged ones keep their identity.
"""

from collections.abc import Iterable

from liken.model.api import Json, Listed, WatchEvent, WatchKind
from liken.state.names import DRIVER_NAME

GONE_LIMIT = 1024


class Stored:
    """The own slices by name. `known`: a list has arrived."""

    def __init__(self, node_name: str) -> None:
        self._node_name = node_name
        self._items: dict[str, Json] = {}
        self._gone: dict[str, int] = {}
        self.known = False

    @property
    def items(self) -> tuple[Json, ...]:
        """Every own slice, in the order of their names."""
        return tuple(item for _, item in sorted(self._items.items()))

    def get(self, name: str) -> Json | None:
        """One of them."""
        return self._items.get(name)

    def mine(self, item: Json) -> bool:
        """Whether a slice is this driver's for this node."""
        spec = item.get("spec") or {}
        return spec.get("nodeName") == self._node_name and spec.get("driver") == DRIVER_NAME

    def listed(self, listing: Listed) -> bool:
        """Take over a list; what it lacks is gone, unless it was written after the list was made. Whether any is."""
        fresh = {item["metadata"]["name"]: item for item in listing.items if self.mine(item)}
        at = _number(listing.version)
        gone = [name for name, item in self._items.items() if name not in fresh and version(item) <= at]
        for name in gone:
            self._remove(name, at)
        for item in fresh.values():
            self._take(item)
        self.known = True
        return bool(gone)

    def changed(self, event: WatchEvent) -> bool:
        """Take over a watch event; whether one of our slices was deleted."""
        item = event.item
        name = item["metadata"]["name"]
        if event.kind is not WatchKind.DELETED and self.mine(item):
            self._take(item)
            return False
        held = self._items.get(name)
        if held is None or version(item) < version(held):
            return False
        self._remove(name, version(item))
        return True

    def answered(self, item: Json) -> None:
        """Take over the answer to a read or write."""
        if self.mine(item):
            self._take(item)

    def forget(self, name: str) -> None:
        """The server says that it is gone."""
        if (held := self._items.get(name)) is not None:
            self._remove(name, version(held))

    def _take(self, item: Json) -> None:
        name = item["metadata"]["name"]
        if version(item) >= self._gone.get(name, 0):  # equal: a 404 was wrong, as those of a starting server are
            held = self._items.get(name)
            self._items[name] = item if held is None else newer(held, item)

    def _remove(self, name: str, at: int) -> None:
        del self._items[name]
        self._gone[name] = at
        while len(self._gone) > GONE_LIMIT:
            del self._gone[next(iter(self._gone))]


def newer(held: Json, item: Json) -> Json:
    """The one with the higher version; the held one when they are equal."""
    return item if version(item) > version(held) else held


def version(item: Json) -> int:
    """The resource version as a number (they are comparable as such)."""
    return _number(item["metadata"].get("resourceVersion"))


def names(items: Iterable[Json]) -> frozenset[str]:
    """The names of these objects."""
    return frozenset(item["metadata"]["name"] for item in items)


def _number(text: object) -> int:
    return int(text) if isinstance(text, str) and text.isdecimal() else 0
