"""`liken watch`: follow this machine's hardware until Ctrl-C; no daemon, no cluster."""

import datetime as dt
from typing import TYPE_CHECKING, Any

import anyio
import click

from liken.cli.options import LOOP, with_settings
from liken.cli.show import as_json, interactive, remark
from liken.config import Settings
from liken.log import plain

if TYPE_CHECKING:
    from liken.cli.changes import Change

COLOURS = {"appeared": "green", "changed": "yellow", "left": "red", "withheld": "bright_black"}
SIGNS = {"appeared": "+", "changed": "~", "left": "-", "withheld": "."}


@click.command("watch")
@click.option("--json", "machine_readable", is_flag=True, help="One JSON object a line instead of text.")
@with_settings("hardware", "events")
def command(settings: Settings, *, machine_readable: bool) -> None:
    """Show what comes, goes and changes, with the time from the kernel's event to the change."""
    from liken import log  # noqa: PLC0415  (help and completion do without)

    log.configure(level="warning")
    try:
        anyio.run(_watched, settings, machine_readable, backend_options=LOOP)
    except KeyboardInterrupt:
        remark("")


async def _watched(settings: Settings, machine_readable: bool) -> None:  # noqa: FBT001  (anyio.run passes by position)
    from liken.cli.changes import changes  # noqa: PLC0415
    from liken.cli.hardware import opened  # noqa: PLC0415
    from liken.daemon import mirror_settings  # noqa: PLC0415
    from liken.events.mirror import Mirror  # noqa: PLC0415
    from liken.metrics import Metrics  # noqa: PLC0415
    from liken.state.ids import IdsFiles  # noqa: PLC0415
    from liken.state.store import Store  # noqa: PLC0415

    with opened(settings.hardware) as (sysfs, _):
        store = Store(IdsFiles.read(settings.hardware.ids))
        if settings.hardware.recording is not None:
            store.replace(sysfs.everything(), system=sysfs.system(), complete=True, everything=True)
            remark(f"{_greeting(store)} A recording does not change. Ctrl-C ends.")
            await anyio.sleep_forever()
        mirror = Mirror(sysfs=sysfs, store=store, settings=mirror_settings(settings.events), metrics=Metrics())
        async with anyio.create_task_group() as tasks:
            await tasks.start(mirror.run)
            seen = store.snapshot
            remark(f"{_greeting(store)} Ctrl-C ends.")
            while True:
                new = await store.settled(after=seen.revision)
                took = None if new.changed_at is None else (anyio.current_time() - new.changed_at) * 1000
                for change in changes(seen, new):
                    _show(change, took, machine_readable=machine_readable)
                seen = new


def _greeting(store: Any) -> str:
    return f"{len(store.snapshot.offers)} devices offered, {len(store.snapshot.verdicts)} bus entries."


def _show(change: "Change", took: float | None, *, machine_readable: bool) -> None:
    now = dt.datetime.now(dt.UTC)
    if machine_readable:
        written: dict[str, Any] = {
            "time": now.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "event": change.what,
            "device": change.name,
            "name": change.title,
            "nodes": list(change.nodes),
            "detail": change.detail,
            "milliseconds": None if took is None else round(took, 1),
        }
        click.echo(as_json({key: value for key, value in written.items() if value not in ("", [])}, indent=None))
        return
    after = "        " if took is None else f"{took:5.0f} ms"
    words = " ".join(filter(None, (*change.nodes, change.title, change.detail)))
    text = plain(f"{now.astimezone():%H:%M:%S} {after} {SIGNS[change.what]} {change.name}  {words}")
    click.secho(text, fg=COLOURS[change.what] if interactive() else None)
