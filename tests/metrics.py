"""What a running daemon's /metrics says."""

import urllib.request


def told(url: str, name: str) -> float:
    """The sum of a metric's samples."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        text = answer.read().decode()
    samples = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    return sum(float(value) for key, value in samples if key.split("{")[0] == name)
