"""Disk images for USB sticks, made on the host."""

import subprocess
from pathlib import Path

SIZE = 8 << 20


def stick(folder: Path) -> Path:
    """An ext4 file system without a partition table, as the raw image of a stick."""
    image = folder / "stick"
    with image.open("wb") as file:
        file.truncate(SIZE)
    subprocess.run(["/usr/sbin/mkfs.ext4", "-q", "-F", str(image)], check=True)
    return image
