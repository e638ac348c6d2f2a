"""Atheris target: the parser of datagrams. `python -m tests.fuzz uevents CORPUS`."""

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
