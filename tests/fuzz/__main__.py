"""Runs a fuzz target with coverage: `python -m tests.fuzz TARGET CORPUS [libFuzzer options]` (pip install atheris).

TARGET is the end of a module's name here (`uevents`, `recording`, …); each has `one(data)`, which must not raise.
"""

import importlib
import sys

import atheris


def main() -> None:
    with atheris.instrument_imports(include=["liken"]):
        target = importlib.import_module(f"tests.fuzz.fuzz_{sys.argv[1]}")
    atheris.Setup([sys.argv[0], *sys.argv[2:]], target.one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
