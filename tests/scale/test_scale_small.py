"""Twenty simulated nodes against one API server: what must hold at any size."""

import pytest

from tests.scale.meter import Reading
from tests.scale.scenario import Phase, simulate

NODES, RACK = 20, 5


@pytest.fixture(scope="module")
def anyio_backend() -> tuple[str, dict[str, object]]:
    """Real time and real sockets."""
    return "asyncio", {"use_uvloop": True}


@pytest.fixture(scope="module")
async def phases(anyio_backend: tuple[str, dict[str, object]]) -> dict[str, Phase]:
    """The whole scenario, once."""
    del anyio_backend
    seen = await simulate(nodes=NODES, rack=RACK, down_s=1.0, quiet_s=1.0)
    keys = ("start", "quiet", "loss", "return", "restart", "deleted")
    return dict(zip(keys, seen, strict=True))


def test_a_cold_start_is_one_write_a_node(phases: dict[str, Phase]) -> None:
    assert phases["start"].writes == NODES


def test_nothing_is_asked_or_written_while_nothing_happens(phases: dict[str, Phase]) -> None:
    assert phases["quiet"].writes == 0
    assert phases["quiet"].reading.requests.total() == 0


def test_hubs_that_lose_power_cost_one_write_for_each_node_of_the_rack(phases: dict[str, Phase]) -> None:
    assert phases["loss"].writes == RACK
    assert phases["return"].writes == RACK


def test_a_restart_of_the_server_costs_no_write(phases: dict[str, Phase]) -> None:
    assert phases["restart"].writes == 0


def test_slices_that_were_deleted_are_back_with_one_write_each(phases: dict[str, Phase]) -> None:
    assert phases["deleted"].writes == NODES


def test_the_busiest_window_is_the_one_with_the_most_requests() -> None:
    assert Reading(times=[0.0, 0.05, 0.5, 0.52, 0.55, 0.7]).busiest(0.1) == 3
