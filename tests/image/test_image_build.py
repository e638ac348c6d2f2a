"""The image: its size, what it holds, who it is, and that the same input gives the same bytes."""

import hashlib
import json
import pathlib
import tarfile
from typing import Any

import pytest

from tests.image import building

pytestmark = [pytest.mark.image, pytest.mark.timeout(600)]

LIMIT = 120 << 20


@pytest.fixture(scope="module")
def archive() -> pathlib.Path:
    if reason := building.missing():
        pytest.skip(reason)
    return building.built()


def member(archive: pathlib.Path, digest: str) -> Any:
    with tarfile.open(archive) as tar:
        found = tar.extractfile(f"blobs/{digest.replace(':', '/')}")
        assert found is not None
        return json.loads(found.read())


def manifest(archive: pathlib.Path) -> Any:
    with tarfile.open(archive) as tar:
        index = tar.extractfile("index.json")
        assert index is not None
        return member(archive, json.loads(index.read())["manifests"][0]["digest"])


def files(archive: pathlib.Path) -> dict[str, int]:
    """Every file of the image's one layer, with its size."""
    (layer,) = manifest(archive)["layers"]
    with tarfile.open(archive) as tar:
        packed = tar.extractfile(f"blobs/{layer['digest'].replace(':', '/')}")
        assert packed is not None
        with tarfile.open(fileobj=packed, mode="r:*") as root:
            return {entry.name: entry.size for entry in root}


def test_the_image_is_one_layer_below_120_mib(archive: pathlib.Path) -> None:
    assert sum(files(archive).values()) < LIMIT


def test_the_image_starts_liken_as_nobody_and_says_what_it_is(archive: pathlib.Path) -> None:
    config = member(archive, manifest(archive)["config"]["digest"])["config"]
    assert config["Entrypoint"] == ["liken"]
    assert config["User"] == "65532:65532"
    labels = config["Labels"]
    assert labels["org.opencontainers.image.title"] == "liken"
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert len(labels["org.opencontainers.image.revision"]) == 40


def test_the_image_holds_modprobe_the_ids_and_compiled_code_and_no_package_manager(archive: pathlib.Path) -> None:
    names = files(archive).keys()
    assert {"usr/share/misc/pci.ids", "usr/share/misc/usb.ids", "usr/bin/kmod"} <= names
    assert any(name.endswith("site-packages/liken/__pycache__/daemon.cpython-311.pyc") for name in names)
    assert not [name for name in names if name.startswith(("usr/bin/apt", "usr/bin/dpkg", "usr/bin/perl", "build"))]
    assert not [name for name in names if "/pip/" in name]


def test_the_sbom_lists_the_distribution_and_every_python_package(archive: pathlib.Path) -> None:
    packages = json.loads(archive.with_name(building.SBOM.name).read_text())["packages"]
    urls = {reference["referenceLocator"].split("@")[0] for each in packages for reference in each["externalRefs"]}
    assert {"pkg:deb/debian/kmod", "pkg:deb/debian/libc6", "pkg:pypi/liken", "pkg:pypi/uvloop"} <= urls
    locked = [line.split("==")[0] for line in (building.PROJECT / "requirements.lock").read_text().splitlines()]
    assert {f"pkg:pypi/{name}" for name in locked if name[:1].isalpha()} <= urls
    assert all(each["versionInfo"] for each in packages)


def test_the_same_input_gives_the_same_bytes(archive: pathlib.Path) -> None:
    before = hashlib.sha256(archive.read_bytes()).hexdigest(), manifest(archive)["config"]["digest"]
    building.built(again=True)
    assert (hashlib.sha256(archive.read_bytes()).hexdigest(), manifest(archive)["config"]["digest"]) == before
