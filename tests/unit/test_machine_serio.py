"""Serial attachments: which line an entry means, and how it is kept attached, in virtual time."""

import itertools
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import anyio
import pytest

from liken.machine.matching import Line, SerioReport, SerioState, matching, needs
from liken.machine.serio import Attachments, with_modules
from liken.model.hardware import DeviceFacts, DevNumber, SystemFacts
from liken.model.machine import SerioEntry, SerioProtocol
from liken.model.offers import DeviceName, DeviceNode, Offer, Snapshot
from liken.state.store import Store
from tests.unit.fakes_machine import FakeDiscipline, cec_adapter, seconds
from tests.unit.fakes_state import NoNames, usb_key

PULSE8 = SerioProtocol.PULSE8_CEC
ANY = SerioEntry(protocol=PULSE8, vendor="2548", product="1002")
FIRST = SerioEntry(protocol=PULSE8, vendor="2548", product="1002", serial="v1.0")
OTHER = SerioEntry(protocol=SerioProtocol.RAINSHADOW_CEC, vendor="2548", product="1002")
RAINSHADOW = SerioEntry(protocol=SerioProtocol.RAINSHADOW_CEC, vendor="04d8", product="ff59")


def snapshot(*devices: Iterable[DeviceFacts], **more: object) -> Snapshot:
    store = Store(NoNames())
    store.replace([facts for device in devices for facts in device], complete=True, **more)  # type: ignore[arg-type]
    return store.snapshot


def places(found: Iterable[Line]) -> list[tuple[str, str]]:
    return [(str(line.adapter.address), line.tty) for line in found]


class TestMatching:
    def test_an_entry_means_the_tty_of_its_model_in_whatever_port(self) -> None:
        found = matching([ANY], snapshot(cec_adapter("1-4", tty="ttyACM3")))
        assert places(found.lines) == [("1-4", "ttyACM3")]
        assert found.others == ()

    def test_an_entry_with_a_serial_takes_its_adapter_before_one_without(self) -> None:
        adapters = (
            cec_adapter("1-3", tty="ttyACM0", serial=b"v1.0\n"),
            cec_adapter("1-4", tty="ttyACM1", serial=b"v2\n"),
        )
        found = matching([ANY, FIRST], snapshot(*adapters))
        assert {line.tty: entry for line, entry in found.lines.items()} == {"ttyACM0": FIRST, "ttyACM1": ANY}

    def test_an_entry_without_a_serial_takes_every_adapter_that_is_left(self) -> None:
        found = matching([ANY], snapshot(cec_adapter("1-10"), cec_adapter("1-9", tty="ttyACM1")))
        assert places(found.lines) == [("1-9", "ttyACM1"), ("1-10", "ttyACM0")]

    @pytest.mark.parametrize(
        ("adapters", "entries", "words"),
        [
            ((), [ANY], "the adapter is not plugged in"),
            ((cec_adapter("1-4", serial=b"v2"),), [FIRST], "the adapter is not plugged in"),
            ((cec_adapter("1-4", tty=None),), [ANY], "plugged in at 1-4 and has no serial line: declare cdc_acm"),
            ((cec_adapter("1-4", serial=b"v1.0"),), [FIRST, ANY], "serves another entry"),
        ],
    )
    def test_a_missing_line_says_what_is_missing(
        self, adapters: tuple[tuple[DeviceFacts, ...], ...], entries: list[SerioEntry], words: str
    ) -> None:
        (report,) = matching(entries, snapshot(*adapters)).others
        assert report.state is SerioState.MISSING
        assert words in report.message

    def test_a_line_that_another_driver_has_names_the_driver(self) -> None:
        device, line, data = cec_adapter("1-4", tty=None)
        taken = DeviceFacts(key=line.key, path=line.path, driver="usbfs", files=line.files)
        (report,) = matching([ANY], snapshot((device, taken, data))).others
        assert "usbfs is bound to it instead of cdc_acm" in report.message

    def test_a_kernel_console_is_not_taken_from_the_machine(self) -> None:
        system = SystemFacts(consoles=frozenset({"ttyACM0"}))
        (report,) = matching([ANY], snapshot(cec_adapter("1-4"), system=system)).others
        assert report.state is SerioState.REFUSED
        assert "the machine itself uses this line" in report.message

    def test_a_line_that_a_claim_holds_is_attached_when_the_claim_ends(self) -> None:
        store = Store(NoNames())
        store.replace(cec_adapter("1-4"), complete=True)
        nodes = (DeviceNode(path="/dev/ttyACM0", kind="tty", number=DevNumber(166, 0)),)
        name = DeviceName("usb-1-4-1-0")
        store.set_held({name: Offer(name=name, key=usb_key("1-4:1.0"), nodes=nodes)})
        (report,) = matching([ANY], store.snapshot).others
        assert (report.state, report.message) == (
            SerioState.REFUSED,
            "a claim holds this line; it is attached when that claim ends",
        )
        store.set_held({})
        assert places(matching([ANY], store.snapshot).lines) == [("1-4", "ttyACM0")]

    def test_an_attached_line_keeps_its_protocol_until_a_restart(self) -> None:
        machine = snapshot(cec_adapter("1-4"))
        (report,) = matching([OTHER], machine, {usb_key("1-4"): PULSE8}).others
        assert report.state is SerioState.REFUSED
        assert "attached as pulse8-cec until liken restarts" in report.message

    def test_a_replug_makes_another_line(self) -> None:
        lines = [next(iter(matching([ANY], snapshot(cec_adapter("1-4", number=n))).lines)) for n in (7, 7, 8)]
        assert lines[0] == lines[1] != lines[2]


