"""Atheris target: the reader of recordings. `python -m tests.fuzz recording CORPUS`."""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

from liken.events.recording import RecordingError, recorded
from liken.events.sysfs import Sysfs


def one(data: bytes) -> None:
    """Whatever the file holds: a machine that can be read, or a RecordingError; nothing outside of its folder."""
    with TemporaryDirectory(prefix="liken-fuzz-") as name:
        path = Path(name) / "recording"
        path.write_bytes(data)
        try:
            with recorded(path) as machine:
                sysfs = Sysfs(machine.sysfs, machine.proc, machine.dev)
                sysfs.everything()
                sysfs.system()
                inside = os.fsencode(machine.sysfs.parent)
                for folder, _, files in os.walk(inside):
                    for file in files:
                        place = os.path.join(folder, file)  # noqa: PTH118 - bytes
                        assert os.path.islink(place) or os.path.isfile(place)  # noqa: PTH113, PTH114 - bytes
        except RecordingError:
            return
