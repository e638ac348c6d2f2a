"""`liken explain`: the verdict on every bus entry, or all about the one a person asks for."""

import os
from typing import Any

import click

from liken.cli.options import output, with_settings
from liken.cli.show import emit, line, table
from liken.config import Settings
from liken.model.hardware import DeviceKey, Reason
from liken.model.offers import DeviceNode, Offer, Snapshot

PUBLISHED = "Published"
HELD_BACK = "held back now: it came and went too often, or the API server refused it (see the daemon's log)"


@click.command("explain")
@click.argument("what", required=False)
@output("text", "json")
@with_settings("hardware", "web")
def command(settings: Settings, what: str | None, output: str) -> None:
    """Say why a device is offered, shared, split or withheld, and what to do about it.

    Without WHAT: every bus entry with its verdict. WHAT is a device's name (usb-2-1-1-0), a bus address (2-1:1.0,
    0000:00:02.0), a node (/dev/ttyUSB0), an id (0bda:2838), or part of a name.
    """
    from liken.cli.find import order  # noqa: PLC0415  (help and completion do without)
    from liken.cli.hardware import survey  # noqa: PLC0415

    with survey(settings.hardware) as seen:
        if what is None:
            every = sorted(seen.snapshot.verdicts, key=order)
            if output == "json":
                emit([_entry(seen.snapshot, key) for key in every], "json")
            else:
                _overview(seen.snapshot, every)
            return
        keys = _meant(seen, what)
        fixes = {(entry.bus, entry.address): entry.message for entry in _unclaimed(seen, keys)}
        entries = [_entry(seen.snapshot, key, fixes.get((key.bus, key.address), "")) for key in keys]
        _mark_held_back(entries, settings.web.web_listen if seen.live else "off")
        if output == "json":
            emit(entries, "json")
        else:
            for entry in entries:
                _about(entry)


def _meant(seen: Any, what: str) -> tuple[DeviceKey, ...]:
    from liken.cli.find import found  # noqa: PLC0415

    asked = os.path.realpath(what) if seen.live and what.startswith("/dev/") else what
    if keys := found(seen.snapshot, asked):
        return keys
    node = asked.removeprefix("/dev/")
    if stray := seen.sysfs.stray(node):
        raise click.ClickException(
            f"{asked} hangs on no PCI or USB device, so it is never offered: "
            f"it belongs to {stray.anchor} (/sys{stray.path})"
        )
    raise click.ClickException(f"nothing on this machine is called {what!r}: `liken explain` lists every bus entry")


def _unclaimed(seen: Any, keys: tuple[DeviceKey, ...]) -> tuple[Any, ...]:
    """What the modules catalogue says of driverless entries; read only when one was asked for."""
    if all(seen.snapshot.verdicts[key].reason is not Reason.NO_DRIVER for key in keys):
        return ()
    from liken.state.unclaimed import unclaimed  # noqa: PLC0415

    return tuple(unclaimed(seen.snapshot, seen.catalog()))


def _mark_held_back(entries: list[dict[str, Any]], listen: str) -> None:
    """Say which of the devices the running daemon keeps out of the slices for now."""
    if listen == "off":
        return
    from liken.cli.running import held_back  # noqa: PLC0415

    held = held_back(listen)
    for device in (device for entry in entries for device in entry["devices"] if device["name"] in held):
        device["heldBack"] = True


def _overview(snapshot: Snapshot, keys: list[DeviceKey]) -> None:
    rows = []
    for key in keys:
        verdict = snapshot.verdicts[key]
        said = " ".join(verdict.offers) if verdict.reason is None else verdict.detail
        rows.append([str(key.bus), key.address, verdict.title, str(verdict.reason or PUBLISHED), said])
    table(["BUS", "ADDRESS", "NAME", "VERDICT", "DEVICES, OR WHY NOT"], rows, firm=2)


def _entry(snapshot: Snapshot, key: DeviceKey, fix: str = "") -> dict[str, Any]:
    from liken.cli.find import offers_of, siblings  # noqa: PLC0415

    verdict = snapshot.verdicts[key]
    facts = snapshot.inventory.devices.get(key)
    written: dict[str, Any] = {
        "bus": str(key.bus),
        "address": key.address,
        "name": verdict.title,
        "verdict": str(verdict.reason or PUBLISHED),
        "driver": facts.driver if facts else None,
        "path": f"/sys{facts.path}" if facts else None,
        "detail": verdict.detail,
        "advice": fix or verdict.advice,
        "devices": [_device(offer) for offer in offers_of(snapshot, key)],
        "siblings": [
            {
                "address": other.address,
                "verdict": str(snapshot.verdicts[other].reason or PUBLISHED),
                "devices": list(snapshot.verdicts[other].offers),
            }
            for other in siblings(snapshot, key)
        ],
    }
    return {name: value for name, value in written.items() if value not in (None, "")}


def _device(offer: Offer) -> dict[str, Any]:
    return {
        "name": offer.name,
        "shared": offer.shareable,
        "nodes": [_node(node) for node in offer.nodes],
        "attributes": dict(offer.attributes),
    }


def _node(node: DeviceNode) -> dict[str, str]:
    written = {"path": node.path, "kind": node.kind or "", "number": str(node.number or "")}
    return {key: value for key, value in written.items() if value}


def _about(entry: dict[str, Any]) -> None:
    line(f"{entry['name']}  ({entry['bus']} {entry['address']})")
    for heading, key in (("verdict", "verdict"), ("driver", "driver"), ("sysfs", "path"), ("why", "detail")):
        if key in entry:
            line(f"  {heading:<11} {entry[key]}")
    if "advice" in entry:
        line(f"  {'what to do':<11} {entry['advice']}")
    for device in entry["devices"]:
        sharing = "many claims at once" if device["shared"] else "one claim at a time"
        line(f"  {'device':<11} {device['name']}  ({sharing})")
        if "heldBack" in device:
            line(f"  {'':<13} {HELD_BACK}")
        for node in device["nodes"]:
            of = ", ".join(filter(None, (node.get("kind"), node.get("number"))))
            line(f"  {'':<13} {node['path']}" + (f"  ({of})" if of else ""))
    for sibling in entry["siblings"]:
        of = " ".join(sibling["devices"]) or sibling["verdict"]
        line(f"  {'beside it':<11} {sibling['address']}  {of}")
    line()
