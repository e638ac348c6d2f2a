"""What liken needs of the API server: a version, the rights of the daemon, the features it uses.

Nothing is written: the features are found by a dry run, since a field whose gate is off is dropped silently.
"""

from collections.abc import AsyncIterator
from typing import Any, Final

from liken.cli.checks import Check, fail, ok, warn
from liken.config import Cluster, node_name
from liken.kube import paths
from liken.kube.client import Kube
from liken.kube.credentials import CredentialsError
from liken.model.api import ApiError, Json, NotFound

OLDEST: Final = (1, 34)
RIGHTS: Final = (
    ("resource.k8s.io", "resourceslices", ("get", "list", "watch", "create", "update", "patch", "delete")),
    ("resource.k8s.io", "resourceclaims", ("get",)),
    ("", "nodes", ("get",)),
    ("", "events", ("create", "patch")),
    ("liken.sh", "machines", ("get", "list", "watch", "create")),
    ("liken.sh", "machines/status", ("update", "patch")),
)
CREDENTIALS: Final = "in a pod give the DaemonSet its ServiceAccount; elsewhere give --kubeconfig (or run --standalone)"


async def cluster(settings: Cluster) -> AsyncIterator[Check]:
    """Every check of the API server, as far as it answers."""
    try:
        async with Kube.connect(kubeconfig=settings.kubeconfig, context=settings.context) as api:
            version = await _version(api)
            yield version
            if version.remedy and version.level == "fail":
                return
            async for check in _answered(api, node_name(settings.node_name)):
                yield check
    except CredentialsError as error:
        given = settings.kubeconfig is not None
        yield (fail if given else warn)("credentials", str(error), CREDENTIALS)
    except ApiError as error:
        yield fail("API server", str(error), "is it up, and does a firewall let this node reach it?")


async def _answered(api: Kube, name: str) -> AsyncIterator[Check]:
    yield await _node(api, name)
    yield await _rights(api)
    yield await _machines(api)
    for check in await _features(api, name):
        yield check


async def _version(api: Kube) -> Check:
    said = await api.version()
    digits = ["".join(filter(str.isdigit, str(said.get(part, "")))) for part in ("major", "minor")]
    text = str(said.get("gitVersion", "an unknown version"))
    if all(digits) and (int(digits[0]), int(digits[1])) < OLDEST:
        return fail("API server", f"{api.server} is {text}", "resource.k8s.io/v1 needs Kubernetes 1.34 or newer")
    return ok("API server", f"{api.server} is {text}")


async def _node(api: Kube, name: str) -> Check:
    try:
        await api.get(paths.node(name))
    except NotFound:
        return fail("node", f"there is no Node {name!r}", "give the name of `kubectl get nodes` with --node-name")
    except ApiError as error:
        return fail("node", str(error), "the daemon needs to get its Node (RBAC: nodes get)")
    return ok("node", f"Node {name!r} is there")


async def _rights(api: Kube) -> Check:
    missing = []
    for group, resource, verbs in RIGHTS:
        kind, _, subresource = resource.partition("/")
        missing += [
            f"{verb} {resource}" for verb in verbs if not await api.can_i(verb, group, kind, subresource=subresource)
        ]
    if missing:
        return fail(
            "rights", f"not allowed: {', '.join(missing)}", "apply container/deploy (its ClusterRole grants these)"
        )
    return ok("rights", "everything the daemon asks for is allowed")


async def _machines(api: Kube) -> Check:
    try:
        await api.list(paths.machines())
    except NotFound:
        return warn(
            "Machine", "machines.liken.sh is not served", "`liken crd | kubectl apply -f -`; all else works without"
        )
    except ApiError as error:
        return warn("Machine", str(error), "all else works without")
    return ok("Machine", "machines.liken.sh is served")


async def _features(api: Kube, name: str) -> list[Check]:
    probe = _probe(name)
    try:
        answer = await api.create(paths.slices(), probe, dry_run=True)
    except ApiError as error:
        return [warn("features", f"a dry run was refused: {error}", "see the line about rights")]
    device: dict[str, Any] = answer["spec"]["devices"][0]
    said = (
        (
            "DRAConsumableCapacity",
            "allowMultipleAllocations" in device,
            "shared devices (GPU, sound) go to one claim at a time",
        ),
        ("DRADeviceTaints", "taints" in device, "--taint-gone has no effect"),
    )
    return [
        ok(f"feature {gate}", "on")
        if on
        else warn(f"feature {gate}", f"off: {without}", f"on by default from 1.36; else --feature-gates={gate}=true")
        for gate, on, without in said
    ]


def _probe(name: str) -> Json:
    device = {
        "name": "probe",
        "allowMultipleAllocations": True,
        "taints": [{"key": "liken.sh/probe", "value": "dry-run", "effect": "NoSchedule"}],
    }
    spec = {
        "driver": "liken.sh",
        "nodeName": name,
        "pool": {"name": f"{name}-probe", "generation": 1, "resourceSliceCount": 1},
        "devices": [device],
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{name}-liken.sh-probe"},
        "spec": spec,
    }
