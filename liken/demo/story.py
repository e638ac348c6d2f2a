"""What happens in the demo, step by step, and what must be seen of it.

In: the bench that moves the hardware, the server the daemon writes to, a kubelet. Out: the timeline; each step ends
when the slice, the CDI file or the Machine says what it should, or counts as failed.
"""

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from liken.demo.apiserver import ApiServer
from liken.demo.apiserver_verbs import Options, Target
from liken.demo.bench import Bench
from liken.demo.hardware import GPU, GPU_DEVICES, STICK, STICK_DEVICE, TV_DEVICE, TV_MODULE, Stick, text
from liken.demo.kubelet import Kubelet
from liken.demo.timeline import Timeline
from liken.metrics import Metrics
from liken.model.api import Json
from liken.state.names import DRIVER_NAME
from liken.wire import v1 as health

NODE = "demo-node"
NAMESPACE = "home"
CLAIM = "zigbee"
FLOOD = 3000


@dataclass(slots=True, kw_only=True)
class Story:
    """One run. `said` hears of the kubelet's health messages."""

    bench: Bench
    server: ApiServer
    timeline: Timeline
    metrics: Metrics
    registry: Path
    cdi: Path
    pause_s: float = 0.3
    uid: str = ""
    here: Stick | None = None
    bound: bool = False
    _number: int = 4
    said: list[health.DeviceHealth] = field(default_factory=list)

    async def told(self) -> None:
        """Everything, in order."""
        for chapter in (self.start, self.stick, self.graphics, self.claim, self.machine, self.flood):
            await chapter()
            await anyio.sleep(self.pause_s)

    # --- what the server and the files say ----------------------------------------------------------------------------
    def published(self) -> set[str]:
        """Names of the devices in this node's slices."""
        items = [item for item in self.server.items("resourceslices") if item["spec"].get("nodeName") == NODE]
        return {device["name"] for item in items for device in item["spec"].get("devices") or ()}

    def nodes(self) -> list[str]:
        """The device nodes in the claim's CDI file; none when there is no file."""
        try:
            document = json.loads((self.cdi / f"liken.sh-{self.uid}.json").read_bytes())
        except (OSError, ValueError):
            return []
        devices = document.get("devices") or ()
        return [node["path"] for device in devices for node in device["containerEdits"].get("deviceNodes") or ()]

    def condition(self, kind: str) -> Json:
        """A condition of the Machine."""
        found = [item for item in self.server.items("machines") if item["metadata"]["name"] == NODE]
        conditions = found[0].get("status", {}).get("conditions") or () if found else ()
        return next((condition for condition in conditions if condition["type"] == kind), {})

    # --- chapters -----------------------------------------------------------------------------------------------------
    async def start(self) -> None:
        """The first slice."""
        self.timeline.title("The daemon starts: one slice with what this machine offers")
        await self._seen(f"the slice of node {NODE}", lambda: bool(self.published()), since=anyio.current_time())
        self.timeline.note("offered: " + ", ".join(sorted(self.published())))

    async def stick(self) -> None:
        """In, out, and in again."""
        await self.plug("Plug a Zigbee stick into port 2-1")
        await anyio.sleep(self.pause_s)
        await self.unplug()
        await anyio.sleep(self.pause_s)
        await self.plug("Plug it in again: another device number, the same name")

    async def plug(self, title: str) -> None:
        """The stick goes in, enumerated anew."""
        self.timeline.title(title)
        since = self._plugged(tty=0)
        await self._seen(f"{STICK_DEVICE} in the slice", lambda: STICK_DEVICE in self.published(), since=since)

    async def unplug(self) -> None:
        """The stick comes out."""
        self.timeline.title("Unplug the stick")
        since = self.bench.unplug(STICK)
        self.here = None
        await self._seen(f"{STICK_DEVICE} out of the slice", lambda: STICK_DEVICE not in self.published(), since=since)

    def _plugged(self, *, tty: int) -> float:
        self._number += 1
        self.here = Stick(self._number, tty)
        return self.bench.plug(self.here.recording)

    async def plug_or_unplug(self) -> None:
        """For the menu."""
        await (self.plug("Plug the Zigbee stick into port 2-1") if self.here is None else self.unplug())

    async def bind_or_unbind(self) -> None:
        """For the menu."""
        await (self.unbind() if self.bound else self.graphics())

    async def claimed(self) -> None:
        """For the menu: a claim needs the stick."""
        await self._with_stick(self.claim)

    async def flooded(self) -> None:
        """For the menu: a flood takes the stick away."""
        await self._with_stick(self.flood)

    async def _with_stick(self, chapter: Callable[[], Awaitable[None]]) -> None:
        if self.here is None:
            self.timeline.note("the stick is not plugged in: choose 1 first")
        else:
            await chapter()

    async def graphics(self) -> None:
        """One GPU, three devices."""
        self.timeline.title("Bind i915 to the GPU: one card, three devices")
        since = self.bench.bind(GPU, "i915", text("i915"))
        self.bound = True
        await self._seen(", ".join(GPU_DEVICES), lambda: set(GPU_DEVICES) <= self.published(), since=since)

    async def unbind(self) -> None:
        """None again."""
        self.timeline.title("Unbind i915 from the GPU")
        since = self.bench.unbind(GPU)
        self.bound = False
        await self._seen("the GPU out of the slice", lambda: not set(GPU_DEVICES) & self.published(), since=since)

    async def claim(self) -> None:
        """The life of a claim, as the kubelet drives it."""
        self.uid = allocated(self.server, STICK_DEVICE)
        async with Kubelet.meeting(self.registry) as kubelet, anyio.create_task_group() as tasks:
            self.timeline.title("A pod claims the stick: the kubelet registers the plugin and prepares the claim")
            self.timeline.note(f"registered {kubelet.info.name}: {', '.join(kubelet.info.supported_versions)}")
            tasks.start_soon(kubelet.follow_health, self.said.append)
            since = anyio.current_time()
            devices = await kubelet.prepare(namespace=NAMESPACE, name=CLAIM, uid=self.uid)
            self.timeline.note(
                f"prepared in {(anyio.current_time() - since) * 1000:.1f} ms: {devices[0].cdi_device_ids}"
            )
            await self._delivers(since=since)

            self.timeline.title("Replug under the claim: the file follows, the pod's status says why it must restart")
            since = self.bench.unplug(STICK)
            await self._seen("CDI file: a path that cannot exist and names the device", self._gone, since=since)
            await self._unhealthy("unplugged", since=since)
            since = self._plugged(tty=1)
            await self._delivers(since=since)
            await self._unhealthy("replugged", since=since)
            await self._seen(f"{STICK_DEVICE} in the slice", lambda: STICK_DEVICE in self.published(), since=since)

            self.timeline.title("The pod ends: the kubelet unprepares the claim")
            since = anyio.current_time()
            await kubelet.unprepare(namespace=NAMESPACE, name=CLAIM, uid=self.uid)
            await self._seen("the CDI file is gone", lambda: not self.nodes(), since=since)
            tasks.cancel_scope.cancel()
        self.server.remove("resourceclaims", CLAIM, NAMESPACE)

    async def machine(self) -> None:
        """A driver is declared."""
        self.timeline.title(
            f"Declare {TV_MODULE} in the Machine (the load is simulated here: no kernel takes a module)"
        )
        since = anyio.current_time()
        _declare(self.server, [TV_MODULE])
        await self._seen(f"{TV_DEVICE} in the slice", lambda: TV_DEVICE in self.published(), since=since)
        await self._seen("condition SpecConverged is True", self._converged, since=since)
        said = self.condition("SpecConverged")
        self.timeline.note(f"its words: {said.get('reason', '')}. {said.get('message', '')}")

    async def flood(self) -> None:
        """Events are lost, the view is not."""
        self.timeline.title(f"Flood the socket with {FLOOD:,} events, and pull the stick in the middle")
        before = self._overflows()
        since = self.bench.unplug_in_a_flood(STICK, FLOOD)
        self.here = None
        await self._seen(f"{STICK_DEVICE} out of the slice", lambda: STICK_DEVICE not in self.published(), since=since)
        await self._seen(
            "an overflow was noticed and everything compared", lambda: self._overflows() > before, since=since
        )

    # --- parts of chapters --------------------------------------------------------------------------------------------
    async def _seen(self, what: str, true: Callable[[], bool], *, since: float) -> bool:
        return await self.timeline.until(what, true, since=since)

    async def _delivers(self, *, since: float) -> None:
        nodes = self.here.nodes if self.here else ()
        await self._seen(f"CDI file: {' '.join(nodes)}", lambda: sorted(self.nodes()) == sorted(nodes), since=since)

    def _gone(self) -> bool:
        return any(STICK_DEVICE in path for path in self.nodes())

    async def _unhealthy(self, word: str, *, since: float) -> None:
        def heard() -> bool:
            newest = self.said[-1] if self.said else None
            return newest is not None and newest.health == health.HealthStatus.UNHEALTHY and word in newest.message

        await self._seen("the kubelet hears that it is Unhealthy", heard, since=since)
        self.timeline.note(f"its words: {self.said[-1].message if self.said else 'none'}")

    def _converged(self) -> bool:
        return self.condition("SpecConverged").get("status") == "True"

    def _overflows(self) -> float:
        return sum(
            sample.value
            for metric in self.metrics.resyncs.collect()
            for sample in metric.samples
            if sample.name.endswith("_total") and sample.labels.get("cause") == "overflow"
        )


