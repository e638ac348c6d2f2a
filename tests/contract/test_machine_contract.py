"""The Machine resource on API servers: what is refused and with which words, and its status while people edit it."""

import copy
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml

from liken.kube import paths
from liken.kube.events import EventRecorder
from liken.machine.controller import MachineController, MachineSettings
from liken.machine.crd import crd
from liken.machine.report import report, report_json
from liken.metrics import Metrics
from liken.model.api import ApiError, Invalid, Json, NotFound
from liken.state.catalog import ModuleCatalog
from liken.state.store import Store
from tests.contract.conftest import Server
from tests.kubectl import KubectlFailed, kubectl
from tests.unit.fakes_machine import FakeDiscipline, FakeLoader, cec_adapter
from tests.unit.fakes_state import SomeNames, interface, pci, usb_device

pytestmark = pytest.mark.anyio

DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/machines.liken.sh"
PATIENCE_S = 20.0
GPU_ALIAS = b"pci:v00008086d000046D2sv00008086sd00007270bc03sc00i00\n"
STICK_ALIAS = b"usb:v10C4pEA60d0100dc00dsc00dp00icFFisc00ip00in00\n"
PULSE8: Json = {"protocol": "pulse8-cec", "usb": {"vendor": "2548", "product": "1002"}}


def manifest(name: str, spec: Any) -> Json:
    return {"apiVersion": "liken.sh/v1alpha1", "kind": "Machine", "metadata": {"name": name}, "spec": spec}


async def installed(server: Server) -> None:
    await server.kube.apply(DEFINITION, crd(), manager="test")
    with anyio.fail_after(PATIENCE_S):
        while True:
            try:
                await server.kube.list(paths.machines())
            except ApiError:
                await anyio.sleep(0.05)
            else:
                return


@pytest.fixture
async def machines(server: Server) -> AsyncIterator[Server]:
    """A server that serves Machines."""
    await installed(server)
    yield server
    for item in (await server.kube.list(paths.machines()))["items"]:
        await server.kube.delete(paths.machine(item["metadata"]["name"]))


GOOD: list[Any] = [
    {"modules": ["i915"]},
    {"modules": ["snd-hda-intel", "cdc_acm", "8021q"], "moduleParameters": {"snd-hda-intel.power_save": "0"}},
    {"modules": ["serport", "pulse8_cec"], "serio": [PULSE8]},
    {"serio": [PULSE8, {"protocol": "rainshadow-cec", "usb": {"vendor": "04d8", "product": "ff59", "serial": "A-1"}}]},
    {"serio": [PULSE8, {"protocol": "pulse8-cec", "usb": {"vendor": "2548", "product": "1002", "serial": "v1.0"}}]},
    {"modules": [], "moduleParameters": {}, "serio": []},
    {"modules": None, "moduleParameters": None, "serio": None},
    {"modules": [f"module_{number}" for number in range(64)]},
    {"moduleParameters": {"usbcore.quirks": "2548:1002:k, 04d8:ff59:b"}},
    {},
    None,
]

