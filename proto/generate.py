"""Generates `liken/wire` from the `.proto` files beside this script; with `--check` says whether it is up to date.

`python proto/generate.py` writes the package anew; with `--check` it generates into a temporary folder, shows what
differs and then exits with 1. Needs no network: protoc comes with grpcio-tools, the plugin with
betterproto2-compiler, whose version must equal the runtime's in x.y. The output is reproducible.
"""

# ruff: noqa: INP001 - a script beside its inputs, not a package

import argparse
import difflib
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
WIRE = HERE.parent / "liken" / "wire"
# Without these options the output imports grpcio and has no server classes.
OPTIONS = "client_generation=async,server_generation=async"


def generate(target: pathlib.Path) -> None:
    """Fill the empty folder `target` with the package; raises CalledProcessError with protoc's words on stderr."""
    scripts = sysconfig.get_path("scripts")
    sources = sorted(path.name for path in HERE.glob("*.proto"))
    subprocess.run(  # noqa: S603 - our own files and interpreter
        [
            sys.executable,
            "-m",
            "grpc_tools.protoc",
            f"-I{HERE}",
            f"--python_betterproto2_out={target}",
            f"--python_betterproto2_opt={OPTIONS}",
            *sources,
        ],
        check=True,
        cwd=HERE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PATH": f"{scripts}{os.pathsep}{os.environ.get('PATH', '')}"},  # the plugin calls ruff
    )


def contents(folder: pathlib.Path) -> dict[str, str]:
    """Path below `folder` -> text, of the files that count."""
    files = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {str(path.relative_to(folder)): path.read_text(encoding="utf-8") for path in files}


def differences(old: dict[str, str], new: dict[str, str]) -> list[str]:
    """Lines of a unified diff, none when both are equal."""
    lines: list[str] = []
    for name in sorted(old.keys() | new.keys()):
        before, after = (side.get(name, "").splitlines() for side in (old, new))
        lines += difflib.unified_diff(before, after, f"liken/wire/{name}", f"generated/{name}", lineterm="")
        if (name in old) != (name in new) and not (before or after):
            lines.append(f"liken/wire/{name}: {'is not generated any more' if name in old else 'is missing'}")
    return lines


def main() -> int:
    """Write or check; the exit code."""
    parser = argparse.ArgumentParser(description="Generate liken/wire from proto/.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 when liken/wire is stale")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        target = pathlib.Path(folder)
        try:
            generate(target)
        except subprocess.CalledProcessError as error:
            sys.stderr.write(f"protoc failed:\n{error.stderr}")
            return 2
        if not arguments.check:
            shutil.rmtree(WIRE, ignore_errors=True)
            shutil.copytree(target, WIRE)
            return 0
        found = differences(contents(WIRE), contents(target))
    sys.stdout.writelines(f"{line}\n" for line in found)
    if found:
        sys.stdout.write("liken/wire is stale: run `make proto` and commit the result\n")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
