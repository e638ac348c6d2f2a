"""The kernel's module catalogue: which modules fit a modalias, and what is known of a module by its name.

In: the bytes of `modules.alias`, `.dep`, `.builtin`, `.softdep` and of modprobe's configuration. depmod writes
`modules.alias` in the order of `modules.order`, the order in which the kernel was built, and kmod tries candidates
in that order; so the order of the lines is the order of candidates here. Only lines of the two buses are kept, as
bytes with one array beside them: 26,000 strings would cost more memory than the budget of the daemon leaves.
"""

import bz2
import difflib
import gzip
import lzma
import re
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Final

from liken.state.glob import literal_prefix, matches

MODPROBE_FOLDERS: Final = tuple(
    map(
        Path,
        ("/etc/modprobe.d", "/run/modprobe.d", "/usr/local/lib/modprobe.d", "/usr/lib/modprobe.d", "/lib/modprobe.d"),
    )
)
"""Where modprobe reads its configuration (modprobe.d(5))."""

NAMED_TREES: Final = 3
"""How many other kernels' trees a message names."""

_ANY: Final = 0x10000
_PLACE_BITS: Final = 28
"""Of an index entry: the line's place in the data; the key (35 bits) is above."""
_ALIAS: Final = re.compile(rb"^alias[ \t]+((?:pci|usb):\S+)[ \t]+(\S+)[ \t]*$", re.MULTILINE)
_KEYS: Final = (
    re.compile(r"pci:v0000([0-9A-F]{4})(?:d0000([0-9A-F]{4}))?"),
    re.compile(r"usb:v([0-9A-F]{4})(?:p([0-9A-F]{4}))?"),
)
_MODULE: Final = re.compile(rb"^(?:[^:\n]*/)?([^/:\n]+?)\.ko(?:\.\w+)?(?=:|$)", re.MULTILINE)
_SOFTDEP: Final = re.compile(r"^softdep[ \t]+(\S+)[ \t]+(.*)$", re.MULTILINE)
_BLACKLIST: Final = re.compile(r"^[ \t]*blacklist[ \t]+(\S+)", re.MULTILINE)
_REMEMBERED: Final = 1024
_OPENERS: Final[Mapping[str, Callable[[bytes], bytes]]] = {
    "": lambda data: data,
    ".xz": lzma.decompress,
    ".gz": gzip.decompress,
    ".bz2": bz2.decompress,
}


class ModuleCatalog:
    """What one kernel's module tree says; an empty one knows nothing."""

    def __init__(
        self,
        *,
        alias: bytes = b"",
        dep: bytes = b"",
        builtin: bytes = b"",
        softdep: bytes = b"",
        modprobe: bytes = b"",
        problem: str | None = None,
    ) -> None:
        """Take the files' bytes; `modprobe` is modprobe's configuration, `problem` why the tree could not be read."""
        self.problem = problem
        self._aliases = _Aliases(alias)
        self._builtin = frozenset(_modules(builtin))
        self._dep = dep
        self._places = {canonical(match[1].decode("latin-1")): match.start() for match in _MODULE.finditer(dep)}
        words = (softdep + b"\n" + modprobe).decode("latin-1")
        self._softdeps = _softdeps(_SOFTDEP.findall(words))
        self._blacklisted = frozenset(map(canonical, _BLACKLIST.findall(words)))
        self._found: dict[str, tuple[str, ...]] = {}

    @classmethod
    def read(cls, directory: Path, *, modprobe_folders: Sequence[Path] = MODPROBE_FOLDERS) -> "ModuleCatalog":
        """Read `/lib/modules/<release>`, its files plain or compressed; what is wrong with it stands in `problem`."""
        problem = _problem(directory)
        if problem:
            return cls(problem=problem)
        alias = _file(directory, "modules.alias")
        if not alias:
            problem = f"{directory}/modules.alias is missing or empty: run depmod for this kernel"
        return cls(
            alias=alias,
            dep=_file(directory, "modules.dep"),
            builtin=_file(directory, "modules.builtin"),
            softdep=_file(directory, "modules.softdep"),
            modprobe=b"\n".join(_configuration(modprobe_folders)),
            problem=problem,
        )

    def candidates(self, modalias: str) -> tuple[str, ...]:
        """Loadable modules whose alias matches, in the order the kernel build prefers; built-in ones are left out."""
        known = self._found.get(modalias)
        if known is None:
            found = dict.fromkeys(map(canonical, self._aliases.matching(modalias)))
            known = tuple(module for module in found if module not in self._builtin)
            if len(self._found) >= _REMEMBERED:
                self._found.clear()
            self._found[modalias] = known
        return known

    def exists(self, name: str) -> bool:
        """Whether this kernel has the module, loadable or built in; `-` and `_` are one."""
        return canonical(name) in self._places or self.is_builtin(name)

    def is_builtin(self, name: str) -> bool:
        """Whether the module is part of the kernel image."""
        return canonical(name) in self._builtin

    def is_blacklisted(self, name: str) -> bool:
        """Whether modprobe's configuration keeps the module from loading by itself (by name it still loads)."""
        return canonical(name) in self._blacklisted

    def softdeps(self, name: str) -> tuple[str, ...]:
        """Modules to load before this one where there are such ("pre" soft dependencies), in order."""
        return self._softdeps.get(canonical(name), ())

    def dependencies(self, name: str) -> tuple[str, ...]:
        """Modules this one needs, in the order of `modules.dep`."""
        place = self._places.get(canonical(name))
        if place is None:
            return ()
        line = self._dep[place : self._dep.find(b"\n", place) if b"\n" in self._dep[place:] else None]
        return tuple(_modules(line.partition(b":")[2].replace(b" ", b"\n")))

    def nearest(self, name: str) -> str | None:
        """The known module whose name is most like this one; None: nothing is alike."""
        found = difflib.get_close_matches(canonical(name), [*self._places, *sorted(self._builtin)], n=1, cutoff=0.75)
        return found[0] if found else None


