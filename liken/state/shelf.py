"""An immutable mapping of which the next version costs what changed, not what it holds.

Ten thousand entries lie in chunks of at most 256, in the order in which their keys first came; versions share every
chunk that did not change, and one growing index from key to chunk. So a snapshot of the whole machine is made in
microseconds, two snapshots are compared by looking at the chunks that differ, and readers may keep any version.
"""

from collections.abc import ItemsView, Iterable, Iterator, Mapping, ValuesView
from itertools import chain
from typing import Final, TypeVar, overload

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")

CHUNK: Final = 256
_MISSING: Final = object()


class Shelf(Mapping[K, V]):
    """A mapping like a dict that is never changed; `updated` makes the next version.

    `chunks` and `index` are shared between versions: only `updated` writes, and only what no version sees.
    """

    __slots__ = ("_size", "chunks", "index")

    def __init__(self) -> None:
        """Start with an empty one."""
        self.index: dict[K, int] = {}
        self.chunks: tuple[dict[K, V], ...] = ()
        self._size = 0

    def updated(self, coming: Mapping[K, V], leaving: Iterable[K] = ()) -> "Shelf[K, V]":
        """The next version: without the keys that leave, then with what comes in place of what was."""
        chunks = list(self.chunks)
        copied: set[int] = set()
        for key in leaving:
            if key in self and key not in coming:
                self._own(chunks, copied, self.index[key]).pop(key, None)
        for key, value in coming.items():
            place = self.index.setdefault(key, len(self.index) // CHUNK)
            self._own(chunks, copied, place)[key] = value
        version: Shelf[K, V] = Shelf()
        version.index, version.chunks = self.index, tuple(chunks)
        version._size = self._size + sum(
            len(chunks[place]) - (len(self.chunks[place]) if place < len(self.chunks) else 0) for place in copied
        )
        return version

    def _own(self, chunks: list[dict[K, V]], copied: set[int], place: int) -> dict[K, V]:
        while place >= len(chunks):
            copied.add(len(chunks))
            chunks.append({})
        if place not in copied:
            copied.add(place)
            chunks[place] = dict(chunks[place])
        return chunks[place]

    def __getitem__(self, key: K) -> V:
        place = self.index[key]
        if place >= len(self.chunks):
            raise KeyError(key)
        return self.chunks[place][key]

    @overload
    def get(self, key: K, /) -> V | None: ...

    @overload
    def get(self, key: K, /, default: D) -> V | D: ...

    def get(self, key: K, /, default: D | None = None) -> V | D | None:
        """The value of a key, or the default."""
        place = self.index.get(key)
        return default if place is None or place >= len(self.chunks) else self.chunks[place].get(key, default)

    def __contains__(self, key: object) -> bool:
        return self.get(key, _MISSING) is not _MISSING  # type: ignore[arg-type]  # any object may be asked for

    def __iter__(self) -> Iterator[K]:
        return chain.from_iterable(self.chunks)

    def __len__(self) -> int:
        return self._size

    def values(self) -> ValuesView[V]:
        """The values, in the order of the keys."""
        return _Values(self)

    def items(self) -> ItemsView[K, V]:
        """Keys and values."""
        return _Items(self)

    def __repr__(self) -> str:
        return f"Shelf({dict(self.items())!r})"


class _Values(ValuesView[V]):
    """Values without a look-up for each."""

    _mapping: Shelf[object, V]

    def __iter__(self) -> Iterator[V]:
        return chain.from_iterable(chunk.values() for chunk in self._mapping.chunks)


class _Items(ItemsView[K, V]):
    """Items without a look-up for each."""

    _mapping: Shelf[K, V]

    def __iter__(self) -> Iterator[tuple[K, V]]:
        return chain.from_iterable(chunk.items() for chunk in self._mapping.chunks)


def differing(old: Mapping[K, V], new: Mapping[K, V]) -> list[K]:
    """Keys that only one of the two has, or whose values are not the same object; between versions of a shelf fast."""
    if old is new:
        return []
    if not (isinstance(old, Shelf) and isinstance(new, Shelf) and old.index is new.index):
        return _differing(old, new)
    length = max(len(old.chunks), len(new.chunks))
    return [
        key
        for place in range(length)
        if (before := _chunk(old, place)) is not (after := _chunk(new, place))
        for key in _differing(before, after)
    ]


def _chunk(shelf: Shelf[K, V], place: int) -> Mapping[K, V]:
    return shelf.chunks[place] if place < len(shelf.chunks) else {}


def _differing(old: Mapping[K, V], new: Mapping[K, V]) -> list[K]:
    gone = [key for key in old if key not in new]
    return gone + [key for key, value in new.items() if old.get(key, _MISSING) is not value]
