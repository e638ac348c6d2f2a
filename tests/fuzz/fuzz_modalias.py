"""Atheris target: the catalogue and its matcher. `python -m tests.fuzz.fuzz_modalias CORPUS` (pip install atheris)."""

import sys

from liken.state.catalog import ModuleCatalog
from liken.state.glob import literal_prefix, matches


def one(data: bytes) -> None:
    """Whatever the files and a modalias hold: no exception, and a match begins with the pattern's literal part."""
    alias, _, rest = data.partition(b"\0")
    modalias = rest.decode("utf-8", "replace")
    catalog = ModuleCatalog(alias=alias, dep=rest, builtin=rest, softdep=alias, modprobe=alias)
    for module in catalog.candidates(modalias):
        assert not catalog.is_builtin(module)
        catalog.dependencies(module)
        catalog.softdeps(module)
    pattern = alias.decode("latin-1")
    if matches(pattern, modalias):
        assert modalias.startswith(literal_prefix(pattern))


def main() -> None:
    import atheris  # noqa: PLC0415 - not needed to run `one` in a test

    atheris.Setup(sys.argv, one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
