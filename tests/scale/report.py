"""The phases as a Markdown table, as `docs/explanation/scale.md` shows it."""

from collections.abc import Sequence

from tests.scale.scenario import WINDOW_S, Phase

HEAD = (
    "phase",
    "right after",
    "requests",
    "writes",
    "to the server",
    "from it",
    "watch events",
    "connections",
    "busiest 100 ms",
)


def table(phases: Sequence[Phase], *, nodes: int, server: str) -> str:
    """One row a phase."""
    rows = [HEAD, ("---",) * len(HEAD), *(_row(phase) for phase in phases)]
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return f"{nodes} nodes, {server}\n\n" + "\n".join(lines) + "\n"


def _row(phase: Phase) -> tuple[str, ...]:
    reading = phase.reading
    requests = ", ".join(f"{count} {verb}" for verb, count in sorted(reading.requests.items())) or "0"
    return (
        phase.name,
        f"{phase.seconds:.1f} s",
        requests,
        str(phase.writes),
        _size(reading.received),
        _size(reading.sent),
        str(reading.events),
        str(reading.connections),
        str(reading.busiest(WINDOW_S)),
    )


def _size(count: int) -> str:
    return f"{count / 1024:.0f} KiB" if count < 1 << 20 else f"{count / (1 << 20):.1f} MiB"
