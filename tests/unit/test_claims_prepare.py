from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from liken.claims import schema
from liken.claims.ledger import OnDisk, Saved
from liken.claims.prepared import PreparedClaim
from liken.claims.words import ClaimError
from liken.model.api import ApiError, Conflict, Forbidden, NotFound, TooManyRequests, Unauthorized, Unavailable
from tests.unit.fakes_claims import GPU, SOUND, ZIGBEE, Node, gpu, opaque, ref, result, sound, stick

pytestmark = pytest.mark.anyio


@pytest.fixture
def machine(tmp_path: Path) -> Node:
    return Node(tmp_path)


async def refused(machine: Node, claim: str = "c1", name: str = "zigbee") -> str:
    with pytest.raises(ClaimError) as caught:
        await machine.preparer.prepare(ref(claim, name))
    return str(caught.value)


async def test_a_claim_receives_the_nodes_of_its_device_and_nothing_else(machine: Node) -> None:
    claim = await machine.preparer.prepare(machine.api.put(ref()))
    document = machine.document("c1")
    assert document is not None
    assert [device["containerEdits"] for device in document["devices"]] == [
        {"deviceNodes": [{"path": "/dev/bus/usb/001/007"}, {"path": "/dev/ttyUSB0"}]}
    ]
    assert schema.problems(document) == ()
    assert (machine.directory.path("c1").stat().st_mode & 0o777) == 0o600
    assert [(device.request, device.name, device.share_id) for device in claim.devices] == [("adapter", ZIGBEE, None)]


async def test_just_the_allocated_devices_are_read(machine: Node) -> None:
    await machine.preparer.prepare(machine.api.put(ref()))
    assert [{key.address for key in keys} for keys in machine.hardware.refreshed] == [{"1-4", "1-4:1.0"}]


async def test_nobody_waits_for_the_event_of_a_device_that_is_there(machine: Node) -> None:
    machine.hardware.unplug(stick())
    machine.hardware.event()
    machine.hardware.plug(stick(tty="ttyUSB1", number=9))  # no event yet
    await machine.preparer.prepare(machine.api.put(ref()))
    assert machine.nodes("c1") == ["/dev/bus/usb/001/009", "/dev/ttyUSB1"]


async def test_the_same_claim_again_is_the_same_answer_and_no_second_write(machine: Node) -> None:
    first = await machine.preparer.prepare(machine.api.put(ref()))
    inode = machine.directory.path("c1").stat().st_ino
    machine.now += 60
    assert await machine.preparer.prepare(ref()) == first
    assert machine.directory.path("c1").stat().st_ino == inode


async def test_pods_that_start_together_get_one_file(machine: Node) -> None:
    machine.api.put(ref())
    machine.api.delay = 0.1
    answers: list[PreparedClaim] = []

    async def call() -> None:
        answers.append(await machine.preparer.prepare(ref()))

    async with anyio.create_task_group() as calls:
        for _ in range(3):
            calls.start_soon(call)
    assert answers == [answers[0]] * 3
    assert machine.files() == ["liken.sh-c1.json"]


async def test_different_claims_do_not_wait_for_each_other(machine: Node) -> None:
    machine.api.delay = 0.1
    shares = [machine.api.put(ref(f"g{n}", f"g{n}"), result(GPU, shareID=f"s{n}")) for n in range(100)]
    began = anyio.current_time()
    async with anyio.create_task_group() as calls:
        for share in shares:
            calls.start_soon(machine.preparer.prepare, share)
    assert anyio.current_time() - began < 5
    assert len(machine.files()) == 100


async def test_a_lost_file_is_written_again(machine: Node) -> None:
    await machine.preparer.prepare(machine.api.put(ref()))
    machine.directory.path("c1").unlink()
    await machine.preparer.prepare(ref())
    assert machine.nodes("c1") == ["/dev/bus/usb/001/007", "/dev/ttyUSB0"]


async def test_a_file_that_somebody_spoiled_is_written_again(machine: Node) -> None:
    await machine.preparer.prepare(machine.api.put(ref()))
    machine.directory.path("c1").write_text('{"devices": [')
    await machine.preparer.prepare(ref())
    assert machine.nodes("c1") == ["/dev/bus/usb/001/007", "/dev/ttyUSB0"]


async def test_only_our_driver_s_results_count(machine: Node) -> None:
    machine.api.put(ref(), {"request": "nic", "driver": "other", "pool": "x", "device": "eth0"}, result())
    claim = await machine.preparer.prepare(ref())
    assert [device.name for device in claim.devices] == [ZIGBEE]


async def test_a_subrequest_is_answered_as_its_main_request(machine: Node) -> None:
    claim = await machine.preparer.prepare(machine.api.put(ref(), result(f"{GPU}-display", "gpu/best")))
    assert claim.devices[0].request == "gpu"


