"""The manifests of the documentation, applied to a real API server; its local commands, run."""

import pathlib
import re
import shlex
import subprocess
import sys

import pytest

from tests.contract.control_plane import HOW_TO_GET, ControlPlane, assets

DOCS = pathlib.Path(__file__).parents[2] / "docs"
README = DOCS.parent / "README.md"
YAML = re.compile(r"```yaml\n(.*?)```", re.DOTALL)
COMMAND = re.compile(
    r"^    (?:\.venv/bin/)?(liken (?:devices|explain|slices|unclaimed|claims|crd|report)\b[^#\n|>]*)", re.MULTILINE
)
RECORDING = pathlib.Path(__file__).parents[1] / "fixtures" / "recordings"


def pages() -> list[pathlib.Path]:
    return sorted(page for page in DOCS.rglob("*.md") if "reference/command-line" not in str(page))


def manifests() -> list[tuple[str, str]]:
    found = [
        (page, block)
        for page in pages()
        for block in YAML.findall(page.read_text())
        if "apiVersion:" in block and "kustomize.config" not in block
    ]
    return [(f"{page.relative_to(DOCS)}", block) for page, block in found]


@pytest.mark.contract
@pytest.mark.timeout(120)
def test_every_manifest_of_the_documentation_is_accepted_by_a_real_api_server(tmp_path: pathlib.Path) -> None:
    folder = assets()
    if folder is None:
        pytest.skip(HOW_TO_GET)
    kubectl = folder / "kubectl"
    if not kubectl.exists():
        pytest.skip(f"no kubectl in {folder}")
    assert len(manifests()) >= 4
    with ControlPlane(tmp_path / "plane", folder) as plane:

        def run(*arguments: str, stdin: str) -> None:
            command = [str(kubectl), f"--kubeconfig={plane.kubeconfig}", *arguments]
            done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{stdin}\n{done.stderr}"

        crd = (DOCS.parent / "container" / "crd" / "machines.liken.sh.yaml").read_text()
        run("apply", "-f", "-", stdin=crd)
        run("wait", "--for=condition=Established", "crd/machines.liken.sh", stdin="")
        for namespace in ("media", "home"):
            run("create", "namespace", namespace, stdin="")
            run("create", "serviceaccount", "default", "-n", namespace, stdin="")
        run("create", "serviceaccount", "default", stdin="")
        for _, manifest in manifests():
            run("apply", "--dry-run=server", "-f", "-", stdin=manifest)


def commands() -> list[str]:
    texts = [page.read_text() for page in (*pages(), README)]
    return sorted({command.strip() for text in texts for command in COMMAND.findall(text)})


@pytest.mark.parametrize("command", commands())
def test_a_command_of_the_documentation_runs(command: str) -> None:
    recording = str(min(RECORDING.glob("*.umockdev")))
    words = [
        word for word in shlex.split(command)[1:] if not (word.isupper() or "…" in word or word.startswith("/dev/"))
    ]
    if "--recording" in words:
        words[words.index("--recording") + 1 :] = [recording]
    elif words[0] not in {"claims", "crd"}:
        words.append(f"--recording={recording}")
    done = subprocess.run([sys.executable, "-m", "liken", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    assert done.stdout or done.stderr