BAD: list[tuple[Any, str]] = [
    ({"modules": ["i915", "i915"]}, "Duplicate value"),
    ({"modules": ["i915; reboot"]}, "spec.modules[0]"),
    ({"modules": ["--remove"]}, "should match '^[A-Za-z0-9][A-Za-z0-9_-]*$'"),
    ({"modules": ["a" * 65]}, "spec.modules[0]"),
    ({"modules": [f"m{number}" for number in range(65)]}, "must have at most 64 items"),
    ({"modules": "i915"}, "must be of type array"),
    ({"modules": [1]}, "must be of type string"),
    ({"moduleParameters": {"i915.enable_guc": 2}}, "must be of type string"),
    ({"moduleParameters": {"i915.enable_guc": 'a" b="c'}}, "should match"),
    ({"moduleParameters": {"i915.enable_guc": "a\nb"}}, "should match"),
    ({"serio": [{"protocol": "pulse9-cec", "usb": PULSE8["usb"]}]}, 'supported values: "pulse8-cec", "rainshadow-cec"'),
    ({"serio": [{"protocol": "pulse8-cec"}]}, "spec.serio[0].usb: Required value"),
    ({"serio": [{"protocol": "pulse8-cec", "usb": {"vendor": "2548"}}]}, "spec.serio[0].usb.product: Required value"),
    ({"serio": [{"protocol": "pulse8-cec", "usb": {"vendor": "0x2548", "product": "1002"}}]}, "'^[0-9a-f]{4}$'"),
    ({"serio": [{"protocol": "pulse8-cec", "usb": {"vendor": "2548", "product": "10AB"}}]}, "'^[0-9a-f]{4}$'"),
    ({"serio": [{**PULSE8, "usb": {**PULSE8["usb"], "serial": "a b"}}]}, "should match '^[!-~]+$'"),
    ({"serio": [{**PULSE8, "usb": {**PULSE8["usb"], "serial": ""}}]}, "spec.serio[0].usb.serial"),
]

real_only = pytest.mark.parametrize("server", [pytest.param("real", marks=pytest.mark.contract)], indirect=True)
"""For what the in-memory server has not: CEL rules, managed fields, OpenAPI of a resource."""

REFUSED_BY_RULES: list[tuple[Any, str]] = [
    (
        {"modules": ["snd-hda-intel", "snd_hda_intel"]},
        "a module is listed twice: '-' and '_' are the same in a module's name, so keep one of the two",
    ),
    (
        {"moduleParameters": {"enable_guc": "2"}},
        "write each parameter as <module>.<parameter>, for example i915.enable_guc",
    ),
    ({"moduleParameters": {"i915.enable guc": "2"}}, "write each parameter as <module>.<parameter>"),
    ({"serio": [PULSE8, PULSE8]}, "two entries name the same adapter: give each its serial, or keep one"),
]


@pytest.mark.parametrize("spec", GOOD)
async def test_a_good_manifest_is_taken_and_kept_as_it_is(machines: Server, spec: Any) -> None:
    await machines.kube.create(paths.machines(), manifest(machines.node, spec))
    stored = await machines.kube.get(paths.machine(machines.node))
    assert stored.get("spec") == spec
    applied = await machines.kube.apply(
        paths.machine(f"{machines.node}-applied"), manifest(f"{machines.node}-applied", spec), manager="test"
    )
    assert applied.get("spec") == spec


@pytest.mark.parametrize(("spec", "words"), BAD)
async def test_a_bad_manifest_is_refused_with_words_that_help(machines: Server, spec: Any, words: str) -> None:
    with pytest.raises(Invalid) as refused:
        await machines.kube.create(paths.machines(), manifest(machines.node, spec))
    assert words in str(refused.value)


@real_only
@pytest.mark.parametrize(("spec", "words"), REFUSED_BY_RULES)
async def test_a_rule_says_what_to_write_instead(machines: Server, spec: Any, words: str) -> None:
    with pytest.raises(Invalid) as refused:
        await machines.kube.create(paths.machines(), manifest(machines.node, spec))
    assert words in str(refused.value)


