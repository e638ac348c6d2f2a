"""The CustomResourceDefinition of Machine: the one source of `liken crd` and of the manifest in `container/crd`.

Every field has a description, so that `kubectl explain machine.spec` reads well, and every rule a message that says what to
write instead. Validation happens at admission; the daemon trusts it no further than it must.
"""

from typing import Any, Final

import yaml

from liken.machine.matching import SerioState
from liken.machine.modules import ModuleState
from liken.model.api import Json
from liken.model.machine import SerioProtocol

GROUP: Final = "liken.sh"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
KIND: Final = "Machine"
MODULE_PATTERN: Final = "^[A-Za-z0-9][A-Za-z0-9_-]*$"
PARAMETER_LENGTH: Final = 1024


def crd() -> Json:
    """The object for `kubectl apply`."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"machines.{GROUP}", "labels": {"app.kubernetes.io/name": "liken"}},
        "spec": {
            "group": GROUP,
            "scope": "Cluster",
            "names": {
                "kind": KIND,
                "listKind": "MachineList",
                "plural": "machines",
                "singular": "machine",
                "shortNames": ["mach"],
                "categories": ["liken"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": list(_columns()),
                    "schema": {"openAPIV3Schema": _machine()},
                }
            ],
        },
    }


def crd_yaml() -> str:
    """The object as YAML."""
    text: str = yaml.safe_dump(crd(), sort_keys=False, allow_unicode=True, width=110)
    return text


def _columns() -> list[Json]:
    return [
        {
            "name": "Converged",
            "type": "string",
            "description": "Whether the machine is as its spec asks.",
            "jsonPath": '.status.conditions[?(@.type=="SpecConverged")].status',
        },
        {
            "name": "Unclaimed",
            "type": "integer",
            "description": "Devices without a driver that a module could drive.",
            "jsonPath": ".status.hardware.unclaimedCount",
        },
        {
            "name": "Modules",
            "type": "string",
            "description": "Modules in effect, of those declared.",
            "jsonPath": ".status.modulesReady",
        },
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]


def _text(description: str, **more: Any) -> Json:
    return {"type": "string", "description": description, **more}


def _object(description: str, properties: Json, **more: Any) -> Json:
    return {"type": "object", "description": description, "properties": properties, **more}


def _list(description: str, items: Json, **more: Any) -> Json:
    return {"type": "array", "description": description, "items": items, **more}


def _machine() -> Json:
    return _object(
        "A machine of the cluster, by the name of its Node: the drivers it shall have, and what liken reports of it.",
        {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": _spec(),
            "status": _status(),
        },
    )


def _spec() -> Json:
    modules = _list(
        "Kernel modules to load, in order. A module that is added is loaded at once, without a reboot. A module that is removed "
        "stays loaded until the next boot, because unloading a driver under a workload is never safe.",
        _text(
            "Name of a kernel module, as modprobe takes it; `-` and `_` are the same.",
            maxLength=64,
            pattern=MODULE_PATTERN,
        ),
        maxItems=64,
        nullable=True,  # a list whose lines are all comments
        **{
            "x-kubernetes-list-type": "set",
            "x-kubernetes-validations": [
                {
                    "rule": "self.all(x, self.exists_one(y, y.replace('-', '_') == x.replace('-', '_')))",
                    "message": "a module is listed twice: '-' and '_' are the same in a module's name, so keep one of the two",
                }
            ],
        },
    )
    parameters = {
        "type": "object",
        "description": "Parameters of modules, as `<module>.<parameter>: value`. They apply when the module is loaded and never after; "
        "the condition ModuleParametersApplied says which wait for a reboot.",
        "maxProperties": 128,
        "nullable": True,
        "additionalProperties": _text(
            "The value as it would stand on modprobe's command line.",
            maxLength=PARAMETER_LENGTH,
            pattern=r'^[^\x00-\x1f\x7f"]*$',
        ),
        "x-kubernetes-validations": [
            {
                "rule": "self.all(key, key.matches('^[A-Za-z0-9][A-Za-z0-9_-]*[.][A-Za-z0-9][A-Za-z0-9_-]*$'))",
                "message": "write each parameter as <module>.<parameter>, for example i915.enable_guc",
            }
        ],
    }
    return _object(
        "What the machine shall have.",
        {"modules": modules, "moduleParameters": parameters, "serio": _serio()},
        nullable=True,
    )


def _serio() -> Json:
    identity = _object(
        "Which adapter, by its USB identity; never by a tty's name, which changes.",
        {
            "vendor": _text(
                "USB vendor id, four lower-case hex digits, for example 2548.", maxLength=16, pattern="^[0-9a-f]{4}$"
            ),
            "product": _text(
                "USB product id, four lower-case hex digits, for example 1002.", maxLength=16, pattern="^[0-9a-f]{4}$"
            ),
            "serial": _text(
                "The adapter's serial number, where two adapters of one model must be told apart. An entry with a serial takes its "
                "adapter before entries without one.",
                minLength=1,
                maxLength=126,
                pattern="^[!-~]+$",
            ),
        },
        required=["vendor", "product"],
    )
    return _list(
        "Serial lines that liken attaches to a serio driver, for as long as it runs: USB-CEC adapters, whose driver binds only "
        "while a program holds the line. An entry that is added attaches at once; one that is removed stays attached until liken restarts.",
        _object(
            "One adapter and the protocol it speaks.",
            {
                "protocol": _text(
                    "The serio protocol of the adapter.", enum=[str(protocol) for protocol in SerioProtocol]
                ),
                "usb": identity,
            },
            required=["protocol", "usb"],
        ),
        maxItems=16,
        nullable=True,
        **{
            "x-kubernetes-list-type": "atomic",
            "x-kubernetes-validations": [
                {
                    "rule": "self.all(x, self.exists_one(y, y.usb == x.usb))",
                    "message": "two entries name the same adapter: give each its serial, or keep one",
                }
            ],
        },
    )


def _status() -> Json:
    return _object(
        "What liken found and did; written by the machine's own daemon.",
        {
            "observedGeneration": {
                "type": "integer",
                "format": "int64",
                "description": "Generation of the spec this status is about.",
            },
            "conditions": _conditions(),
            "bootID": _text("The boot this status is about; what is staged ends with it."),
            "modulesReady": _text("Modules in effect, of those declared, as 2/3."),
            "modules": _module_status(),
            "serio": _serio_status(),
            "hardware": _hardware(),
        },
    )


def _conditions() -> Json:
    return _list(
        "SpecConverged: the machine is as its spec asks. ModuleParametersApplied: no parameter waits for a reboot. SerioAttached: every "
        "serial attachment is in place. Ready: what was asked for is done; a serial attachment never makes it False.",
        _object(
            "One condition.",
            {
                "type": _text("Name of the condition."),
                "status": _text("True, False or Unknown.", enum=["True", "False", "Unknown"]),
                "reason": _text("The reason in one word."),
                "message": _text("What is the matter, and what to do."),
                "observedGeneration": {
                    "type": "integer",
                    "format": "int64",
                    "description": "Generation of the spec it was made for.",
                },
                "lastTransitionTime": _text("When the status last changed.", format="date-time"),
            },
            required=["type", "status", "reason", "message", "lastTransitionTime"],
        ),
        **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )


def _module_status() -> Json:
    return _list(
        "Each declared module as the kernel has it.",
        _object(
            "One module.",
            {
                "name": _text("Name as declared."),
                "state": _text(
                    "Loaded; Builtin: part of the kernel; Missing: this kernel has no such module; Failed: the kernel refused it. "
                    "A module that is being loaded for the first time is not listed yet.",
                    enum=[str(state) for state in ModuleState],
                ),
                "message": _text("What happened, and what to do."),
                "parameters": {
                    "type": "object",
                    "description": "Declared parameters as the kernel reports them.",
                    "additionalProperties": _text("Value in /sys/module."),
                },
            },
            required=["name", "state"],
        ),
        **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )


def _serio_status() -> Json:
    return _list(
        "Each serial attachment.",
        _object(
            "One attachment.",
            {
                "protocol": _text("The protocol of the entry."),
                "usb": _object(
                    "The adapter the entry names.",
                    {
                        "vendor": _text("USB vendor id."),
                        "product": _text("USB product id."),
                        "serial": _text("Serial number."),
                    },
                ),
                "tty": _text("The serial line it holds, for example ttyACM0."),
                "port": _text("The serio port the kernel made, for example serio2."),
                "nodes": _list("Device nodes of the driver.", _text("A path in /dev.")),
                "state": _text(
                    "Attached; Missing: no line matches; Refused: a line matches and the attachment did not complete.",
                    enum=[str(state) for state in SerioState],
                ),
                "message": _text("What is missing, and what to do."),
            },
            required=["protocol", "usb", "state"],
        ),
        **{"x-kubernetes-list-type": "atomic"},
    )


def _hardware() -> Json:
    entry = _object(
        "One device without a driver.",
        {
            "bus": _text("pci or usb."),
            "address": _text("Its address on that bus."),
            "name": _text("Its name."),
            "class": _text("Its class in one word."),
            "modalias": _text("Its modalias."),
            "modules": _list("Modules that could drive it, the preferred one first.", _text("Name of a module.")),
            "message": _text("What to do."),
        },
        required=["bus", "address"],
    )
    return _object(
        "What the machine reports of its hardware.",
        {
            "unclaimed": _list(
                "Hardware that has no driver and that a module could drive.",
                entry,
                **{"x-kubernetes-list-type": "atomic"},
            ),
            "unclaimedCount": {"type": "integer", "format": "int64", "description": "How many there are."},
            "unclaimedNotShown": {
                "type": "integer",
                "format": "int64",
                "description": "How many of them the list leaves out, to stay within a sensible size.",
            },
        },
    )
