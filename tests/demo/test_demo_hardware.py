import pathlib

from liken.demo import hardware
from liken.demo.hardware import GPU, GPU_DEVICES, STICK_DEVICE, TV_DEVICE, TV_MODULE, Stick, text
from liken.events.recording import recorded
from liken.events.sysfs import Sysfs
from liken.model.offers import Snapshot
from liken.state.catalog import ModuleCatalog
from liken.state.ids import IdsFiles
from liken.state.store import Store
from liken.state.unclaimed import unclaimed


def judged(tmp_path: pathlib.Path, *recordings: str) -> Snapshot:
    file = tmp_path / "machine.umockdev"
    file.write_text("\n".join(recordings))
    (tmp_path / "proc/1").mkdir(parents=True)
    (tmp_path / "proc/1/mountinfo").write_text(hardware.MOUNTINFO)
    with recorded(file) as machine:
        sysfs = Sysfs(machine.sysfs, tmp_path / "proc", machine.dev)
        store = Store(IdsFiles())
        store.replace(sysfs.everything(), system=sysfs.system(), complete=True, everything=True)
        return store.snapshot


def test_at_first_the_gpu_and_the_tv_stick_have_no_driver_and_the_disk_is_in_use(tmp_path: pathlib.Path) -> None:
    snapshot = judged(tmp_path, text("mini-pc"))
    assert sorted(snapshot.offers) == ["pci-0000-00-1f-3", "usb-2-2-1-0", "usb-2-7-1-0"]
    reasons = {str(key.address): str(verdict.reason) for key, verdict in snapshot.verdicts.items()}
    assert reasons["0000:00:02.0"] == "NoDriver"
    assert reasons["2-5:1.0"] == "NoDriver"
    assert reasons["0000:01:00.0"] == "MachineDependsOnIt"


def test_a_stick_has_the_nodes_it_says_at_each_enumeration(tmp_path: pathlib.Path) -> None:
    stick = Stick(number=17, tty=3)
    snapshot = judged(tmp_path, text("mini-pc"), stick.recording)
    offer = snapshot.offers[STICK_DEVICE]  # type: ignore[index]
    assert tuple(node.path for node in offer.nodes) == stick.nodes == ("/dev/bus/usb/002/017", "/dev/ttyUSB3")
    assert [str(node.number) for node in offer.nodes] == ["189:144", "188:3"]
    assert offer.attributes["vendor"] == "10c4"
    assert offer.attributes["product"] == "ea60"


def test_a_bound_gpu_is_three_devices(tmp_path: pathlib.Path) -> None:
    link = "L: driver=../../../bus/pci/drivers/i915"
    machine = text("mini-pc").replace(f"P: {GPU}\n", f"P: {GPU}\n{link}\n")
    assert set(GPU_DEVICES) <= set(judged(tmp_path, machine, text("i915")).offers)


def test_the_catalogue_knows_the_modules_that_help(tmp_path: pathlib.Path) -> None:
    modules = tmp_path / "modules"
    modules.mkdir()
    for name, content in hardware.MODULES.items():
        (modules / name).write_text(content)
    found = unclaimed(judged(tmp_path, text("mini-pc")), ModuleCatalog.read(modules))
    assert {entry.address: entry.modules for entry in found} == {
        "0000:00:02.0": ("i915",),
        "2-5:1.0": (TV_MODULE,),
        "2-5:1.1": (TV_MODULE,),
    }
    assert TV_DEVICE == "usb-2-5-1-0"
