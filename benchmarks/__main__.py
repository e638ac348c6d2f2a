"""Run the benchmarks and print their table."""

import argparse
import importlib
import json
import os
import pathlib
import platform
import subprocess
import sys

from benchmarks.rows import IDLE_S

MODULES = ("decisions", "coldplug", "intake", "daemon", "claims")
PAGE = pathlib.Path(__file__).parents[1] / "docs" / "explanation" / "performance.md"
BEGIN, END = "<!-- table: python -m benchmarks --write -->", "<!-- end of the table -->"


def measured(name: str) -> list[list[object]]:
    """The rows of one module, run in a process of its own; a failure becomes a row that says so."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--only", name],
        capture_output=True,
        text=True,
        check=False,
        timeout=900 + IDLE_S,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("[")]
    rows = [json.loads(line) for line in lines]
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no output"])[-1]
        rows.append([name, f"did not run: {reason}", "", False])
    return rows


def machine() -> str:
    """The machine the figures are from, in one line."""
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.machine(),
    )
    system = f"Linux {platform.release()}, Python {platform.python_version()}"
    return f"{os.cpu_count()} cores of {model}, {system}, load {os.getloadavg()[0]:.1f}"


def table(rows: list[list[object]]) -> str:
    """The rows as a Markdown table."""
    marks = {True: "yes", False: "**no**", None: ""}
    lines = ["| what | measured | budget | met |", "|---|---|---|---|"]
    lines += [f"| {what} | {figure} | {budget} | {marks[met]} |" for what, figure, budget, met in rows]  # type: ignore[index]
    return "\n".join(lines)


def main() -> None:
    """Print the table; with --write put it into the performance page."""
    parser = argparse.ArgumentParser(description="Measure the budgets.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(MODULES)}; all by default")
    parser.add_argument("--write", action="store_true", help=f"put the table into {PAGE.name}")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        for row in importlib.import_module(f"benchmarks.{options.only}").rows():
            print(json.dumps(list(row)), flush=True)
        return
    rows = [row for name in options.names or MODULES for row in measured(name)]
    text = f"{machine()}.\n\n{table(rows)}"
    print(text)
    if options.write:
        page = PAGE.read_text(encoding="utf-8")
        head, _, rest = page.partition(BEGIN)
        PAGE.write_text(f"{head}{BEGIN}\n{text}\n{END}{rest.partition(END)[2]}", encoding="utf-8")


if __name__ == "__main__":
    main()
