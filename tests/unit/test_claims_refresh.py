from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from liken.claims.prepared import Health, PreparedDevice, followed
from liken.claims.refresh import Refresher
from liken.claims.sight import sight
from liken.claims.words import ClaimError
from liken.model.api import ObjectRef
from liken.model.hardware import DeviceFacts, Problem, Reason
from liken.model.offers import DeviceName
from tests.unit.fakes_claims import GPU, SOUND, ZIGBEE, Node, caught_up, gpu, opaque, ref, result, sound, stick
from tests.unit.fakes_state import interface, node, usb_device

pytestmark = pytest.mark.anyio
GONE = ["/dev/liken-gone-usb-1-4-1-0"]


@asynccontextmanager
async def following(folder: Path) -> AsyncIterator[Node]:
    machine = Node(folder)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(machine.refresher.run)
        yield machine
        tasks.cancel_scope.cancel()


async def event(machine: Node) -> None:
    machine.hardware.event()
    await caught_up(machine)


def device(machine: Node, uid: str = "c1") -> PreparedDevice:
    claim = machine.ledger.records.get(uid)
    assert claim is not None
    return claim.devices[0]


async def test_a_file_follows_its_device_away_and_back(tmp_path: Path) -> None:
    async with following(tmp_path) as machine:
        await machine.preparer.prepare(machine.api.put(ref()))
        machine.hardware.unplug(stick())
        await event(machine)
        assert machine.nodes("c1") == GONE
        assert device(machine).message == "unplugged at 08:00:00 UTC"
        machine.hardware.plug(stick(tty="ttyUSB1", number=9))
        await event(machine)
        assert machine.nodes("c1") == ["/dev/bus/usb/001/009", "/dev/ttyUSB1"]
        assert device(machine).message == "replugged as ttyUSB1: restart the pod to receive it"
        machine.hardware.plug(stick(tty="ttyUSB2", number=9))
        await event(machine)
        assert device(machine).message == "replugged as ttyUSB2: restart the pod to receive it"


async def test_a_replug_within_one_settle_window_is_a_replug_though_every_path_stayed(tmp_path: Path) -> None:
    async with following(tmp_path) as machine:
        machine.api.put(ref(), config=[opaque(busNode=False)])
        await machine.preparer.prepare(ref())
        inode = machine.directory.path("c1").stat().st_ino
        machine.hardware.plug(stick(number=9))
        await event(machine)
        assert machine.nodes("c1") == ["/dev/ttyUSB0"]
        assert machine.directory.path("c1").stat().st_ino != inode  # the runtime must look again
        assert device(machine).message.startswith("replugged as ttyUSB0")


async def test_a_node_with_other_numbers_under_the_same_path_is_written_again(tmp_path: Path) -> None:
    async with following(tmp_path) as machine:
        await machine.preparer.prepare(machine.api.put(ref("g", "gpu"), result(GPU, shareID="s")))
        inode = machine.directory.path("g").stat().st_ino
        nodes = [node("dri/card0", "drm", "226:0"), node("dri/renderD128", "drm", "226:129")]
        machine.hardware.plug(replace(gpu(), nodes=tuple(nodes)))
        await event(machine)
        assert machine.nodes("g") == ["/dev/dri/renderD128"]
        assert machine.directory.path("g").stat().st_ino != inode


async def test_only_the_files_concerned_are_written(tmp_path: Path) -> None:
    async with following(tmp_path) as machine:
        await machine.preparer.prepare(machine.api.put(ref()))
        for number in range(20):
            await machine.preparer.prepare(
                machine.api.put(ref(f"g{number}", f"g{number}"), result(GPU, shareID=str(number)))
            )
        before = {name: (machine.settings.cdi_dir / name).stat().st_ino for name in machine.files()}
        machine.hardware.plug(stick(tty="ttyUSB1", number=9))
        await event(machine)
        after = {name: (machine.settings.cdi_dir / name).stat().st_ino for name in machine.files()}
        assert [name for name in before if before[name] != after[name]] == ["liken.sh-c1.json"]
        assert machine.metrics.registry.get_sample_value("liken_claim_refreshes_total") == 1


