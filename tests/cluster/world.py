"""The hardware of the test node: a sysfs tree whose nodes are character devices made for the test.

The shapes are the guide's: a GPU with a render, a card and two monitor-bus nodes, a sound card, two Zigbee adapters.
Numbers are ones that a container may not use by itself, so that opening one proves that the claim allowed it. Uevents
are sent through netlink to the kernel, which broadcasts them in this network namespace as its own.
"""

import contextlib
import itertools
import os
import pathlib
import shutil
import socket
import stat
import struct
from dataclasses import dataclass, field

MAJOR = 240  # for local use
GPU = "devices/pci0000:00/0000:00:02.0"
SOUND = "devices/pci0000:00/0000:00:1f.3"
USB = "devices/pci0000:00/0000:00:14.0/usb1"
WORLDS = itertools.count(os.getpid() * 4 % 800 + 100)  # two sessions on one machine meet neither nodes nor buses
NETLINK_KOBJECT_UEVENT = 15


@dataclass
class Stick:
    """One Zigbee adapter: its port, its serial, and the numbers it has now."""

    port: str
    serial: str
    devnum: int
    tty: int
    prefix: str

    @property
    def name(self) -> str:
        """Its device in the slice."""
        return f"usb-{self.port}-1-0".replace(".", "-")

    @property
    def node(self) -> str:
        """Its tty."""
        return f"/dev/{self.prefix}-ttyUSB{self.tty}"


