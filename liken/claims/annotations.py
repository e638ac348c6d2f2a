"""A prepared claim as the annotations of its own CDI file, and back: the only record liken keeps of it.

`liken.sh/claim` of the document says whose file it is, `liken.sh/device` of each CDI device what was allocated and
how the hardware was. Both are JSON texts, because CDI annotations are strings. Reading is the exact inverse of
writing; what does not read is no record (RecordError), never a crash: other hands may have been in the folder.
"""

import json
from collections.abc import Mapping
from typing import Any

from liken.claims import options
from liken.claims.options import NodeOptions
from liken.claims.prepared import PreparedClaim, PreparedDevice
from liken.model.api import Json
from liken.model.hardware import Bus, BusAddress, DeviceKey, DevNumber
from liken.model.offers import DeviceName, DeviceNode, Offer

CLAIM = "liken.sh/claim"
DEVICE = "liken.sh/device"


class RecordError(ValueError):
    """A CDI document that no liken wrote, or not whole."""


def of_claim(claim: PreparedClaim) -> dict[str, str]:
    """The annotations of the document."""
    identity = {
        "namespace": claim.namespace,
        "name": claim.name,
        "uid": claim.uid,
        "preparedAt": claim.since,
        "boot": claim.boot,
    }
    return {CLAIM: _text(identity)}


def of_device(device: PreparedDevice) -> dict[str, str]:
    """The annotations of one CDI device."""
    record: Json = {
        "device": device.name,
        "pool": device.pool,
        "request": device.request,
        "share": device.share_id,
        "admin": device.admin or None,
        "offer": _offer(device.offer),
        "first": _nodes(device.first),
        "nodes": _nodes(device.nodes),
        "enumeration": device.enumeration or None,
        "options": options.as_json(device.options) or None,
        "groups": dict(device.groups) or None,
        "gone": device.gone or None,
        "moved": device.moved or None,
    }
    return {DEVICE: _text({name: value for name, value in record.items() if value is not None})}


def claim(document: Any) -> PreparedClaim:
    """The claim that `document` was written for; raises RecordError."""
    try:
        if not document["devices"]:
            raise RecordError("no devices")
        identity = json.loads(document["annotations"][CLAIM])
        return PreparedClaim(
            uid=_string(identity["uid"]),
            namespace=_string(identity["namespace"]),
            name=_string(identity["name"]),
            since=float(identity["preparedAt"]),
            boot=_string(identity["boot"]),
            devices=tuple(_device(json.loads(entry["annotations"][DEVICE])) for entry in document["devices"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError) as error:
        raise RecordError(f"{type(error).__name__}: {error}") from error


def _device(record: Mapping[str, Any]) -> PreparedDevice:
    chosen = {"apiVersion": options.API_VERSION, "kind": options.KIND, **record.get("options", {})}
    return PreparedDevice(
        name=DeviceName(_string(record["device"])),
        pool=_string(record["pool"]),
        request=_string(record["request"]),
        share_id=record.get("share"),
        admin=bool(record.get("admin", False)),
        offer=_read_offer(_string(record["device"]), record["offer"]),
        first=_read_nodes(record["first"]),
        nodes=_read_nodes(record["nodes"]),
        enumeration=record.get("enumeration", ""),
        options=NodeOptions(**options.parsed(chosen)),
        groups={_string(path): int(group) for path, group in record.get("groups", {}).items()},
        gone=record.get("gone", ""),
        moved=record.get("moved", ""),
    )


def _offer(offer: Offer) -> Json:
    return {
        "bus": offer.key.bus.value,
        "address": offer.key.address,
        "attributes": dict(offer.attributes),
        "shareable": offer.shareable,
        "nodes": _nodes(offer.nodes),
    }


def _read_offer(name: str, record: Mapping[str, Any]) -> Offer:
    return Offer(
        name=DeviceName(name),
        key=DeviceKey(Bus(record["bus"]), BusAddress(_string(record["address"]))),
        nodes=_read_nodes(record["nodes"]),
        attributes=dict(record["attributes"]),
        shareable=bool(record["shareable"]),
    )


def _nodes(nodes: tuple[DeviceNode, ...]) -> list[list[str | None]]:
    return [[node.path, node.kind, str(node.number) if node.number else None] for node in nodes]


def _read_nodes(record: Any) -> tuple[DeviceNode, ...]:
    return tuple(DeviceNode(path=_string(path), kind=kind, number=_number(number)) for path, kind, number in record)


def _number(text: str | None) -> DevNumber | None:
    if text is None:
        return None
    major, minor = text.split(":")
    return DevNumber(int(major), int(minor))


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _text(record: Json) -> str:
    return json.dumps(record, ensure_ascii=True, separators=(",", ":"))
