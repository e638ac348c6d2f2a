"""`liken doctor`: checks what liken needs here, and says of each what to do."""

from collections.abc import Iterator
from typing import Any

import anyio
import click

from liken.cli.options import output, with_settings
from liken.cli.show import emit, remark, table
from liken.config import Settings


@click.command("doctor")
@output("table", "json")
@with_settings("hardware", "cluster", "claiming")
@click.pass_context
def command(ctx: click.Context, settings: Settings, output: str) -> None:
    """Check this machine, the API server and the folders; exits 1 when something fails."""
    found = [*_hardware(settings)]
    if settings.hardware.recording is None:
        found += anyio.run(_cluster, settings)
    failed = [check for check in found if check.level == "fail"]
    if output == "json":
        emit([_json(check) for check in found], "json")
    else:
        table(["", "CHECK", "FOUND", "WHAT TO DO"], [[str(c.level), c.name, c.found, c.remedy or "-"] for c in found])
    if failed:
        remark(f"{len(failed)} of {len(found)} checks fail.")
        ctx.exit(1)


def _hardware(settings: Settings) -> Iterator[Any]:
    from liken.cli import checks  # noqa: PLC0415  (help and completion do without)
    from liken.cli.hardware import PROC, SYSFS, modules_folder, survey  # noqa: PLC0415
    from liken.events.recording import RecordingError  # noqa: PLC0415
    from liken.events.sysfs import SysfsError  # noqa: PLC0415

    hardware = settings.hardware
    proc, root = hardware.proc or PROC, hardware.sysfs or SYSFS
    if hardware.recording is None:
        yield checks.sysfs(root, PROC)
        yield checks.uevents(root, PROC)
        yield checks.mounts(proc)
    try:
        with survey(hardware) as seen:
            entries, offers = len(seen.snapshot.verdicts), len(seen.snapshot.offers)
            yield checks.ok("inventory", f"{entries} bus entries, {offers} devices offered")
    except (SysfsError, RecordingError) as error:
        yield checks.fail("inventory", str(error), "see the line about sysfs")
    yield checks.ids(hardware.ids)
    yield checks.modules(modules_folder(hardware))
    if hardware.recording is None:
        yield checks.loading(root, PROC)
        yield from checks.folders(settings.claiming)


async def _cluster(settings: Settings) -> list[Any]:
    from liken.cli.checks_cluster import cluster  # noqa: PLC0415

    return [check async for check in cluster(settings.cluster)]


def _json(check: Any) -> dict[str, str]:
    written = {"name": check.name, "level": str(check.level), "found": check.found, "remedy": check.remedy}
    return {key: value for key, value in written.items() if value}
