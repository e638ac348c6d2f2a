"""The demo as a performance: the story told once, or a menu from which a person moves the hardware.

In: the folder, the bench, the listening sockets. Out: lines for the spectator, and the steps that were not seen.
"""

import socket
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio

from liken.demo.apiserver import ApiServer
from liken.demo.bench import Bench
from liken.demo.stage import Stage, staged
from liken.demo.story import Story
from liken.demo.timeline import Timeline

MENU = (
    ("1", "plug or unplug the Zigbee stick"),
    ("2", "bind or unbind the GPU's driver"),
    ("3", "the life of a claim on the stick"),
    ("4", "declare the TV stick's module in the Machine"),
    ("5", "flood the socket"),
    ("q", "quit"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Performance:
    """One evening; `write` gets each line."""

    root: Path
    bench: Bench
    sockets: Sequence[socket.socket]
    write: Callable[[str], None]

    async def once(self) -> list[str]:
        """Tell the story; the steps that were not seen."""
        async with staged(self.root, self.bench, self.sockets, self._greet) as stage:
            story = self._story(stage)
            await story.told()
            self.write("")
            seen = story.timeline.steps - len(story.timeline.failed_steps)
            self.write(f"{seen} of {story.timeline.steps} steps were seen as they should be.")
        return story.timeline.failed

    async def interactive(self) -> list[str]:
        """Do what a person chooses until they quit."""
        async with staged(self.root, self.bench, self.sockets, self._greet) as stage:
            story = self._story(stage)
            await story.start()
            acts: dict[str, Callable[[], Awaitable[None]]] = {
                "1": story.plug_or_unplug,
                "2": story.bind_or_unbind,
                "3": story.claimed,
                "4": story.machine,
                "5": story.flooded,
            }
            while (chosen := await self._asked()) != "q":
                if chosen in acts:
                    await acts[chosen]()
        return []

    def _story(self, stage: Stage) -> Story:
        timeline = Timeline(server=stage.server, write=self.write)
        return Story(
            bench=self.bench,
            server=stage.server,
            timeline=timeline,
            metrics=stage.parts.metrics,
            registry=stage.registry,
            cdi=stage.cdi,
        )

    def _greet(self, server: ApiServer) -> None:  # noqa: ARG002  (its address stands in the kubeconfig)
        self.write(self.bench.words)
        self.write("Another terminal can follow the slice while this runs:")
        self.write(f"    kubectl --kubeconfig {self.root}/kubeconfig get resourceslices -w")

    async def _asked(self) -> str:
        """What a person types; the end of the input is to quit."""
        self.write("")
        for key, what in MENU:
            self.write(f"  [{key}] {what}")
        await anyio.wait_readable(sys.stdin)  # no thread, which Ctrl-C could not end
        typed = sys.stdin.readline()
        return typed.strip().lower() if typed else "q"
