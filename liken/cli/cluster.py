"""One question to the API server from a command that is not asynchronous itself."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from liken.config import Cluster
from liken.kube.client import Kube

Answer = TypeVar("Answer")


def ask(cluster: Cluster, question: Callable[[Kube], Awaitable[Answer]]) -> Answer:
    """Connect with the credentials of the options, put the question, answer; raises the errors of `model.api`."""

    async def asked() -> Answer:
        async with Kube.connect(kubeconfig=cluster.kubeconfig, context=cluster.context) as api:
            return await question(api)

    return anyio.run(asked)
