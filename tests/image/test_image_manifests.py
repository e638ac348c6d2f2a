"""The manifests: what each overlay may do, line by line, and the chart that must say the same."""

import json
import pathlib
import shutil
import subprocess
from typing import Any

import pytest
import yaml

from tests.kubectl import program

CONTAINER = pathlib.Path(__file__).parents[2] / "container"
CHART = CONTAINER / "chart"
Objects = dict[tuple[str, str], Any]


def helm() -> str:
    found = shutil.which("helm")
    if found is None:
        pytest.skip("helm is not in PATH")
    return found


def objects(text: str) -> Objects:
    return {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(text) if each}


def kustomized(folder: str) -> Objects:
    command = [program(), "kustomize", str(CONTAINER / "deploy" / folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    return objects(done.stdout)


def container(found: Objects) -> Any:
    return found["DaemonSet", "liken"]["spec"]["template"]["spec"]["containers"][0]


def folders(found: Objects) -> dict[str, bool]:
    """Where the container sees the host's folders, and whether it may write there."""
    return {mount["mountPath"]: not mount.get("readOnly", False) for mount in container(found)["volumeMounts"]}


def rules(found: Objects) -> set[tuple[str, str]]:
    """Every resource and verb of the daemon's roles."""
    return {
        (resource, verb)
        for (kind, name), each in found.items()
        if kind == "ClusterRole" and name != "liken-uninstall"
        for rule in each["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


SLICES = {("resourceslices", verb) for verb in ("get", "list", "watch", "create", "update", "patch", "delete")}
ALWAYS = SLICES | {("resourceclaims", "get"), ("nodes", "get"), ("events", "create"), ("events", "patch")}
MACHINES = {("machines", verb) for verb in ("get", "list", "watch", "create")}
STATUS = {("machines/status", verb) for verb in ("update", "patch")}
HOST = {"/var/lib/kubelet": True, "/var/run/cdi": True, "/host/proc": False, "/host/dev": False}
DRIVERS = {"/lib/modules": False, "/etc/modprobe.d": False, "/sys": True}


def test_minimal_has_no_capability_a_read_only_root_and_no_namespace_of_the_host() -> None:
    found = kustomized("overlays/minimal")
    context = container(found)["securityContext"]
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert context["readOnlyRootFilesystem"] is True
    assert context["allowPrivilegeEscalation"] is False
    pod = found["DaemonSet", "liken"]["spec"]["template"]["spec"]
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
    assert folders(found) == HOST
    assert rules(found) == ALWAYS
    assert ("CustomResourceDefinition", "machines.liken.sh") not in found


def test_modules_adds_one_capability_and_the_modules() -> None:
    found = kustomized("overlays/modules")
    assert container(found)["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["SYS_MODULE"]}
    assert folders(found) == HOST | DRIVERS
    assert rules(found) == ALWAYS | MACHINES | STATUS
    assert ("CustomResourceDefinition", "machines.liken.sh") in found


def test_serio_is_privileged_and_sees_the_ttys() -> None:
    found = kustomized("overlays/serio")
    assert container(found)["securityContext"]["privileged"] is True
    assert "capabilities" not in container(found)["securityContext"]
    assert folders(found) == {path: write for path, write in HOST.items() if path != "/host/dev"} | DRIVERS | {
        "/dev": True
    }
    assert rules(found) == ALWAYS | MACHINES | STATUS


def test_two_instances_overlap_in_an_update_and_the_daemon_is_never_evicted_first() -> None:
    daemonset = kustomized("overlays/minimal")["DaemonSet", "liken"]["spec"]
    assert daemonset["updateStrategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    pod = daemonset["template"]["spec"]
    assert pod["priorityClassName"] == "system-node-critical"
    assert pod["tolerations"] == [{"operator": "Exists"}]
    assert pod["containers"][0]["resources"]["requests"]


def test_the_default_is_modules_with_the_guides_classes() -> None:
    default, modules = kustomized("."), kustomized("overlays/modules")
    extra = default.keys() - modules.keys()
    assert extra == {("DeviceClass", name) for name in ("gpu-render", "gpu-display", "zigbee-adapter")}
    assert {key: each for key, each in default.items() if key in modules} == modules


def test_the_charts_definition_of_machine_is_the_projects() -> None:
    ours = (CONTAINER / "crd/machines.liken.sh.yaml").read_text()
    assert (CONTAINER / "chart/files/machines.liken.sh.yaml").read_text() == ours


def pruned(value: Any) -> Any:
    """Without what only the order or the tool decides: lists of named things by name, no empty and no default."""
    if isinstance(value, dict):
        return {
            key: pruned(each) for key, each in value.items() if each not in (None, "") and key != "creationTimestamp"
        }
    if isinstance(value, list):
        return sorted((pruned(each) for each in value), key=lambda each: json.dumps(each, sort_keys=True))
    return value


@pytest.fixture(params=["minimal", "modules", "serio"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def rendered(*options: str) -> Objects:
    command = [
        helm(),
        "template",
        "liken",
        str(CONTAINER / "chart"),
        "--namespace=liken-system",
        "--no-hooks",
        *options,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return objects(done.stdout)


def test_the_chart_renders_the_objects_of_the_overlay(mode: str) -> None:
    ours = kustomized(f"overlays/{mode}")
    del ours["Namespace", "liken-system"]
    theirs = rendered(f"--set=mode={mode}", "--set=deviceClasses=false", "--kube-version=1.37.0")
    assert theirs.keys() == ours.keys()
    for key, each in ours.items():
        assert pruned(theirs[key]) == pruned(each), key


def test_the_chart_passes_its_linter_and_its_schema_refuses_what_does_not_exist() -> None:
    done = subprocess.run(
        [helm(), "lint", "--strict", str(CONTAINER / "chart")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    command = [helm(), "template", "x", str(CHART), "--set=mode=root"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "mode" in done.stderr
