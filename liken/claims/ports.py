"""What claims need from the rest of the daemon, and the settings: small protocols that the composition root fulfils.

`api.get_claim` raises the errors of `liken.model.api`; `hardware` is the mirror of the kernel; `store` hands out its
snapshots. Times are seconds, paths are as the kubelet and the container runtime see them.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from liken.model.api import Json
from liken.model.hardware import DeviceKey
from liken.model.offers import DeviceName, Offer, Snapshot


class ClaimApi(Protocol):
    """Reads claims from the API server."""

    async def get_claim(self, namespace: str, name: str) -> Json:
        """The ResourceClaim as the server has it; raises ApiError."""


class Hardware(Protocol):
    """The kernel's devices, asked out of turn."""

    async def refresh(self, keys: Collection[DeviceKey]) -> Snapshot:
        """Read just these entries anew and return the newest snapshot."""

    async def reprobe(self, key: DeviceKey) -> str | None:
        """Ask the kernel to bind a driver to a USB interface; what went wrong in words, None when nothing did."""


class Store(Protocol):
    """The snapshots of the machine."""

    @property
    def snapshot(self) -> Snapshot:
        """The newest."""

    async def settled(self, after: int) -> Snapshot:
        """The newest, as soon as its revision is above `after`."""

    def set_held(self, held: Mapping[DeviceName, Offer]) -> object:
        """Which devices prepared claims hold, as they were when last whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRef:
    """A claim as the kubelet names it."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimSettings:
    """Where things are and how long to wait.

    The kubelet gives a call 45 s, so everything within one prepare ends after `call_s`. `boot_id` tells one boot from
    the next; without `pod_uid` the sockets have their plain names and no second instance may run. `stop_s` is how
    long a stop waits for calls at work.
    """

    node_name: str
    cdi_dir: Path = Path("/var/run/cdi")
    plugins_dir: Path = Path("/var/lib/kubelet/plugins")
    registry_dir: Path = Path("/var/lib/kubelet/plugins_registry")
    pod_uid: str | None = None
    dev: Path = Path("/dev")
    boot_id: str = ""
    call_s: float = 42.0
    inventory_s: float = 10.0
    api_s: float = 30.0
    api_try_s: float = 10.0
    hardware_s: float = 8.0
    lock_s: float = 20.0
    stop_s: float = 20.0
    lease_s: float = 30.0
    repeat_s: float = 10.0
