"""Click options made from `liken.config`: one decorator gives a command its groups of options as `Settings`.

An option's value comes from the command line, else its environment variables, else the `--config` file, else its
default; each is checked by the same parser.
"""

from collections.abc import Callable
from functools import wraps
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import click

from liken.config import ConfigError, Kind, Option, known, options, read_file, settings

Command = TypeVar("Command", bound=Callable[..., Any])


class Value(click.ParamType[Any]):
    """A click type that hands the text to the option's own parser."""

    def __init__(self, option: Option) -> None:
        self.option = option
        self.name = option.kind.value.lower()

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The parsed value; a wrong one is a usage error."""
        try:
            return self.option.parse(value)
        except ConfigError as error:
            self.fail(str(error).removeprefix(f"{self.option.flag}: "), param, ctx)

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str | None:  # noqa: ARG002
        """`json|console` for a choice, else the kind."""
        return "|".join(self.option.choices) or self.option.kind.value


LOOP = {"use_uvloop": find_spec("uvloop") is not None}
"""anyio's options for an event loop: uvloop, where this architecture has it."""


def with_settings(*groups: str) -> Callable[[Command], Command]:
    """Give a command the options of these groups and `--config`, and call it with `settings=`."""

    def decorate(command: Command) -> Command:
        @wraps(command)
        def call(**values: Any) -> Any:
            given = {option.name: values.pop(option.name) for group in groups for option, _ in options(group)}
            return command(settings=settings(given), **values)

        decorated: Any = call
        for group in reversed(groups):
            for option, default in reversed(list(options(group))):
                decorated = _click_option(option, default)(decorated)
        return CONFIG(decorated)  # type: ignore[no-any-return]

    return decorate


def _click_option(option: Option, default: Any) -> Callable[[Any], Any]:
    if option.kind is Kind.SWITCH:
        flags = f"--{option.flag}/--no-{option.flag}"
        return click.option(
            flags, option.name, default=default, envvar=option.env, help=option.doc, show_default=default
        )
    return click.option(
        f"--{option.flag}",
        option.name,
        type=Value(option),
        default=None if default is None else _written(option, default),
        envvar=list(option.env),
        help=option.doc,
        show_default=True,
    )


def _written(option: Option, default: Any) -> str:
    """The default as a person would write it."""
    match option.kind:
        case Kind.DURATION:
            if default < 1:
                return f"{default * 1000:g}ms"
            return f"{default / 60:g}m" if default % 60 == 0 else f"{default:g}s"
        case Kind.SIZE:
            return f"{default >> 20}MiB"
        case _:
            return str(default)


def _take_file(ctx: click.Context, param: click.Parameter, value: Path | None) -> None:
    if value is None:
        return
    try:
        ctx.default_map = {**(ctx.default_map or {}), **read_file(value, _sections(ctx))}
    except ConfigError as error:
        raise click.BadParameter(str(error), ctx, param) from None


def _sections(ctx: click.Context) -> dict[str, dict[str, str] | None]:
    """The names of all commands; for this one the options that no other shares, by the key a file has for them."""
    root = ctx.find_root().command
    sections: dict[str, dict[str, str] | None] = dict.fromkeys(
        root.list_commands(ctx) if isinstance(root, click.Group) else ()
    )
    shared = {option.name for option in known().values()} | {"config"}
    sections[str(ctx.info_name)] = {
        max(param.opts, key=len).removeprefix("--"): param.name
        for param in ctx.command.params
        if isinstance(param, click.Option) and param.name and param.name not in shared
    }
    return sections


CONFIG = click.option(
    "--config",
    type=click.Path(path_type=Path),
    envvar="LIKEN_CONFIG",
    is_eager=True,
    expose_value=False,
    callback=_take_file,
    help="YAML file of options, as `node-name: worker-1`; a command's own ones below its name.",
)


def output(*forms: str) -> Callable[[Command], Command]:
    """The option `-o`, whose first form is the default; the command receives it as `output=`."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(forms),
        default=forms[0],
        show_default=True,
        help="Form of the output.",
    )
