"""What is made of real machines and of hostile ones is accepted by an API server, the real one included."""

import pathlib

import pytest

from liken.events.recording import recorded
from liken.events.sysfs import Sysfs
from liken.kube.paths import slices as slices_path
from liken.model.hardware import Inventory
from liken.model.offers import Offer, Rules
from liken.state.ids import IdsFiles
from liken.state.slices import NodeRef, slices
from liken.state.view import UNPLUGGED, view
from tests.contract.conftest import Server
from tests.unit.fakes_state import NoNames, interface, inventory, node, pci, usb_device

pytestmark = [pytest.mark.anyio, pytest.mark.shared, pytest.mark.timeout(300)]

FOLDERS = ("qemu-6.12", "checkbox", "hwloc", "umockdev")


@pytest.fixture(scope="module")
def machines(shared: pathlib.Path) -> list[tuple[str, list[Offer]]]:
    """Every recorded machine with the offers it makes."""
    found = []
    for path in sorted(path for folder in FOLDERS for path in (shared / "recordings" / folder).glob("*")):
        if path.suffix in {".umockdev", ".xz", ".bz2"}:
            with recorded(path) as machine:
                devices = Sysfs(machine.sysfs, proc=machine.proc, dev=machine.dev).everything()
            offers, _ = view(Inventory(devices={facts.key: facts for facts in devices}), Rules(), IdsFiles.read())
            found.append((path.name, list(offers.values())))
    return found


async def accepted(server: Server, offers: list[Offer]) -> None:
    for body in slices(offers, node=NodeRef(name=server.node)):
        await server.kube.create(slices_path(), body, dry_run=True)


async def test_the_slices_of_every_recorded_machine_are_accepted(
    server: Server, machines: list[tuple[str, list[Offer]]]
) -> None:
    assert len(machines) > 40
    for _, offers in machines:
        await accepted(server, offers)


async def test_the_slices_of_a_hostile_machine_are_accepted(server: Server) -> None:
    hostile = b"\xf0\x9f\x98\x80" * 40 + b" \x00\n"
    odd = ["../x", "iio:device0", "snd/controlC0"]
    devices = [
        usb_device("1-1", serial=hostile, manufacturer=hostile, product=b"\x1b[31m"),
        interface("1-1:1.0", "driver with blanks.and.dots", [node(odd[1], "iio")], modalias=hostile),
        usb_device("1-1.1.1.1.1.1"),
        interface("1-1.1.1.1.1.1:255.255", "x" * 200, [node("x0", "k" * 200)]),
        *(pci(f"0000:{bus:02x}:00.0", "drv", [node(f"n{bus}", "misc")], code="ffffff") for bus in range(200)),
        pci("5d0505:01:00.0", "nvme", [node(odd[0], "misc")]),
        pci("10001:80:05.0", "nvme", [node("nvme9", "nvme")]),
    ]
    offers, _ = view(inventory(*devices), Rules(), NoNames())
    assert len(offers) > 200
    await accepted(server, list(offers.values()))


async def test_a_pool_with_taints_is_accepted(server: Server) -> None:
    cards = [pci(f"0000:{bus:02x}:00.0", "drv", [node(f"n{bus}", "misc")]) for bus in range(70)]
    before, _ = view(inventory(*cards), Rules(), NoNames())
    gone, _ = view(inventory(*cards[:1]), Rules(held=before, taint_gone=True), NoNames())
    assert [taint for offer in gone.values() for taint in offer.taints] == [UNPLUGGED] * 69
    await accepted(server, list(gone.values()))
