"""A test kubelet: gRPC by grpcio, messages by Google's protobuf from the contract's numbers; nothing of it is ours.

Its calls block; run them in a worker thread (`await kubelet.prepare(...)` does).
"""

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import anyio.to_thread
import grpc

from liken.claims.ports import ClaimRef
from tests.unit.wire_contract import message

DRA = {
    "v1.DRAPlugin": "k8s.io.kubelet.pkg.apis.dra.v1",
    "v1beta1.DRAPlugin": "k8s.io.kubelet.pkg.apis.dra.v1beta1",
}
HEALTH = {"v1.DRAResourceHealth": "v1", "v1alpha1.DRAResourceHealth": "v1alpha1"}


class Kubelet:
    """Dials one plugin socket; close it at the end."""

    def __init__(self, socket: Path, version: str = "v1.DRAPlugin") -> None:
        self.channel = grpc.insecure_channel(f"unix:{socket}")
        self._package = DRA[version]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.channel.close()

    def call(self, verb: str, refs: Iterable[ClaimRef], within_s: float = 20.0) -> dict[str, Any]:
        """`Prepare` or `Unprepare`; the answers by uid. Raises grpc.RpcError."""
        request = message(self._package, f"Node{verb}ResourcesRequest")()
        for ref in refs:
            request.claims.add(namespace=ref.namespace, name=ref.name, uid=ref.uid)
        response = self.channel.unary_unary(
            f"/{self._package}.DRAPlugin/Node{verb}Resources",
            request_serializer=lambda sent: sent.SerializeToString(),
            response_deserializer=message(self._package, f"Node{verb}ResourcesResponse").FromString,
        )(request, timeout=within_s)
        return dict(response.claims)

    async def prepare(self, *refs: ClaimRef, within_s: float = 20.0) -> dict[str, Any]:
        return await anyio.to_thread.run_sync(lambda: self.call("Prepare", refs, within_s))

    async def unprepare(self, *refs: ClaimRef, within_s: float = 20.0) -> dict[str, Any]:
        return await anyio.to_thread.run_sync(lambda: self.call("Unprepare", refs, within_s))

    @contextmanager
    def health(self, version: str = "v1.DRAResourceHealth") -> Iterator["HealthStream"]:
        """The stream of device health, read by a thread of its own."""
        package = HEALTH[version]
        call = self.channel.unary_stream(
            f"/{package}.DRAResourceHealth/NodeWatchResources",
            request_serializer=lambda sent: sent.SerializeToString(),
            response_deserializer=message(package, "NodeWatchResourcesResponse").FromString,
        )(message(package, "NodeWatchResourcesRequest")())
        stream = HealthStream(call)
        try:
            yield stream
        finally:
            call.cancel()
            stream.reader.join(10)


class HealthStream:
    """What arrived so far; `code` once the stream has ended."""

    def __init__(self, call: Any) -> None:
        self.messages: list[dict[str, tuple[int, str]]] = []
        self.raw: list[Any] = []
        self.code: grpc.StatusCode | None = None
        self._call = call
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        try:
            for said in self._call:
                self.raw.append(said)
                self.messages.append({one.device.device_name: (one.health, one.message) for one in said.devices})
        except grpc.RpcError:
            pass
        self.code = self._call.code()

    async def until(self, count: int) -> dict[str, tuple[int, str]]:
        """The message number `count`, as device -> (health, words)."""
        with anyio.fail_after(15):
            while len(self.messages) < count:
                await anyio.sleep(0.01)
        return self.messages[count - 1]

    async def ended(self) -> grpc.StatusCode | None:
        with anyio.fail_after(15):
            while self.code is None:
                await anyio.sleep(0.01)
        return self.code


async def registered(registration: Path, refusal: str = "") -> Any:
    """Dial a registration socket as the kubelet's plugin watcher does; what the plugin said of itself."""

    def dial() -> Any:
        with grpc.insecure_channel(f"unix:{registration}") as channel:

            def call(name: str, request: Any, answer: str) -> Any:
                return channel.unary_unary(
                    f"/pluginregistration.Registration/{name}",
                    request_serializer=lambda sent: sent.SerializeToString(),
                    response_deserializer=message("pluginregistration", answer).FromString,
                )(request, timeout=10)

            info = call("GetInfo", message("pluginregistration", "InfoRequest")(), "PluginInfo")
            status = message("pluginregistration", "RegistrationStatus")(plugin_registered=not refusal, error=refusal)
            call("NotifyRegistrationStatus", status, "RegistrationStatusResponse")
            return info

    return await anyio.to_thread.run_sync(dial)
