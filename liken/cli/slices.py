"""`liken slices`: exactly the objects that `liken run` would publish."""

from typing import Any

import click

from liken.cli.options import output, with_settings
from liken.cli.show import emit, remark
from liken.config import Settings, node_name
from liken.model.api import ApiError


@click.command("slices")
@output("yaml", "json")
@with_settings("hardware", "cluster")
def command(settings: Settings, output: str) -> None:
    """Print the ResourceSlices of this machine as a List that `kubectl apply` accepts.

    With a kubeconfig the Node is looked up and owns them, as it does when the daemon publishes.
    """
    from liken.cli.hardware import survey  # noqa: PLC0415  (help and completion do without)
    from liken.state.slices import NodeRef, slices  # noqa: PLC0415

    name = node_name(settings.cluster.node_name)
    uid = _node_uid(settings, name)
    with survey(settings.hardware) as seen:
        items = list(slices(seen.snapshot.offers.values(), node=NodeRef(name=name, uid=uid)))
    emit({"apiVersion": "v1", "kind": "List", "items": items}, output)


def _node_uid(settings: Settings, name: str) -> str:
    """The Node's uid; empty, with a remark, where no API server tells it."""
    if settings.cluster.kubeconfig is None:
        remark("Without --kubeconfig the Node's uid is not known: the slices are printed without an owner.")
        return ""
    from liken.cli.cluster import ask  # noqa: PLC0415
    from liken.kube.client import Kube  # noqa: PLC0415
    from liken.kube.paths import node  # noqa: PLC0415

    async def uid(api: Kube) -> str:
        found: Any = await api.get(node(name))
        return str(found["metadata"]["uid"])

    try:
        return ask(settings.cluster, uid)
    except ApiError as error:
        remark(f"The slices are printed without an owner: {error}")
        return ""
