"""From the kernel's socket to a real API server."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contract.control_plane import HOW_TO_GET, assets
from tests.contract.uevent_scenario import DEVICE, FORBIDDEN

pytestmark = [pytest.mark.contract, pytest.mark.namespace, pytest.mark.timeout(180)]


def test_a_uevent_reaches_a_real_api_server_as_one_patch() -> None:
    if assets() is None:
        pytest.skip(HOW_TO_GET)
    done = subprocess.run(
        [sys.executable, "-m", "tests.contract.uevent_scenario"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    if done.returncode == FORBIDDEN:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    assert DEVICE in seen["before"]
    (after,) = seen["changes"]
    assert after == [name for name in seen["before"] if name != DEVICE]
    assert 0.04 < seen["took_s"] < 5
