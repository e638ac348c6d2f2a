import shutil
import socket
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import grpc
import pytest

from liken.claims import registration
from liken.claims.server import SocketError
from liken.claims.service import Claims
from liken.model.api import Unavailable
from tests.claims.kubelet import Kubelet, registered
from tests.unit.fakes_claims import GPU, ZIGBEE, Node, opaque, ref, result, stick

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"use_uvloop": True}  # real sockets, real time


@pytest.fixture
def machine() -> Iterator[Node]:
    with tempfile.TemporaryDirectory(prefix="l") as folder:  # a socket's path is short
        yield Node(Path(folder))


@asynccontextmanager
async def serving(machine: Node, **settings: Any) -> AsyncIterator[Claims]:
    """The claims' part of a daemon, until the end of the block; then it is told to stop and waited for."""
    claims = Claims(
        api=machine.api,
        hardware=machine.hardware,
        store=machine.store,
        settings=replace(machine.settings, **settings),
        metrics=machine.metrics,
        wall=lambda: machine.now,
    )
    async with anyio.create_task_group() as tasks:
        await tasks.start(claims.run)
        yield claims
        tasks.cancel_scope.cancel()


def plugin(machine: Node, uid: str | None = None) -> Path:
    return registration.plugin_path(machine.settings.plugins_dir, uid)


def registry(machine: Node, uid: str | None = None) -> Path:
    return registration.registration_path(machine.settings.registry_dir, uid)


async def appears(path: Path) -> None:
    with anyio.fail_after(10):
        while not path.exists():
            await anyio.sleep(0.02)


async def test_the_kubelet_learns_who_we_are_and_where(machine: Node) -> None:
    async with serving(machine) as claims:
        info = await registered(registry(machine))
        assert (info.type, info.name, info.endpoint) == ("DRAPlugin", "liken.sh", str(plugin(machine)))
        assert list(info.supported_versions) == [
            "v1.DRAPlugin",
            "v1beta1.DRAPlugin",
            "v1.DRAResourceHealth",
            "v1alpha1.DRAResourceHealth",
        ]
        assert claims.registered
        assert [path.stat().st_mode & 0o777 for path in (plugin(machine), registry(machine))] == [0o600, 0o600]
        await registered(registry(machine), refusal="unsupported")
        assert not claims.registered
    assert not plugin(machine).exists()
    assert not registry(machine).exists()


@pytest.mark.parametrize("version", ["v1.DRAPlugin", "v1beta1.DRAPlugin"])
async def test_every_claim_of_a_call_is_answered_and_no_other(machine: Node, version: str) -> None:
    machine.api.put(ref("c1", "zigbee"))
    machine.api.put(ref("c2", "gpu"), result(GPU, "gpu/best", shareID="7c2e0a00"))
    async with serving(machine), anyio.create_task_group():
        with Kubelet(plugin(machine), version) as kubelet:
            answers = await kubelet.prepare(ref("c1", "zigbee"), ref("c2", "gpu"), ref("c3", "nobody"), ref("", "x"))
            assert sorted(answers) == ["", "c1", "c2", "c3"]
            assert "404" in answers["c3"].error
            assert not answers["c3"].devices
            (first,), (second,) = answers["c1"].devices, answers["c2"].devices
            assert (list(first.request_names), first.pool_name, first.device_name) == (["adapter"], "node-a", ZIGBEE)
            assert list(second.request_names) == ["gpu"]
            if version == "v1.DRAPlugin":
                assert second.share_id == "7c2e0a00"
                assert not first.HasField("share_id")
            document = machine.document("c1")
            assert document is not None
            assert list(first.cdi_device_ids) == [f"liken.sh/device={document['devices'][0]['name']}"]
            gone = await kubelet.unprepare(ref("c1", "zigbee"), ref("c2", "gpu"), ref("c3", "nobody"))
            assert {uid: answer.error for uid, answer in gone.items()} == {"c1": "", "c2": "", "c3": ""}
    assert machine.files() == []


