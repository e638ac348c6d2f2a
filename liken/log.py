"""Log lines: structured, on stderr, and harmless whatever hardware, a pod or a server put into them.

Every text passes `plain` before it is rendered, so that no value can begin a line of its own, move a terminal's cursor
or reverse the reading direction; values under a key that names a secret are not rendered at all. Lines of the standard
library's loggers (asyncio, aiohttp) take the same way.
"""

import logging
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any, TextIO

# structlog.dev takes rich in when it is there, for tracebacks this module never draws: 6 MiB and 0.3 s.
_RICH = sys.modules.setdefault("rich", None)  # type: ignore[arg-type]  # None makes the import fail
import structlog  # noqa: E402

if _RICH is None:
    del sys.modules["rich"]

SECRET = ("token", "password", "secret", "authorization", "credential", "private_key", "client_key")
HIDDEN = "[hidden]"
DEEPEST = 6


def plain(text: str) -> str:
    r"""`text` with every character that is not shown as itself written as an escape (`\x1b`, `\u202e`).

    Covers control and format characters, line separators, noncharacters and undecodable bytes (surrogate escapes
    appear as the byte they were). Printable text comes back as it is.
    """
    return text if text.isprintable() else "".join(map(_escaped, text))


def _escaped(char: str) -> str:
    if char.isprintable():
        return char
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:  # noqa: PLR2004  (PEP 383: an undecodable byte)
        return f"\\x{code - 0xDC00:02x}"
    return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(char) or (
        f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"  # noqa: PLR2004
    )


def harmless(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A structlog processor: every key and value of the line made plain, secrets hidden."""
    rendered = {"exception": "trace", "stack": "frames"}  # under their own names a console breaks them into lines
    return {plain(rendered.get(key, str(key))): _value(str(key), value, 0) for key, value in event.items()}


def _value(key: str, value: object, depth: int) -> object:  # noqa: PLR0911  (one answer for each shape)
    if any(word in key.lower() for word in SECRET):
        return HIDDEN
    match value:
        case bool() | int() | float() | None:
            return value
        case str():
            return plain(value)
        case bytes():
            return plain(value.decode("utf-8", "surrogateescape"))
        case Mapping() if depth < DEEPEST:
            return {plain(str(k)): _value(str(k), v, depth + 1) for k, v in value.items()}
        case list() | tuple() | set() | frozenset() if depth < DEEPEST and not hasattr(value, "_fields"):
            return [_value(key, item, depth + 1) for item in value]
        case _:
            return plain(str(value))


class _Lines:
    """Writes whole lines and never raises: a log nobody reads any more must not end the daemon."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def msg(self, line: str) -> None:
        try:
            self._stream.write(line + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            return

    log = debug = info = warn = warning = error = critical = fatal = exception = msg


def configure(*, form: str | None = None, level: str = "info", stream: TextIO | None = None) -> None:
    """Send log lines to `stream` (stderr) as `json` or `console` (None: console on a terminal), from `level` up."""
    out = stream if stream is not None else sys.stderr
    console = form == "console" or (form is None and out.isatty())
    least = logging.getLevelNamesMapping()[level.upper()]
    shared: list[Any] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        harmless,
    ]
    renderer: Any = (
        structlog.dev.ConsoleRenderer(colors=out.isatty(), sort_keys=False)
        if console
        else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(least),
        logger_factory=lambda *_: _Lines(out),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    logging.basicConfig(handlers=[handler], level=max(least, logging.WARNING), force=True)
    logging.raiseExceptions = False
