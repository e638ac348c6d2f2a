import json
import pathlib
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner, Result

from liken import config
from liken.cli.app import COMMANDS, cli
from liken.state.names import DRIVER_NAME

GUIDE = pathlib.Path(__file__).parents[1] / "fixtures/guide"
MACHINE = ["--recording", str(GUIDE / "machine.umockdev"), "--ids", str(GUIDE)]


def called(*arguments: str, env: dict[str, str] | None = None) -> Result:
    return CliRunner(env={"KUBECONFIG": None, "LIKEN_CONFIG": None, **(env or {})}).invoke(cli, list(arguments))


def answered(*arguments: str) -> Any:
    result = called(*arguments, *MACHINE)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def modaliases_cut(device: dict[str, Any]) -> dict[str, Any]:
    """The guide abbreviates the modalias; all else must be equal."""
    said = device["attributes"]["modalias"]["string"]
    assert said.startswith("pci:v00008086d000046D2")
    return {**device, "attributes": {**device["attributes"], "modalias": {"string": "pci:v00008086d000046D2..."}}}


def test_devices_prints_the_list_of_the_guide() -> None:
    expected = yaml.safe_load((GUIDE / "devices.yaml").read_text())
    found = [modaliases_cut(device) for device in answered("devices", "-o", "json")]
    for device in found:
        device["attributes"].pop("resource.kubernetes.io/pcieRoot", None)  # the guide's page is older
    assert found == expected


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_slices_is_a_list_that_holds_exactly_these_devices(form: str) -> None:
    result = called("slices", "--node-name", "worker-1", "-o", form, *MACHINE)
    assert result.exit_code == 0
    written = yaml.safe_load(result.stdout)
    assert written["kind"] == "List"
    (item,) = written["items"]
    assert item["metadata"]["name"] == f"worker-1-{DRIVER_NAME}"
    assert item["spec"]["nodeName"] == "worker-1"
    assert item["spec"]["devices"] == answered("devices", "-o", "json")
    assert "owner" in result.stderr


def test_a_table_names_each_device_with_its_nodes() -> None:
    result = called("devices", *MACHINE)
    rows = [line.split() for line in result.stdout.splitlines()]
    assert rows[0][:3] == ["NAME", "NODES", "SHARED"]
    assert ["pci-0000-00-02-0", "/dev/dri/renderD128", "yes"] in [row[:3] for row in rows]
    assert ["pci-0000-00-02-0-display", "/dev/dri/card0", "no"] in [row[:3] for row in rows]
    assert result.stderr == ""


def test_names_are_one_a_line_for_scripts() -> None:
    result = called("devices", "-o", "name", *MACHINE)
    assert result.stdout.split() == ["pci-0000-00-02-0", "pci-0000-00-02-0-display", "pci-0000-00-02-0-i2c-dev"]


def test_explain_without_a_word_gives_every_entry_a_verdict() -> None:
    (entry,) = answered("explain", "-o", "json")
    assert entry["verdict"] == "Published"
    assert [device["name"] for device in entry["devices"]] == called("devices", "-o", "name", *MACHINE).stdout.split()
    table = called("explain", *MACHINE).stdout
    assert "0000:00:02.0" in table
    assert "Published" in table


@pytest.mark.parametrize(
    "what",
    ["pci-0000-00-02-0", "pci-0000-00-02-0-display", "0000:00:02.0", "00:02.0", "pci:0000:00:02.0", "/dev/dri/card0",
     "dri/renderD128", "/dev/i2c-0", "8086:46d2", "8086:46D2", "uhd graph", "i915"],
)  # fmt: skip
def test_explain_finds_a_device_by_any_of_its_names(what: str) -> None:
    (entry,) = answered("explain", what, "-o", "json")
    assert entry["address"] == "0000:00:02.0"
    text = called("explain", what, *MACHINE).stdout
    assert "many claims at once" in text
    assert "/dev/dri/renderD128  (drm, 226:128)" in text


def test_explain_says_why_a_node_of_no_bus_is_never_offered(tmp_path: pathlib.Path) -> None:
    recording = tmp_path / "machine.umockdev"
    stray = "P: /devices/platform/vgem/drm/renderD191\nN: dri/renderD191\nE: DEVNAME=/dev/dri/renderD191\n"
    stray += "E: MAJOR=226\nE: MINOR=191\nE: SUBSYSTEM=drm\nA: dev=226:191\\n\n"
    recording.write_text(f"{(GUIDE / 'machine.umockdev').read_text()}\n{stray}")
    result = called("explain", "/dev/dri/renderD191", "--recording", str(recording))
    assert result.exit_code == 1
    assert "hangs on no PCI or USB device" in result.output
    assert "platform" in result.output


def test_explain_of_nothing_is_one_clear_line_and_exit_code_1() -> None:
    result = called("explain", "toaster", *MACHINE)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert "nothing on this machine is called 'toaster'" in result.stderr