def allocated(server: ApiServer, device: str) -> str:
    """Create a claim that was allocated one device, as a pod and the scheduler leave it; returns its uid."""
    request = {"name": "adapter", "exactly": {"deviceClassName": "zigbee-adapter"}}
    claim: Json = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": CLAIM, "namespace": NAMESPACE},
        "spec": {"devices": {"requests": [request]}},
    }
    created = server.put(claim)
    result = {"request": "adapter", "driver": DRIVER_NAME, "pool": NODE, "device": device}
    kind = next(kind for kind in server.verbs.types() if kind.key.plural == "resourceclaims")
    status = Target(kind=kind, namespace=NAMESPACE, name=CLAIM, subresource="status")
    server.verbs.replace(status, {**created, "status": {"allocation": {"devices": {"results": [result]}}}}, Options())
    return str(created["metadata"]["uid"])


def _declare(server: ApiServer, modules: Sequence[str]) -> None:
    """Put modules into the Machine's spec, as a person's `kubectl apply` does; the daemon has created the Machine."""
    there = [item for item in server.items("machines") if item["metadata"]["name"] == NODE]
    machine = there[0] if there else {"apiVersion": "liken.sh/v1alpha1", "kind": "Machine", "metadata": {"name": NODE}}
    server.put({**machine, "spec": {"modules": list(modules)}})