def test_the_modules_to_declare_are_named() -> None:
    assert (
        needs(PULSE8, frozenset())
        == "serport and pulse8_cec are not loaded: declare serport and pulse8_cec in spec.modules"
    )
    assert needs(PULSE8, frozenset({"serport"})) == "pulse8_cec is not loaded: declare pulse8_cec in spec.modules"
    assert needs(SerioProtocol.RAINSHADOW_CEC, frozenset({"serport", "rainshadow_cec"})) == ""
    refused = SerioReport(entry=ANY, state=SerioState.REFUSED, message="no", tty="ttyACM0")
    assert with_modules(refused, frozenset({"serport"})).message == (
        "pulse8_cec is not loaded: declare pulse8_cec in spec.modules (no)"
    )
    assert with_modules(refused, frozenset({"serport", "pulse8_cec"})) is refused


class Bench:
    """Attachments on a machine whose adapters the test plugs."""

    def __init__(self, sysfs: Path) -> None:
        self.store = Store(NoNames())
        self.store.replace((), complete=True)
        self.discipline = FakeDiscipline(sysfs)
        self.changes = 0
        self.attachments = Attachments(
            store=self.store, discipline=self.discipline, sysfs=sysfs, dev=Path("/dev"), changed=self._changed
        )

    def _changed(self) -> None:
        self.changes += 1

    def plug(self, *devices: Iterable[DeviceFacts]) -> None:
        self.store.replace([facts for device in devices for facts in device], everything=True)

    def hang_up_and_unplug(self) -> None:
        for tty in list(self.discipline.lines):
            self.discipline.hang_up(tty)
        self.plug()

    @property
    def states(self) -> list[tuple[str, str]]:
        return [(report.tty, str(report.state)) for report in self.attachments.reports]

    @property
    def message(self) -> str:
        (report,) = self.attachments.reports
        return report.message


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    made = Bench(tmp_path)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.attachments.run)
        yield made
        tasks.cancel_scope.cancel()
    assert not made.discipline.lines


pytestmark = pytest.mark.anyio


