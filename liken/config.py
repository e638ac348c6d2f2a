"""Every option of liken, once: its name, value, default and meaning.

A frozen tree of dataclasses whose fields carry an `Option`. The command line makes its options from it, the
environment its `LIKEN_…` names, the YAML file its keys, and the docs their reference, so the four cannot differ.
In: raw values by field name (text, or what YAML gives). Out: `Settings`. Precedence is the command line's business:
argument, then environment, then file, then default.
"""

import difflib
import re
import socket
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, get_type_hints

DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h)?\s*")
SECONDS_IN = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, None: 1.0}
COUNT = re.compile(r"\d{1,9}")
SIZE = re.compile(r"\s*(\d+)\s*(k|ki|kib|m|mi|mib)?\s*", re.IGNORECASE)
BYTES_IN = {"": 1, "k": 1 << 10, "m": 1 << 20}
SWITCH_WORDS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
NODE_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


class ConfigError(Exception):
    """A value or a key of the configuration is wrong; the message names it and the remedy."""


class Kind(StrEnum):
    """How the value of an option is written."""

    TEXT = "TEXT"
    DIRECTORY = "DIR"
    FILE = "FILE"
    DURATION = "DURATION"
    SIZE = "SIZE"
    COUNT = "N"
    SWITCH = "BOOL"
    CHOICE = "CHOICE"


EXAMPLE = {Kind.DURATION: "50ms, 2s, 10m or 1h", Kind.SIZE: "212992, 512KiB or 8MiB", Kind.COUNT: "a whole number"}


@dataclass(frozen=True, slots=True)
class Option:
    """How one field is set: its kind, its meaning, and its flag (the field's name with dashes)."""

    kind: Kind
    doc: str
    flag: str = ""
    choices: tuple[str, ...] = ()
    also_env: tuple[str, ...] = ()
    least: float = 0

    @property
    def name(self) -> str:
        """The field's and the parameter's name."""
        return self.flag.replace("-", "_")

    @property
    def env(self) -> tuple[str, ...]:
        """Environment variables that set it; the first that is set wins."""
        return (f"LIKEN_{self.name.upper()}", *self.also_env)

    def parse(self, raw: object) -> Any:
        """Value of the field from text or from a YAML scalar; raises ConfigError with the words of the fix."""
        try:
            value = raw if self.kind is Kind.SWITCH and isinstance(raw, bool) else _parse(self, raw)
        except ConfigError as error:
            raise ConfigError(f"{self.flag}: {error}") from None
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value < self.least:
            raise ConfigError(f"{self.flag}: {raw} is too small; the least is {self.least:g}")
        return value


def _parse(option: Option, raw: object) -> object:
    if not isinstance(raw, (str, int, float, Path)) or isinstance(raw, bool):
        raise ConfigError(f"{raw!r} is no value of the kind {option.kind.value}")
    text = str(raw)
    match option.kind:
        case Kind.TEXT:
            return text
        case Kind.SWITCH:
            return _word(text, SWITCH_WORDS)
        case Kind.CHOICE:
            return _word(text, {choice: choice for choice in option.choices})
        case Kind.DIRECTORY | Kind.FILE:
            return _path(text)
        case Kind.DURATION | Kind.SIZE | Kind.COUNT:
            return _quantity(option.kind, text)


def _word(text: str, words: Mapping[str, object]) -> object:
    if (key := text.strip().lower()) in words:
        return words[key]
    raise ConfigError(f"{text!r} is none of {', '.join(words)}")


def _path(text: str) -> Path:
    if not text or "\0" in text:
        raise ConfigError("a path is missing")
    return Path(text)


