"""`liken record`: this machine's inventory as a recording that `--recording` and the demo's testbed read."""

import io
import sys
from pathlib import Path

import click

from liken.cli.options import with_settings
from liken.cli.show import remark
from liken.config import Settings


@click.command("record")
@click.argument("file", required=False, type=click.Path(path_type=Path, dir_okay=False, allow_dash=True))
@click.option(
    "--keep-identifiers",
    is_flag=True,
    help="Write serial numbers, MAC addresses and host names as they are (otherwise stable stand-ins).",
)
@with_settings("hardware")
def command(settings: Settings, file: Path | None, *, keep_identifiers: bool) -> None:
    """Write all PCI and USB devices and their nodes in umockdev's format, to FILE or to stdout."""
    from liken.cli.hardware import opened  # noqa: PLC0415  (help and completion do without)
    from liken.events.recording import record  # noqa: PLC0415

    written = io.BytesIO()
    with opened(settings.hardware) as (sysfs, _):
        record(sysfs, written, keep_identifiers=keep_identifiers)
    if file is None or str(file) == "-":
        sys.stdout.buffer.write(written.getvalue())
        return
    file.write_bytes(written.getvalue())
    kept = "with its identifiers" if keep_identifiers else "serials, MACs and host names replaced by stand-ins"
    remark(f"Wrote {file} ({len(written.getvalue()):,} bytes, {kept}). Look through it before you share it.")
