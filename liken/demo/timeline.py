"""What a spectator of the demo reads: each step, the writes it led to with the time from the event, the patches.

In: the log of the in-memory API server. Out: lines of text, and whether every step was seen.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import anyio

from liken.demo.apiserver import ApiServer
from liken.demo.apiserver_requests import Seen
from liken.log import plain

LOOK_AGAIN_S = 0.002
SEEN_WITHIN_S = 8.0
WIDTH = 116


@dataclass(slots=True)
class Timeline:
    """Shows steps through `write`; `failed` holds the titles of those that were not seen."""

    server: ApiServer
    write: Callable[[str], None]
    failed: list[str] = field(default_factory=list)
    failed_steps: set[int] = field(default_factory=set)
    steps: int = 0
    _shown: int = 0

    def title(self, text: str) -> None:
        """Head of a step."""
        self.steps += 1
        self.write("")
        self.write(f"{self.steps:>2}. {text}")

    def note(self, text: str) -> None:
        """A remark within a step."""
        self.write(f"      {plain(text)}")

    async def until(self, what: str, true: Callable[[], bool], *, since: float) -> bool:
        """Wait until it is true and show every write up to then, with its time since `since`; False: it never was."""
        with anyio.move_on_after(SEEN_WITHIN_S):
            while not true():  # noqa: ASYNC110  (a spectator only looks; nobody owes it an event)
                await anyio.sleep(LOOK_AGAIN_S)
        seen = true()
        took = (anyio.current_time() - since) * 1000
        for written in self._news():
            self._show(written, since)
        if seen:
            self.write(f"   ok  {what}  (after {took:.0f} ms)")
        else:
            self.failed.append(what)
            self.failed_steps.add(self.steps)
            self.write(f"   !!  not seen within {SEEN_WITHIN_S:g} s: {what}")
        return seen

    def _news(self) -> Iterator[Seen]:
        writes = self.server.writes
        yield from writes[self._shown :]
        self._shown = len(writes)

    def _show(self, written: Seen, since: float) -> None:
        took = (written.at - since) * 1000
        self.write(f"   {took:7.1f} ms  {written.method} {written.name}  ({len(written.body):,} bytes)")
        if written.method == "PATCH":
            for operation in json.loads(written.body):
                for text in _wrapped(operation):
                    self.write(f"               {text}")


def _wrapped(operation: dict[str, Any]) -> Iterator[str]:
    """A patch operation as JSON, in lines that fit a terminal."""
    text = plain(json.dumps(operation, ensure_ascii=False))
    while text:
        cut = len(text) if len(text) <= WIDTH else text.rfind(" ", 0, WIDTH) + 1 or WIDTH
        yield text[:cut].rstrip()
        text = text[cut:] and f"  {text[cut:]}"
