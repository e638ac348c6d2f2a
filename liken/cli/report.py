"""`liken report`: a Machine manifest for this machine, to edit and apply. It changes nothing here."""

import click

from liken.cli.options import output, with_settings
from liken.cli.show import emit, remark
from liken.config import Settings, node_name


@click.command("report")
@output("yaml", "json")
@with_settings("hardware", "cluster")
def command(settings: Settings, output: str) -> None:
    """Print a Machine for this node: what is bound, and commented lines for the modules that would help.

    Uncomment what you want, then `kubectl apply -f` it. json has no comments: there the suggestions stand in an
    annotation.
    """
    from liken.cli.hardware import survey  # noqa: PLC0415  (help and completion do without)
    from liken.machine.report import report, report_json  # noqa: PLC0415

    name = node_name(settings.cluster.node_name)
    with survey(settings.hardware) as seen:
        catalog = seen.catalog()
        if catalog.problem:
            remark(catalog.problem)
        if output == "json":
            emit(report_json(seen.snapshot, catalog, name), "json")
        else:
            click.echo(report(seen.snapshot, catalog, name), nl=False)
