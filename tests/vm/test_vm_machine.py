"""The Machine resource on a real kernel: a driver declared, and loaded live; a serial line attached."""

import signal
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from liken.model.api import Json
from tests.vm.conftest import Stopwatch, timings
from tests.vm.hardware import Hardware
from tests.vm.node import MACHINES, NAME, Node
from tests.vm.published import names, request
from tests.vm.pulse8 import pulse8_adapter

pytestmark = [pytest.mark.vm, pytest.mark.timeout(400)]
CARD = "pci-0000-03-00-0"
LINE, OTHER_LINE = "usb-1-3-1-0", "usb-1-4-1-0"
HALVES = {f"{LINE}-cec", f"{LINE}-input"}
OTHER_HALVES = {f"{OTHER_LINE}-cec", f"{OTHER_LINE}-input"}
WITHIN_S = 2.0
ENDS_WITHIN_S = 10.0


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

    def declare_serio(self) -> None:
        """The Machine of somebody who owns a Pulse-Eight adapter; its modules are loaded when this returns."""
        self.declare(
            modules=["cdc_acm", "serport", "pulse8_cec"],
            serio=[{"protocol": "pulse8-cec", "usb": {"vendor": "2548", "product": "1002"}}],
        )
        self._node.until(lambda: self.loaded("cdc_acm", "serport", "pulse8_cec"))

    @property
    def status(self) -> Json:
        found: Json = request(self._node.server, "GET", self._path).get("status") or {}
        return found

    def loaded(self, *modules: str) -> bool:
        """Whether the spec asks for these and they are there; SpecConverged waits for a reboot once one was removed."""
        said = {entry["name"]: (entry["state"], entry.get("message")) for entry in self.status.get("modules") or ()}
        return all(said.get(module) == ("Loaded", None) for module in modules)

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
    node.until(lambda: declared.loaded("bochs"))
    node.until(lambda: "0000:03:00.0" not in declared.unclaimed())


def test_a_pulse8_adapter_is_attached_through_spec_serio_and_published_as_cec_and_input(
    node: Node, hardware: Hardware, declared: Declared, stopwatch: Stopwatch
) -> None:
    declared.declare_serio()
    mark = node.published.mark()
    stopwatch.start()
    adapter = hardware.made_up("3", pulse8_adapter())
    came = node.published.wait(lambda devices: names(devices, [LINE]) == HALVES, since=mark)
    stopwatch.stop("attached and published", came)
    node.until(lambda: declared.status["serio"][0]["state"] == "Attached")
    assert declared.condition("SerioAttached")["status"] == "True"
    stopwatch.start()
    hardware.unplug(adapter)
    went = node.published.wait(lambda devices: not names(devices, [LINE]), since=came.number + 1)
    stopwatch.stop("withdrawn", went)
    node.until(lambda: declared.status["serio"][0]["state"] == "Missing")
    stopwatch.start()
    adapter = hardware.made_up("3", pulse8_adapter())
    again = node.published.wait(lambda devices: names(devices, [LINE]) == HALVES, since=went.number + 1)
    stopwatch.stop("attached again after a replug", again)
    hardware.unplug(adapter)  # a fresh `liken devices` knows no Machine: it would offer the tty itself
    node.published.wait(lambda devices: not names(devices, [LINE]), since=again.number + 1)


def test_a_held_serial_line_delays_no_end_of_the_daemon_and_is_never_offered_by_the_next(
    node: Node, hardware: Hardware, declared: Declared, stopwatch: Stopwatch
) -> None:
    declared.declare_serio()
    mark = node.published.mark()
    adapter = hardware.made_up("4", pulse8_adapter())
    came = node.published.wait(lambda devices: names(devices, [OTHER_LINE]) == OTHER_HALVES, since=mark)
    began = time.monotonic()
    node.signal(signal.SIGTERM)
    node.ended()
    timings["SIGTERM with a held line to the end of the daemon"] = ended = time.monotonic() - began
    assert ended < ENDS_WITHIN_S
    assert "cec" not in node.machine.guest.run("ls /dev"), "the driver let go of the line"
    stopwatch.start()
    node.start()
    node.until(lambda: declared.status["serio"][0]["state"] == "Attached")
    again = node.published.wait(lambda devices: names(devices, [OTHER_LINE]) == OTHER_HALVES)
    stopwatch.stop("right again after a new start", again)
    assert all(OTHER_LINE not in write.devices for write in node.published.writes[came.number :])
    hardware.unplug(adapter)
    node.published.wait(lambda devices: not names(devices, [OTHER_LINE]))
