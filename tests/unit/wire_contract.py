"""The kubelet's messages, built with Google's protobuf from the numbers of the contract, independent of `liken/wire`.

`CONTRACT` is the contract as a table; `message(package, name)` is a class of Google's runtime for one of its rows.
"""

from typing import Any

from google.protobuf import (  # type: ignore[import-untyped]
    descriptor_pb2,
    descriptor_pool,
    message_factory,
)

_FIELD = descriptor_pb2.FieldDescriptorProto
_SCALARS = {"string": _FIELD.TYPE_STRING, "bool": _FIELD.TYPE_BOOL, "int64": _FIELD.TYPE_INT64}

_DRA = {
    "NodePrepareResourcesRequest": ("1 repeated Claim claims",),
    "NodePrepareResourcesResponse": ("1 map NodePrepareResourceResponse claims",),
    "NodePrepareResourceResponse": ("1 repeated Device devices", "2 one string error"),
    "Device": (
        "1 repeated string request_names",
        "2 one string pool_name",
        "3 one string device_name",
        "4 repeated string cdi_device_ids",
    ),
    "NodeUnprepareResourcesRequest": ("1 repeated Claim claims",),
    "NodeUnprepareResourcesResponse": ("1 map NodeUnprepareResourceResponse claims",),
    "NodeUnprepareResourceResponse": ("1 one string error",),
    "Claim": ("1 one string namespace", "2 one string uid", "3 one string name"),
}
_HEALTH = {
    "NodeWatchResourcesRequest": (),
    "NodeWatchResourcesResponse": ("1 repeated DeviceHealth devices",),
    "DeviceHealth": (
        "1 one DeviceIdentifier device",
        "2 enum HealthStatus health",
        "3 one int64 last_updated_time",
        "4 one int64 health_check_timeout_seconds",
        "5 one string message",
    ),
    "DeviceIdentifier": ("1 one string pool_name", "2 one string device_name"),
}
CONTRACT: dict[str, dict[str, tuple[str, ...]]] = {
    "k8s.io.kubelet.pkg.apis.dra.v1": _DRA | {"Device": (*_DRA["Device"], "5 optional string share_id")},
    "k8s.io.kubelet.pkg.apis.dra.v1beta1": _DRA,
    "pluginregistration": {
        "InfoRequest": (),
        "PluginInfo": (
            "1 one string type",
            "2 one string name",
            "3 one string endpoint",
            "4 repeated string supported_versions",
        ),
        "RegistrationStatus": ("1 one bool plugin_registered", "2 one string error"),
        "RegistrationStatusResponse": (),
    },
    "v1": _HEALTH,
    "v1alpha1": _HEALTH,
}
ENUMS = {"HealthStatus": ("UNKNOWN", "HEALTHY", "UNHEALTHY")}

_pool = descriptor_pool.DescriptorPool()


def _add(package: str, messages: dict[str, tuple[str, ...]]) -> None:
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.contract", package=package, syntax="proto3")
    if any("enum" in field for fields in messages.values() for field in fields):
        for name, values in ENUMS.items():
            enum = file.enum_type.add(name=name)
            for number, value in enumerate(values):
                enum.value.add(name=value, number=number)
    for name, fields in messages.items():
        made = file.message_type.add(name=name)
        for field in fields:
            _field(made, package, name, field)
    _pool.AddSerializedFile(file.SerializeToString())


def _field(made: Any, package: str, owner: str, text: str) -> None:
    number, label, kind, name = text.split()
    added = made.field.add(name=name, number=int(number), label=_FIELD.LABEL_OPTIONAL)
    if label == "repeated":
        added.label = _FIELD.LABEL_REPEATED
    if label == "optional":
        added.proto3_optional = True
        made.oneof_decl.add(name=f"_{name}")
        added.oneof_index = len(made.oneof_decl) - 1
    if label == "map":
        entry = made.nested_type.add(name="ClaimsEntry")
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, label=_FIELD.LABEL_OPTIONAL, type=_FIELD.TYPE_STRING)
        entry.field.add(
            name="value",
            number=2,
            label=_FIELD.LABEL_OPTIONAL,
            type=_FIELD.TYPE_MESSAGE,
            type_name=f".{package}.{kind}",
        )
        added.label, added.type = _FIELD.LABEL_REPEATED, _FIELD.TYPE_MESSAGE
        added.type_name = f".{package}.{owner}.ClaimsEntry"
    elif kind in _SCALARS:
        added.type = _SCALARS[kind]
    else:
        added.type = _FIELD.TYPE_ENUM if label == "enum" else _FIELD.TYPE_MESSAGE
        added.type_name = f".{package}.{kind}"


for _package, _messages in CONTRACT.items():
    _add(_package, _messages)


def message(package: str, name: str) -> Any:
    """The class of one message of the contract."""
    return message_factory.GetMessageClass(_pool.FindMessageTypeByName(f"{package}.{name}"))