class Bench:
    """A machine below a folder, and the controller on a server."""

    def __init__(self, server: Server, root: Path) -> None:
        self.server = server
        self.sysfs = root / "sys"
        self.loader = FakeLoader(self.sysfs)
        self.discipline = FakeDiscipline(self.sysfs)
        self.store = Store(SomeNames())
        self.store.replace((pci("0000:00:02.0", modalias=GPU_ALIAS),), complete=True)
        self.recorder = EventRecorder(server.kube, node_name=server.node)
        tree = root / "lib/modules/6.12.9-lab"
        tree.mkdir(parents=True)
        (tree / "modules.dep").write_text("i915.ko:\nuhid.ko:\nserport.ko:\npulse8_cec.ko:\n")
        (tree / "modules.alias").write_text("alias pci:v00008086d000046D2sv*sd*bc03sc*i* i915\n")
        self.controller = MachineController(
            api=server.kube,
            store=self.store,
            loader=self.loader,
            settings=MachineSettings(
                node_name=server.node, lib_modules=tree, sysfs=self.sysfs, dev=root / "dev", boot_id="boot-1"
            ),
            metrics=Metrics(),
            recorder=self.recorder,
            discipline=self.discipline,
        )

    async def stored(self) -> Json:
        try:
            return await self.server.kube.get(paths.machine(self.server.node))
        except NotFound:
            return {}

    async def until(self, true: Callable[[Json], bool]) -> Json:
        """Wait until the stored status is so."""
        status: Json = {}
        try:
            with anyio.fail_after(PATIENCE_S):
                while not true(status := (await self.stored()).get("status") or {}):
                    await anyio.sleep(0.02)
        except TimeoutError:
            pytest.fail(f"the status stayed {json.dumps(status, indent=1)}")
        return status

    async def declare(self, **spec: object) -> None:
        """As `kubectl apply` does it."""
        body = manifest(self.server.node, spec)
        await self.server.kube.apply(paths.machine(self.server.node), body, manager="kubectl")


def conditions(status: Json) -> dict[str, tuple[str, str]]:
    return {found["type"]: (found["status"], found["reason"]) for found in status.get("conditions", ())}


def states(status: Json) -> dict[str, str]:
    return {found["name"]: found["state"] for found in status.get("modules", ())}


def running(bench: Bench) -> Callable[..., Coroutine[Any, Any, None]]:
    async def run(*, task_status: anyio.abc.TaskStatus[None]) -> None:
        await bench.controller.run(task_status=task_status)

    return run


@pytest.fixture
async def bench(machines: Server, tmp_path: Path) -> AsyncIterator[Bench]:
    made = Bench(machines, tmp_path)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.recorder.run)
        await tasks.start(running(made))
        yield made
        tasks.cancel_scope.cancel()


async def test_a_machine_is_applied_edited_deleted_and_applied_again(bench: Bench) -> None:
    status = await bench.until(lambda status: bool(status.get("hardware")))
    assert [entry["address"] for entry in status["hardware"]["unclaimed"]] == ["0000:00:02.0"]
    assert conditions(status)["SpecConverged"] == ("True", "Converged")

    await bench.declare(modules=["i915"])
    status = await bench.until(lambda status: states(status) == {"i915": "Loaded"})
    bench.store.replace((pci("0000:00:02.0", "i915", modalias=GPU_ALIAS),))
    status = await bench.until(lambda status: status["hardware"] == {"unclaimed": [], "unclaimedCount": 0})
    assert conditions(status)["Ready"] == ("True", "Ready")
    assert status["modulesReady"] == "1/1"

    await bench.declare(modules=["i915", "no-such-module"])
    status = await bench.until(lambda status: "no-such-module" in states(status))
    assert conditions(status)["SpecConverged"] == ("False", "ModulesFailed")
    assert conditions(status)["Ready"] == ("False", "ModulesFailed")

    await bench.declare(modules=["uhid"])
    status = await bench.until(lambda status: "uhid" in states(status))
    assert states(status) == {"uhid": "Loaded", "i915": "Loaded"}
    assert conditions(status)["SpecConverged"] == ("False", "RebootPending")
    assert status["observedGeneration"] == (await bench.stored())["metadata"]["generation"]

    await bench.server.kube.delete(paths.machine(bench.server.node))
    await bench.declare(modules=["i915", "uhid"])
    status = await bench.until(lambda status: conditions(status).get("SpecConverged") == ("True", "Converged"))
    assert bench.loader.names == ["i915", "uhid"]


@real_only
async def test_the_status_has_its_own_manager_and_the_spec_stays_its_writers(bench: Bench) -> None:
    await bench.declare(modules=["i915"])
    await bench.until(lambda status: states(status) == {"i915": "Loaded"})
    fields = (await bench.stored())["metadata"]["managedFields"]
    mine = [found for found in fields if found["manager"] == "liken" and found.get("subresource") == "status"]
    assert [found["operation"] for found in mine] == ["Apply"]
    (theirs,) = (found for found in fields if found["manager"] == "kubectl")
    assert "f:modules" in theirs["fieldsV1"]["f:spec"]


