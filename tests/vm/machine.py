"""A virtual machine with a real kernel: QEMU as one child process, its monitor, and the agent in the guest.

Root is the host's own, read-only over 9p with a tmpfs on top: the host's Python, virtual environment and checkout are
at their usual paths and nothing the guest writes comes back. The host's loopback is 10.0.2.2 in the guest. Software
emulation by default, so that it runs anywhere; `LIKEN_VM_ACCEL=kvm` where that works. No udevd runs in the guest: no
module loads by itself.
"""

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.vm.guest.agent import INWARD_PORT, PORT_NAME
from tests.vm.guest.preloaded import PRELOADED_PORT
from tests.vm.guest_line import GuestError, GuestLine
from tests.vm.initramfs import initramfs
from tests.vm.kernel import GuestKernel
from tests.vm.qmp import Monitor

QEMU = "qemu-system-x86_64"
BUSYBOX = Path("/bin/busybox")
WEB_PORT = 9180
FORWARDED = (INWARD_PORT, WEB_PORT, PRELOADED_PORT)
SLOTS = ("slot1", "slot2", "slot3", "slot4")
GUEST_FILES = Path(__file__).parent / "guest"
KERNEL_LINE = "console=ttyS0 quiet panic=-1 mitigations=off nokaslr no5lvl audit=0 tsc=reliable random.trust_cpu=on"
BOOT_WITHIN_S = 180.0
PR_SET_PDEATHSIG = 1


class VirtualMachine:
    """A booted guest; `with VirtualMachine(kernel) as machine` ends QEMU by its pid, as the kernel does if we die."""

    def __init__(self, kernel: GuestKernel, *, memory_mib: int = 1024) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="vm-"))  # short: a unix socket's path ends at 107 bytes
        self.ports = {port: _free_port() for port in FORWARDED}
        settings = {
            "RELEASE": kernel.release,
            "MODULES": str(kernel.modules),
            "PYTHON": os.path.realpath(sys.executable),
            "AGENT": str(GUEST_FILES / "agent.py"),
        }
        image = initramfs(kernel, busybox=BUSYBOX, init=GUEST_FILES / "init", settings=settings)
        (self.folder / "initramfs").write_bytes(image)
        self._channels: list[Monitor | GuestLine] = []
        began = time.monotonic()
        with (self.folder / "qemu.log").open("wb") as log:
            self._process = subprocess.Popen(
                self._command(kernel, memory_mib),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=_die_with_parent,  # noqa: PLW1509  (no thread of ours holds a lock at a fork)
            )
        try:
            self.monitor = Monitor(self._connect("monitor"))
            self._channels.append(self.monitor)
            self.guest = GuestLine(self._connect("agent"))
            self._channels.append(self.guest)
            self.release = self.guest.hello(lambda: self._process.poll() is None, within=BOOT_WITHIN_S)
        except (GuestError, OSError) as problem:
            words = self.logs()
            self.close()
            raise GuestError(f"{problem}\n{words}") from problem
        self.boot_s = time.monotonic() - began

    def _command(self, kernel: GuestKernel, memory_mib: int) -> list[str]:
        accelerator = os.environ.get("LIKEN_VM_ACCEL", "tcg")
        options = [
            ("-machine", "q35"),
            ("-accel", "tcg,thread=multi" if accelerator == "tcg" else accelerator),
            ("-cpu", "max,la57=off"),
            ("-smp", "2"),
            ("-m", str(memory_mib)),
            ("-display", "none"),
            ("-kernel", str(kernel.image)),
            ("-initrd", str(self.folder / "initramfs")),
            ("-append", KERNEL_LINE),
            ("-serial", f"file:{self.folder}/console.log"),
            ("-qmp", f"unix:{self.folder}/monitor,server=on,wait=off"),
            ("-fsdev", "local,id=root,path=/,security_model=none,readonly=on,multidevs=remap"),
            ("-device", "virtio-9p-pci,fsdev=root,mount_tag=hostroot"),
            ("-device", "virtio-serial-pci,id=serial"),
            ("-chardev", f"socket,id=agent,path={self.folder}/agent,server=on,wait=off"),
            ("-device", f"virtserialport,bus=serial.0,chardev=agent,name={PORT_NAME}"),
            ("-device", "virtio-rng-pci"),
            ("-nic", "user,model=virtio-net-pci" + "".join(self._forwards())),
            ("-audiodev", "none,id=silence"),
            ("-device", "qemu-xhci,id=xhci,p2=8,p3=8,addr=0x10"),
            *_slots(),
            # These two cannot be plugged into a running machine; their drivers wait for a test's modprobe.
            ("-device", "virtio-gpu-pci,addr=0x11"),
            ("-device", "intel-hda,id=hda,addr=0x12"),
            ("-device", "hda-output,bus=hda.0,audiodev=silence"),
        ]
        flags = ["-nodefaults", "-no-user-config", "-no-reboot"]
        return [QEMU, *flags, *(word for option in options for word in option)]

    def _forwards(self) -> Iterator[str]:
        return (f",hostfwd=tcp:127.0.0.1:{ours}-:{theirs}" for theirs, ours in self.ports.items())

    def _connect(self, name: str) -> socket.socket:
        end = time.monotonic() + 30
        while True:
            connection = socket.socket(socket.AF_UNIX)
            try:
                connection.connect(str(self.folder / name))
            except OSError:
                connection.close()
                if self._process.poll() is not None or time.monotonic() > end:
                    raise
                time.sleep(0.05)
            else:
                return connection

    def qmp(self, command: str, **arguments: Any) -> Any:
        """Run a monitor command; underscores in argument names stand for dashes."""
        return self.monitor.execute(command, {name.replace("_", "-"): value for name, value in arguments.items()})

    def logs(self) -> str:
        """The last words of QEMU and of the guest's console."""
        files = [self.folder / "qemu.log", self.folder / "console.log"]
        return "\n".join(file.read_text(errors="replace")[-3000:] for file in files if file.exists())

    def close(self) -> None:
        """End the guest and remove its files."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(10)
        for channel in self._channels:
            channel.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _slots() -> Iterator[tuple[str, str]]:
    for number, slot in enumerate(SLOTS):
        first = ",multifunction=on" if number == 0 else ""
        place = f"chassis={number + 1},slot={number + 1},addr=0x14.{number}{first}"
        yield "-device", f"pcie-root-port,id={slot},{place},mem-reserve=32M,pref64-reserve=64M"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
