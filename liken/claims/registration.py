"""Makes the kubelet know us: the registration socket, what it says, and its return when somebody removed it.

In: the endpoints of the plugin and of the registration. Out: both served, the plugin first. A kubelet dials what
appears in its registry folder, and drops a driver's slices 30 s after the socket went, though the driver lives; so a
socket that is missing is made anew within a second, also after the whole folder was removed.
"""

from collections.abc import Sequence
from pathlib import Path

import anyio
import structlog

from liken.claims.server import HIDDEN, Endpoint, SocketError, sweep
from liken.claims.watch import Watch
from liken.state.names import DRIVER_NAME
from liken.wire import pluginregistration as wire

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

# The kubelet takes the first DRA version that it knows, so the newest stands first.
VERSIONS = ("v1.DRAPlugin", "v1beta1.DRAPlugin", "v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")
_QUIET_S = 0.3
_AGAIN_S = 2.0


def plugin_path(plugins: Path, pod_uid: str | None) -> Path:
    """The socket of the plugin itself; with a pod's uid two instances can stand side by side."""
    return plugins / DRIVER_NAME / (f"dra-{pod_uid}.sock" if pod_uid else "dra.sock")


def registration_path(registry: Path, pod_uid: str | None) -> Path:
    """The socket in the kubelet's registry folder."""
    return registry / (f"{DRIVER_NAME}-{pod_uid}-reg.sock" if pod_uid else f"{DRIVER_NAME}-reg.sock")


def clear_stale(plugins: Path, registry: Path) -> None:
    """Remove the sockets of dead instances of liken; those of living ones and of other drivers stay."""
    sweep(registry, [f"{DRIVER_NAME}-reg.sock", f"{DRIVER_NAME}-*-reg.sock", f"{HIDDEN}[0-9]"])
    sweep(plugins / DRIVER_NAME, ["dra.sock", "dra-*.sock", f"{HIDDEN}[0-9]"])


class Registration(wire.RegistrationBase):
    """Answers the kubelet's plugin watcher."""

    def __init__(self, endpoint: Path) -> None:
        self._endpoint = endpoint
        self.registered: bool | None = None

    async def get_info(self, message: wire.InfoRequest) -> wire.PluginInfo:  # noqa: ARG002 - an empty message
        """Who we are."""
        return wire.PluginInfo(
            type="DRAPlugin", name=DRIVER_NAME, endpoint=str(self._endpoint), supported_versions=list(VERSIONS)
        )

    async def notify_registration_status(self, message: wire.RegistrationStatus) -> wire.RegistrationStatusResponse:
        """Whether the kubelet takes us; it asks again by itself when it does not."""
        self.registered = message.plugin_registered
        if message.plugin_registered:
            log.info("claims.registered", endpoint=str(self._endpoint))
        else:
            log.error("claims.registration_refused", error=message.error[:500])
        return wire.RegistrationStatusResponse()


async def kept_open(endpoints: Sequence[Endpoint]) -> None:
    """Open every endpoint again whose path was removed; runs until cancelled."""
    with Watch({endpoint.path.parent for endpoint in endpoints}) as watch:
        while True:
            watch.arm()
            missing = [endpoint for endpoint in endpoints if not endpoint.present]
            if not missing:
                await watch.change()
                continue
            await anyio.sleep(_QUIET_S)  # whoever removes a folder is through with it
            for endpoint in missing:
                if not await _opened(endpoint):
                    await anyio.sleep(_AGAIN_S)
                    break


async def _opened(endpoint: Endpoint) -> bool:
    try:
        await endpoint.open()
    except SocketError as error:
        log.warning("claims.socket_not_back", error=str(error))
        return False
    log.info("claims.socket_back", path=str(endpoint.path))
    return True
