"""`liken unclaimed`: driverless hardware that a kernel module could drive, and what to declare."""

from typing import Any

import click

from liken.cli.options import output, with_settings
from liken.cli.show import emit, remark, table
from liken.config import Settings


@click.command("unclaimed")
@output("table", "json")
@with_settings("hardware")
def command(settings: Settings, output: str) -> None:
    """List hardware without a driver and the modules to declare in a Machine's spec.modules."""
    from liken.cli.hardware import survey  # noqa: PLC0415  (help and completion do without)
    from liken.state.unclaimed import unclaimed  # noqa: PLC0415

    with survey(settings.hardware) as seen:
        catalog = seen.catalog()
        if catalog.problem:
            remark(f"{catalog.problem} (--modules DIR names another folder)")
        entries = unclaimed(seen.snapshot, catalog)
        if output == "json":
            emit([_json(entry) for entry in entries], "json")
        elif entries:
            rows = [[str(e.bus), e.address, e.name, " ".join(e.modules), e.message] for e in entries]
            table(["BUS", "ADDRESS", "NAME", "MODULES", "WHAT TO DO"], rows, firm=2)
        else:
            remark("Nothing is unclaimed: no driverless hardware that a module of this kernel could drive.")


def _json(entry: Any) -> dict[str, Any]:
    """The entry as `status.hardware.unclaimed` of the Machine has it."""
    written = {
        "bus": str(entry.bus),
        "address": entry.address,
        "name": entry.name,
        "class": entry.class_,
        "modalias": entry.modalias,
        "modules": list(entry.modules),
        "message": entry.message,
    }
    return {key: value for key, value in written.items() if value not in (None, "")}
