import contextlib
import pathlib

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from liken import config
from liken.config import ConfigError, Kind, Option


def written(tmp_path: pathlib.Path, text: str) -> pathlib.Path:
    path = tmp_path / "liken.yaml"
    path.write_text(text)
    return path


def test_every_option_has_a_meaning_a_flag_and_an_environment_variable_of_its_own() -> None:
    every = list(config.known().values())
    assert all(option.doc.endswith(".") and len(option.doc) > 10 for option in every)
    names = [name for option in every for name in option.env]
    assert len(set(names)) == len(names)
    assert "LIKEN_NODE_NAME" in names
    assert "NODE_NAME" in names


def test_flags_are_unique_over_all_groups() -> None:
    flags = [option.flag for group in config.GROUPS for option, _ in config.options(group)]
    assert sorted(flags) == sorted(config.known())


def test_settings_without_values_are_the_defaults() -> None:
    made = config.settings({})
    assert made == config.Settings()
    assert made.claiming.cdi_dir == pathlib.Path("/var/run/cdi")
    assert made.claiming.plugins_dir == pathlib.Path("/var/lib/kubelet/plugins")
    assert made.claiming.registry_dir == pathlib.Path("/var/lib/kubelet/plugins_registry")
    assert made.events.quiet_window == pytest.approx(0.05)
    assert made.events.limit == pytest.approx(0.5)


def test_values_land_in_their_group() -> None:
    made = config.settings({"node_name": "worker-1", "write_burst": 7, "something": "else"})
    assert made.cluster.node_name == "worker-1"
    assert made.publishing.write_burst == 7


@pytest.mark.parametrize(
    ("text", "seconds"), [("50ms", 0.05), ("2s", 2.0), ("10m", 600.0), ("1h", 3600.0), ("0.25", 0.25), (3, 3.0)]
)
def test_a_duration_names_its_unit_or_is_in_seconds(text: object, seconds: float) -> None:
    assert config.known()["resync" if seconds >= 1 else "quiet-window"].parse(text) == pytest.approx(seconds)


@pytest.mark.parametrize(("text", "size"), [("4096", 4096), ("512KiB", 512 << 10), ("8M", 8 << 20), (65536, 65536)])
def test_a_size_is_in_bytes_or_names_its_unit(text: object, size: int) -> None:
    assert config.known()["receive-buffer"].parse(text) == size


@pytest.mark.parametrize(
    ("flag", "raw", "words"),
    [
        ("quiet-window", "soon", "write it as 50ms"),
        ("quiet-window", "-1s", "write it as 50ms"),
        ("write-burst", "many", "a whole number"),
        ("write-burst", 0, "too small"),
        ("write-burst", 2.5, "a whole number"),
        ("receive-buffer", "big", "512KiB"),
        ("log-format", "xml", "none of json, console"),
        ("withdraw", "perhaps", "none of true"),
        ("cdi-dir", "", "a path is missing"),
        ("cdi-dir", True, "no value of the kind DIR"),
        ("cdi-dir", ["/a"], "no value of the kind DIR"),
        ("node-name", None, "no value of the kind TEXT"),
    ],
)
def test_a_wrong_value_is_refused_with_the_words_of_the_fix(flag: str, raw: object, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as refused:
        config.known()[flag].parse(raw)
    assert str(refused.value).startswith(flag)


def test_a_file_maps_flags_to_values(tmp_path: pathlib.Path) -> None:
    path = written(tmp_path, "node-name: worker-1\nquiet-window: 80ms\nwithdraw: yes\ncdi-dir: /run/cdi\n")
    assert config.read_file(path) == {
        "node_name": "worker-1",
        "quiet_window": 0.08,
        "withdraw": True,
        "cdi_dir": pathlib.Path("/run/cdi"),
    }


def test_an_empty_file_sets_nothing(tmp_path: pathlib.Path) -> None:
    assert config.read_file(written(tmp_path, "# nothing yet\n")) == {}


@pytest.mark.parametrize(
    ("key", "nearest"), [("node-nam", "node-name"), ("nodeName", "node-name"), ("cdi_dir", "cdi-dir"), ("zzz", "'")]
)
def test_an_unknown_key_is_an_error_that_names_the_nearest_one(tmp_path: pathlib.Path, key: str, nearest: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown key '{key}'; the nearest is .*{nearest}"):
        config.read_file(written(tmp_path, f"{key}: x\n"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("- a\n", "must map option names"),
        ("just words\n", "must map option names"),
        ("node-name: [\n", "no YAML"),
        ("node-name: a\nnode-name: b\n", "written twice"),
        ("node-name: !!python/object:os.system x\n", "no YAML"),
        ("write-burst: 0\n", "write-burst: 0 is too small"),
        ("node-name:\n", "node-name: None is no value"),
    ],
)
def test_a_wrong_file_is_refused_and_named(tmp_path: pathlib.Path, text: str, words: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigError, match=words) as refused:
        config.read_file(path)
    assert str(path) in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*absent\.yaml: No such file"):
        config.read_file(tmp_path / "absent.yaml")


@hypothesis_settings(max_examples=60, deadline=None)
@given(text=st.text(max_size=40), kind=st.sampled_from(list(Kind)))
def test_any_text_is_a_value_or_a_config_error(text: str, kind: Kind) -> None:
    option = Option(kind, "Anything.", flag="x", choices=("a", "b"))
    with contextlib.suppress(ConfigError):
        option.parse(text)


def test_the_node_name_is_checked() -> None:
    assert config.node_name("worker-1.lan") == "worker-1.lan"
    assert config.node_name(None)
    with pytest.raises(ConfigError, match="--node-name"):
        config.node_name("Worker_1")


OWN = {"devices": {"output": "output"}, "watch": None, "claims": {}}


def test_a_commands_own_options_stand_below_its_name(tmp_path: pathlib.Path) -> None:
    path = written(tmp_path, "node-name: worker-1\ndevices:\n  output: json\nwatch:\n  json: true\n")
    assert config.read_file(path, OWN) == {"node_name": "worker-1", "output": "json"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("devices: {ouput: json}", "unknown key 'ouput' below 'devices'; the nearest is 'output'"),
        ("claims: {output: json}", "unknown key 'output' below 'claims'; this command has no options of its own"),
        ("devices: json", "'devices' is a command: it must map its own options to values"),
        ("device: {output: json}", "unknown key 'device'; the nearest is 'devices'"),
    ],
)
def test_a_wrong_key_of_a_command_is_named(tmp_path: pathlib.Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        config.read_file(written(tmp_path, text), OWN)
