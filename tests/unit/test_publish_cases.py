"""Each case of an API server that misbehaves, from the machine's tree to the slices, in virtual time.

A case without a scenario here fails, so that none is forgotten.
"""

import contextlib
import random
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from liken.events.sysfs import Sysfs
from liken.metrics import Metrics
from liken.model.hardware import SystemFacts
from liken.model.offers import Offer, Taint
from liken.publish.publisher import Publisher
from liken.state.ids import IdsFiles
from liken.state.store import Store
from tests.conftest import SHARED
from tests.unit.cases import Case, cases, materialise
from tests.unit.fakes_publish import NODE, DirectApi, Heard, Shelf, offer

pytestmark = [pytest.mark.anyio, pytest.mark.shared]

FILES = ("kubernetes-api.yaml", "with-trees/kubernetes-api.yaml")
ALL = [case for case in cases(SHARED) if case.file in FILES] if SHARED.is_dir() else []
NAME = f"{NODE}-liken.sh"
STICK = "usb-1-4-1-0"


class Machine:
    """A case's machine, its store, its node's publisher and the API server."""

    def __init__(self, case: Case, root: Path) -> None:
        self.case, self.root, self.tree = case, root, dict(case.tree)
        self.api = DirectApi()
        self.heard = Heard()
        self.store = Store(IdsFiles(pci=b"", usb=b""))

    def read(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)
        materialise(self.tree, self.root)
        facts = Sysfs(self.root).everything()
        self.store.replace(facts, everything=True, system=SystemFacts(), complete=True)

    def unplug(self) -> None:
        self.tree = {path: value for path, value in self.tree.items() if not path.startswith(f"{USB}/1-4")}
        self.read()

    @contextlib.asynccontextmanager
    async def daemon(self) -> AsyncIterator[None]:
        """One life of the daemon, published once."""
        self.store = Store(IdsFiles(pci=b"", usb=b""))
        self.read()
        publisher = Publisher(
            api=self.api,
            store=self.store,
            node_name=NODE,
            metrics=Metrics(),
            recorder=self.heard,
            dice=random.Random(1),
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(publisher.run)
            await anyio.sleep(15)
            yield
            tasks.cancel_scope.cancel()

    def is_as_expected(self) -> None:
        """The slice holds what the case says, and the offers have its nodes."""
        expected = self.case.expect["published"]
        assert self.api.devices() == list(expected)
        assert list(self.api.slices()) == [NAME]
        for name, what in expected.items():
            found = next(found for found in self.store.snapshot.offers.values() if found.name == name)
            assert [node.path for node in found.nodes] == sorted(what["nodes"])
            assert found.shareable is what["shared"]


USB = "devices/pci0000:00/0000:00:14.0/usb1"


async def _deleted_soon(machine: Machine) -> None:
    async with machine.daemon():
        machine.api.faults["create"] = [409]
        machine.api.remove(NAME)
        await anyio.sleep(1)
        machine.is_as_expected()


async def _kubelet_sweeps(machine: Machine) -> None:
    async with machine.daemon():
        for start in range(3):
            before = len(machine.api.writes)
            machine.api.faults["list"] = [503, 503, 503]
            machine.api.break_watch()
            machine.api.remove(NAME)
            await anyio.sleep(20)
            machine.is_as_expected()
            assert len(machine.api.writes) - before == machine.case.expect["writes"], start


async def _empty_deleted(machine: Machine) -> None:
    async with machine.daemon():
        before = len(machine.api.writes)
        machine.api.remove(NAME)
        await anyio.sleep(1)
        machine.is_as_expected()
        assert len(machine.api.writes) - before == machine.case.expect["writes"]


async def _restart(machine: Machine) -> None:
    async with machine.daemon():
        before = len(machine.api.writes)
    async with machine.daemon():
        assert machine.api.devices() == [STICK]
        assert len(machine.api.writes) == before
    machine.unplug()
    async with machine.daemon():
        machine.is_as_expected()
    assert len(machine.api.writes) - before == machine.case.expect["writes"]


async def _printer(machine: Machine) -> None:
    async with machine.daemon():
        assert machine.api.devices() == [STICK]
        before = len(machine.api.writes)
        machine.unplug()
        await anyio.sleep(20)
        machine.is_as_expected()
        pool = {"name": "node-b", "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": "liken.sh", "nodeName": "node-b", "pool": pool, "devices": [{"name": STICK}]}
        head = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "node-b-liken.sh"}}
        machine.api.put({**head, "spec": spec})
        await anyio.sleep(60)
        assert len(machine.api.writes) - before == machine.case.expect["writes"]
        assert {asked.name for asked in machine.api.asked} <= {NAME, NODE, ""}
        assert machine.api.slices()["node-b-liken.sh"]["spec"]["devices"] == [{"name": STICK}]


async def _nothing(machine: Machine) -> None:
    async with machine.daemon():
        assert list(machine.api.slices()) == [NAME]
        assert machine.api.devices() == []


async def _behind_our_back(machine: Machine) -> None:
    async with machine.daemon():
        for spoil in (machine.api.remove, _edit(machine.api)):
            await anyio.sleep(10)
            before = machine.api.slices()[NAME]["spec"]
            spoil(NAME)
            await anyio.sleep(1)
            assert machine.api.slices()[NAME]["spec"] == before


