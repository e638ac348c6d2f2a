"""A small kubelet for the demo: finds the plugin's socket, registers it, prepares and unprepares, follows health.

It speaks the real protocol over the daemon's real sockets and keeps nothing else; containers are not its business.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from grpclib.client import Channel

from liken.wire import pluginregistration as registration
from liken.wire import v1 as health
from liken.wire.k8s.io.kubelet.pkg.apis.dra import v1 as dra

LOOK_AGAIN_S = 0.02
CALL_S = 10.0


class KubeletError(Exception):
    """The plugin answered with an error; the message is the plugin's own."""


class Kubelet:
    """Knows one plugin, found in `registry`; make it with `Kubelet.meeting`."""

    def __init__(self, channel: Channel, info: registration.PluginInfo) -> None:
        self.info = info
        self._channel = channel
        self._plugin = dra.DraPluginStub(channel)
        self._health = health.DraResourceHealthStub(channel)

    @classmethod
    @asynccontextmanager
    async def meeting(cls, registry: Path) -> AsyncIterator["Kubelet"]:
        """Wait for a plugin's registration socket, ask who it is, tell it that it is registered."""
        while not (found := _sockets(registry)):  # noqa: ASYNC110  (the kubelet's inotify is not worth a demo's lines)
            await anyio.sleep(LOOK_AGAIN_S)
        greeting = Channel(path=str(found[0]))
        try:
            stub = registration.RegistrationStub(greeting)
            info = await stub.get_info(registration.InfoRequest(), timeout=CALL_S)
            registered = registration.RegistrationStatus(plugin_registered=True)
            await stub.notify_registration_status(registered, timeout=CALL_S)
        finally:
            greeting.close()
        channel = Channel(path=info.endpoint)
        try:
            yield cls(channel, info)
        finally:
            channel.close()

    async def prepare(self, *, namespace: str, name: str, uid: str) -> list[dra.Device]:
        """Prepare one claim; the devices with their CDI ids. Raises KubeletError with the plugin's words."""
        request = dra.NodePrepareResourcesRequest(claims=[dra.Claim(namespace=namespace, name=name, uid=uid)])
        answer = (await self._plugin.node_prepare_resources(request, timeout=CALL_S)).claims[uid]
        if answer.error:
            raise KubeletError(answer.error)
        return answer.devices

    async def unprepare(self, *, namespace: str, name: str, uid: str) -> None:
        """Unprepare one claim. Raises KubeletError with the plugin's words."""
        request = dra.NodeUnprepareResourcesRequest(claims=[dra.Claim(namespace=namespace, name=name, uid=uid)])
        answer = (await self._plugin.node_unprepare_resources(request, timeout=CALL_S)).claims[uid]
        if answer.error:
            raise KubeletError(answer.error)

    async def follow_health(self, heard: Callable[[health.DeviceHealth], None]) -> None:
        """Tell `heard` of every device's health, at first and at each change; runs until cancelled."""
        async for answer in self._health.node_watch_resources(health.NodeWatchResourcesRequest()):
            for device in answer.devices:
                heard(device)


def _sockets(registry: Path) -> list[Path]:
    return sorted(registry.glob("*.sock"))