async def test_an_empty_call_has_an_empty_answer(machine: Node) -> None:
    async with serving(machine):
        with Kubelet(plugin(machine)) as kubelet:
            assert await kubelet.prepare() == {}


async def test_work_goes_on_when_the_kubelet_gives_up(machine: Node) -> None:
    machine.api.put(ref())
    machine.api.delay = 0.6
    async with serving(machine):
        with Kubelet(plugin(machine)) as kubelet:
            with pytest.raises(grpc.RpcError) as caught:
                await kubelet.prepare(ref(), within_s=0.2)
            assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            assert machine.files() == []
            await appears(machine.directory.path("c1"))
            machine.api.delay = 0
            assert not (await kubelet.prepare(ref()))["c1"].error


async def test_a_stop_lets_the_calls_at_work_end(machine: Node) -> None:
    machine.api.put(ref())
    machine.api.delay = 0.6
    answers: list[Any] = []
    with Kubelet(plugin(machine)) as kubelet:
        async with anyio.create_task_group() as calls:

            async def call() -> None:
                answers.append(await kubelet.prepare(ref()))

            async with serving(machine):
                calls.start_soon(call)
                while not machine.api.asked:
                    await anyio.sleep(0.01)
            assert machine.files() == ["liken.sh-c1.json"]
        assert [device.device_name for device in answers[0]["c1"].devices] == [ZIGBEE]
        with pytest.raises(grpc.RpcError) as caught:
            await kubelet.prepare(ref(), within_s=5)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_call_that_never_ends_does_not_keep_a_stop(machine: Node) -> None:
    machine.api.put(ref())
    machine.api.delay = 3600
    with Kubelet(plugin(machine)) as kubelet:
        async with anyio.create_task_group() as calls:

            async def call() -> None:
                with suppress(grpc.RpcError):
                    await kubelet.prepare(ref())

            began = anyio.current_time()
            async with serving(machine, stop_s=0.5):
                calls.start_soon(call)
                while not machine.api.asked:
                    await anyio.sleep(0.01)
            assert anyio.current_time() - began < 10
    assert machine.files() == []


async def test_a_stop_with_an_idle_connection_is_quick(machine: Node) -> None:
    with Kubelet(plugin(machine)) as kubelet:
        async with serving(machine):
            await kubelet.prepare()
            began = anyio.current_time()
        assert anyio.current_time() - began < 1


async def test_noise_on_the_socket_costs_its_own_connection(machine: Node) -> None:
    machine.api.put(ref())
    async with serving(machine):
        for noise in (b"GET / HTTP/1.1\r\n\r\n", b"\0" * 4096, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 64):
            with socket.socket(socket.AF_UNIX) as stranger:
                stranger.connect(str(plugin(machine)))
                stranger.sendall(noise)
        with Kubelet(plugin(machine)) as kubelet:
            assert not (await kubelet.prepare(ref()))["c1"].error


async def test_sixteen_at_a_time_are_all_answered(machine: Node) -> None:
    refs = [machine.api.put(ref(f"c{n}", f"c{n}"), result(GPU, shareID=f"s{n}")) for n in range(64)]
    async with serving(machine):
        with Kubelet(plugin(machine)) as kubelet:
            limiter = anyio.Semaphore(16)
            errors: list[str] = []

            async def call(one: Any) -> None:
                async with limiter:
                    errors.append((await kubelet.prepare(one))[one.uid].error)

            async with anyio.create_task_group() as calls:
                for one in refs:
                    calls.start_soon(call, one)
            assert errors == [""] * 64
    assert len(machine.files()) == 64


async def test_a_fault_of_our_own_is_one_claim_s_error_and_no_more(machine: Node) -> None:
    machine.api.put(ref())
    machine.api.put(ref("c2", "broken"))
    machine.api.claims["home", "broken"]["status"]["allocation"]["devices"]["results"] = [17]
    async with serving(machine):
        with Kubelet(plugin(machine)) as kubelet:
            answers = await kubelet.prepare(ref(), ref("c2", "broken"))
            assert not answers["c1"].error
            assert "claims.failed" in answers["c2"].error
            assert not (await kubelet.unprepare(ref("c2", "broken")))["c2"].error
    results = {sample.labels["result"]: sample.value for sample in samples(machine, "liken_claim_prepares_total")}
    assert results == {"ok": 1, "failed": 1}