async def test_an_event_that_changes_nothing_writes_nothing(tmp_path: Path) -> None:
    async with following(tmp_path) as machine:
        await machine.preparer.prepare(machine.api.put(ref()))
        machine.hardware.plug(
            usb_device("1-9", number=4), interface("1-9:1.0", "cp210x", [node("ttyUSB8", "tty", "188:8")])
        )
        await event(machine)
        assert machine.metrics.registry.get_sample_value("liken_claim_refreshes_total") == 0


async def test_a_jack_that_leaves_is_no_reason_to_restart(tmp_path: Path) -> None:
    async with following(tmp_path) as machine:
        await machine.preparer.prepare(machine.api.put(ref("s", "music"), result(SOUND, shareID="x")))
        assert machine.nodes("s") == ["/dev/input/event9", "/dev/snd/controlC0"]
        machine.hardware.plug(sound(jack=False))
        await event(machine)
        assert machine.nodes("s") == ["/dev/snd/controlC0"]
        assert device(machine, "s").health is Health.HEALTHY


async def test_a_program_that_takes_the_driver_keeps_the_bus_node_and_its_health(tmp_path: Path) -> None:
    async with following(tmp_path) as machine:
        await machine.preparer.prepare(machine.api.put(ref()))
        for driver in ("usbfs", None):
            machine.hardware.plug(stick(driver=driver))
            await event(machine)
            assert machine.nodes("c1") == ["/dev/bus/usb/001/007"]
            assert device(machine).health is Health.HEALTHY
            assert machine.store.snapshot.offers[DeviceName(ZIGBEE)].attributes["driver"] == "cp210x"
        await machine.preparer.prepare(ref())
        assert machine.nodes("c1") == ["/dev/bus/usb/001/007"]
        machine.hardware.plug(stick())
        await event(machine)
        assert machine.nodes("c1") == ["/dev/bus/usb/001/007", "/dev/ttyUSB0"]
        assert device(machine).health is Health.HEALTHY


async def test_another_model_in_the_port_is_not_the_claim_s_device(tmp_path: Path) -> None:
    async with following(tmp_path) as machine:
        await machine.preparer.prepare(machine.api.put(ref()))
        machine.hardware.plug(stick(ids="0403:6001", number=9))
        await event(machine)
        assert machine.nodes("c1") == GONE
        assert "another model" in device(machine).message
        machine.hardware.plug(stick(number=10))
        await event(machine)
        assert machine.nodes("c1") == ["/dev/bus/usb/001/010", "/dev/ttyUSB0"]


async def test_a_device_that_could_not_be_read_once_is_not_gone(tmp_path: Path) -> None:
    async with following(tmp_path) as machine:
        await machine.preparer.prepare(machine.api.put(ref()))
        problem = Problem(reason=Reason.UNREADABLE, detail="bInterfaceClass: no answer within 2 s")
        machine.hardware.plug(replace(stick()[1], driver=None, files={}, nodes=(), problem=problem))
        await event(machine)
        assert machine.nodes("c1") == ["/dev/bus/usb/001/007", "/dev/ttyUSB0"]
        with pytest.raises(ClaimError, match="Unreadable"):
            await machine.preparer.prepare(ref())
        machine.hardware.plug(stick())
        await event(machine)
        assert device(machine).health is Health.HEALTHY