def _quantity(kind: Kind, text: str) -> float:
    if kind is Kind.DURATION and (found := DURATION.fullmatch(text)):
        return float(found[1]) * SECONDS_IN[found[2]]
    if kind is Kind.SIZE and (found := SIZE.fullmatch(text)):
        return int(found[1]) * BYTES_IN[(found[2] or "")[:1].lower()]
    if kind is Kind.COUNT and COUNT.fullmatch(text):
        return int(text)
    raise ConfigError(f"{text!r} is no value of the kind {kind.value}; write it as {EXAMPLE[kind]}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """Where the machine is read from: this one, or a recording of another."""

    sysfs: Annotated[Path | None, Option(Kind.DIRECTORY, "The sysfs tree to read instead of /sys.")] = None
    recording: Annotated[
        Path | None,
        Option(
            Kind.FILE,
            "Read a recorded machine instead: a umockdev text, a `udevadm info --export-db` dump, a directory or "
            "a tar of sysfs, optionally compressed.",
        ),
    ] = None
    ids: Annotated[
        Path | None,
        Option(Kind.DIRECTORY, "Folder with pci.ids and usb.ids (otherwise /usr/share/misc, /usr/share/hwdata)."),
    ] = None
    modules: Annotated[
        Path | None, Option(Kind.DIRECTORY, "A /lib/modules/<release> folder (otherwise the running kernel's).")
    ] = None
    proc: Annotated[
        Path | None,
        Option(
            Kind.DIRECTORY, "The procfs in which pid 1 shows the machine's mounts: in a container, the host's /proc."
        ),
    ] = None
    dev: Annotated[Path | None, Option(Kind.DIRECTORY, "The folder of device nodes instead of /dev.")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Logging:
    """What the daemon says, and how."""

    log_format: Annotated[
        str | None,
        Option(
            Kind.CHOICE,
            "Form of the log lines (otherwise console on a terminal, json elsewhere).",
            choices=("json", "console"),
        ),
    ] = None
    log_level: Annotated[
        str, Option(Kind.CHOICE, "Least severity that is logged.", choices=("debug", "info", "warning", "error"))
    ] = "info"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Which node this is, and how to reach the API server."""

    node_name: Annotated[
        str | None,
        Option(Kind.TEXT, "Name of this node (otherwise the host name in lower case).", also_env=("NODE_NAME",)),
    ] = None
    kubeconfig: Annotated[
        Path | None,
        Option(
            Kind.FILE,
            "Credentials for the API server (otherwise those of the pod's ServiceAccount).",
            also_env=("KUBECONFIG",),
        ),
    ] = None
    context: Annotated[str | None, Option(Kind.TEXT, "Context of the kubeconfig instead of its current one.")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """The kernel's events: when a burst has settled, and how sysfs is read."""

    quiet_window: Annotated[
        float, Option(Kind.DURATION, "Time without a relevant event after which a change is taken over.")
    ] = 0.05
    limit: Annotated[float, Option(Kind.DURATION, "Time from the first event after which it is taken over anyway.")] = (
        0.5
    )
    resync: Annotated[
        float, Option(Kind.DURATION, "Interval of the safety comparison with the whole of sysfs.", least=1)
    ] = 600.0
    read_deadline: Annotated[
        float, Option(Kind.DURATION, "Time one device may take to be read before it is withheld.", least=0.01)
    ] = 2.0
    receive_buffer: Annotated[
        int, Option(Kind.SIZE, "Receive buffer of the event socket; the kernel may grant less.", least=2048)
    ] = 32 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Publishing:
    """Writing ResourceSlices."""

    write_burst: Annotated[int, Option(Kind.COUNT, "Slice writes that may follow each other at once.", least=1)] = 5
    write_refill: Annotated[float, Option(Kind.DURATION, "Time after which one more write is allowed.", least=0.01)] = (
        2.0
    )
    withdraw: Annotated[
        bool, Option(Kind.SWITCH, "Remove the slices at the end (a rolling update must not do so).")
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Claiming:
    """The kubelet's plugin folders and the container runtime's CDI folder."""

    cdi_dir: Annotated[Path, Option(Kind.DIRECTORY, "Folder where the container runtime looks for CDI files.")] = Path(
        "/var/run/cdi"
    )
    plugins_dir: Annotated[Path, Option(Kind.DIRECTORY, "The kubelet's folder of plugin sockets.")] = Path(
        "/var/lib/kubelet/plugins"
    )
    registry_dir: Annotated[Path, Option(Kind.DIRECTORY, "The kubelet's folder of registration sockets.")] = Path(
        "/var/lib/kubelet/plugins_registry"
    )
    pod_uid: Annotated[
        str | None,
        Option(
            Kind.TEXT,
            "UID of this daemon's pod: names its sockets, so that two instances can overlap in a rolling update.",
            also_env=("POD_UID",),
        ),
    ] = None
    taint_gone: Annotated[
        bool,
        Option(
            Kind.SWITCH,
            "Keep a device that vanishes under a claim in the slice with a NoExecute taint, which evicts its pod.",
        ),
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Machines:
    """The Machine resource."""

    machine: Annotated[
        bool, Option(Kind.SWITCH, "Follow this node's Machine: load its modules, attach its serial lines.")
    ] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Web:
    """Metrics, health and the status page."""

    web_listen: Annotated[str, Option(Kind.TEXT, "Address and port of the metrics and the status page, or `off`.")] = (
        "127.0.0.1:9180"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """What kind of daemon it is."""

    standalone: Annotated[
        bool,
        Option(
            Kind.SWITCH,
            "No Kubernetes: keep the inventory as CDI devices named by slot, for podman, docker and nerdctl.",
        ),
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything a person can set, in groups."""

    hardware: Hardware = field(default_factory=Hardware)
    logging: Logging = field(default_factory=Logging)
    cluster: Cluster = field(default_factory=Cluster)
    mode: Mode = field(default_factory=Mode)
    events: Events = field(default_factory=Events)
    publishing: Publishing = field(default_factory=Publishing)
    claiming: Claiming = field(default_factory=Claiming)
    machines: Machines = field(default_factory=Machines)
    web: Web = field(default_factory=Web)


GROUPS: Mapping[str, type[Any]] = {
    "hardware": Hardware,
    "logging": Logging,
    "cluster": Cluster,
    "mode": Mode,
    "events": Events,
    "publishing": Publishing,
    "claiming": Claiming,
    "machines": Machines,
    "web": Web,
}


def options(group: str) -> Iterator[tuple[Option, Any]]:
    """The options of one group in order, each with its default value."""
    kind = GROUPS[group]
    hints = get_type_hints(kind, include_extras=True)
    for each in fields(kind):
        yield replace(hints[each.name].__metadata__[0], flag=each.name.replace("_", "-")), each.default


def known() -> dict[str, Option]:
    """Every option by its flag: the keys a file may hold."""
    return {option.flag: option for group in GROUPS for option, _ in options(group)}


def settings(values: Mapping[str, Any]) -> Settings:
    """Settings from parsed values by field name; names that are no option are left alone, absent ones keep defaults."""
    groups = {}
    for name, kind in GROUPS.items():
        given = {option.name: values[option.name] for option, _ in options(name) if option.name in values}
        groups[name] = kind(**given)
    return Settings(**groups)


def read_file(path: Path, sections: Mapping[str, Mapping[str, str] | None] | None = None) -> dict[str, Any]:
    """Parsed values of a YAML file by field name; raises ConfigError naming the key, the file and the remedy.

    `sections`: the commands by name, whose own options a file may hold below that name (`devices: {output: json}`).
    For the command that reads it, its own keys and the field name of each; None for the others, which are left alone.
    """
    import yaml  # noqa: PLC0415  (only a file pays for it)

    try:
        node = yaml.compose(path.read_bytes(), Loader=yaml.SafeLoader)
        loaded = yaml.safe_load(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except (yaml.YAMLError, RecursionError) as error:
        where = getattr(error, "problem_mark", None)
        line = f", line {where.line + 1}" if where else ""
        raise ConfigError(
            f"{path}{line} is no YAML: {getattr(error, 'problem', None) or 'it cannot be read'}"
        ) from None
    if loaded is None:
        return {}
    if not isinstance(loaded, dict) or not isinstance(node, yaml.MappingNode):
        raise ConfigError(f"{path} must map option names to values, as `node-name: worker-1`")
    written = [str(key.value) for key, _ in node.value]
    if twice := next((key for key in written if written.count(key) > 1), None):
        raise ConfigError(f"{path}: {twice!r} is written twice; keep one")
    every = known()
    names = sections or {}
    found: dict[str, Any] = {}
    for key, value in loaded.items():
        if key in names:
            found |= _section(path, key, value, names[key])
        else:
            _refuse_unknown(path, key, (*every, *names))
            found |= [_entry(path, key, value, every)]
    return found


def _section(path: Path, name: str, values: object, own: Mapping[str, str] | None) -> dict[str, Any]:
    """What stands below a command's name."""
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: {name!r} is a command: it must map its own options to values")
    if own is None:
        return {}
    for key in values:
        _refuse_unknown(path, key, own, below=name)
    return {own[key]: value for key, value in values.items()}


def _refuse_unknown(path: Path, key: object, keys: Collection[str], below: str = "") -> None:
    if key not in keys:
        where = f" below {below!r}" if below else ""
        nearest = difflib.get_close_matches(str(key), keys, n=1, cutoff=0)
        advice = f"the nearest is {nearest[0]!r}" if nearest else "this command has no options of its own"
        raise ConfigError(f"{path}: unknown key {key!r}{where}; {advice}")


def _entry(path: Path, key: object, value: object, every: Mapping[str, Option]) -> tuple[str, Any]:
    option = every[str(key)]
    try:
        return option.name, option.parse(value)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def node_name(given: str | None) -> str:
    """This node's name: as given, else the host name in lower case; raises ConfigError when it is no node name."""
    name = given if given is not None else socket.gethostname().lower()
    if NODE_NAME.fullmatch(name) is None:
        raise ConfigError(
            f"{name!r} is no node name (lower-case letters, digits, '-' and '.'): give the name of "
            "`kubectl get nodes` with --node-name"
        )
    return name
