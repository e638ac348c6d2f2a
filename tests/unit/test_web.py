"""The web over real loopback sockets: what it answers to whom."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from liken.metrics import Metrics
from liken.web.server import ListenError, Web, address, policy
from liken.web.status import (
    ClaimedDevice,
    ClaimRow,
    ConditionRow,
    MachineRows,
    Outlook,
    Part,
    document,
    readiness,
)
from tests.unit.fakes_web import STICK_NAME, FakeStore, snapshot

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return "asyncio", {"use_uvloop": True}


CLAIM = ClaimRow(
    namespace="home",
    name="zigbee",
    uid="u1",
    since=1.0,
    devices=(ClaimedDevice(name=STICK_NAME, nodes=("/dev/ttyUSB0",), health="Healthy"),),
)
MACHINE = MachineRows(
    conditions=(ConditionRow(type="Ready", status="True", reason="Ready", message=""),), unclaimed=("0000:00:02.0",)
)


def outlook(*parts: Part) -> Outlook:
    return Outlook(node="node-1", version="1", parts=parts, claims=(CLAIM,), machine=MACHINE)


@asynccontextmanager
async def serving(store: FakeStore, *parts: Part) -> AsyncIterator[tuple[str, aiohttp.ClientSession]]:
    web = Web(listen="127.0.0.1:0", metrics=Metrics(), store=store, outlook=lambda: outlook(*parts))
    async with aiohttp.ClientSession() as session, anyio.create_task_group() as tasks:
        await tasks.start(web.run)
        yield f"http://127.0.0.1:{web.port}", session
        tasks.cancel_scope.cancel()


async def test_metrics_are_openmetrics_to_who_asks_for_it() -> None:
    async with serving(FakeStore()) as (url, session):
        accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
        async with session.get(f"{url}/metrics", headers=accept) as answer:
            assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
            assert (await answer.text()).endswith("# EOF\n")
        async with session.get(f"{url}/metrics") as answer:
            assert "liken_uevents_total" in await answer.text()


async def test_readiness_has_a_line_for_each_part_and_fails_when_one_does() -> None:
    good, bad = Part(name="events", ok=True, line="following"), Part(name="publish", ok=False, line="no API server")
    async with serving(FakeStore(), good, bad) as (url, session):
        async with session.get(f"{url}/readyz") as answer:
            assert answer.status == 503
            assert await answer.text() == "[+] events: following\n[-] publish: no API server\nnot ready\n"
        async with session.get(f"{url}/healthz") as answer:
            assert answer.status == 200
    assert readiness([good]) == (True, "[+] events: following\nready\n")


async def test_the_status_names_devices_claims_and_conditions() -> None:
    store = FakeStore()
    store.put(plugged=True)
    async with serving(store) as (url, session), session.get(f"{url}/status.json") as answer:
        status = await answer.json()
    by_address = {device["address"]: device for device in status["devices"]}
    assert by_address["1-4:1.0"]["offers"] == [
        {"name": "usb-1-4-1-0", "shared": False, "nodes": ["/dev/ttyUSB0"], "claim": "home/zigbee", "heldBack": False}
    ]
    assert by_address["0000:00:14.0"]["verdict"] == "NothingToDeliver"
    assert status["claims"][0]["devices"][0]["health"] == "Healthy"
    assert status["machine"]["conditions"][0]["type"] == "Ready"


async def test_a_change_reaches_who_follows() -> None:
    store = FakeStore()
    async with serving(store) as (url, session), session.get(f"{url}/changes") as stream:
        assert await stream.content.readuntil(b"\n\n") == b"event: change\ndata: 1\n\n"
        store.put(plugged=True)
        assert await stream.content.readuntil(b"\n\n") == b"event: change\ndata: 2\n\n"


async def test_a_rebound_dns_name_reads_nothing() -> None:
    async with serving(FakeStore()) as (url, session):
        async with session.get(f"{url}/status.json", headers={"Host": "evil.example"}) as answer:
            assert answer.status == 421
        async with session.get(f"{url}/status.json", headers={"Host": "localhost:1"}) as answer:
            assert answer.status == 200


async def test_the_page_runs_only_its_own_script_and_loads_nothing_from_elsewhere() -> None:
    async with serving(FakeStore()) as (url, session), session.get(url) as answer:
        page, rules = await answer.text(), answer.headers["Content-Security-Policy"]
    assert rules == policy(page)
    assert "default-src 'none'" in rules
    assert "unsafe" not in rules
    assert "http://" not in page
    assert "https://" not in page


async def test_a_taken_address_is_one_clear_error() -> None:
    store = FakeStore()
    async with serving(store) as (url, _):
        taken = Web(listen=url.removeprefix("http://"), metrics=Metrics(), store=store, outlook=outlook)
        with pytest.raises(ListenError, match="choose another address with --web-listen"):
            await taken.run()


@pytest.mark.parametrize("listen", ["", "9180", "example.org:80", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:x"])
async def test_a_bad_listen_address_is_refused_with_an_example(listen: str) -> None:
    with pytest.raises(ListenError, match="web listen address"):
        address(listen)


async def test_ipv6_addresses_are_understood() -> None:
    assert address("[::1]:9180") == ("::1", 9180)
    assert address("localhost:1") == ("localhost", 1)


@given(title=st.text(), message=st.text(st.characters(codec="utf-8") | st.characters(categories=["Cs"])))
def test_any_text_gives_a_document_that_encodes(title: str, message: str) -> None:
    part = Part(name="events", ok=False, line=message)
    json.dumps(document(snapshot(1, plugged=True, title=title), outlook(part)))