def samples(machine: Node, name: str) -> list[Any]:
    return [sample for family in machine.metrics.registry.collect() for sample in family.samples if sample.name == name]


async def test_a_spoiled_folder_is_each_claim_s_error_and_the_service_stays(machine: Node) -> None:
    machine.api.put(ref())
    machine.settings.cdi_dir.write_text("not a folder")
    async with serving(machine):
        with Kubelet(plugin(machine)) as kubelet:
            assert "not a folder" in (await kubelet.prepare(ref()))["c1"].error
            assert "not a folder" in (await kubelet.unprepare(ref()))["c1"].error
            machine.settings.cdi_dir.unlink()
            assert not (await kubelet.prepare(ref()))["c1"].error


# --- sockets ----------------------------------------------------------------------------------------------------------
def dead_socket(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))


async def test_sockets_of_dead_instances_are_removed_and_those_of_living_ones_stay(machine: Node) -> None:
    for path in (plugin(machine), registry(machine), plugin(machine, "old"), registry(machine, "old")):
        dead_socket(path)
    alive, foreign = registry(machine, "alive"), machine.settings.registry_dir / "other.sh-reg.sock"
    dead_socket(foreign)
    with socket.socket(socket.AF_UNIX) as living:
        living.bind(str(alive))
        living.listen()
        async with serving(machine):
            await registered(registry(machine))
            assert not plugin(machine, "old").exists()
            assert not registry(machine, "old").exists()
            assert alive.exists()
        assert alive.exists()
        assert foreign.exists()


async def test_a_living_instance_at_our_path_is_an_error_that_names_it(machine: Node) -> None:
    async with serving(machine):
        with pytest.raises(ExceptionGroup) as caught:
            async with serving(Node(machine.folder)):
                pass
        (error,) = leaves(caught.value)
        assert isinstance(error, SocketError)
        assert str(plugin(machine)) in str(error)
        await registered(registry(machine))


def leaves(group: BaseException) -> list[BaseException]:
    if isinstance(group, BaseExceptionGroup):
        return [leaf for error in group.exceptions for leaf in leaves(error)]
    return [group]


async def test_a_path_that_is_too_long_is_an_error_that_says_so(machine: Node) -> None:
    with pytest.raises(ExceptionGroup) as caught:
        async with serving(machine, plugins_dir=machine.folder / ("x" * 90)):
            pass
    (error,) = leaves(caught.value)
    assert "107" in str(error)


async def test_what_is_no_socket_is_left_alone(machine: Node) -> None:
    plugin(machine).parent.mkdir(parents=True)
    plugin(machine).write_text("mine")
    with pytest.raises(ExceptionGroup) as caught:
        async with serving(machine):
            pass
    assert "is not a socket" in str(leaves(caught.value)[0])
    assert plugin(machine).read_text() == "mine"


async def test_a_folder_that_cannot_be_is_an_error_with_its_path(machine: Node) -> None:
    machine.settings.plugins_dir.write_text("")
    with pytest.raises(ExceptionGroup) as caught:
        async with serving(machine):
            pass
    (error,) = leaves(caught.value)
    assert str(machine.settings.plugins_dir) in str(error)


async def test_a_stranger_s_file_in_the_place_of_our_socket_is_waited_out(machine: Node) -> None:
    async with serving(machine):
        registry(machine).unlink()
        registry(machine).write_text("mine")
        await anyio.sleep(0.6)
        assert registry(machine).read_text() == "mine"
        registry(machine).unlink()
        with anyio.fail_after(10):
            while not registry(machine).is_socket():
                await anyio.sleep(0.05)
        await registered(registry(machine))


async def test_a_registration_socket_that_was_removed_comes_back(machine: Node) -> None:
    async with serving(machine):
        for _ in range(2):
            registry(machine).unlink()
            await appears(registry(machine))
            await registered(registry(machine))


