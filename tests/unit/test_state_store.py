"""The store: one writer, revisioned snapshots, only the touched unit judged again."""

import itertools
from dataclasses import replace

import anyio
import anyio.lowlevel
from hypothesis import given, settings
from hypothesis import strategies as st

from liken.model.hardware import DevNumber, Reason, SystemFacts
from liken.model.machine import SerioEntry, SerioProtocol
from liken.model.offers import Rules
from liken.state.store import DEPARTED_LIMIT, Store
from liken.state.view import view
from tests.unit.fakes_state import (
    NoNames,
    interface,
    name,
    node,
    paths,
    pci,
    pci_key,
    serial_stick,
    usb_device,
    usb_key,
)

STICK = name("usb-2-1-1-0")


def test_an_adapter_that_is_plugged_in_is_offered_with_its_nodes() -> None:
    store = Store(NoNames())
    delta = store.replace(serial_stick("2-1", number=7), changed_at=1.5)
    assert delta.offered == (name("usb-2-1-1-0"),)
    snapshot = store.snapshot
    assert (snapshot.revision, snapshot.changed_at) == (1, 1.5)
    offer = snapshot.offers[name("usb-2-1-1-0")]
    assert [entry.path for entry in offer.nodes] == ["/dev/bus/usb/001/007", "/dev/ttyUSB0"]


def test_the_same_facts_again_make_no_revision() -> None:
    store = Store(NoNames())
    store.replace(serial_stick("2-1"), complete=True)
    assert not store.replace(serial_stick("2-1"), changed_at=3.0)
    assert store.snapshot.revision == 1


def test_a_change_that_offers_nothing_new_keeps_the_very_offers() -> None:
    store = Store(NoNames())
    store.replace(serial_stick("2-1"))
    offers = store.snapshot.offers
    delta = store.replace([pci("0000:00:1f.6", "e1000e", code="020000")])
    assert delta.appeared
    assert not delta.names
    assert store.snapshot.offers is offers


def test_whoever_waits_gets_the_newest_snapshot_however_many_came_before() -> None:
    async def scenario() -> None:
        store = Store(NoNames())
        seen = []

        async def wait() -> None:
            seen.append((await store.settled(after=0)).revision)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            tasks.start_soon(wait)
            await anyio.lowlevel.checkpoint()
            store.replace(serial_stick("2-1"))
            store.replace(serial_stick("2-2", tty="ttyUSB1"))
        assert seen == [2, 2]

    anyio.run(scenario)


def test_what_was_unplugged_is_remembered_with_what_happened() -> None:
    store = Store(NoNames(), wall=lambda: 1000.0)
    store.replace(serial_stick("2-1"))
    keys = [usb_key("2-1"), usb_key("2-1:1.0")]
    delta = store.replace([], gone=keys)
    assert set(delta.left) == set(keys)
    gone = store.snapshot.departed[name("usb-2-1-1-0")]
    assert (gone.at, gone.why) == (1000.0, "it was unplugged")


def test_a_mounted_disk_is_withheld_when_the_mount_appears_and_back_when_it_ends() -> None:
    store = Store(NoNames())
    disk = interface("1-4:1.0", "usb-storage", [node("sda", "block", "8:0"), node("sda1", "block", "8:1")], code="08")
    store.replace([usb_device("1-4"), disk])
    assert name("usb-1-4-1-0") in store.snapshot.offers
    store.replace([], system=SystemFacts(mounts={DevNumber(8, 1): "/srv"}))
    verdict = store.snapshot.verdicts[disk.key]
    assert (verdict.reason, verdict.detail) == (Reason.MACHINE_DEPENDS_ON_IT, "sda1 is mounted on /srv")
    store.replace([], system=SystemFacts())
    assert name("usb-1-4-1-0") in store.snapshot.offers


def test_holding_and_letting_go_judges_the_detached_adapter_again() -> None:
    store = Store(NoNames())
    stick = serial_stick("2-1")
    store.replace(stick)
    held = dict(store.snapshot.offers)
    store.set_held(held)
    store.replace([replace(stick[1], driver=None, nodes=())])
    assert paths(store.snapshot.offers[STICK]) == ["/dev/bus/usb/001/002"]
    assert store.set_held({}).withdrawn == (STICK,)
    assert store.snapshot.departed[STICK].why == "its driver cp210x is gone, and no other is bound to 2-1:1.0"


def test_the_same_rules_again_make_no_revision() -> None:
    store = Store(NoNames())
    assert not store.set_serio(())
    assert not store.set_held({})
    assert not store.set_taint_gone(False)
    assert store.snapshot.revision == 0


def test_an_attachment_withholds_its_line_at_once_and_is_forgotten_with_its_entry() -> None:
    store = Store(NoNames())
    store.replace(serial_stick("2-1"))
    entry = SerioEntry(protocol=SerioProtocol.PULSE8_CEC, vendor="10c4", product="ea60")
    assert store.set_serio([entry]).withdrawn == (STICK,)
    assert "HeldSerialLine" in store.snapshot.departed[STICK].why
    assert store.set_serio([]).offered == (STICK,)
    assert not store.snapshot.departed


