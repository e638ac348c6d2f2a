"""The manifests the cluster tests apply are the guide's, word for word; needs the guide's text beside the project."""

import pathlib

import pytest

from tests.cluster.manifests import GUIDE

pytestmark = pytest.mark.shared


@pytest.mark.parametrize("manifest", GUIDE, ids=[text.split("name: ")[1].split()[0] for text in GUIDE])
def test_the_manifest_is_in_the_guide_word_for_word(shared: pathlib.Path, manifest: str) -> None:
    assert manifest.strip() in (shared / "seed/give-a-workload-a-device.txt").read_text()