class Said:
    """A Recorder that keeps what it is told."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, str]] = []

    def record(self, about: ObjectRef, *, kind: str, reason: str, message: str) -> None:  # noqa: ARG002
        self.events.append((f"{about.namespace}/{about.name}", reason, message))


async def test_what_happens_to_a_claimed_device_is_an_event_of_its_claim(tmp_path: Path) -> None:
    machine, said = Node(tmp_path), Said()
    refresher = Refresher(
        store=machine.store, ledger=machine.ledger, settings=machine.settings, metrics=machine.metrics, recorder=said
    )
    await machine.preparer.prepare(machine.api.put(ref()))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(refresher.run)
        machine.hardware.unplug(stick())
        await event(machine)
        machine.hardware.plug(stick(tty="ttyUSB1", number=9))
        await event(machine)
        machine.hardware.plug(stick(tty="ttyUSB1", number=9, driver=None))
        await event(machine)
        tasks.cancel_scope.cancel()
    assert said.events == [
        ("home/zigbee", "DeviceGone", "usb-1-4-1-0: unplugged at 08:00:00 UTC"),
        ("home/zigbee", "DeviceReplugged", "usb-1-4-1-0: replugged as ttyUSB1: restart the pod to receive it"),
    ]


async def test_before_the_first_inventory_nothing_seems_to_be_gone(tmp_path: Path) -> None:
    machine = Node(tmp_path)
    await machine.preparer.prepare(machine.api.put(ref()))
    machine.store.replace([], everything=True, complete=False)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(machine.refresher.run)
        await anyio.sleep(60)
        assert machine.nodes("c1") == ["/dev/bus/usb/001/007", "/dev/ttyUSB0"]
        tasks.cancel_scope.cancel()


async def test_a_claim_without_a_file_is_not_raised_from_the_dead(tmp_path: Path) -> None:
    async with following(tmp_path) as machine:
        await machine.preparer.prepare(machine.api.put(ref()))
        machine.directory.path("c1").unlink()
        machine.hardware.unplug(stick())
        await event(machine)
        assert machine.files() == []
        assert len(machine.ledger.records) == 0


async def test_one_claim_that_waits_for_the_api_server_does_not_keep_its_file_stale(tmp_path: Path) -> None:
    async with following(tmp_path) as machine:
        await machine.preparer.prepare(machine.api.put(ref()))
        machine.api.delay = 8
        async with anyio.create_task_group() as calls:
            calls.start_soon(machine.preparer.prepare, ref())
            await anyio.sleep(1)
            machine.hardware.unplug(stick())
            await event(machine)
            assert machine.nodes("c1") == GONE
            machine.hardware.plug(stick(number=9))


async def test_a_claim_another_instance_prepared_follows_too(tmp_path: Path) -> None:
    async with following(tmp_path) as machine:
        other = Node(tmp_path)
        await other.preparer.prepare(other.api.put(ref()))
        await machine.ledger.synchronize()
        machine.hardware.unplug(stick())
        await event(machine)
        assert machine.nodes("c1") == GONE


# --- property: whatever happens in between, the file says what is there -----------------------------------------------
changes = st.sampled_from(
    [
        (),
        stick(),
        stick(tty="ttyUSB1", number=9),
        stick(driver=None),
        stick(driver="usbfs", number=9),
        stick(ids="0403:6001", number=11),
    ]
)


@settings(max_examples=60, deadline=None)
@given(history=st.lists(changes, max_size=6))
async def test_after_any_history_the_record_is_that_of_the_last_state(
    tmp_path_factory: pytest.TempPathFactory, history: list[tuple[DeviceFacts, ...]]
) -> None:
    machine = Node(tmp_path_factory.mktemp("n"))
    claim = await machine.preparer.prepare(machine.api.put(ref()))
    (made,) = claim.devices
    for state in history:
        machine.hardware.unplug(stick())
        machine.hardware.plug(state)
        made = followed(made, sight(made.name, machine.hardware.event(), made.offer))
        assert made == followed(made, sight(made.name, machine.store.snapshot, made.offer))  # nothing more to say
    seen = sight(made.name, machine.store.snapshot, made.offer)
    assert made.nodes == seen.nodes
    assert bool(made.gone) == (not seen.nodes)
    touched = any(state != stick() for state in history)
    assert (made.health is Health.UNHEALTHY) <= touched
