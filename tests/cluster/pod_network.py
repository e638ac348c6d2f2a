"""The test node's CNI plugin: a pod gets an address on a bridge of the private network, and nothing beyond it.

Called by the runtime with `CNI_COMMAND`, the pod's namespace in `CNI_NETNS`; answers with JSON on standard output. It
is called once more under the name `loopback`, as the runtime wants a plugin of that name.
"""

import json
import os
import pathlib
import subprocess
import sys
import zlib

BRIDGE = "liken0"
POD_GATEWAY = "10.98.0.1"


def ip(*command: str, check: bool = True) -> None:
    """Call `ip`."""
    subprocess.run(["ip", *command], check=check, capture_output=True)


def add(container: str, namespace: pathlib.Path, interface: str) -> dict[str, object]:
    """Give the pod its interface; the answer of the CNI specification."""
    ip("link", "add", BRIDGE, "type", "bridge", check=False)  # the first pod's
    ip("addr", "add", f"{POD_GATEWAY}/16", "dev", BRIDGE, check=False)
    ip("link", "set", BRIDGE, "up")
    number = zlib.crc32(container.encode())
    address = f"10.98.{1 + number % 250}.{2 + number // 250 % 250}"
    outside = f"lk{number:08x}"
    ip("link", "add", outside, "type", "veth", "peer", "name", interface, "netns", namespace.name)
    ip("link", "set", outside, "master", BRIDGE, "up")
    for inside in (
        ("addr", "add", f"{address}/16", "dev", interface),
        ("link", "set", interface, "up"),
        ("route", "add", "default", "via", POD_GATEWAY),
    ):
        ip("-n", namespace.name, *inside)
    return {
        "cniVersion": "1.0.0",
        "interfaces": [{"name": interface, "sandbox": str(namespace)}],
        "ips": [{"address": f"{address}/16", "gateway": POD_GATEWAY, "interface": 0}],
    }


def main() -> None:
    """Do what the runtime asks."""
    kind = json.load(sys.stdin).get("type")
    match os.environ["CNI_COMMAND"]:
        case "ADD" if kind == "loopback":
            ip("-n", pathlib.Path(os.environ["CNI_NETNS"]).name, "link", "set", "lo", "up")
            json.dump({"cniVersion": "1.0.0", "interfaces": [], "ips": []}, sys.stdout)
        case "ADD":
            environment = os.environ
            container, interface = environment["CNI_CONTAINERID"], environment["CNI_IFNAME"]
            json.dump(add(container, pathlib.Path(environment["CNI_NETNS"]), interface), sys.stdout)
        case "VERSION":
            json.dump({"cniVersion": "1.0.0", "supportedVersions": ["0.4.0", "1.0.0"]}, sys.stdout)
        case _:  # the interface goes with its namespace
            sys.stdout.write("{}")


if __name__ == "__main__":
    main()
