"""The store: one writer, revisioned snapshots, only the touched unit judged again."""

import anyio
import anyio.lowlevel

from liken.model.hardware import DevNumber, Reason, SystemFacts
from liken.state.store import Store
from tests.unit.fakes_state import NoNames, interface, name, node, pci, serial_stick, usb_device, usb_key


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