@dataclass
class World:
    """The tree below `sys`, and the nodes it made in `dev`."""

    sys: pathlib.Path
    dev: pathlib.Path = pathlib.Path("/dev")
    made: list[pathlib.Path] = field(default_factory=list)
    minors: int = 100
    plugged: list[Stick] = field(default_factory=list)
    bus: int = field(default_factory=lambda: next(WORLDS))

    @property
    def prefix(self) -> str:
        """Begins the name of every node of this world."""
        return f"liken-test-{self.bus}"

    @property
    def dri(self) -> str:
        """The folder of the GPU's nodes."""
        return f"/dev/{self.prefix}-dri"

    def build(self) -> None:
        """The guide's machine with its sound card, and no adapter plugged in yet."""
        self._pci(GPU, "8086", "46d2", "030000", "i915")
        self.child(f"{GPU}/drm/card0", "drm", f"{self.prefix}-dri/card0")
        self.child(f"{GPU}/drm/renderD128", "drm", f"{self.prefix}-dri/renderD128")
        for bus in (3, 4):
            self.child(f"{GPU}/i2c-{bus}/i2c-dev/i2c-{bus}", "i2c-dev", f"{self.prefix}-i2c-{bus}")
        self._pci(SOUND, "8086", "54c8", "040300", "snd_hda_intel")
        self.child(f"{SOUND}/sound/card0/controlC0", "sound", f"{self.prefix}-snd/controlC0")
        self._pci("devices/pci0000:00/0000:00:14.0", "8086", "54ed", "0c0330", "xhci_hcd")
        self._usb_device(USB, "1d6b", "0002", 1, {})

    def plug(self, stick: Stick) -> None:
        """Plug an adapter in, with the events a kernel sends."""
        self.plugged.append(stick)
        at = f"{USB}/{stick.port}"
        strings = {"manufacturer": "Silicon Labs", "product": "CP2102", "serial": stick.serial}
        self._usb_device(at, "10c4", "ea60", stick.devnum, strings)
        self.child("", "usb", f"bus/usb/{self.bus:03}/{stick.devnum:03}", node_only=True)
        interface = f"{at}/{stick.port}:1.0"
        alias = "usb:v10C4pEA60d0100dc00dsc00dp00icFFisc00ip00in00"
        files = {"bInterfaceClass": "ff", "bInterfaceNumber": "00", "modalias": alias}
        self.device(interface, "bus/usb", files, driver="cp210x", uevent="DEVTYPE=usb_interface\n")
        tty = f"{interface}/ttyUSB{stick.tty}/tty/ttyUSB{stick.tty}"
        self.child(tty, "tty", stick.node.removeprefix("/dev/"))
        for path, subsystem in ((at, "usb"), (interface, "usb"), (tty, "tty")):
            self.event("add", path, subsystem)
        self.event("bind", interface, "usb")

    def unplug(self, stick: Stick) -> None:
        """Pull it out."""
        self.plugged.remove(stick)
        at = f"{USB}/{stick.port}"
        interface = f"{at}/{stick.port}:1.0"
        tty = f"{interface}/ttyUSB{stick.tty}/tty/ttyUSB{stick.tty}"
        shutil.rmtree(self.sys / at)
        for folder, name in (
            ("bus/usb/devices", stick.port),
            ("bus/usb/devices", f"{stick.port}:1.0"),
            ("class/tty", f"ttyUSB{stick.tty}"),
        ):
            (self.sys / folder / name).unlink()
        self._remove_node(stick.node.removeprefix("/dev/"))
        self._remove_node(f"bus/usb/{self.bus:03}/{stick.devnum:03}")
        for path, subsystem in ((tty, "tty"), (interface, "usb"), (at, "usb")):
            self.event("remove", path, subsystem)

    def _remove_node(self, devname: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            (self.dev / devname).unlink()

    def event(self, action: str, path: str, subsystem: str) -> None:
        """One uevent."""
        devpath = path.removeprefix("devices/")
        body = f"{action}@/devices/{devpath}\0ACTION={action}\0DEVPATH=/devices/{devpath}\0SUBSYSTEM={subsystem}\0"
        payload = body.encode()
        header = struct.pack("IHHII", 16 + len(payload), 0x10, 1, 0, 0)
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_KOBJECT_UEVENT) as out:
            out.sendto(header + payload, (0, 0))

    def _pci(self, at: str, vendor: str, product: str, kind: str, driver: str) -> None:
        alias = (
            f"pci:v0000{vendor.upper()}d0000{product.upper()}sv00008086sd00007270bc{kind[:2]}sc{kind[2:4]}i{kind[4:]}"
        )
        files = {"vendor": f"0x{vendor}", "device": f"0x{product}", "class": f"0x{kind}", "modalias": alias}
        self.device(at, "bus/pci", files, driver=driver)

    def _usb_device(self, at: str, vendor: str, product: str, devnum: int, strings: dict[str, str]) -> None:
        files = {
            "idVendor": vendor,
            "idProduct": product,
            "busnum": str(self.bus),
            "devnum": str(devnum),
            "authorized": "1",
        }
        uevent = f"DEVTYPE=usb_device\nDEVNAME=bus/usb/{self.bus:03}/{devnum:03}\nMAJOR=189\nMINOR={devnum - 1}\n"
        self.device(
            at,
            "bus/usb",
            files | {"authorized": "1", "bConfigurationValue": "1"} | strings,
            driver="usb",
            uevent=uevent,
        )

    def child(self, at: str, subsystem: str, devname: str, *, node_only: bool = False) -> None:
        """A device node with its folder, and the node itself in /dev."""
        self.minors += 1
        node = self.dev / devname
        node.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            node.unlink()
        os.mknod(node, 0o660 | stat.S_IFCHR, os.makedev(MAJOR, self.minors))
        self.made.append(node)
        if not node_only:
            uevent = f"MAJOR={MAJOR}\nMINOR={self.minors}\nDEVNAME={devname}\n"
            self.device(at, f"class/{subsystem}", {"dev": f"{MAJOR}:{self.minors}"}, uevent=uevent)

    def device(self, at: str, home: str, files: dict[str, str], *, driver: str = "", uevent: str = "") -> None:
        """One folder of sysfs with its links."""
        folder = self.sys / at
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "uevent").write_text(uevent + (f"DRIVER={driver}\n" if driver else ""))
        for name, content in files.items():
            (folder / name).write_text(f"{content}\n")
        up = "../" * (at.count("/") + 1)
        (folder / "subsystem").symlink_to(up + home)
        listing = f"{home}/devices" if home.startswith("bus/") else home
        (self.sys / listing).mkdir(parents=True, exist_ok=True)
        (self.sys / listing / folder.name).symlink_to("../" * (listing.count("/") + 1) + at)
        if driver:
            (self.sys / home / "drivers" / driver).mkdir(parents=True, exist_ok=True)
            (folder / "driver").symlink_to(f"{up}{home}/drivers/{driver}")

    def clear(self) -> None:
        """Remove the nodes."""
        for node in self.made:
            with contextlib.suppress(OSError):
                node.unlink()
            with contextlib.suppress(OSError):
                if node.parent != self.dev:
                    node.parent.rmdir()
