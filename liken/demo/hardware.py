"""The demo's hardware: a small machine, and what appears when something is plugged in or a driver binds.

Texts in umockdev's format, kept beside this module. The stick is written with another device number and another tty at
each plugging-in, as the kernel does when a program still holds the old node.
"""

from dataclasses import dataclass
from importlib import resources

GPU = "/devices/pci0000:00/0000:00:02.0"
STICK = "/devices/pci0000:00/0000:00:14.0/usb2/2-1"
TV = "/devices/pci0000:00/0000:00:14.0/usb2/2-5/2-5:1.0"
STICK_DEVICE = "usb-2-1-1-0"
GPU_DEVICES = ("pci-0000-00-02-0", "pci-0000-00-02-0-display", "pci-0000-00-02-0-i2c-dev")
TV_DEVICE = "usb-2-5-1-0"
TV_MODULE = "dvb_usb_rtl28xxu"
FIRST_MINOR = 128  # of bus 2: (bus - 1) * 128

MOUNTINFO = "21 1 259:1 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p1 rw\n"
MODULES = {
    "modules.alias": (
        "alias pci:v00008086d000046D2sv*sd*bc03sc*i* i915\n"
        f"alias usb:v0BDAp2838d*dc*dsc*dp*ic*isc*ip*in* {TV_MODULE}\n"
        "alias usb:v10C4pEA60d*dc*dsc*dp*ic*isc*ip*in* cp210x\n"
    ),
    "modules.dep": (
        "kernel/drivers/gpu/drm/i915/i915.ko:\n"
        f"kernel/drivers/media/usb/dvb-usb-v2/{TV_MODULE}.ko:\n"
        "kernel/drivers/usb/serial/cp210x.ko:\n"
    ),
    "modules.builtin": "kernel/drivers/usb/host/xhci-hcd.ko\n",
    "modules.softdep": "",
}


def text(name: str) -> str:
    """One of the recordings."""
    return resources.files("liken.demo").joinpath("machines", f"{name}.umockdev").read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Stick:
    """A Zigbee stick as it was enumerated: its device number on bus 2 and the number of its tty."""

    number: int
    tty: int

    @property
    def nodes(self) -> tuple[str, str]:
        """The nodes a claim on it delivers."""
        return f"/dev/bus/usb/002/{self.number:03}", f"/dev/ttyUSB{self.tty}"

    @property
    def recording(self) -> str:
        """What the kernel shows of it."""
        return (
            text("zigbee")
            .replace("002/005", f"002/{self.number:03}")
            .replace("DEVNUM=005", f"DEVNUM={self.number:03}")
            .replace("devnum=5\\n", f"devnum={self.number}\\n")
            .replace("189:132", f"189:{FIRST_MINOR + self.number - 1}")
            .replace("MINOR=132", f"MINOR={FIRST_MINOR + self.number - 1}")
            .replace("ttyUSB0", f"ttyUSB{self.tty}")
            .replace("188:0", f"188:{self.tty}")
            .replace("MINOR=0\n", f"MINOR={self.tty}\n")
        )
