"""`liken demo`: the real daemon on a recorded machine, for somebody with neither hardware nor cluster."""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from liken.cli.options import CONFIG, LOOP
from liken.cli.show import remark


@click.command("demo")
@click.option("--interactive", is_flag=True, help="Plug, unplug and claim from a menu, until you quit.")
@click.option(
    "--without-namespaces", is_flag=True, help="Feed the events without a socket, as where namespaces are forbidden."
)
@CONFIG
@click.pass_context
def command(ctx: click.Context, *, interactive: bool, without_namespaces: bool) -> None:
    """Plug, unplug and replug a Zigbee stick, bind a GPU, live through a claim, load a module, lose events.

    Everything is real but the hardware and the module: the daemon, its netlink socket, its sockets for the kubelet.
    The API server is in memory; kubectl reads it with the kubeconfig that is printed. Exits 0 only if every step was
    seen.
    """
    import anyio  # noqa: PLC0415  (help and completion do without)

    from liken import log  # noqa: PLC0415
    from liken.demo import bench, play  # noqa: PLC0415

    if interactive and not sys.stdin.isatty():
        raise click.UsageError("--interactive needs a terminal")
    with TemporaryDirectory(prefix="liken-demo-") as folder:
        root = Path(folder)
        with (root / "daemon.log").open("w", encoding="utf-8") as said:
            log.configure(form="json", level="info", stream=said)
            # Before any thread: a process with threads may not enter a user namespace.
            with bench.set_up(root, namespaces=not without_namespaces) as (there, sockets):
                performance = play.Performance(root=root, bench=there, sockets=sockets, write=click.echo)
                act = performance.interactive if interactive else performance.once
                failed = anyio.run(act, backend_options=LOOP)
        if failed:
            remark(f"Not seen: {'; '.join(failed)}. The end of the daemon's log:")
            for text in (root / "daemon.log").read_text(encoding="utf-8").splitlines()[-20:]:
                remark(text)
            ctx.exit(1)
