"""Requests over loopback sockets: every answer there is, for every verb, becomes one error that says what to do."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

import anyio
import pytest

from liken.demo.apiserver import ApiServer
from liken.demo.apiserver_faults import How
from liken.kube import failures, paths
from liken.kube.client import Kube
from liken.model.api import (
    ApiError,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    Json,
    NotFound,
    TooManyRequests,
    Unauthorized,
    Unavailable,
)

pytestmark = pytest.mark.anyio

NAME = "node-a-liken.sh"
PATCH = [{"op": "replace", "path": "/spec/pool/generation", "value": 2}]

Call = Callable[[Kube], Awaitable[object]]


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return "asyncio", {"use_uvloop": True}


def body(name: str = NAME) -> Json:
    pool = {"name": "node-a", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "liken.sh", "nodeName": "node-a", "pool": pool, "devices": []}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec}


async def _watched(kube: Kube) -> None:
    async with contextlib.aclosing(kube.watch(paths.slices(), resource_version="1000")) as events:
        await anext(events)


CALLS: dict[str, Call] = {
    "create": lambda kube: kube.create(paths.slices(), body("another")),
    "patch": lambda kube: kube.json_patch(paths.slice(NAME), PATCH),
    "list": lambda kube: kube.list(paths.slices()),
    "get": lambda kube: kube.get(paths.claim("default", "zigbee")),
    "watch": _watched,
}

ANSWERS: dict[int, type[ApiError]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    413: Invalid,
    422: Invalid,
    429: TooManyRequests,
    500: Unavailable,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
}


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with ApiServer.serve() as found:
        found.put(body())
        claim = {"metadata": {"name": "zigbee", "namespace": "default"}, "spec": {}}
        found.put({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", **claim})
        yield found


@pytest.fixture
async def kube(server: ApiServer, tmp_path: Path) -> AsyncIterator[Kube]:
    async with Kube.connect(kubeconfig=server.kubeconfig(tmp_path / "kubeconfig"), timeout_s=0.8) as found:
        yield found


@pytest.mark.parametrize("verb", CALLS)
@pytest.mark.parametrize("status", ANSWERS)
async def test_every_refusal_is_its_own_error(server: ApiServer, kube: Kube, verb: str, status: int) -> None:
    server.fail(status, verb=verb, times=2, retry_after=7, message="the server's words")
    with pytest.raises(ANSWERS[status]) as caught:
        await CALLS[verb](kube)
    assert caught.value.status == status
    assert caught.value.retry_after == 7
    assert f"cannot {verb} resource" in str(caught.value)
    assert "the server's words" in str(caught.value)


UNANSWERED = [
    (verb, how)
    for verb in CALLS
    for how in (How.HANG, How.RESET, How.HALF)
    if (verb, how) != ("watch", How.HALF)  # a watch has no length: see the tests of watching
]


@pytest.mark.parametrize(("verb", "how"), UNANSWERED)
async def test_no_whole_answer_is_unavailable(server: ApiServer, kube: Kube, verb: str, how: How) -> None:
    server.disturb(how, verb=verb, times=2)
    with anyio.fail_after(15), pytest.raises(Unavailable) as caught:
        await CALLS[verb](kube)
    assert caught.value.status == 0
    assert f"cannot {verb} resource" in str(caught.value)
    assert server.url in str(caught.value)


@pytest.mark.parametrize("verb", ["create", "patch", "list", "get"])
async def test_a_page_of_a_proxy_is_never_an_object(server: ApiServer, kube: Kube, verb: str) -> None:
    server.fail(200, verb=verb, body=b"<html>\x1b[31mwelcome</html>")
    with pytest.raises(Unavailable, match="no JSON object") as caught:
        await CALLS[verb](kube)
    assert "\x1b" not in str(caught.value)
    server.fail(502, verb=verb, body=b"<html>bad gateway</html>")
    with pytest.raises(Unavailable, match="502"):
        await CALLS[verb](kube)


async def test_a_redirect_is_not_followed(server: ApiServer, kube: Kube) -> None:
    server.fail(302, verb="get", body=b"")
    with pytest.raises(Unavailable, match="not followed"):
        await CALLS["get"](kube)


async def test_a_server_that_is_gone_is_unavailable_and_found_again(server: ApiServer, kube: Kube) -> None:
    await server.stop()
    with pytest.raises(Unavailable, match="cannot list resourceslices"):
        await kube.list(paths.slices())
    await server.start()
    assert len((await kube.list(paths.slices()))["items"]) == 1


async def test_a_refused_token_is_read_again_once(server: ApiServer, kube: Kube, tmp_path: Path) -> None:
    server.token = "new"
    server.kubeconfig(tmp_path / "kubeconfig")
    assert (await kube.get(paths.slice(NAME)))["metadata"]["name"] == NAME
    assert [seen.status for seen in server.requests][-2:] == [401, 200]


async def test_a_token_that_stays_refused_does_not_make_a_storm(server: ApiServer, kube: Kube) -> None:
    server.token = "other"
    for _ in range(5):
        with pytest.raises(Unauthorized, match="check the service account's token"):
            await kube.get(paths.slice(NAME))
    assert len(server.requests) == 6


async def test_a_missing_right_names_itself_and_the_cure(server: ApiServer, kube: Kube) -> None:
    server.deny("list", "resourceslices")
    with pytest.raises(Forbidden, match='cannot list resource "resourceslices"') as caught:
        await kube.list(paths.slices())
    assert "ClusterRole" in str(caught.value)
    assert not await kube.can_i("list", "resource.k8s.io", "resourceslices")
    assert await kube.can_i("get", "resource.k8s.io", "resourceslices")


async def test_many_requests_go_side_by_side(server: ApiServer, kube: Kube) -> None:
    server.disturb(How.LATE, verb="get", times=20, seconds=0.2)
    began = anyio.current_time()
    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(kube.get, paths.slice(NAME))
    assert anyio.current_time() - began < 3.0


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7.0),
        ("0", 0.0),
        ("999999999999", 600.0),
        ("Tue, 01 Dec 2026 12:00:30 GMT", 30.0),
        ("Tue, 01 Dec 2026 11:00:00 GMT", 0.0),
        ("", None),
        ("soon", None),
        ("-5", None),
    ],
)
def test_retry_after_is_a_number_or_a_date(header: str, seconds: float | None) -> None:
    now = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)
    assert failures.retry_after({"Retry-After": header}, now) == seconds


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (paths.slice("a-liken.sh"), "resourceslices a-liken.sh"),
        (paths.slices(), "resourceslices"),
        (paths.claim("home", "zigbee"), "resourceclaims zigbee in home"),
        (paths.machine_status("n"), "machines n status"),
        (paths.event("default", "x"), "events x in default"),
        (paths.VERSION, "/version"),
    ],
)
def test_a_path_is_said_in_words(path: str, words: str) -> None:
    assert paths.words(path) == words


@pytest.mark.parametrize("name", ["../../secrets", "a/b", "a?watch=1", "a#b", "ü", "%2e%2e"])
def test_no_name_leaves_its_place_in_a_path(name: str) -> None:
    assert paths.slice(name).count("/") == paths.slice("x").count("/")
    assert "?" not in paths.slice(name)
    assert paths.words(paths.slice(name)) == f"resourceslices {name}"
