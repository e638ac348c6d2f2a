"""`liken crd`: the CustomResourceDefinition of Machine."""

import click

from liken.cli.options import CONFIG, output
from liken.cli.show import emit


@click.command("crd")
@output("yaml", "json")
@CONFIG
def command(output: str) -> None:
    """Print the CustomResourceDefinition of Machine, for `kubectl apply -f -`."""
    from liken.machine.crd import crd, crd_yaml  # noqa: PLC0415  (help and completion do without)

    if output == "json":
        emit(crd(), "json")
    else:
        click.echo(crd_yaml(), nl=False)
