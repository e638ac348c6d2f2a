"""Reads the cases beside the project and writes a case's machine as a fake /sys.

Two forms: `hardware`, a shorthand of devices and nodes, and `tree`, a mapping from paths below /sys to what they
hold. Both become one mapping first; from its links the bus and class folders are derived.
"""

import errno
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

Tree = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Case:
    """One case: its id, the file it stands in (`strings.yaml`, `with-trees/strings.yaml`), and its text."""

    id: str
    file: str
    text: Mapping[str, Any]

    @property
    def input(self) -> Mapping[str, Any]:
        """The input of a case with trees."""
        found = self.text.get("input", {})
        return found if isinstance(found, dict) else {}

    @property
    def expect(self) -> Mapping[str, Any]:
        """The right answer."""
        found: Mapping[str, Any] = self.text["expect"]
        return found

    @property
    def tree(self) -> Tree:
        """The machine as a mapping from paths below /sys; empty when the case has none."""
        if "hardware" in self.text:
            return _hardware(self.text["hardware"])
        return dict(self.input.get("tree", {}))


def cases(shared: Path) -> Iterator[Case]:
    """Every case of both sets."""
    folder = shared / "cases"
    for path in sorted(folder.glob("*.yaml")):
        for text in yaml.safe_load(path.read_text()):
            yield Case(id=text["id"], file=path.name, text=text)
    for path in sorted((folder / "with-trees").glob("*.yaml")):
        for text in yaml.safe_load(path.read_text())["cases"]:
            yield Case(id=text["id"], file=f"with-trees/{path.name}", text=text)


def materialise(tree: Mapping[str, Any], root: Path) -> dict[str, int]:
    """Write a tree below `root`; returns the paths whose reading must fail, with the errno."""
    errors: dict[str, int] = {}
    for folder in ("bus/pci/devices", "bus/usb/devices", "class"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    for path, value in tree.items():
        _write(root, path, value, errors)
    for path, value in tree.items():
        if isinstance(value, dict) and PurePosixPath(path).name == "subsystem" and "link" in value:
            _listed(root, str(PurePosixPath(path).parent), value["link"])
    return errors


def _write(root: Path, path: str, value: Any, errors: dict[str, int]) -> None:
    target = root / path
    match value:
        case {"dir": True}:
            target.mkdir(parents=True, exist_ok=True)
            return
        case {"link": str(to)}:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(to)
            if target.name in {"subsystem", "driver"}:
                target.resolve().mkdir(parents=True, exist_ok=True)
            return
        case {"fifo": True}:
            target.parent.mkdir(parents=True, exist_ok=True)
            os.mkfifo(target)
            return
        case {"error": str(name)}:
            errors[path] = getattr(errno, name)
            content = b""
        case {"hex": str(digits)}:
            content = bytes.fromhex(digits)
        case _:
            content = str(value).encode()
            content += b"" if content.endswith(b"\n") else b"\n"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)


def _listed(root: Path, device: str, link: str) -> None:
    """The link from `bus/<bus>/devices` or `class/<class>` to a device."""
    home = Path(os.path.normpath(root / device / link))
    home = home / "devices" if home.parent.name == "bus" else home
    home.mkdir(parents=True, exist_ok=True)
    entry = home / PurePosixPath(device).name
    if not entry.is_symlink():
        entry.symlink_to(os.path.relpath(root / device, home))


def _hardware(shapes: list[dict[str, dict[str, Any]]]) -> Tree:
    tree: Tree = {}
    for entry in shapes:
        ((shape, fields),) = entry.items()
        rest = dict(fields)
        at = f"devices/{rest.pop('at')}"
        tree |= _SHAPES[shape](at, rest)
    return tree


def _pci(at: str, fields: dict[str, Any]) -> Tree:
    vendor, product, code = (fields.pop(key) for key in ("vendor", "product", "class"))
    alias = (
        f"pci:v0000{vendor.upper()}d0000{product.upper()}sv00000000sd00000000"
        f"bc{code[:2].upper()}sc{code[2:4].upper()}i{code[4:].upper()}"
    )
    files = {"vendor": f"0x{vendor}", "device": f"0x{product}", "class": f"0x{code}", "modalias": alias}
    return _device(at, "bus/pci", {"PCI_SLOT_NAME": PurePosixPath(at).name, "MODALIAS": alias}, files, fields)


def _usb(at: str, fields: dict[str, Any]) -> Tree:
    bus, number = fields.pop("bus"), fields.pop("number")
    minor = (bus - 1) * 128 + number - 1
    uevent = {
        "MAJOR": 189,
        "MINOR": minor,
        "DEVNAME": f"bus/usb/{bus:03}/{number:03}",
        "DEVTYPE": "usb_device",
        "BUSNUM": f"{bus:03}",
        "DEVNUM": f"{number:03}",
    }
    files = {
        "idVendor": fields.pop("vendor"),
        "idProduct": fields.pop("product"),
        "busnum": bus,
        "devnum": number,
        "bDeviceClass": "00",
        "dev": f"189:{minor}",
    }
    return _device(at, "bus/usb", uevent, files, {"driver": "usb"} | fields)


def _interface(at: str, fields: dict[str, Any]) -> Tree:
    code = fields.pop("class")
    alias = f"usb:v0000p0000d0000dc00dsc00dp00ic{code.upper()}isc00ip00in{at.rsplit('.', 1)[1].zfill(2)}"
    files = {"bInterfaceClass": code, "bInterfaceSubClass": "00", "bInterfaceProtocol": "00", "modalias": alias}
    return _device(at, "bus/usb", {"DEVTYPE": "usb_interface", "MODALIAS": alias}, files, fields)


def _node(at: str, fields: dict[str, Any]) -> Tree:
    kind, number, name = (fields.pop(key) for key in ("subsystem", "dev", "devname"))
    major, minor = number.split(":")
    return _device(at, f"class/{kind}", {"MAJOR": major, "MINOR": minor, "DEVNAME": name}, {"dev": number}, fields)


def _child(at: str, fields: dict[str, Any]) -> Tree:
    kind = fields.pop("subsystem", None)
    return _device(at, f"class/{kind}", {}, {}, fields) if kind else {at: {"dir": True}}


def _link(at: str, fields: dict[str, Any]) -> Tree:
    return {at: {"link": _relative(at, f"devices/{fields['to']}")}}


def _device(
    at: str, subsystem: str, uevent: Mapping[str, object], files: Mapping[str, Any], more: dict[str, Any]
) -> Tree:
    driver = more.pop("driver", None)
    lines = {**uevent, **({"DRIVER": driver} if driver else {})}
    tree: Tree = {
        f"{at}/uevent": {"hex": "".join(f"{key}={value}\n" for key, value in lines.items()).encode().hex()},
        f"{at}/subsystem": {"link": _relative(f"{at}/subsystem", subsystem)},
    }
    if driver:
        tree[f"{at}/driver"] = {"link": _relative(f"{at}/driver", f"{subsystem}/drivers/{driver}")}
    return tree | {f"{at}/{key}": value for key, value in {**files, **more}.items()}


def _relative(place: str, target: str) -> str:
    return "../" * place.count("/") + target


_SHAPES = {"pci": _pci, "usb": _usb, "interface": _interface, "node": _node, "child": _child, "link": _link}
