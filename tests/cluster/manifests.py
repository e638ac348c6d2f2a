"""Manifests of the tests: pods and claims as a person writes them, and the guide's own, word for word."""

import json
from typing import Any

Json = dict[str, Any]

GPU_RENDER = """
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata:
  name: gpu-render
spec:
  selectors:
    - cel:
        expression: |
          device.driver == "liken.sh" &&
          has(device.attributes["liken.sh"].renderNode)
"""
GPU_DISPLAY = """
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata:
  name: gpu-display
spec:
  selectors:
    - cel:
        expression: |
          device.driver == "liken.sh" &&
          has(device.attributes["liken.sh"].displayNode)
"""
ZIGBEE_ADAPTER = """
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata:
  name: zigbee-adapter
spec:
  selectors:
    - cel:
        expression: |
          device.driver == "liken.sh" &&
          device.attributes["liken.sh"].vendor == "10c4" &&
          device.attributes["liken.sh"].product == "ea60"
"""
TRANSCODER_GPU = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata:
  name: transcoder-gpu
  namespace: media
spec:
  devices:
    requests:
      - name: gpu
        exactly:
          deviceClassName: gpu-render
"""
PLAYER_GPU = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata:
  name: player-gpu
  namespace: media
spec:
  devices:
    requests:
      - name: render
        exactly:
          deviceClassName: gpu-render
      - name: display
        exactly:
          deviceClassName: gpu-display
"""
ZIGBEE_TEMPLATE = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata:
  name: zigbee
  namespace: home
spec:
  spec:
    devices:
      requests:
        - name: adapter
          exactly:
            deviceClassName: zigbee-adapter
"""
CLASSES = f"{GPU_RENDER}---{GPU_DISPLAY}---{ZIGBEE_ADAPTER}"
GUIDE = (GPU_RENDER, GPU_DISPLAY, ZIGBEE_ADAPTER, TRANSCODER_GPU, PLAYER_GPU, ZIGBEE_TEMPLATE)


def claim(name: str, device_class: str, namespace: str = "default", **more: Any) -> str:
    """A claim of one device of a class."""
    request = {"name": "device", "exactly": {"deviceClassName": device_class}}
    return _claim(name, namespace, {"requests": [request], **more})


def _claim(name: str, namespace: str, devices: Json) -> str:
    return json.dumps(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"devices": devices},
        }
    )


def pod(name: str, namespace: str = "default", *, claim: str = "", template: str = "", **container: Any) -> str:
    """A pod of busybox with one claim, by name or from a template."""
    body: Json = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": pod_spec(claim=claim, template=template, **container),
    }
    return json.dumps(body)


def pod_spec(*, claim: str = "", template: str = "", entry: str = "device", **container: Any) -> Json:
    """The spec of such a pod."""
    source = {"resourceClaimName": claim} if claim else {"resourceClaimTemplateName": template}
    return {
        "hostNetwork": True,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1,
        "resourceClaims": [{"name": entry, **source}] if claim or template else [],
        "containers": [
            {
                "name": "main",
                "image": "docker.io/test/busybox:1",
                "imagePullPolicy": "Never",
                "command": ["sh", "-c", "trap 'exit 0' TERM; while true; do sleep 1; done"],
                "resources": {"claims": [{"name": entry}] if claim or template else []},
                **container,
            }
        ],
    }


def deployment(name: str, namespace: str, spec: Json, *, replicas: int = 1, strategy: str = "Recreate") -> str:
    """A deployment of such pods."""
    labels = {"app": name}
    return json.dumps(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "replicas": replicas,
                "strategy": {"type": strategy},
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": spec},
            },
        }
    )
