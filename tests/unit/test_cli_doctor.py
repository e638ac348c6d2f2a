import json
import pathlib

import pytest
from click.testing import CliRunner

from liken.cli import checks
from liken.cli.app import cli
from liken.cli.checks import Level
from liken.config import Claiming

REAL = "22 1 0:21 / /sys ro,nosuid - sysfs sysfs ro\n"
ROOT = "1 0 259:1 / / rw - ext4 /dev/nvme0n1p1 rw\n"


def proc(tmp_path: pathlib.Path, **files: str) -> pathlib.Path:
    for name, text in files.items():
        path = tmp_path / "proc" / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "proc"


def test_a_sysfs_that_is_the_kernels_is_well(tmp_path: pathlib.Path) -> None:
    check = checks.sysfs(pathlib.Path("/sys"), proc(tmp_path, self__mountinfo=ROOT + REAL))
    assert check.level is Level.OK


@pytest.mark.parametrize("mounts", [ROOT, ROOT + "30 1 8:1 /fake /sys rw - ext4 /dev/sda1 rw\n", ""])
def test_a_sysfs_that_is_a_folder_fails_and_says_what_to_mount(tmp_path: pathlib.Path, mounts: str) -> None:
    check = checks.sysfs(pathlib.Path("/sys"), proc(tmp_path, self__mountinfo=mounts))
    assert check.level is Level.FAIL
    assert "hostPath" in check.remedy


def test_the_last_mount_on_a_place_is_the_one_that_is_seen(tmp_path: pathlib.Path) -> None:
    hidden = REAL + "30 1 0:30 / /sys rw - tmpfs tmpfs rw\n"
    check = checks.sysfs(pathlib.Path("/sys"), proc(tmp_path, self__mountinfo=hidden))
    assert check.level is Level.FAIL
    assert "a tmpfs" in check.found


def test_a_user_namespace_of_its_own_gets_no_uevents(tmp_path: pathlib.Path) -> None:
    check = checks.uevents(tmp_path, proc(tmp_path, self__uid_map="         0     100000      65536\n"))
    assert check.level is Level.FAIL
    assert "hostUsers" in check.remedy


def test_uevents_that_cannot_be_tried_are_a_warning(tmp_path: pathlib.Path) -> None:
    check = checks.uevents(tmp_path / "sys", proc(tmp_path, self__uid_map="0 0 4294967295\n"))
    assert check.level is Level.WARN
    assert "liken watch" in check.remedy


@pytest.mark.parametrize(
    ("table", "level"),
    [(ROOT, Level.OK), ("1 0 0:99 / / rw - overlay overlay rw\n", Level.WARN), (None, Level.FAIL)],
)
def test_mounts_must_be_those_of_the_machine(tmp_path: pathlib.Path, table: str | None, level: Level) -> None:
    there = proc(tmp_path, **({"1__mountinfo": table} if table is not None else {"self__status": ""}))
    assert checks.mounts(there).level is level


def test_missing_ids_are_named(tmp_path: pathlib.Path) -> None:
    (tmp_path / "pci.ids").write_text("")
    check = checks.ids(tmp_path)
    assert check.level is Level.WARN
    assert check.found.startswith("usb.ids not found")
    (tmp_path / "usb.ids").write_text("")
    assert checks.ids(tmp_path).level is Level.OK


def test_a_modules_folder_without_aliases_is_a_warning(tmp_path: pathlib.Path) -> None:
    assert checks.modules(tmp_path).level is Level.WARN
    (tmp_path / "modules.alias.xz").write_bytes(b"")
    assert checks.modules(tmp_path).level is Level.OK


@pytest.mark.parametrize(
    ("capabilities", "files", "words"),
    [
        ("0000000000000000", {}, "CAP_SYS_MODULE"),
        ("0000000000010000", {"kernel__security__lockdown": "none [integrity] confidentiality"}, "locked down"),
        ("0000000000010000", {"module__module__parameters__sig_enforce": "Y\n"}, "signed"),
        ("0000000000010000", {}, ""),
    ],
)
def test_what_keeps_modules_from_loading_is_said(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capabilities: str, files: dict[str, str], words: str
) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "modprobe").write_text("#!/bin/sh\n")
    (tools / "modprobe").chmod(0o755)
    monkeypatch.setenv("PATH", str(tools))
    for name, text in files.items():
        path = tmp_path / "sys" / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    check = checks.loading(tmp_path / "sys", proc(tmp_path, self__status=f"CapEff:\t{capabilities}\n"))
    assert check.level is (Level.WARN if words else Level.OK)
    assert words in check.found


def test_folders_are_there_to_be_made_or_wrong(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "cdi").mkdir()
    found = list(
        checks.folders(
            Claiming(
                cdi_dir=tmp_path / "cdi", plugins_dir=tmp_path / "absent", registry_dir=tmp_path / "file" / "registry"
            )
        )
    )
    assert [check.level for check in found] == [Level.OK, Level.WARN, Level.FAIL]


def test_a_socket_path_that_is_too_long_fails(tmp_path: pathlib.Path) -> None:
    deep = tmp_path / ("x" * 90)
    found = list(checks.folders(Claiming(cdi_dir=tmp_path, plugins_dir=tmp_path, registry_dir=deep)))
    assert found[-1].name == "socket path"
    assert found[-1].level is Level.FAIL


def test_the_doctor_of_a_recording_looks_at_the_recording_alone(tmp_path: pathlib.Path) -> None:
    guide = pathlib.Path(__file__).parents[1] / "fixtures/guide"
    result = CliRunner().invoke(
        cli,
        ["doctor", "-o", "json", "--recording", str(guide / "machine.umockdev"), "--ids", str(guide), "--modules",
         str(tmp_path)],
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    levels = {check["name"]: check["level"] for check in json.loads(result.stdout)}
    assert levels == {"inventory": "ok", "ids": "ok", "modules": "warn"}


def test_a_failed_check_makes_the_exit_code_1(tmp_path: pathlib.Path) -> None:
    arguments = ["doctor", "-o", "json", "--sysfs", str(tmp_path), "--kubeconfig", str(tmp_path / "absent")]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 1
    levels = {check["name"]: check["level"] for check in json.loads(result.stdout)}
    assert levels["inventory"] == "fail"
    assert levels["credentials"] == "fail"