async def test_two_shares_of_one_device_are_two_cdi_devices(machine: Node) -> None:
    machine.api.put(ref(), result(GPU, "a", shareID="s1"), result(GPU, "b", shareID="s2"))
    claim = await machine.preparer.prepare(ref())
    assert [(device.request, device.share_id) for device in claim.devices] == [("a", "s1"), ("b", "s2")]
    document = machine.document("c1")
    assert document is not None
    assert len({device["name"] for device in document["devices"]}) == 2


async def test_an_exclusive_device_is_refused_to_a_second_claim_by_the_first_one_s_name(machine: Node) -> None:
    await machine.preparer.prepare(machine.api.put(ref("a", "first")))
    machine.api.put(ref("b", "second"))
    assert "held by claim home/first" in await refused(machine, "b", "second")
    assert machine.files() == ["liken.sh-a.json"]
    await machine.preparer.unprepare(ref("a", "first"))
    await machine.preparer.prepare(ref("b", "second"))
    assert machine.files() == ["liken.sh-b.json"]


async def test_two_claims_at_once_do_not_both_get_an_exclusive_device(machine: Node) -> None:
    machine.api.delay = 0.05
    outcomes: list[str] = []

    async def call(uid: str) -> None:
        try:
            await machine.preparer.prepare(machine.api.put(ref(uid, uid)))
        except ClaimError as error:
            outcomes.append(str(error))
        else:
            outcomes.append("ok")

    async with anyio.create_task_group() as calls:
        for uid in "ab":
            calls.start_soon(call, uid)
    assert sorted(outcome == "ok" for outcome in outcomes) == [False, True]
    assert len(machine.files()) == 1


async def test_a_shareable_device_serves_many_claims(machine: Node) -> None:
    for number in range(3):
        await machine.preparer.prepare(machine.api.put(ref(f"c{number}", f"c{number}"), result(SOUND)))
    assert len(machine.files()) == 3


async def test_admin_access_is_never_refused_and_keeps_nobody(machine: Node) -> None:
    admin = machine.api.put(ref("admin", "admin"), result(adminAccess=True))
    await machine.preparer.prepare(admin)
    await machine.preparer.prepare(machine.api.put(ref("a", "first")))
    await machine.preparer.prepare(admin)
    assert list(machine.store.snapshot.rules.held) == [ZIGBEE]
    await machine.preparer.unprepare(ref("a", "first"))
    assert list(machine.store.snapshot.rules.held) == []


async def test_another_instance_s_claim_is_seen(tmp_path: Path, machine: Node) -> None:
    other = Node(tmp_path)
    await other.preparer.prepare(other.api.put(ref("a", "first")))
    machine.api.put(ref("b", "second"))
    assert "home/first" in await refused(machine, "b", "second")
    await other.preparer.unprepare(ref("a", "first"))
    await machine.preparer.prepare(ref("b", "second"))


async def test_a_claim_another_instance_writes_is_waited_for_and_then_given_up(tmp_path: Path, machine: Node) -> None:
    other = Node(tmp_path)
    machine.api.put(ref())
    async with other.ledger.writing("c1", patience_s=1):
        assert "another instance of liken" in await refused(machine)
    await machine.preparer.prepare(ref())


# --- what the API server says -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("error", "words", "calls"),
    [
        (NotFound("gone", status=404), ["home/zigbee", "404", "delete the pod"], 1),
        (Forbidden("no", status=403), ["home/zigbee", "403", "ClusterRole", "get on resourceclaims"], 1),
        (Conflict("odd", status=409), ["home/zigbee", "409"], 1),
        (Unauthorized("token", status=401), ["home/zigbee", "401", "credentials"], 9),
        (TooManyRequests("slow", status=429), ["home/zigbee", "429", "too busy", "by itself"], 9),
        (Unavailable("boom", status=503), ["home/zigbee", "503", "by itself"], 9),
        (Unavailable("refused", status=0), ["home/zigbee", "no answer", "by itself"], 9),
    ],
)
async def test_each_failure_of_the_api_server_has_its_sentence(
    machine: Node, error: ApiError, words: list[str], calls: int
) -> None:
    machine.api.fail = lambda: error
    began = anyio.current_time()
    said = await refused(machine)
    assert anyio.current_time() - began < 45
    assert all(word in said for word in words), said
    assert machine.api.asked.count("home/zigbee") >= calls
    assert machine.files() == []


async def test_an_api_server_that_does_not_answer_ends_within_the_kubelet_s_deadline(machine: Node) -> None:
    machine.api.put(ref())
    machine.api.delay = 3600
    began = anyio.current_time()
    said = await refused(machine)
    assert anyio.current_time() - began < 45
    assert "time-out" in said


