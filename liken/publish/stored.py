"""What the API server holds of this node's slices, as far as it was seen: list, watch events, answers to writes.

Answers and events arrive in any order, so an older version never replaces a newer one. Objects are kept as the
server sent them and never changed, so that unchanged ones keep their identity.
"""

from collections.abc import Iterable

from liken.model.api import Json, Listed, WatchEvent, WatchKind
from liken.state.names import DRIVER_NAME


class Stored:
    """The own slices by name. `known`: a list has arrived."""

    def __init__(self, node_name: str) -> None:
        self._node_name = node_name
        self._items: dict[str, Json] = {}
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

    def listed(self, listing: Listed) -> None:
        """Take over a list; what it lacks is gone, unless it was written after the list was made."""
        fresh = {item["metadata"]["name"]: item for item in listing.items if self.mine(item)}
        for name, item in self._items.items():
            if name in fresh:
                fresh[name] = newer(item, fresh[name])
            elif version(item) > _number(listing.version):
                fresh[name] = item
        self._items = fresh
        self.known = True

    def changed(self, event: WatchEvent) -> bool:
        """Take over a watch event; whether one of our slices was deleted."""
        item = event.item
        name = item["metadata"]["name"]
        held = self._items.get(name)
        if event.kind is WatchKind.DELETED or not self.mine(item):
            if held is not None and version(item) >= version(held):
                del self._items[name]
                return True
            return False
        self._items[name] = item if held is None else newer(held, item)
        return False

    def answered(self, item: Json) -> None:
        """Take over the answer to a read or write."""
        name = item["metadata"]["name"]
        if self.mine(item):
            held = self._items.get(name)
            self._items[name] = item if held is None else newer(held, item)

    def forget(self, name: str) -> None:
        """It is gone."""
        self._items.pop(name, None)


def newer(held: Json, item: Json) -> Json:
    """The one with the higher version; the held one when they are equal. Another uid is another object: take it."""
    if held["metadata"].get("uid") != item["metadata"].get("uid"):
        return item if version(item) >= version(held) else held
    return item if version(item) > version(held) else held


def version(item: Json) -> int:
    """The resource version as a number (they are comparable as such)."""
    return _number(item["metadata"].get("resourceVersion"))


def names(items: Iterable[Json]) -> frozenset[str]:
    """The names of these objects."""
    return frozenset(item["metadata"]["name"] for item in items)


def _number(text: object) -> int:
    return int(text) if isinstance(text, str) and text.isdecimal() else 0
