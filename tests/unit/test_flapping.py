"""A device that comes and goes for five minutes, from the kernel's events to the API server, in virtual time."""

import gc
import pathlib
import sys
from typing import Any

import anyio
import pytest

from liken.metrics import Metrics
from liken.publish.publisher import Publisher
from tests.unit.fakes_events import MirrorLoop, built, cases, mirrored, step_changes, tree_cases
from tests.unit.fakes_publish import NODE, DirectApi, Heard

pytestmark = [pytest.mark.anyio, pytest.mark.shared, pytest.mark.timeout(240)]

CASE = "keyboard-adds-itself-in-a-loop"
BLOCKS = 500
"""Of memory, for 1,000 suffixes: one for each would be a leak."""
BURST, REFILL_S = 5, 2.0
KEYBOARD, QUIET, LATE = "usb-1-3-1-0", "usb-1-4-1-0", "usb-1-5-1-0"


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return "asyncio", {"loop_factory": MirrorLoop}


def renamed(value: Any, old: str, new: str) -> Any:
    """The same with another suffix of the HID device in keys and texts."""
    if isinstance(value, dict):
        return {renamed(key, old, new): renamed(item, old, new) for key, item in value.items()}
    return value.replace(old, new) if isinstance(value, str) else value


async def test_a_keyboard_that_adds_itself_in_a_loop(shared: pathlib.Path, tmp_path: pathlib.Path) -> None:
    [case] = [case for case in tree_cases(shared, "events.yaml") if case["id"] == CASE]
    module = cases(shared)
    remove, add, late = case["input"]["events"]
    assert remove["times"] == add["times"] == 1500
    root = tmp_path / "machine"
    built(shared, case, root)
    api = DirectApi()
    async with mirrored(root) as m, anyio.create_task_group() as tasks:
        publisher = Publisher(api=api, store=m.store, node_name=NODE, metrics=Metrics(), recorder=Heard())
        tasks.start_soon(publisher.run)
        await anyio.sleep(1)
        assert api.devices() == [KEYBOARD, QUIET]
        began = came = anyio.current_time()
        sizes: list[int] = []
        for turn in range(remove["times"]):
            here, there = f".{0x0A01 + turn:04X}", f".{0x0A02 + turn:04X}"
            await anyio.sleep(max(0.0, began + turn * remove["every_ms"] / 1000 - anyio.current_time()))
            step_changes(m, module, renamed(remove, ".0A01", here), root)
            await anyio.sleep(0.1)
            step_changes(m, module, renamed(add, ".0A02", there), root)
            if turn * remove["every_ms"] == late["at_ms"]:
                step_changes(m, module, late, root)
                came = anyio.current_time()
            assert QUIET in api.devices()
            if turn * remove["every_ms"] > late["at_ms"] + 1000:
                assert LATE in api.devices(), f"{anyio.current_time() - came:.1f} s after its event"
            if turn % 500 == 499:
                m.tree.opened.clear()
                m.deltas.clear()
                m.mirror._places._answers.clear()  # a cache that is bounded, and tested where it is
                gc.collect()
                sizes.append(sys.getallocatedblocks())
        written = [asked.at for asked in api.writes]
        for first in range(len(written)):
            for last in range(first, len(written)):
                assert last - first + 1 <= BURST + (written[last] - written[first]) / REFILL_S + 1
        assert sizes[-1] - sizes[0] < BLOCKS, sizes
        await anyio.sleep(1300)
        assert api.devices() == [KEYBOARD, QUIET, LATE]
        assert m.equal()
        tasks.cancel_scope.cancel()