async def test_a_registry_folder_that_was_removed_comes_back_with_the_socket(machine: Node) -> None:
    async with serving(machine):
        for _ in range(2):
            shutil.rmtree(machine.settings.registry_dir)
            await appears(registry(machine))
            await registered(registry(machine))


async def test_a_plugin_socket_that_was_removed_comes_back_and_no_call_is_lost(machine: Node) -> None:
    machine.api.put(ref())
    async with serving(machine):
        with Kubelet(plugin(machine)) as before:
            await before.prepare(ref())
            plugin(machine).unlink()
            await appears(plugin(machine))
            assert not (await before.prepare(ref()))["c1"].error
            with Kubelet(plugin(machine)) as after:
                assert not (await after.unprepare(ref()))["c1"].error


async def test_two_instances_of_a_rolling_update_share_the_claims(machine: Node) -> None:
    newer = Node(machine.folder)
    newer.api.claims = machine.api.claims
    machine.api.put(ref("a", "first"))
    machine.api.put(ref("b", "second"))
    async with serving(newer, pod_uid="new"):
        async with serving(machine, pod_uid="old"):
            with Kubelet(plugin(machine, "old")) as to_old, Kubelet(plugin(machine, "new")) as to_new:
                assert not (await to_old.prepare(ref("a", "first")))["a"].error
                assert "home/first" in (await to_new.prepare(ref("b", "second")))["b"].error
                assert not (await to_new.unprepare(ref("a", "first")))["a"].error
                assert not (await to_old.prepare(ref("b", "second")))["b"].error
        assert not registry(machine, "old").exists()
        await registered(registry(machine, "new"))
        with Kubelet(plugin(machine, "new")) as to_new:
            assert not (await to_new.unprepare(ref("b", "second")))["b"].error
    assert machine.files() == []


async def test_both_instances_at_one_claim_leave_one_file(machine: Node) -> None:
    newer = Node(machine.folder)
    newer.api.claims = machine.api.claims
    machine.api.put(ref())
    async with serving(newer, pod_uid="new"), serving(machine, pod_uid="old"):
        with Kubelet(plugin(machine, "old")) as to_old, Kubelet(plugin(machine, "new")) as to_new:
            async with anyio.create_task_group() as calls:
                for _ in range(5):
                    calls.start_soon(to_old.prepare, ref())
                    calls.start_soon(to_new.prepare, ref())
    assert machine.files() == ["liken.sh-c1.json"]
    assert machine.nodes("c1") == ["/dev/bus/usb/001/007", "/dev/ttyUSB0"]


# --- following the hardware, health -----------------------------------------------------------------------------------
@pytest.mark.parametrize("version", ["v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"])
async def test_a_replug_is_in_the_file_and_in_the_health(machine: Node, version: str) -> None:
    machine.api.put(ref("g", "gpu"), result(GPU, shareID="s"))
    machine.api.put(ref(), config=[opaque(path="/dev/zigbee")])
    async with serving(machine):
        with Kubelet(plugin(machine)) as kubelet, kubelet.health(version) as stream:
            assert await stream.until(1) == {}
            await kubelet.prepare(ref("g", "gpu"))
            assert await stream.until(2) == {GPU: (1, "")}
            await kubelet.prepare(ref())
            assert await stream.until(3) == {GPU: (1, ""), ZIGBEE: (1, "")}
            machine.hardware.unplug(stick())
            machine.hardware.event()
            assert await stream.until(4) == {GPU: (1, ""), ZIGBEE: (2, "unplugged at 08:00:00 UTC")}
            assert machine.nodes("c1") == ["/dev/liken-gone-usb-1-4-1-0"]
            machine.hardware.plug(stick(tty="ttyUSB1", number=9))
            machine.hardware.event()
            words = "replugged as ttyUSB1: restart the pod to receive it"
            assert (await stream.until(5))[ZIGBEE] == (2, words)
            assert machine.nodes("c1") == ["/dev/bus/usb/001/009", "/dev/zigbee"]
            await kubelet.unprepare(ref())
            assert await stream.until(6) == {GPU: (1, "")}
        with Kubelet(plugin(machine)) as kubelet, kubelet.health(version) as again:
            assert await again.until(1) == {GPU: (1, "")}


