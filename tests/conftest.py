"""What every tier shares: virtual time, the folder of recordings and cases, and the rule that CI skips no tier.

`LIKEN_REQUIRE_TIERS` (comma-separated markers, set by `.ci/run`) turns a skip of such a test into a failure.
"""

import os
import pathlib
from collections.abc import Iterator

import pytest

from tests.virtual import VirtualLoop

SHARED = pathlib.Path(os.environ.get("LIKEN_SHARED", pathlib.Path(__file__).parents[2] / "shared"))
REQUIRED = frozenset(filter(None, os.environ.get("LIKEN_REQUIRE_TIERS", "").split(",")))
TIERS = frozenset({"contract", "namespace", "cluster", "vm", "shared", "runtime", "browser", "image"})


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    """Async tests run on asyncio in virtual time: a sleep costs nothing and moves the clock."""
    return "asyncio", {"loop_factory": VirtualLoop}


@pytest.fixture(scope="session")
def shared() -> pathlib.Path:
    """The folder with recordings and cases; tests that use it carry the marker `shared`."""
    if not SHARED.is_dir():
        pytest.skip(f"no recordings and cases: {SHARED} is not there (set LIKEN_SHARED)")
    return SHARED


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    tiers = sorted(TIERS & {mark.name for mark in item.iter_markers()} & REQUIRED)
    if report.skipped and tiers and not hasattr(report, "wasxfail"):  # type: ignore[attr-defined]
        report.outcome = "failed"  # type: ignore[attr-defined]
        report.longrepr = f"tier {', '.join(tiers)} is required here and was skipped: {report.longrepr}"  # type: ignore[attr-defined]
    return report
