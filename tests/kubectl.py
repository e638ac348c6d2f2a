"""kubectl for a test: the one beside the real API server's binaries, or the one on PATH; without one, a skip."""

import os
import pathlib
import shutil
import subprocess

import anyio
import pytest


class KubectlFailed(Exception):
    """kubectl ended with another code than 0; the message has what it said."""


def program() -> str:
    """The path of kubectl; skips the test where there is none."""
    found = shutil.which("kubectl", path=os.environ.get("KUBEBUILDER_ASSETS", "")) or shutil.which("kubectl")
    if found is None:
        pytest.skip("no kubectl in KUBEBUILDER_ASSETS or on PATH: get one from https://dl.k8s.io")
    return found


async def kubectl(kubeconfig: pathlib.Path, *arguments: str, told: str | None = None) -> str:
    """What kubectl prints; `told` is its input. Raises KubectlFailed."""
    command = [program(), "--kubeconfig", str(kubeconfig), *arguments]
    done = await anyio.to_thread.run_sync(
        lambda: subprocess.run(command, input=told, capture_output=True, check=False, text=True)
    )
    if done.returncode:
        message = f"kubectl {' '.join(arguments)} ended with {done.returncode}: {done.stderr}"
        raise KubectlFailed(message)
    return done.stdout