async def test_a_server_that_comes_back_in_time_is_enough(machine: Node) -> None:
    machine.api.put(ref())
    errors = iter([Unavailable("a", status=503), TooManyRequests("b", status=429, retry_after=2.0)])
    machine.api.fail = lambda: next(errors, None)
    began = anyio.current_time()
    await machine.preparer.prepare(ref())
    assert 2.0 <= anyio.current_time() - began < 5


async def test_a_wait_longer_than_the_deadline_is_not_begun(machine: Node) -> None:
    machine.api.fail = lambda: TooManyRequests("b", status=429, retry_after=120.0)
    began = anyio.current_time()
    assert "429" in await refused(machine)
    assert anyio.current_time() - began < 1


async def test_a_claim_made_anew_under_the_same_name_is_not_the_pod_s(machine: Node) -> None:
    machine.api.put(ref("new"))
    said = await refused(machine, "old")
    assert "uid is new" in said
    assert "old" in said


async def test_a_claim_without_an_allocation_is_refused(machine: Node) -> None:
    machine.api.put(ref())
    del machine.api.claims["home", "zigbee"]["status"]
    assert "no allocation" in await refused(machine)


async def test_a_claim_of_another_driver_or_node_is_refused(machine: Node) -> None:
    machine.api.put(ref(), {"request": "nic", "driver": "other", "pool": "x", "device": "eth0"})
    assert "no device of driver liken.sh" in await refused(machine)
    machine.api.put(ref(), result(pool="node-b"))
    assert "of node node-b" in await refused(machine)


@pytest.mark.parametrize("uid", ["", "../../etc/passwd", "a/b", "a b", "-", "x" * 200, "a\0b", ".hidden"])
async def test_a_uid_that_is_none_becomes_no_file_name(machine: Node, uid: str) -> None:
    with pytest.raises(ClaimError, match="not a claim's uid"):
        await machine.preparer.prepare(ref(uid))
    await machine.preparer.unprepare(ref(uid))
    assert machine.files() == []


# --- the hardware -----------------------------------------------------------------------------------------------------
async def test_before_the_first_inventory_a_call_waits_and_then_says_so(tmp_path: Path) -> None:
    machine = Node(tmp_path)
    machine.api.put(ref())
    machine.store.replace([], complete=False)
    began = anyio.current_time()
    assert "still reading the machine's hardware" in await refused(machine)
    assert 10 <= anyio.current_time() - began < 12
    async with anyio.create_task_group() as calls:
        calls.start_soon(machine.preparer.prepare, ref())
        await anyio.sleep(5)
        machine.hardware.event()
    assert machine.files() == ["liken.sh-c1.json"]


async def test_a_device_that_does_not_answer_costs_its_own_claim_only(machine: Node) -> None:
    machine.api.put(ref())
    machine.hardware.delay = 3600
    said = await refused(machine)
    assert ZIGBEE in said
    assert "did not answer" in said


def unplugged(machine: Node) -> None:
    machine.hardware.unplug(stick())


def driverless(machine: Node) -> None:
    machine.hardware.plug(stick(driver=None))


def another_model(machine: Node) -> None:
    machine.hardware.plug(stick(ids="0403:6001", driver=None))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (unplugged, ["unplugged at 08:00:00 UTC"]),
        (driverless, ["its driver cp210x is gone"]),
        (another_model, ["its address 1-4:1.0 now holds another model", "0403:6001"]),
    ],
)
async def test_a_name_that_resolves_to_nothing_says_what_happened(
    machine: Node, change: Callable[[Node], None], words: list[str]
) -> None:
    machine.api.put(ref())
    change(machine)
    said = await refused(machine)
    assert all(word in said for word in [ZIGBEE, *words]), said


async def test_a_name_nobody_ever_saw_says_so_and_heals_when_it_comes(machine: Node) -> None:
    machine.api.put(ref(), result("usb-3-2-1-1-0"))
    assert "no device was seen in its place" in await refused(machine)
    assert {key.address for key in machine.hardware.refreshed[-1]} == {"3-2.1:1.0", "3-2.1"}


async def test_a_claim_is_not_passed_to_another_model_in_its_port(machine: Node) -> None:
    await machine.preparer.prepare(machine.api.put(ref()))
    machine.hardware.plug(stick(ids="0403:6001", number=9))
    said = await refused(machine)
    assert "another model" in said
    assert "0403:6001" in said


async def test_a_change_during_the_write_is_written_too(machine: Node) -> None:
    machine.api.put(ref())
    save = machine.ledger.save

    async def saved(claim: PreparedClaim, over: OnDisk) -> Saved:
        wrote = await save(claim, over)
        if claim.devices[0].nodes[-1].path == "/dev/ttyUSB0":
            machine.hardware.plug(stick(tty="ttyUSB1", number=9))
            machine.hardware.event()
        return wrote

    machine.ledger.save = saved  # type: ignore[method-assign]
    await machine.preparer.prepare(ref())
    assert machine.nodes("c1") == ["/dev/bus/usb/001/009", "/dev/ttyUSB1"]