def test_unclaimed_names_the_modules_to_declare(tmp_path: pathlib.Path) -> None:
    recording = tmp_path / "machine.umockdev"
    text = (GUIDE / "machine.umockdev").read_text()
    head = text.split("\n\n")
    recording.write_text("\n".join(x for x in head[0].splitlines() if "driver=" not in x and "DRIVER" not in x) + "\n")
    modules = tmp_path / "6.12.0-test"
    modules.mkdir()
    (modules / "modules.alias").write_text("alias pci:v00008086d000046D2sv*sd*bc03sc*i* i915\n")
    (modules / "modules.dep").write_text("kernel/drivers/gpu/drm/i915/i915.ko:\n")
    (modules / "modules.builtin").write_text("")
    options = ["--recording", str(recording), "--ids", str(GUIDE), "--modules", str(modules)]
    (entry,) = json.loads(called("unclaimed", "-o", "json", *options).stdout)
    assert entry["modules"] == ["i915"]
    assert entry["address"] == "0000:00:02.0"
    assert "declare i915 in spec.modules" in entry["message"]
    assert "i915" in called("unclaimed", *options).stdout
    assert "declare i915" in called("explain", "00:02.0", *options).stdout


def test_a_recording_of_a_recording_offers_the_same(tmp_path: pathlib.Path) -> None:
    again = tmp_path / "again.umockdev"
    result = called("record", str(again), *MACHINE)
    assert result.exit_code == 0, result.output
    assert result.stdout == ""
    offered = called("devices", "-o", "json", "--recording", str(again), "--ids", str(GUIDE))
    assert json.loads(offered.stdout) == answered("devices", "-o", "json")


def test_options_come_from_the_command_line_then_the_environment_then_the_file(tmp_path: pathlib.Path) -> None:
    config = tmp_path / "liken.yaml"
    config.write_text(f"node-name: from-file\nrecording: {GUIDE / 'machine.umockdev'}\nquiet-window: 10ms\n")
    env = {"LIKEN_NODE_NAME": "from-env"}

    def node(*arguments: str, env: dict[str, str] | None = None) -> str:
        result = called("slices", "-o", "json", "--config", str(config), *arguments, env=env)
        assert result.exit_code == 0, result.output
        return str(json.loads(result.stdout)["items"][0]["spec"]["nodeName"])

    assert node() == "from-file"
    assert node(env=env) == "from-env"
    assert node("--node-name", "from-line", env=env) == "from-line"


def test_what_one_command_alone_has_stands_below_its_name_in_the_file(tmp_path: pathlib.Path) -> None:
    config = tmp_path / "liken.yaml"
    config.write_text(f"recording: {GUIDE / 'machine.umockdev'}\ndevices:\n  output: name\ncrd:\n  output: json\n")
    assert "pci-0000-00-02-0" in called("devices", "--config", str(config)).stdout.split()
    assert json.loads(called("crd", "--config", str(config)).stdout)["kind"] == "CustomResourceDefinition"
    assert json.loads(called("devices", "--config", str(config), "-o", "json").stdout)
    config.write_text("devices: {output: nonsense}\n")
    result = called("devices", "--config", str(config), *MACHINE)
    assert result.exit_code == 2
    assert "'nonsense' is not one of" in result.stderr


def test_a_wrong_file_is_a_usage_error_that_names_the_key(tmp_path: pathlib.Path) -> None:
    config = tmp_path / "liken.yaml"
    config.write_text("node-nam: x\n")
    result = called("devices", "--config", str(config), *MACHINE)
    assert result.exit_code == 2
    assert "the nearest is 'node-name'" in result.stderr


def test_every_command_explains_itself() -> None:
    for name in COMMANDS:
        result = called(name, "--help")
        assert result.exit_code == 0, name
        assert "Usage: " in result.stdout


def test_no_claims_is_said_and_an_empty_list(tmp_path: pathlib.Path) -> None:
    assert json.loads(called("claims", "-o", "json", "--cdi-dir", str(tmp_path)).stdout) == []
    result = called("claims", "--cdi-dir", str(tmp_path))
    assert result.exit_code == 0
    assert "No claim is prepared" in result.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(shell: str) -> None:
    result = called("completion", shell)
    assert "_LIKEN_COMPLETE" in result.stdout


def test_the_crd_is_one_object_in_both_forms() -> None:
    crd = yaml.safe_load(called("crd").stdout)
    assert crd["metadata"]["name"] == "machines.liken.sh"
    assert json.loads(called("crd", "-o", "json").stdout) == crd


def test_the_report_is_a_machine_of_this_node() -> None:
    machine = yaml.safe_load(called("report", "--node-name", "worker-1", *MACHINE).stdout)
    assert machine["kind"] == "Machine"
    assert machine["metadata"]["name"] == "worker-1"
    assert answered("report", "--node-name", "worker-1", "-o", "json")["kind"] == "Machine"


def test_an_option_of_one_command_has_a_variable_that_names_the_command() -> None:
    result = called("devices", *MACHINE, env={"LIKEN_DEVICES_OUTPUT": "name"})
    assert result.stdout.split()[0] == "pci-0000-00-02-0"
    assert called("slices", "--node-name", "n", *MACHINE, env={"LIKEN_DEVICES_OUTPUT": "name"}).exit_code == 0


def test_the_defaults_of_the_command_line_are_those_of_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for option in config.known().values():
        for name in option.env:
            monkeypatch.delenv(name, raising=False)
    command = cli.get_command(click.Context(cli), "run")
    assert command is not None
    assert config.settings(command.make_context("run", []).params) == config.Settings()
