"""One line of the table, and the statistics the benchmarks share."""

import os
import statistics
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

IDLE_S = float(os.environ.get("LIKEN_BENCH_IDLE_S", "60"))
"""How long the daemon idles."""


class Row(NamedTuple):
    """What was measured, the figure, its budget or what it is compared with, whether it is met (None: no budget)."""

    what: str
    figure: str
    budget: str
    met: bool | None


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` (0 to 1) of the values lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def cpu_of(action: Callable[[], object], *, repeat: int = 7) -> float:
    """Median CPU seconds of this process for one call."""
    return _median(action, time.process_time, repeat)


def wall_of(action: Callable[[], object], *, repeat: int = 5) -> float:
    """Median wall seconds of one call."""
    return _median(action, time.perf_counter, repeat)


def _median(action: Callable[[], object], clock: Callable[[], float], repeat: int) -> float:
    figures = []
    for _ in range(repeat):
        began = clock()
        action()
        figures.append(clock() - began)
    return statistics.median(figures)


def resident_of(process: int | str) -> float:
    """Resident memory of a process in MiB."""
    with open(f"/proc/{process}/status", encoding="ascii") as status:  # noqa: PTH123  (a one-line read of /proc)
        line = next(line for line in status if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def milliseconds(seconds: float) -> str:
    """Seconds as `1.2 ms`."""
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"