def _edit(api: DirectApi) -> Callable[[str], None]:
    def edit(name: str) -> None:
        item = api.slices()[name]
        item["spec"]["devices"] = [{"name": "intruder"}]
        api.put(item)

    return edit


@contextlib.asynccontextmanager
async def _shelf(machine: Machine) -> AsyncIterator[Shelf]:
    shelf = Shelf()
    publisher = Publisher(
        api=machine.api, store=shelf, node_name=NODE, metrics=Metrics(), recorder=machine.heard, dice=random.Random(1)
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(publisher.run)
        yield shelf
        tasks.cancel_scope.cancel()


async def _dropped(machine: Machine) -> None:
    machine.api.verbs.gates["DRAConsumableCapacity"] = False
    async with _shelf(machine) as shelf:
        shelf.offer(offer("pci-0000-00-02-0", shareable=True))
        await anyio.sleep(600)
        assert len(machine.api.writes) == machine.case.expect["writes"]
        assert [kind for _, kind, _ in machine.heard.events] == ["Warning FieldDropped"]
        assert "DRAConsumableCapacity" in machine.heard.events[0][2]


async def _every_answer(machine: Machine) -> None:
    async with _shelf(machine) as shelf:
        number = 0
        for status in (401, 403, 404, 409, 410, 413, 422, 429, 500, 503):
            for verb in ("patch", "create", "list"):
                machine.api.faults[verb] = [status]
                if verb == "create":
                    with contextlib.suppress(Exception):
                        machine.api.remove(NAME)
                if verb == "list":
                    machine.api.break_watch()
                number += 1
                shelf.offer(offer(f"usb-1-{number}-1-0"))
                await anyio.sleep(45)
                assert machine.api.devices() == [f"usb-1-{number}-1-0"], (status, verb)


async def _away(machine: Machine) -> None:
    async with _shelf(machine) as shelf:
        shelf.offer(offer("usb-1-0-1-0"))
        await anyio.sleep(5)
        before = len(machine.api.writes)
        machine.api.away = True
        machine.api.break_watch()
        for number in range(500):
            shelf.offer(offer(f"usb-1-{number}-1-0"))
            await anyio.sleep(7.2)
        machine.api.away = False
        await anyio.sleep(60)
        assert len(machine.api.writes) - before == machine.case.expect["writes"]
        assert machine.api.devices() == ["usb-1-499-1-0"]


async def _many(machine: Machine) -> None:
    async with _shelf(machine) as shelf:
        offers: list[Offer] = []
        before = 0
        for step in machine.case.input["api"]:
            before = len(machine.api.writes)
            if "offers" in step:
                taint = _tainted if step["tainted"] else offer
                names = [f"usb-1-{number}-1-0" for number in range(step["offers"])]
                offers = [taint(names[0]), *(offer(name) for name in names[1:])]
                shelf.offer(*offers)
            else:
                name = machine.api.slices()[f"{NAME}-1"]["spec"]["devices"][0]["name"]
                shelf.offer(*(offer(found.name, serial="x") if found.name == name else found for found in offers))
            await anyio.sleep(30)
            items = list(machine.api.slices().values())
            pools = {(item["spec"]["pool"]["generation"], item["spec"]["pool"]["resourceSliceCount"]) for item in items}
            assert {count for _, count in pools} == {len(items)}
            assert len(pools) == 1
            assert sorted(machine.api.devices()) == sorted(str(found.name) for found in offers)
            for item in items:
                tainted = any(device.get("taints") for device in item["spec"]["devices"])
                assert len(item["spec"]["devices"]) <= (64 if tainted else 128)
        if "writes" in machine.case.expect:
            assert len(machine.api.writes) - before == machine.case.expect["writes"]
            assert (machine.api.writes[-1].verb, machine.api.writes[-1].name) == ("patch", f"{NAME}-1")


def _tainted(name: str) -> Offer:
    plain = offer(name)
    return replace(plain, taints=(Taint(key="liken.sh/unplugged", value="", effect="NoExecute"),))


SCENARIOS: dict[str, Callable[[Machine], Awaitable[None]]] = {
    "slice-deleted-behind-our-back": _behind_our_back,
    "nothing-to-offer": _nothing,
    "field-dropped-silently": _dropped,
    "answers-of-every-kind": _every_answer,
    "server-away-for-an-hour": _away,
    "sixty-five-devices-and-one-taint": _many,
    "two-hundred-and-fifty-seven-devices": _many,
    "deleted-soon-after-an-update": _deleted_soon,
    "kubelet-sweeps-while-the-watch-is-down": _kubelet_sweeps,
    "empty-slice-is-deleted": _empty_deleted,
    "restart-beside-its-own-slice": _restart,
    "printer-moves-to-another-node": _printer,
}


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.id)
async def test_the_answer_is_right(case: Case, shared: Path, tmp_path: Path) -> None:
    assert shared.is_dir()
    await SCENARIOS[case.id](Machine(case, tmp_path / "sys"))