async def test_the_health_is_repeated_before_its_lease_ends(machine: Node) -> None:
    machine.api.put(ref())
    async with serving(machine, repeat_s=0.2):
        with Kubelet(plugin(machine)) as kubelet:
            await kubelet.prepare(ref())
            with kubelet.health() as stream:
                assert await stream.until(3) == {ZIGBEE: (1, "")}
                statement = stream.raw[0].devices[0]
                assert (statement.device.pool_name, statement.health_check_timeout_seconds) == ("node-a", 30)
                assert statement.last_updated_time == int(machine.now)


async def test_a_stop_ends_the_health_streams_in_good_order(machine: Node) -> None:
    with Kubelet(plugin(machine)) as kubelet:
        async with serving(machine):
            with kubelet.health() as left:
                await left.until(1)
            stream_of = kubelet.health()
            stream = stream_of.__enter__()
            await stream.until(1)
        assert await stream.ended() is grpc.StatusCode.OK
        stream_of.__exit__(None, None, None)


# --- start ------------------------------------------------------------------------------------------------------------
async def test_a_start_sweeps_up_and_lets_ended_claims_go_but_not_those_it_cannot_ask_about(machine: Node) -> None:
    for uid, name in (("a", "stays"), ("b", "gone"), ("c", "anew")):
        machine.api.put(ref(uid, name), result(GPU, shareID=uid))
        await machine.preparer.prepare(ref(uid, name))
    (machine.settings.cdi_dir / ".liken.sh-a.4242").write_text("half")
    (machine.settings.cdi_dir / "nvidia.json").write_text("{}")
    machine.api.delete(ref("b", "gone"))
    machine.api.put(ref("c2", "anew"))
    after = await machine.again()
    answers: list[Exception | None] = [Unavailable("down", status=503)] * 3
    after.api.fail = lambda: answers.pop() if answers else None
    async with serving(after):
        assert len(after.files()) == 4
        with anyio.fail_after(10):
            while len(after.files()) > 2:
                await anyio.sleep(0.05)
    assert after.files() == ["liken.sh-a.json", "nvidia.json"]


async def test_a_claim_deleted_by_force_under_a_running_pod_keeps_its_device(machine: Node) -> None:
    await machine.preparer.prepare(machine.api.put(ref("a", "first")))
    machine.api.delete(ref("a", "first"))
    machine.api.put(ref("b", "second"))
    state = machine.settings.plugins_dir.parent / "dra_manager_state"
    state.write_text('{"data":"{\\"entries\\":[{\\"ClaimUID\\":\\"a\\"}]}","checksum":1}')
    after = await machine.again()
    async with serving(after):
        with Kubelet(plugin(machine)) as kubelet:
            await anyio.sleep(0.3)
            assert "home/first" in (await kubelet.prepare(ref("b", "second")))["b"].error
            await kubelet.unprepare(ref("a", "first"))
            assert not (await kubelet.prepare(ref("b", "second")))["b"].error


async def test_a_start_brings_the_files_up_to_date_without_a_prepare(machine: Node) -> None:
    await machine.preparer.prepare(machine.api.put(ref()))
    machine.hardware.plug(stick(tty="ttyUSB1", number=9))
    after = await machine.again()
    async with serving(after):
        with anyio.fail_after(5):
            while after.nodes("c1") != ["/dev/bus/usb/001/009", "/dev/ttyUSB1"]:
                await anyio.sleep(0.02)
        with Kubelet(plugin(machine)) as kubelet, kubelet.health() as stream:
            assert (await stream.until(1))[ZIGBEE][1].startswith("replugged as ttyUSB1")


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_no_descriptor_and_no_thread_of_ours_is_left(machine: Node) -> None:
    async def once() -> None:
        async with serving(machine):
            with Kubelet(plugin(machine)) as kubelet:
                await kubelet.prepare(machine.api.put(ref()))

    await once()
    before = descriptors()
    for _ in range(3):
        await once()
    assert descriptors() <= before + 1
