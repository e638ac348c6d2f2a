"""The project's image, built once and again only when what goes into it changed."""

import os
import pathlib
import shutil
import subprocess

PROJECT = pathlib.Path(__file__).parents[2]
ARCHIVE = PROJECT / "dist/liken-test.tar"
SBOM = PROJECT / "dist/liken-test.spdx.json"
NAME = "localhost/liken:test"
# The machine's network, held while the tests are collected: later they may be in one from which nothing is fetched.
OUTSIDE = os.open("/proc/self/ns/net", os.O_RDONLY)
INPUTS = ("liken/**/*.py", "container/Containerfile", "container/build-image", "container/image/*", "requirements.lock")


def missing() -> str:
    """Why the image cannot be built here; empty: it can."""
    absent = [tool for tool in ("buildah", "mmdebstrap", "git", "nsenter") if shutil.which(tool) is None]
    return f"the image needs {', '.join(absent)}" if absent else ""


def fresh() -> bool:
    """Whether the archive is newer than all that goes into it."""
    newest = max(path.stat().st_mtime for pattern in INPUTS for path in PROJECT.glob(pattern))
    return ARCHIVE.exists() and SBOM.exists() and ARCHIVE.stat().st_mtime > newest


def built(*, again: bool = False) -> pathlib.Path:
    """The OCI archive; raises AssertionError with the words of the build."""
    if again or not fresh():
        command = ["nsenter", f"--net=/proc/self/fd/{OUTSIDE}", str(PROJECT / "container/build-image"), "test"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=PROJECT, pass_fds=(OUTSIDE,))
        assert done.returncode == 0, done.stdout + done.stderr
    return ARCHIVE