def test_a_vanished_device_is_tainted_while_it_is_held_and_clean_when_it_returns() -> None:
    times = itertools.count(100.0, 100.0)
    store = Store(NoNames(), rules=Rules(taint_gone=True), wall=lambda: next(times))
    stick = serial_stick("2-1")
    store.replace(stick)
    store.set_held(dict(store.snapshot.offers))
    gone = store.replace([], everything=True)
    assert (gone.altered, gone.withdrawn) == ((STICK,), ())
    ghost = store.snapshot.offers[STICK]
    assert [taint.key for taint in ghost.taints] == ["liken.sh/unplugged"]
    assert (ghost.nodes, store.snapshot.departed[STICK].at) == ((), 100.0)
    store.replace([pci("0000:00:1f.6", "e1000e", code="020000")])
    assert store.snapshot.offers[STICK] is ghost
    assert store.set_taint_gone(False).withdrawn == (STICK,)
    assert store.snapshot.departed[STICK].at == 100.0
    store.set_taint_gone(True)
    assert store.replace(stick).altered == (STICK,)
    assert store.snapshot.offers[STICK].taints == ()
    assert not store.snapshot.departed


def test_a_replug_moves_nodes_and_alters_nothing_that_is_published() -> None:
    store = Store(NoNames())
    store.replace(serial_stick("2-1", number=4))
    delta = store.replace(serial_stick("2-1", number=5, tty="ttyUSB1"))
    assert (delta.moved, delta.altered) == ((STICK,), ())


def test_what_happened_is_kept_up_to_date_while_the_device_is_away() -> None:
    store = Store(NoNames(), wall=lambda: 5.0)
    store.replace(serial_stick("2-1"))
    store.replace([], everything=True)
    store.replace([usb_device("2-1", ids="0403:6001"), interface("2-1:1.0")])
    assert store.snapshot.departed[STICK].why == "its address 2-1:1.0 now holds another model, 0403:6001"
    store.replace(serial_stick("2-1"))
    assert not store.snapshot.departed


def test_an_interface_that_went_and_a_card_that_split_are_told_apart() -> None:
    store = Store(NoNames())
    card = pci("0000:05:00.0", "amdgpu", [node("dri/card0", "drm"), node("dri/renderD128", "drm")])
    store.replace([*serial_stick("2-1"), card, pci("0000:06:00.0", "x", [node("x0", "misc")])])
    store.replace([replace(card, nodes=card.nodes[1:])], gone=[usb_key("2-1:1.0"), pci_key("0000:06:00.0")])
    why = {found: gone.why for found, gone in store.snapshot.departed.items()}
    assert why == {
        "usb-2-1-1-0": "interface 2-1:1.0 is gone, because the device was reconfigured or reset",
        "pci-0000-05-00-0-display": "0000:05:00.0 now offers pci-0000-05-00-0 instead",
        "pci-0000-06-00-0": "it was removed from the machine",
    }


def test_the_memory_of_what_left_is_bounded_and_keeps_the_newest() -> None:
    store = Store(NoNames())
    for port in range(1, DEPARTED_LIMIT + 11):
        store.replace(serial_stick(f"1-{port}"), everything=True)
    store.replace([], everything=True)
    departed = store.snapshot.departed
    assert len(departed) == len(store._last) == DEPARTED_LIMIT
    assert list(departed)[-1] == f"usb-1-{DEPARTED_LIMIT + 10}-1-0"


def test_a_start_is_complete_only_when_it_is_said_to_be() -> None:
    store = Store(NoNames())
    store.replace([])
    assert (store.snapshot.revision, store.snapshot.complete) == (0, False)
    store.replace([], complete=True)
    assert (store.snapshot.revision, store.snapshot.complete) == (1, True)


PORTS = ("1-1", "1-2")
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("plug"), st.sampled_from(PORTS), st.sampled_from(["cp210x", None, "btusb", "usbfs"])),
        st.tuples(st.just("pull"), st.sampled_from([*PORTS, "1-1:1.0", "1-2:1.0"]), st.none()),
        st.tuples(st.just("mount"), st.sampled_from(["188:0", ""]), st.none()),
        st.tuples(st.just("serio"), st.sampled_from(["10c4", ""]), st.none()),
        st.tuples(st.just("hold"), st.sampled_from(["all", "none"]), st.none()),
        st.tuples(st.just("taint"), st.sampled_from(["yes", ""]), st.none()),
    ),
    max_size=14,
)


@settings(max_examples=100, deadline=None)
@given(CHANGES)
def test_after_any_changes_the_store_says_what_a_fresh_view_says(changes: list[tuple[str, str, str | None]]) -> None:
    store = Store(NoNames())
    for what, which, driver in changes:
        before = store.snapshot
        match what:
            case "plug":
                device, tty = serial_stick(which)
                disk = node("sda", "block", "188:0")
                store.replace(
                    [device, replace(tty, driver=driver, nodes=(disk, *tty.nodes) if driver == "cp210x" else ())]
                )
            case "pull":
                store.replace([], gone=[usb_key(which)])
            case "mount":
                store.replace([], system=SystemFacts(mounts={DevNumber(188, 0): "/"} if which else {}, uhid=not which))
            case "serio":
                entry = SerioEntry(protocol=SerioProtocol.PULSE8_CEC, vendor=which, product="ea60")
                store.set_serio([entry] if which else [])
            case "hold":
                store.set_held(dict(store.snapshot.offers) if which == "all" else {})
            case _:
                store.set_taint_gone(bool(which))
        now = store.snapshot
        assert (now.revision > before.revision) == (now != before)
        offers, verdicts = view(now.inventory, now.rules, NoNames())
        assert dict(sorted(now.offers.items())) == offers
        assert dict(sorted(now.verdicts.items())) == verdicts
        assert not {found for found, offer in now.offers.items() if not offer.taints} & now.departed.keys()
