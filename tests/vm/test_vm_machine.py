"""The Machine resource on a real kernel: a driver declared, and loaded live; a serial line attached."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from liken.model.api import Json
from tests.vm.conftest import Stopwatch
from tests.vm.hardware import Hardware
from tests.vm.node import MACHINES, NAME, Node
from tests.vm.published import names, request
from tests.vm.pulse8 import pulse8_adapter

pytestmark = [pytest.mark.vm, pytest.mark.timeout(400)]
CARD = "pci-0000-03-00-0"
WITHIN_S = 2.0


@pytest.fixture
def declared(node: Node) -> Iterator["Declared"]:
    """The node's Machine; deleted at the end."""
    machine = Declared(node)
    yield machine
    machine.delete()


class Declared:
    """The node's Machine on the server: `declare` applies a spec as a person does."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._path = f"{MACHINES}/{NAME}"

    def declare(self, **spec: Any) -> None:
        body = {"apiVersion": "liken.sh/v1alpha1", "kind": "Machine", "metadata": {"name": NAME}, "spec": spec}
        applied = f"{self._path}?fieldManager=person&force=true"
        request(self._node.server, "PATCH", applied, body, kind="application/apply-patch+yaml")

    @property
    def status(self) -> Json:
        found: Json = request(self._node.server, "GET", self._path).get("status") or {}
        return found

    def condition(self, kind: str) -> Mapping[str, str]:
        return next((each for each in self.status.get("conditions") or () if each["type"] == kind), {})

    def unclaimed(self) -> Mapping[str, Json]:
        hardware = self.status.get("hardware") or {}
        return {entry["address"]: entry for entry in hardware.get("unclaimed") or ()}

    def delete(self) -> None:
        request(self._node.server, "DELETE", self._path)


def test_a_module_added_to_spec_modules_is_loaded_and_its_device_published_within_two_seconds(
    node: Node, hardware: Hardware, declared: Declared, stopwatch: Stopwatch
) -> None:
    guest = node.machine.guest
    guest.run("modprobe -r bochs", check=False)
    declared.declare(modules=[])
    hardware.pci("bochs-display", "slot3")
    node.until(lambda: "0000:03:00.0" in declared.unclaimed())
    assert "bochs" in declared.unclaimed()["0000:03:00.0"]["modules"]
    mark, events = node.published.mark(), guest.mark()
    stopwatch.start()
    declared.declare(modules=["bochs"])
    came = node.published.wait(lambda devices: CARD in devices, since=mark)
    stopwatch.stop("published after the edit", came)
    loaded = guest.uevent(events, ACTION="add", SUBSYSTEM="module", DEVPATH="/module/bochs")
    assert came.at - loaded.at < WITHIN_S
    node.until(lambda: declared.condition("SpecConverged").get("status") == "True")
    assert declared.status["modules"][0]["state"] == "Loaded"
    node.until(lambda: "0000:03:00.0" not in declared.unclaimed())


def test_a_pulse8_adapter_is_attached_through_spec_serio_and_published_as_cec_and_input(
    node: Node, hardware: Hardware, declared: Declared, stopwatch: Stopwatch
) -> None:
    declared.declare(
        modules=["cdc_acm", "serport", "pulse8_cec"],
        serio=[{"protocol": "pulse8-cec", "usb": {"vendor": "2548", "product": "1002"}}],
    )
    node.until(lambda: declared.condition("SpecConverged").get("status") == "True")
    mark = node.published.mark()
    stopwatch.start()
    adapter = hardware.made_up("3", pulse8_adapter())
    halves = {"usb-1-3-1-0-cec", "usb-1-3-1-0-input"}
    came = node.published.wait(lambda devices: names(devices, ["usb-1-3"]) == halves, since=mark)
    stopwatch.stop("attached and published", came)
    node.until(lambda: declared.status["serio"][0]["state"] == "Attached")
    assert declared.condition("SerioAttached")["status"] == "True"
    mark = node.published.mark()
    stopwatch.start()
    hardware.unplug(adapter)
    went = node.published.wait(lambda devices: not names(devices, ["usb-1-3"]), since=mark)
    stopwatch.stop("withdrawn", went)
    node.until(lambda: declared.status["serio"][0]["state"] == "Missing")
    stopwatch.start()
    hardware.made_up("3", pulse8_adapter())
    again = node.published.wait(lambda devices: names(devices, ["usb-1-3"]) == halves, since=went.number + 1)
    stopwatch.stop("attached again after a replug", again)