async def test_an_unchanged_machine_is_not_written_to(bench: Bench) -> None:
    await bench.declare(modules=["i915"])
    await bench.until(lambda status: states(status) == {"i915": "Loaded"})
    await anyio.sleep(0.5)
    before = (await bench.stored())["metadata"]["resourceVersion"]
    bench.store.replace((pci("0000:00:1f.3", "snd_hda_intel"),))
    await anyio.sleep(1)
    assert (await bench.stored())["metadata"]["resourceVersion"] == before


async def test_events_on_the_machine_tell_of_loads_and_failures(bench: Bench) -> None:
    bench.loader.refusals["uhid"] = "the kernel loads signed modules only"
    await bench.declare(modules=["i915", "uhid"])
    await bench.until(lambda status: states(status) == {"i915": "Loaded", "uhid": "Failed"})
    selector = f"involvedObject.name={bench.server.node},involvedObject.kind=Machine"
    with anyio.fail_after(PATIENCE_S):
        while True:
            found = (await bench.server.kube.list(paths.events("default"), field_selector=selector))["items"]
            if len(found) == 2:
                break
            await anyio.sleep(0.05)
    assert {(event["type"], event["reason"]) for event in found} == {
        ("Normal", "ModuleLoaded"),
        ("Warning", "ModuleFailed"),
    }


async def test_a_serial_attachment_shows_in_the_status(bench: Bench) -> None:
    await bench.declare(serio=[PULSE8])
    status = await bench.until(lambda status: bool(status.get("serio")))
    assert conditions(status)["SerioAttached"] == ("False", "Missing")
    bench.store.replace(cec_adapter("1-4", made=("cec0",)))
    status = await bench.until(lambda status: conditions(status)["SerioAttached"] == ("True", "Attached"))
    attached = {**PULSE8, "state": "Attached", "tty": "ttyACM0", "port": "serio0", "nodes": ["/dev/cec0"]}
    assert status["serio"] == [attached]


async def test_a_long_report_is_accepted_within_100_kib(bench: Bench) -> None:
    many = [pci(f"00{n // 256:02x}:{n % 256:02x}:02.0", modalias=GPU_ALIAS) for n in range(1000)]
    bench.store.replace(many, everything=True)
    status = await bench.until(lambda status: status.get("hardware", {}).get("unclaimedCount") == 1000)
    hardware = status["hardware"]
    assert len(hardware["unclaimed"]) >= 200
    assert hardware["unclaimedNotShown"] == 1000 - len(hardware["unclaimed"])
    assert len(json.dumps(status).encode()) < 100 * 1024


async def test_the_resource_may_come_later_and_go(server: Server, tmp_path: Path) -> None:
    await installed(server)
    await server.kube.delete(DEFINITION)
    with anyio.fail_after(PATIENCE_S):
        while True:
            try:
                await server.kube.list(paths.machines())
            except NotFound:
                break
            await anyio.sleep(0.05)
    bench = Bench(server, tmp_path)
    async with anyio.create_task_group() as tasks:
        await tasks.start(running(bench))
        await anyio.sleep(0.5)
        assert bench.controller.status is not None
        await installed(server)
        await bench.until(lambda status: bool(status.get("conditions")))
        await bench.declare(modules=["i915"])
        await bench.until(lambda status: states(status) == {"i915": "Loaded"})
        tasks.cancel_scope.cancel()


CATALOG = ModuleCatalog(
    alias=b"alias pci:v00008086d000046D2sv*sd*bc03sc*i* i915\nalias pci:v00008086d000046D2sv*sd*bc03sc*i* xe\n"
    b"alias usb:v10C4pEA60d*dc*dsc*dp*ic*isc*ip*in* cp210x\n",
    dep=b"i915.ko:\nxe.ko:\ncp210x.ko:\nsnd-hda-codec-hdmi.ko:\n",
    softdep=b"softdep xe pre: snd-hda-codec-hdmi\n",
)


