"""Atheris target: the readers of pci.ids and usb.ids. `python -m tests.fuzz.fuzz_ids CORPUS` (pip install atheris)."""

import sys

from liken.state.attributes import text
from liken.state.ids import IdsFile


def one(data: bytes) -> None:
    """Whatever a file holds: no exception, and every name found is text that can be shown."""
    ids = IdsFile(data)
    for vendor in {data[place : place + 4].decode("latin-1") for place in range(0, min(len(data), 64), 3)}:
        for name in (ids.vendor(vendor), ids.model(vendor, vendor)):
            assert name is None or text(name.encode()) == name


def main() -> None:
    import atheris  # noqa: PLC0415 - not needed to run `one` in a test

    atheris.Setup(sys.argv, one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