class _Aliases:
    """The lines of `modules.alias` for the two buses, in file order, indexed by vendor and model."""

    def __init__(self, alias: bytes) -> None:
        data = bytearray()
        index = array("Q")
        for match in _ALIAS.finditer(alias):
            index.append(_keys(match[1].decode("latin-1"))[0] << _PLACE_BITS | len(data))
            data += b"%b %b\n" % match.groups()
        self._data = bytes(data)
        self._index = array("Q", sorted(index))

    def matching(self, modalias: str) -> Iterator[str]:
        """Modules of the matching lines, in file order."""
        places = chain.from_iterable(
            self._index[
                bisect_left(self._index, key << _PLACE_BITS) : bisect_left(self._index, (key + 1) << _PLACE_BITS)
            ]
            for key in _keys(modalias)
        )
        for place in sorted(entry & (1 << _PLACE_BITS) - 1 for entry in places):
            pattern, module = self._data[place : self._data.find(b"\n", place)].decode("latin-1").split(" ")
            if modalias.startswith(literal_prefix(pattern)) and matches(pattern, modalias):
                yield module


def canonical(name: str) -> str:
    """A module's name as the kernel says it: `-` and `_` are one."""
    return name.replace("-", "_")


def _keys(alias: str) -> tuple[int, ...]:
    """Index keys of a modalias, narrowest first; the first one is that of a pattern."""
    for bus, pattern in enumerate(_KEYS):
        found = pattern.match(alias)
        if found:
            vendor = int(found[1], 16)
            model = int(found[2], 16) if found[2] else _ANY
            pairs = dict.fromkeys(((vendor, model), (vendor, _ANY), (_ANY, _ANY)))
            return tuple((bus << 34) | (first << 17) | second for first, second in pairs)
    return ((int(alias.startswith("usb:")) << 34) | (_ANY << 17) | _ANY,)


def _modules(paths: bytes) -> Iterator[str]:
    return (canonical(match[1].decode("latin-1")) for match in _MODULE.finditer(paths))


def _softdeps(found: Iterable[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    softdeps: dict[str, tuple[str, ...]] = {}
    for name, words in found:
        before = words.partition("post:")[0].partition("pre:")[2].split()
        key = canonical(name)
        softdeps[key] = tuple(dict.fromkeys((*softdeps.get(key, ()), *map(canonical, before))))
    return softdeps


def _problem(directory: Path) -> str | None:
    """Why there is no module tree, and what to do about it."""
    if directory.is_dir():
        return None
    others = sorted(path.parent.name for path in directory.parent.glob("*/modules.dep*"))
    if others:
        named = ", ".join(dict.fromkeys(others[:NAMED_TREES]))
        return (
            f"{directory} is missing ({directory.parent} has {named}): the running kernel is not the installed one, "
            "reboot into it or install its modules"
        )
    return f"{directory} is missing: mount the host's /lib/modules there, or install the kernel's modules"


def _file(directory: Path, name: str) -> bytes:
    for suffix, opened in _OPENERS.items():
        try:
            return opened((directory / f"{name}{suffix}").read_bytes())
        except (OSError, EOFError, lzma.LZMAError):
            continue
    return b""


def _configuration(folders: Sequence[Path]) -> Iterator[bytes]:
    for folder in folders:
        for path in sorted(folder.glob("*.conf")):
            try:
                yield path.read_bytes()
            except OSError:
                continue
