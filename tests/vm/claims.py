"""Claims as the scheduler leaves them: written to the API server with an allocation for this node."""

import uuid

from liken.wire.k8s.io.kubelet.pkg.apis.dra.v1 import Claim
from tests.vm.node import NAME
from tests.vm.published import request

NAMESPACE = "default"
CLAIMS = f"/apis/resource.k8s.io/v1/namespaces/{NAMESPACE}/resourceclaims"


def allocated(server: str, device: str) -> Claim:
    """A new claim that holds one device of the node's pool, in the kubelet's words."""
    name = f"claim-{uuid.uuid4().hex[:8]}"
    metadata = {"name": name, "namespace": NAMESPACE}
    requests = [{"name": "device", "exactly": {"deviceClassName": "any"}}]
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": metadata,
        "spec": {"devices": {"requests": requests}},
    }
    created = request(server, "POST", CLAIMS, claim)
    result = {"request": "device", "driver": "liken.sh", "pool": NAME, "device": device}
    created["status"] = {"allocation": {"devices": {"results": [result]}}}
    stored = request(server, "PUT", f"{CLAIMS}/{name}/status", created)
    return Claim(namespace=NAMESPACE, name=name, uid=stored["metadata"]["uid"])
