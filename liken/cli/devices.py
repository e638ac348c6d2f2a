"""`liken devices`: the devices this machine offers, for a person, a script or the API."""

import click

from liken.cli.options import output, with_settings
from liken.cli.show import emit, line, remark, table
from liken.config import Settings
from liken.model.offers import Offer, Snapshot


@click.command("devices")
@output("table", "wide", "name", "json", "yaml")
@with_settings("hardware")
def command(settings: Settings, output: str) -> None:
    """List the devices this machine offers.

    json and yaml print the list as `spec.devices` of the slices has it.
    """
    from liken.cli.hardware import survey  # noqa: PLC0415  (help and completion do without)
    from liken.state.slices import device_body  # noqa: PLC0415

    with survey(settings.hardware) as seen:
        offers = [seen.snapshot.offers[name] for name in sorted(seen.snapshot.offers)]
        match output:
            case "json" | "yaml":
                emit([device_body(offer) for offer in offers], output)
            case "name":
                for offer in offers:
                    line(offer.name)
            case _:
                _table(offers, seen.snapshot, wide=output == "wide")


def _table(offers: list[Offer], snapshot: Snapshot, *, wide: bool) -> None:
    if not offers:
        remark(f"No device is offered: {len(snapshot.verdicts)} are withheld; `liken explain` says why.")
        return
    headings = ["NAME", "NODES", "SHARED", "DESCRIPTION"]
    if wide:
        headings += ["DRIVER", "ID", "SERIAL", "ADDRESS", "TAINTS"]
    table(headings, [_row(offer, wide=wide) for offer in offers])


def _row(offer: Offer, *, wide: bool) -> list[str]:
    said = offer.attributes
    row = [
        offer.name,
        " ".join(node.path for node in offer.nodes),
        "yes" if offer.shareable else "no",
        str(said.get("name", "")),
    ]
    if wide:
        taints = ",".join(f"{taint.key}={taint.value}:{taint.effect}" for taint in offer.taints)
        identity = f"{said.get('vendor', '?')}:{said.get('product', '?')}"
        row += [str(said.get("driver", "")), identity, str(said.get("serial", "")), offer.key.address, taints]
    return row
