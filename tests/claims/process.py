"""A process that serves claims on a folder until it is killed: `python -m tests.claims.process FOLDER`.

Its API server knows every claim `gpuN` (a share of the render node) and takes 20 ms to say so.
"""

import sys
from pathlib import Path

import anyio

from liken.claims.service import Claims
from liken.model.api import Json
from tests.unit.fakes_claims import GPU, FakeApi, Node, claim_object, ref, result


class EveryClaim(FakeApi):
    async def get_claim(self, namespace: str, name: str) -> Json:
        await anyio.sleep(0.02)
        claim = ref(f"uid-{name}", name, namespace)
        return claim_object(claim, [result(GPU, shareID=name)])


async def serve(folder: Path) -> None:
    machine = Node(folder)
    claims = Claims(
        api=EveryClaim(),
        hardware=machine.hardware,
        store=machine.store,
        settings=machine.settings,
        metrics=machine.metrics,
    )
    await claims.run()


if __name__ == "__main__":
    anyio.run(serve, Path(sys.argv[1]), backend_options={"use_uvloop": True})
