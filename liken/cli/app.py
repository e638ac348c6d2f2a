"""The `liken` group: the list of commands, loaded one by one, and how a failure ends the process.

A command fails by raising: a `click.UsageError` is usage (2), every other error one line on stderr (1), whatever it
is. `LIKEN_TRACEBACK=1` shows where an internal error came from.
"""

import errno
import os
import sys
from collections.abc import Sequence
from importlib import import_module

import click

from liken import __version__
from liken.log import plain

COMMANDS = {
    "run": "The daemon: publish this node's devices, prepare claims, follow its Machine.",
    "demo": "The real daemon on a recorded machine: no hardware, no cluster, no root.",
    "devices": "The devices this machine offers.",
    "slices": "The ResourceSlices that `run` would publish.",
    "explain": "Why a device is offered, shared, split or withheld, and what to do.",
    "unclaimed": "Hardware without a driver, and the modules to declare.",
    "claims": "The claims prepared on this node.",
    "watch": "A live view of what comes, goes and changes.",
    "report": "A Machine manifest for this machine, to edit and apply.",
    "crd": "The CustomResourceDefinition of Machine.",
    "record": "This machine as a recording, for a bug report.",
    "doctor": "Check what liken needs here.",
    "withdraw": "Remove this node's slices from the API server.",
    "completion": "Shell completion for bash, zsh or fish.",
}
INTERRUPTED = 130


class Commands(click.Group):
    """Finds a command in the module of its name when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  (click's signature)
        """Names in the order in which a newcomer needs them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command, imported now; None when there is none of this name."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"liken.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """The list of commands without importing any of them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "LIKEN"})
@click.version_option(__version__, prog_name="liken")
def cli() -> None:
    """Give a pod exactly the PCI or USB device it claimed.

    Every option can also be set as LIKEN_<NAME> or in a YAML file named by --config.
    """


def run(arguments: Sequence[str]) -> int:
    """Run one command line and answer its exit code; never raises and never shows a traceback unasked."""
    try:
        code = cli.main(list(arguments), prog_name="liken", standalone_mode=False)
        sys.stdout.flush()
    except BaseException as error:  # noqa: BLE001  (the process boundary)
        return _ended(error)
    return code if isinstance(code, int) else 0


def _ended(error: BaseException) -> int:
    match error:
        case click.UsageError():
            error.show()
            return 2
        case click.exceptions.Exit():
            return error.exit_code
        case SystemExit():
            return error.code if isinstance(error.code, int) else 1
        case click.Abort() | KeyboardInterrupt():
            return INTERRUPTED
        case OSError(errno=errno.EPIPE):
            _quiet_stdout()
            return 1
    if os.environ.get("LIKEN_TRACEBACK"):
        raise error
    for line in dict.fromkeys(map(said, _leaves(error))):
        click.echo(f"liken: {line}", err=True)
    return 1


def said(error: BaseException) -> str:
    """One line for a person: our own errors as they are, the system's with their file, anything else as internal."""
    match error:
        case click.ClickException():
            return plain(error.format_message())
        case OSError() if error.strerror:
            where = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, (str, bytes)) else ""
            return plain(f"{where}{error.strerror}")
        case _ if type(error).__module__.startswith("liken."):
            return plain(str(error))
        case _:
            words = " ".join(str(error).split())
            return plain(f"internal error: {type(error).__name__}: {words} (LIKEN_TRACEBACK=1 shows where)")


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in _leaves(inner)]
    return [error]


def _quiet_stdout() -> None:
    """Whoever read stdout has left: keep the interpreter's last flush from complaining."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