async def test_after_a_reboot_the_claim_starts_afresh(machine: Node) -> None:
    await machine.preparer.prepare(machine.api.put(ref()))
    machine.hardware.plug(stick(tty="ttyUSB1", number=2))
    after = await machine.again(boot="boot-2")
    claim = await after.preparer.prepare(ref())
    assert after.nodes("c1") == ["/dev/bus/usb/001/002", "/dev/ttyUSB1"]
    assert claim.devices[0].health == "Healthy"


# --- options ----------------------------------------------------------------------------------------------------------
async def test_a_node_appears_under_the_name_that_was_asked_for(machine: Node) -> None:
    machine.api.put(ref(), config=[opaque(path="/dev/zigbee")])
    await machine.preparer.prepare(ref())
    document = machine.document("c1")
    assert document is not None
    assert document["devices"][0]["containerEdits"]["deviceNodes"] == [
        {"path": "/dev/bus/usb/001/007"},
        {"path": "/dev/zigbee", "hostPath": "/dev/ttyUSB0"},
    ]


async def test_the_host_s_group_is_added_when_it_is_asked_for(machine: Node) -> None:
    (machine.settings.dev / "bus/usb/001").mkdir(parents=True)
    machine.api.put(ref(), config=[opaque(supplementalGroups=True, group=20, mode="0660", busNode=False)])
    await machine.preparer.prepare(ref())
    document = machine.document("c1")
    assert document is not None
    assert document["cdiVersion"] == "0.7.0"
    assert document["devices"][0]["containerEdits"] == {
        "deviceNodes": [{"path": "/dev/ttyUSB0", "fileMode": 0o660, "gid": 20}],
        "additionalGids": [20],
    }


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"pathes": "/dev/x"}, ["no field pathes", "did you mean path"]),
        ({"path": "/etc/passwd"}, ["path", "below /dev"]),
        ({"paths": {"sound": "/dev/x"}}, ["kind sound", "tty"]),
        ({"group": "dialout"}, ["group", "number"]),
    ],
)
async def test_a_wrong_option_is_the_claim_s_error_with_the_words_of_the_fix(
    machine: Node, fields: dict[str, Any], words: list[str]
) -> None:
    machine.api.put(ref(), config=[opaque(**fields)])
    said = await refused(machine)
    assert all(word in said for word in ["home/zigbee", "request adapter", *words]), said


async def test_one_path_for_two_devices_of_a_request_is_refused(machine: Node) -> None:
    machine.hardware.plug(gpu(), sound())
    config = [opaque(path="/dev/x")]
    machine.api.put(ref(), result(GPU, "all"), result(f"{GPU}-display", "all"), config=config)
    assert "/dev/x would be both" in await refused(machine)


# --- unprepare --------------------------------------------------------------------------------------------------------
async def test_unprepare_succeeds_for_the_unknown_the_gone_and_the_repeated(machine: Node) -> None:
    await machine.preparer.unprepare(ref("never-seen"))
    await machine.preparer.prepare(machine.api.put(ref()))
    machine.hardware.unplug(stick())
    machine.hardware.event()
    machine.api.fail = lambda: Unavailable("down")
    for _ in range(2):
        await machine.preparer.unprepare(ref())
    assert machine.files() == []
    assert len(machine.api.asked) == 1


async def test_an_interface_that_a_program_took_goes_back_to_its_driver(machine: Node) -> None:
    await machine.preparer.prepare(machine.api.put(ref()))
    machine.hardware.plug(stick(driver="usbfs"))
    machine.hardware.event()
    assert "usb-1-4-1-0" in machine.store.snapshot.offers
    machine.hardware.plug(stick(driver=None))
    machine.hardware.event()
    await machine.preparer.unprepare(ref())
    assert machine.hardware.probed == ["1-4:1.0"]
    assert machine.files() == []


async def test_a_device_with_its_driver_is_not_probed(machine: Node) -> None:
    await machine.preparer.prepare(machine.api.put(ref()))
    await machine.preparer.unprepare(ref())
    assert machine.hardware.probed == []


def broken(_: object) -> str:
    raise RuntimeError("ENODEV")


@pytest.mark.parametrize("probe", [lambda _: "No such device", broken])
async def test_a_driver_that_does_not_come_back_keeps_no_pod(machine: Node, probe: Callable[[object], str]) -> None:
    await machine.preparer.prepare(machine.api.put(ref()))
    machine.hardware.plug(stick(driver=None))
    machine.hardware.event()
    machine.hardware.probe = probe
    await machine.preparer.unprepare(ref())
    await machine.preparer.unprepare(ref())
    assert machine.hardware.probed == ["1-4:1.0"]
    assert machine.files() == []
