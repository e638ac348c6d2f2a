"""Image archives of static busybox for the node: nothing is pulled, and the same input gives the same bytes."""

import hashlib
import io
import json
import pathlib
import tarfile

BUSYBOX = pathlib.Path("/bin/busybox")
APPLETS = ("sh", "ls", "cat", "sleep", "stat", "dd", "id", "head", "wc", "test", "mknod", "true", "ps", "kill")


def _add(tar: tarfile.TarFile, name: str, data: bytes = b"", *, kind: bytes = tarfile.REGTYPE, link: str = "") -> None:
    entry = tarfile.TarInfo(name)
    entry.mode, entry.type, entry.linkname, entry.size = 0o755, kind, link, len(data)
    tar.addfile(entry, io.BytesIO(data))


def _layer() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for folder in ("bin", "dev", "etc", "proc", "sys", "tmp"):
            _add(tar, folder, kind=tarfile.DIRTYPE)
        _add(tar, "bin/busybox", BUSYBOX.read_bytes())
        for applet in APPLETS:
            _add(tar, f"bin/{applet}", kind=tarfile.SYMTYPE, link="busybox")
        _add(tar, "etc/passwd", b"root:x:0:0::/:/bin/sh\nuser:x:1000:1000::/:/bin/sh\n")
    return out.getvalue()


def archive(name: str, path: pathlib.Path) -> pathlib.Path:
    """Write an archive of the image `name` (a full reference) to `path`."""
    layer = _layer()
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Cmd": ["/bin/sleep", "2147483"], "Env": ["PATH=/bin"]},
            "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(layer).hexdigest()]},
        }
    ).encode()
    config_name = hashlib.sha256(config).hexdigest() + ".json"
    manifest = [{"Config": config_name, "RepoTags": [name], "Layers": ["layer.tar"]}]
    with tarfile.open(path, "w") as tar:
        _add(tar, config_name, config)
        _add(tar, "layer.tar", layer)
        _add(tar, "manifest.json", json.dumps(manifest).encode())
    return path
