import time

import anyio
import anyio.to_thread
import pytest

pytestmark = pytest.mark.anyio


async def test_a_long_sleep_costs_no_time() -> None:
    began, virtual = time.monotonic(), anyio.current_time()
    await anyio.sleep(80_000)
    assert anyio.current_time() - virtual >= 80_000
    assert time.monotonic() - began < 30


async def test_a_worker_thread_is_waited_for_before_the_clock_jumps() -> None:
    done = False

    async def work() -> None:
        nonlocal done
        await anyio.to_thread.run_sync(time.sleep, 0.05)
        done = True

    async with anyio.create_task_group() as tg:
        tg.start_soon(work)
        await anyio.sleep(50)
        assert done