async def test_the_report_applies_and_so_does_each_of_its_modules_uncommented_alone(machines: Server) -> None:
    store = Store(SomeNames())
    stick = (usb_device("1-10"), interface("1-10:1.0", modalias=STICK_ALIAS))
    store.replace((pci("0000:00:02.0", modalias=GPU_ALIAS), *stick), complete=True)
    text = report(store.snapshot, CATALOG, machines.node)
    commented = [index for index, line in enumerate(text.splitlines()) if line.startswith("    # - ")]
    assert len(commented) == 4
    for chosen in ((), *((index,) for index in commented), tuple(commented)):
        lines = text.splitlines()
        for index in chosen:
            lines[index] = lines[index].replace("# - ", "- ", 1)
        body = yaml.safe_load("\n".join(lines))
        assert len(body["spec"]["modules"] or []) == len(chosen)
        stored = await machines.kube.apply(paths.machine(machines.node), copy.deepcopy(body), manager="test")
        assert stored["spec"]["modules"] == body["spec"]["modules"]
        await machines.kube.delete(paths.machine(machines.node))
        await machines.kube.create(paths.machines(), body)
        await machines.kube.delete(paths.machine(machines.node))
    await machines.kube.create(paths.machines(), report_json(store.snapshot, CATALOG, machines.node))


async def test_kubectl_shows_columns_the_short_name_and_the_guides_command(bench: Bench) -> None:
    await bench.declare(modules=["uhid"])
    await bench.until(lambda status: states(status) == {"uhid": "Loaded"})
    heading, row = (await kubectl(bench.server.kubeconfig, "get", "mach", bench.server.node)).splitlines()
    assert heading.split() == ["NAME", "CONVERGED", "UNCLAIMED", "MODULES", "AGE"]
    assert row.split()[:4] == [bench.server.node, "True", "1", "1/1"]
    shown = await kubectl(
        bench.server.kubeconfig, "get", "machine", bench.server.node, "-o", "jsonpath={.status.hardware.unclaimed}"
    )
    (entry,) = json.loads(shown)
    assert entry["message"] == "declare i915 in spec.modules"


async def test_kubectl_applies_the_guides_manifest_and_the_report(bench: Bench) -> None:
    name = bench.server.node
    with anyio.fail_after(PATIENCE_S):  # the daemon makes an empty one; an apply in that very moment loses to it
        while not await bench.stored():
            await anyio.sleep(0.02)
    guide = f"apiVersion: liken.sh/v1alpha1\nkind: Machine\nmetadata:\n  name: {name}\nspec:\n  modules:\n    - i915\n"
    await kubectl(bench.server.kubeconfig, "apply", "-f", "-", told=guide)
    await bench.until(lambda status: states(status) == {"i915": "Loaded"})
    text = report(bench.store.snapshot, CATALOG, name)
    await kubectl(bench.server.kubeconfig, "apply", "-f", "-", told=text)
    await bench.until(lambda status: conditions(status)["SpecConverged"] == ("False", "RebootPending"))


@real_only
async def test_kubectl_explains_every_field(machines: Server) -> None:
    explained = ""
    with anyio.fail_after(20):  # the server publishes the schema of a new definition a moment after it serves it
        while not explained:
            try:
                explained = await kubectl(machines.kubeconfig, "explain", "machine.spec.serio")
            except KubectlFailed:
                await anyio.sleep(0.3)
    assert "Serial lines that liken attaches to a serio driver" in explained
    whole = await kubectl(machines.kubeconfig, "explain", "machine", "--recursive")
    for field in ("moduleParameters", "protocol", "unclaimedCount", "lastTransitionTime"):
        assert field in whole
    assert "<no description>" not in await kubectl(machines.kubeconfig, "explain", "machine.spec")
    assert "<no description>" not in await kubectl(machines.kubeconfig, "explain", "machine.status")
