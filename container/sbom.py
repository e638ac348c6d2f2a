"""What is in an image, as SPDX 2.3 JSON: the distribution's packages and the Python distributions of its root folder.

In: the root (`--root`), read as files, nothing in it is run. Out: the document on standard output; the same root and
time give the same bytes.
"""

import argparse
import datetime as dt
import email
import hashlib
import json
import pathlib
import re
import sys
from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]

NAMESPACE = "https://liken.sh/spdx"
NO_ASSERTION = "NOASSERTION"


def package(kind: str, name: str, version: str, url: str, licence: str = NO_ASSERTION) -> Json:
    """One entry of the document; `url` is its package URL (purl)."""
    identifier = re.sub(r"[^A-Za-z0-9.-]", "-", f"SPDXRef-{kind}-{name}")
    return {
        "SPDXID": identifier,
        "name": name,
        "versionInfo": version,
        "downloadLocation": NO_ASSERTION,
        "filesAnalyzed": False,
        "licenseConcluded": NO_ASSERTION,
        "licenseDeclared": licence,
        "copyrightText": NO_ASSERTION,
        "externalRefs": [
            {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": url},
        ],
    }


def distribution_packages(root: pathlib.Path) -> Iterator[Json]:
    """The installed packages of `/var/lib/dpkg/status`."""
    text = (root / "var/lib/dpkg/status").read_text(encoding="utf-8")
    for block in filter(None, text.split("\n\n")):
        fields = email.message_from_string(block)
        if fields["Status"] == "install ok installed":
            name, version, architecture = fields["Package"], fields["Version"], fields["Architecture"]
            yield package("deb", name, version, f"pkg:deb/debian/{name}@{version}?arch={architecture}")


def python_packages(root: pathlib.Path) -> Iterator[Json]:
    """The Python distributions by their `METADATA`."""
    for metadata in (root / "opt/liken/lib/python3/site-packages").glob("*.dist-info/METADATA"):
        fields = email.message_from_string(metadata.read_text(encoding="utf-8"))
        name, version = re.sub(r"[-_.]+", "-", fields["Name"]).lower(), fields["Version"]
        licence = fields["License-Expression"] or NO_ASSERTION
        yield package("pypi", name, version, f"pkg:pypi/{name}@{version}", licence)


def document(root: pathlib.Path, version: str, epoch: int) -> Json:
    """The whole document, sorted."""
    found = sorted([*distribution_packages(root), *python_packages(root)], key=lambda entry: entry["SPDXID"])
    image = package("image", "liken", version, f"pkg:oci/liken@{version}", "Apache-2.0")
    image["SPDXID"] = "SPDXRef-image"
    digest = hashlib.sha256(json.dumps(found).encode()).hexdigest()
    contains = [
        {
            "spdxElementId": image["SPDXID"],
            "relationshipType": "CONTAINS",
            "relatedSpdxElement": entry["SPDXID"],
        }
        for entry in found
    ]
    describes = {
        "spdxElementId": "SPDXRef-DOCUMENT",
        "relationshipType": "DESCRIBES",
        "relatedSpdxElement": image["SPDXID"],
    }
    created = dt.datetime.fromtimestamp(epoch, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"liken-{version}",
        "documentNamespace": f"{NAMESPACE}/liken-{version}-{digest[:16]}",
        "creationInfo": {"created": created, "creators": ["Tool: liken container/sbom.py"]},
        "packages": [image, *found],
        "relationships": [describes, *contains],
    }


def main() -> None:
    """Print the document of the root given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=pathlib.Path, required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--epoch", type=int, default=0)
    options = parser.parse_args()
    json.dump(document(options.root, options.version, options.epoch), sys.stdout, indent=1)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