async def test_an_added_entry_attaches_live_and_its_nodes_are_named(bench: Bench) -> None:
    bench.plug(cec_adapter("1-4"))
    await seconds(1)
    assert bench.discipline.tries == []
    bench.attachments.want([ANY])
    await seconds(1)
    assert bench.store.snapshot.rules.serio == (ANY,)
    bench.plug(cec_adapter("1-4", made=("cec0", "input/event3")))
    await seconds(1)
    (report,) = bench.attachments.reports
    assert (report.state, report.tty, report.port) == (SerioState.ATTACHED, "ttyACM0", "serio0")
    assert report.nodes == ("/dev/cec0", "/dev/input/event3")
    assert set(bench.store.snapshot.offers) == {"usb-1-4-1-0-cec", "usb-1-4-1-0-input"}


async def test_an_unplug_ends_it_and_a_replug_attaches_at_once(bench: Bench) -> None:
    bench.attachments.want([ANY])
    bench.plug(cec_adapter("1-4"))
    await seconds(1)
    bench.hang_up_and_unplug()
    await seconds(1)
    assert bench.states == [("", "Missing")]
    bench.plug(cec_adapter("1-4", number=8))
    await seconds(0.5)
    assert bench.states == [("ttyACM0", "Attached")]
    assert len(bench.discipline.tries) == 2


async def test_a_replug_seen_as_one_change_attaches_the_new_line(bench: Bench) -> None:
    bench.attachments.want([ANY])
    bench.plug(cec_adapter("1-4"))
    await seconds(1)
    bench.discipline.hang_up("ttyACM0")
    bench.plug(cec_adapter("1-4", number=8, tty="ttyACM1"))
    await seconds(0.5)
    assert bench.states == [("ttyACM1", "Attached")]


async def test_a_removed_entry_stays_attached_and_withheld_over_a_replug(bench: Bench) -> None:
    bench.attachments.want([ANY])
    bench.plug(cec_adapter("1-4"))
    await seconds(1)
    bench.attachments.want([])
    await seconds(1)
    assert bench.states == [("ttyACM0", "Attached")]
    assert "until liken restarts" in bench.message
    assert bench.store.snapshot.rules.serio == (ANY,)
    bench.hang_up_and_unplug()
    bench.plug(cec_adapter("1-4", number=8))
    await seconds(2)
    assert bench.states == [("ttyACM0", "Attached")]


async def test_an_entry_that_never_attached_is_forgotten_when_removed(bench: Bench) -> None:
    bench.attachments.want([ANY])
    await seconds(1)
    assert bench.states == [("", "Missing")]
    bench.attachments.want([])
    await seconds(1)
    assert bench.states == []
    assert bench.store.snapshot.rules.serio == ()


async def test_an_entry_that_gets_a_serial_keeps_its_attachment(bench: Bench) -> None:
    bench.attachments.want([ANY])
    bench.plug(cec_adapter("1-4", serial=b"v1.0\n"))
    await seconds(1)
    bench.attachments.want([FIRST])
    await seconds(1)
    assert [report.entry for report in bench.attachments.reports if report.tty] == [FIRST]
    assert len(bench.discipline.tries) == 1


async def test_another_protocol_waits_for_a_restart(bench: Bench) -> None:
    bench.attachments.want([ANY])
    bench.plug(cec_adapter("1-4"))
    await seconds(1)
    bench.attachments.want([OTHER])
    await anyio.sleep(400)
    assert ("ttyACM0", "Refused") in bench.states
    assert [protocol for _, _, protocol in bench.discipline.tries] == [PULSE8]
    assert bench.discipline.lines


async def test_a_refusal_is_tried_again_from_one_second_to_five_minutes(bench: Bench) -> None:
    bench.discipline.refusals["ttyACM0"] = "cannot hold /dev/ttyACM0: Device or resource busy"
    bench.attachments.want([ANY])
    bench.plug(cec_adapter("1-4"))
    await anyio.sleep(3600)
    assert bench.states == [("ttyACM0", "Refused")]
    assert bench.message == "cannot hold /dev/ttyACM0: Device or resource busy"
    times = [at for at, _, _ in bench.discipline.tries]
    waits = [round(later - earlier) for earlier, later in itertools.pairwise(times)]
    assert waits[:9] == [1, 2, 4, 8, 16, 32, 64, 128, 256]
    assert set(waits[9:]) == {300}


