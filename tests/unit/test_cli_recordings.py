import json
import pathlib
from typing import Any

import pytest
from click.testing import CliRunner

from liken.cli.app import cli
from liken.model.hardware import Reason

VERDICTS = {"Published", *map(str, Reason)}


def answered(command: str, recording: pathlib.Path, *options: str) -> Any:
    result = CliRunner(env={"KUBECONFIG": None}).invoke(
        cli, [command, "-o", "json", "--recording", str(recording), *options]
    )
    assert result.exit_code == 0, f"{command} {recording.name}: {result.output[-500:]}"
    return json.loads(result.stdout)


@pytest.mark.shared
@pytest.mark.parametrize(
    "pattern",
    [
        "qemu-6.12/*.umockdev",
        "umockdev/*.umockdev",
        "uevents/*.txt",
        "checkbox/[A-H]*.xz",
        "checkbox/[I-R]*.xz",
        "checkbox/[S-Z]*.xz",
        "hwloc/*.bz2",
        "*.tar.gz",
    ],
)
def test_every_recording_has_slices_and_a_verdict_on_every_entry(shared: pathlib.Path, pattern: str) -> None:
    recordings = sorted((shared / "recordings").glob(pattern))
    assert recordings
    for path in recordings:
        entries = answered("explain", path)
        assert {entry["verdict"] for entry in entries} <= VERDICTS
        explained = [device["name"] for entry in entries for device in entry["devices"]]
        items = answered("slices", path, "--node-name", "n")["items"]
        published = [device["name"] for item in items for device in item["spec"]["devices"]]
        assert sorted(published) == sorted(explained), path.name
        assert all(entry["detail"] for entry in entries), path.name
