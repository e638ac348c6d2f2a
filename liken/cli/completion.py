"""`liken completion`: the script that makes a shell complete liken's commands and options."""

import click
from click.shell_completion import get_completion_class


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    For bash: liken completion bash > /usr/share/bash-completion/completions/liken
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise click.ClickException(f"there is no completion for {shell}")
    click.echo(kind(ctx.find_root().command, {}, "liken", "_LIKEN_COMPLETE").source())
