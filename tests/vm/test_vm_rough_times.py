"""Bad days of a daemon on a real kernel: a storm, a lost stretch of events, death in the middle of work."""

import signal

import pytest

from tests.vm.claims import allocated
from tests.vm.conftest import Stopwatch
from tests.vm.hardware import Hardware, ports
from tests.vm.kubelet import Kubelet
from tests.vm.node import Node
from tests.vm.published import names

pytestmark = [pytest.mark.vm, pytest.mark.timeout(400)]


def test_a_storm_of_fifty_plugs_and_unplugs_ends_in_the_truth_with_few_writes(
    node: Node, hardware: Hardware, stopwatch: Stopwatch
) -> None:
    hardware.hub("2")
    mark = node.published.mark()
    stopwatch.start()
    places = list(ports("2"))
    present: dict[str, str] = {}
    for turn in range(50):
        place = places[turn % len(places)]
        if place in present:
            hardware.unplug(present.pop(place))
        else:
            present[place] = hardware.serial_adapter(place)
    expected = {f"usb-1-{place.replace('.', '-')}-1-0" for place in present}
    settled = node.published.wait(lambda devices: names(devices, ["usb-1-2"]) == expected, since=mark)
    stopwatch.stop("settled", settled)
    node.agree()
    assert node.published.mark() - mark <= 20


def test_events_lost_to_an_overflow_are_made_up_for_by_a_new_enumeration(
    node: Node, hardware: Hardware, stopwatch: Stopwatch
) -> None:
    guest = node.machine.guest
    node.restart("--receive-buffer", "4KiB")
    try:
        before = node.metric("liken_resyncs_total")
        node.signal(signal.SIGSTOP)
        guest.run("i=0; while [ $i -lt 200 ]; do echo change >/sys/bus/usb/devices/usb1/uevent; i=$((i+1)); done")
        events, mark = guest.mark(), node.published.mark()
        hardware.serial_adapter("4")
        guest.uevent(events, ACTION="bind", DEVTYPE="usb_interface", DEVPATH="/1-4:1.0")
        stopwatch.start()
        node.signal(signal.SIGCONT)
        came = node.published.wait(lambda devices: "usb-1-4-1-0" in devices, since=mark)
        stopwatch.stop("published after SIGCONT", came)
        assert node.metric("liken_resyncs_total") > before
    finally:
        node.signal(signal.SIGCONT)
        node.restart()


def test_a_daemon_killed_amid_hotplug_and_a_prepared_claim_converges_at_its_next_start(
    node: Node, hardware: Hardware, stopwatch: Stopwatch
) -> None:
    mark = node.published.mark()
    claimed = hardware.serial_adapter("6", serial="CLAIMED")
    node.published.wait(lambda devices: "usb-1-6-1-0" in devices, since=mark)
    with Kubelet(node.plugin_port()) as kubelet:
        claim = allocated(node.server, "usb-1-6-1-0")
        kubelet.prepare(claim)
        hardware.hub("7")
        for place in ports("7"):
            hardware.serial_adapter(place)
        hardware.unplug(claimed)
        node.signal(signal.SIGKILL)
        node.ended()
        hardware.serial_adapter("6", serial="CLAIMED")
        hardware.keyboard("8")
        stopwatch.start()
        mark = node.published.mark()
        node.start()
        came = node.published.wait(
            lambda devices: {"usb-1-6-1-0", "usb-1-8-1-0"} <= devices.keys() and len(names(devices, ["usb-1-7"])) == 8,
            since=mark - 1,
        )
        stopwatch.stop("converged after a new start", came)
        tty = node.machine.guest.run("ls /sys/bus/usb/devices/1-6:1.0 | grep ttyUSB").strip()
        node.until(lambda: f"/dev/{tty}" in node.cdi_paths(claim.uid))
        file = f"liken.sh-{claim.uid}.json"
        assert file in node.cdi_files()
        assert all(name.startswith("liken.sh-") for name in node.cdi_files()), "no temporary file is left"
        kubelet.unprepare(claim)
        assert file not in node.cdi_files()
