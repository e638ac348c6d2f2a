"""`liken withdraw`: remove this node's slices, as at the end of an uninstallation."""

import click

from liken.cli.options import with_settings
from liken.cli.show import remark
from liken.config import Settings, node_name


@click.command("withdraw")
@click.option("--every-node", is_flag=True, help="The slices of every node: the end of an uninstallation.")
@with_settings("cluster")
def command(settings: Settings, *, every_node: bool) -> None:
    """Remove this node's ResourceSlices from the API server.

    A daemon that still runs publishes them again within a second: stop it first.
    """
    from liken.cli.cluster import ask  # noqa: PLC0415  (help and completion do without)
    from liken.kube.client import Kube  # noqa: PLC0415
    from liken.publish.withdrawal import withdraw  # noqa: PLC0415

    name = None if every_node else node_name(settings.cluster.node_name)

    async def removed(api: Kube) -> int:
        return await withdraw(api, node_name=name)

    count = ask(settings.cluster, removed)
    where = "every node" if name is None else f"node {name}"
    remark(f"Removed {count} slices of {where}." if count != 1 else f"Removed 1 slice of {where}.")
