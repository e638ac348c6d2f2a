"""pci.ids and usb.ids: names of vendors and models, looked up in the bytes of the files.

The two files hold 40,000 names; as dictionaries they would cost more memory than the rest of the daemon. So only the
place of each vendor is indexed (two small arrays a file), and a model is searched in its vendor's lines. The files
come from the distribution and may be missing, old or damaged: whatever cannot be read is simply not listed.
"""

import mmap
import re
from array import array
from bisect import bisect_left
from pathlib import Path
from typing import Final

from liken.state.attributes import text

FOLDERS: Final = (Path("/usr/share/misc"), Path("/usr/share/hwdata"))
"""Where distributions put the files."""

_VENDOR: Final = re.compile(rb"^([0-9a-f]{4})  ", re.MULTILINE)
_SECTION: Final = re.compile(rb"^[A-Z]+ [0-9a-f]", re.MULTILINE)
_ID: Final = re.compile(r"[0-9a-f]{4}")


class IdsFile:
    """One file: vendors at the start of a line, models below their vendor behind one tab."""

    def __init__(self, data: bytes | mmap.mmap) -> None:
        """Index the vendors; the sections behind them (classes, HID usages) are left out."""
        section = _SECTION.search(data)
        self._data = data
        self._end = section.start() if section else len(data)
        found = sorted((int(match[1], 16), match.start()) for match in _VENDOR.finditer(data, 0, self._end))
        self._vendors = array("H", (vendor for vendor, _ in found))
        self._places = array("L", (place for _, place in found))
        if isinstance(data, mmap.mmap):
            data.madvise(mmap.MADV_DONTNEED)  # indexing touched every page; a look-up touches one or two

    def vendor(self, vendor: str) -> str | None:
        """Name of a vendor, by four lower-case hex digits."""
        place = self._place(vendor)
        return None if place is None else self._line(place + 6)

    def model(self, vendor: str, model: str) -> str | None:
        """Name of a vendor's model."""
        place = self._place(vendor)
        if place is None or not _ID.fullmatch(model):
            return None
        match = _VENDOR.search(self._data, place + 1, self._end)
        found = self._data.find(f"\n\t{model}  ".encode(), place, match.start() if match else self._end)
        return None if found < 0 else self._line(found + 8)

    def _place(self, vendor: str) -> int | None:
        if not _ID.fullmatch(vendor):
            return None
        number = int(vendor, 16)
        index = bisect_left(self._vendors, number)
        return self._places[index] if index < len(self._vendors) and self._vendors[index] == number else None

    def _line(self, start: int) -> str | None:
        end = self._data.find(b"\n", start, self._end)
        return text(self._data[start : end if end >= 0 else self._end])


class IdsFiles:
    """Both files, as the `HardwareNames` that titles are made with."""

    def __init__(self, pci: bytes | mmap.mmap = b"", usb: bytes | mmap.mmap = b"") -> None:
        """Take the files' bytes; empty: nothing is listed."""
        self._pci = IdsFile(pci)
        self._usb = IdsFile(usb)

    @classmethod
    def read(cls, directory: Path | None = None) -> "IdsFiles":
        """Read `pci.ids` and `usb.ids` from a folder, else from where distributions put them; missing: empty."""
        folders = (directory,) if directory else FOLDERS
        return cls(pci=_first(folders, "pci.ids"), usb=_first(folders, "usb.ids"))

    def pci_vendor(self, vendor: str) -> str | None:
        """Name of a PCI vendor."""
        return self._pci.vendor(vendor)

    def pci_device(self, vendor: str, device: str) -> str | None:
        """Name of a PCI device of that vendor."""
        return self._pci.model(vendor, device)

    def usb_vendor(self, vendor: str) -> str | None:
        """Name of a USB vendor."""
        return self._usb.vendor(vendor)

    def usb_product(self, vendor: str, product: str) -> str | None:
        """Name of a USB product of that vendor."""
        return self._usb.model(vendor, product)


def _first(folders: tuple[Path, ...], name: str) -> bytes | mmap.mmap:
    """The file mapped, so that its pages belong to the file cache and not to the daemon; empty when there is none."""
    for folder in folders:
        try:
            with (folder / name).open("rb") as file:
                return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError):  # ValueError: an empty file
            continue
    return b""
