"""`liken claims`: the claims prepared on this node, read from their CDI files; needs no running daemon."""

import datetime as dt
from typing import Any

import click

from liken.cli.options import output, with_settings
from liken.cli.show import emit, remark, table
from liken.config import Settings


@click.command("claims")
@output("table", "json")
@with_settings("claiming")
def command(settings: Settings, output: str) -> None:
    """List the prepared claims, their devices and nodes, their health, and since when."""
    from liken.claims.records import prepared_claims  # noqa: PLC0415  (help and completion do without)

    folder = settings.claiming.cdi_dir
    claims = prepared_claims(folder)
    if output == "json":
        emit([_json(claim) for claim in claims], "json")
    elif claims:
        rows = [_row(claim, device) for claim in claims for device in claim.devices]
        table(["CLAIM", "DEVICE", "NODES", "HEALTH", "SINCE"], rows)
    else:
        remark(f"No claim is prepared on this node ({folder} holds no file of liken's claims).")


def _since(claim: Any) -> str:
    moment = dt.datetime.fromtimestamp(claim.since, dt.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _row(claim: Any, device: Any) -> list[str]:
    health = f"{device.health}: {device.message}" if device.message else str(device.health)
    nodes = " ".join(node.path for node in device.nodes) or "-"
    return [str(claim), device.name, nodes, health, _since(claim)]


def _json(claim: Any) -> dict[str, Any]:
    return {
        "namespace": claim.namespace,
        "name": claim.name,
        "uid": claim.uid,
        "since": _since(claim),
        "devices": [
            {
                "name": device.name,
                "request": device.request,
                **({"shareID": device.share_id} if device.share_id else {}),
                **({"adminAccess": True} if device.admin else {}),
                "nodes": [node.path for node in device.nodes],
                "health": str(device.health),
                **({"message": device.message} if device.message else {}),
            }
            for device in claim.devices
        ],
    }