async def test_a_replug_ends_the_back_off(bench: Bench) -> None:
    bench.discipline.refusals["ttyACM0"] = "busy"
    bench.attachments.want([ANY])
    bench.plug(cec_adapter("1-4"))
    await anyio.sleep(1000)
    bench.discipline.refusals.clear()
    tries = len(bench.discipline.tries)
    bench.plug()
    bench.plug(cec_adapter("1-4", number=8))
    await seconds(0.5)
    assert len(bench.discipline.tries) == tries + 1
    assert bench.states == [("ttyACM0", "Attached")]


async def test_a_loaded_module_ends_the_back_off(bench: Bench) -> None:
    bench.discipline.refusals["ttyACM0"] = "declare serport"
    bench.attachments.want([ANY])
    bench.plug(cec_adapter("1-4"))
    await anyio.sleep(1000)
    bench.discipline.refusals.clear()
    bench.attachments.retry()
    await seconds(0.5)
    assert bench.states == [("ttyACM0", "Attached")]


async def test_a_driver_that_does_not_bind_within_five_seconds_is_said_and_the_line_let_go(
    bench: Bench, tmp_path: Path
) -> None:
    bench.discipline.binds = False
    bench.attachments.want([ANY])
    bench.plug(cec_adapter("1-4"))
    await seconds(4.5)
    assert bench.discipline.lines
    await seconds(1)
    assert not bench.discipline.lines
    assert bench.message == "pulse8_cec is not loaded: declare pulse8_cec in spec.modules"
    (tmp_path / "module/pulse8_cec").mkdir(parents=True)
    await anyio.sleep(10)
    assert "pulse8_cec is there and did not bind serio" in bench.message
    bench.discipline.binds = True
    await anyio.sleep(20)
    assert bench.states == [("ttyACM0", "Attached")]


async def test_a_hang_up_before_the_driver_binds_is_no_refusal(bench: Bench) -> None:
    bench.discipline.binds = False
    bench.attachments.want([ANY])
    bench.plug(cec_adapter("1-4"))
    await seconds(2)
    bench.discipline.hang_up("ttyACM0")
    await seconds(0.5)
    assert bench.states == [("ttyACM0", "Missing")]
    assert bench.message == "the line hung up"
    bench.discipline.binds = True
    await seconds(2)
    assert bench.states == [("ttyACM0", "Attached")]


async def test_two_adapters_are_held_side_by_side_and_one_unplug_leaves_the_other(bench: Bench) -> None:
    bench.attachments.want([ANY])
    first, second = cec_adapter("1-3"), cec_adapter("1-4", tty="ttyACM1")
    bench.plug(first, second)
    await seconds(1)
    assert bench.states == [("ttyACM0", "Attached"), ("ttyACM1", "Attached")]
    bench.discipline.hang_up("ttyACM0")
    bench.plug(second)
    await seconds(1)
    assert bench.states == [("ttyACM1", "Attached")]
    assert len(bench.discipline.tries) == 2


async def test_an_idle_machine_is_left_alone(bench: Bench) -> None:
    bench.attachments.want([ANY])
    bench.plug(cec_adapter("1-4"))
    await seconds(2)
    changes = bench.changes
    await anyio.sleep(3600)
    assert (bench.changes, len(bench.discipline.tries)) == (changes, 1)


async def test_rainshadow_is_held_with_its_own_protocol(bench: Bench) -> None:
    device, line, data = cec_adapter("1-4")
    ids = {"idVendor": b"04d8\n", "idProduct": b"ff59\n"}
    device = DeviceFacts(
        key=device.key, path=device.path, driver="usb", devtype="usb_device", files={**device.files, **ids}
    )
    bench.attachments.want([RAINSHADOW])
    bench.plug((device, line, data))
    await seconds(1)
    assert [protocol for _, _, protocol in bench.discipline.tries] == [SerioProtocol.RAINSHADOW_CEC]
