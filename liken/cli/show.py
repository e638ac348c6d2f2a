"""How results reach a person or a program: tables, JSON and YAML on stdout, remarks on stderr.

A table is drawn by rich on a terminal and by plain columns elsewhere (a rich table in a pipe would wrap and truncate).
Cells are made plain and never parsed as markup. YAML quotes whatever any YAML reader might take for something else than
text: a product `1e10` is a number to Go's.
"""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from liken.log import plain

SAFE_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./()-]*(?: [A-Za-z0-9_./()\[\]-]+)*")
YAML_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})


def interactive() -> bool:
    """Whether stdout is a terminal."""
    return sys.stdout.isatty()


def remark(text: str) -> None:
    """Say something to a person on stderr."""
    click.echo(plain(text), err=True)


def line(text: str = "") -> None:
    """One line of a result that is prose."""
    click.echo(plain(text))


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, firm: int = 1) -> None:
    """Rows under headings, cells as they are after `plain`; on a terminal the first `firm` columns never wrap."""
    cells = [[plain(cell) for cell in row] for row in rows]
    if interactive():
        _rich_table(headings, cells, firm)
        return
    every = [list(headings), *cells]
    widths = [max(len(row[i]) for row in every) for i in range(len(headings))]
    for row in every:
        click.echo("   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _rich_table(headings: Sequence[str], rows: Sequence[Sequence[str]], firm: int) -> None:
    from rich.console import Console  # noqa: PLC0415  (40 ms that only a terminal costs)
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for place, heading in enumerate(headings):
        drawn.add_column(heading, overflow="fold", no_wrap=place < firm)
    for row in rows:
        drawn.add_row(*(Text(cell) for cell in row))
    Console(soft_wrap=False, highlight=False).print(drawn)


def emit(value: Any, form: str) -> None:
    """`value` as `json` or `yaml` on stdout, and nothing else."""
    click.echo(as_yaml(value) if form == "yaml" else as_json(value), nl=form != "yaml")


def as_json(value: Any, *, indent: int | None = 2) -> str:
    """JSON of a value; text that cannot be encoded appears escaped."""
    return json.dumps(_encodable(value), indent=indent, ensure_ascii=False)


def as_yaml(value: Any) -> str:
    """YAML of a value that every reader takes for the same, 1.1 or 1.2."""
    import yaml  # noqa: PLC0415  (only this form pays for it)

    base: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

    class Dumper(base):  # type: ignore[misc]  # the C one where libyaml is there
        """Quotes doubtful text, and never writes an alias."""

        def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002
            return True

    def text(dumper: Any, data: str) -> Any:
        certain = SAFE_PLAIN.fullmatch(data) is not None and data.lower() not in YAML_WORDS
        return dumper.represent_scalar("tag:yaml.org,2002:str", data, style=None if certain else '"')

    Dumper.add_representer(str, text)
    dumped: str = yaml.dump(_encodable(value), Dumper=Dumper, sort_keys=False, allow_unicode=True, width=1000)
    return dumped


def _encodable(value: Any) -> Any:
    match value:
        case str():
            return plain(value)
        case Mapping():
            return {plain(str(key)): _encodable(item) for key, item in value.items()}
        case list() | tuple():
            return [_encodable(item) for item in value]
        case _:
            return value
