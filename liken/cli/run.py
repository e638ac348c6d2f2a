"""`liken run`: the daemon."""

import click

from liken.cli.options import LOOP, with_settings
from liken.config import Settings


@click.command("run")
@with_settings("cluster", "mode", "hardware", "claiming", "publishing", "events", "machines", "web", "logging")
def command(settings: Settings) -> None:
    """Publish this node's devices, prepare its claims and follow its Machine, until SIGTERM.

    The slices stay when it ends (a rolling update must not evict anybody), unless --withdraw is given.
    """
    import anyio  # noqa: PLC0415  (help and completion do without)

    from liken import daemon, log  # noqa: PLC0415

    if settings.hardware.recording is not None:
        raise click.UsageError("a recording has no events: use `liken demo`, or `liken slices --recording`")
    log.configure(form=settings.logging.log_format, level=settings.logging.log_level)
    anyio.run(daemon.run, settings, backend_options=LOOP)
