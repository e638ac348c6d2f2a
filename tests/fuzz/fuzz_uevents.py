"""Atheris target: the parser of datagrams. `python -m tests.fuzz.fuzz_uevents CORPUS` (pip install atheris)."""

import sys

from liken.events.kernel import moved_from, parsed
from liken.events.numbers import dev_number, properties
from liken.events.places import Places


def one(data: bytes) -> None:
    """Whatever arrives: no exception, and a place that cannot leave sysfs."""
    header = data.partition(b"\0")[0]
    for changed in (parsed(header), moved_from(data)):
        if changed is not None:
            assert changed.path.startswith("/")
            assert "/../" not in changed.path
            assert changed.action.isalpha()
            Places().concerned(changed.path)
    for value in properties(data).values():
        dev_number(value)


def main() -> None:
    import atheris  # noqa: PLC0415 - not needed to run `one` in a test

    atheris.Setup(sys.argv, one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
