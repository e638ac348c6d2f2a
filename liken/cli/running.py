"""What the daemon on this machine says, asked over its loopback status page; nothing when none answers at once."""

import json
import urllib.error
import urllib.request
from typing import Any

ASK_S = 0.5
LIMIT = 16 << 20


def held_back(listen: str) -> frozenset[str]:
    """Devices that the daemon leaves out of the slices although they are offered: they flap, or the server refused."""
    try:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://{listen}/status.json", timeout=ASK_S) as answer:
            status: Any = json.loads(answer.read(LIMIT))
        offers = [offer for device in status["devices"] for offer in device["offers"]]
        return frozenset(str(offer["name"]) for offer in offers if offer["heldBack"])
    except (OSError, ValueError, KeyError, TypeError, urllib.error.URLError):
        return frozenset()
