"""Loading a module through kmod, and telling what a refusal means.

`modprobe` knows dependencies, soft dependencies, compression, built-ins and blacklists. It is run without a shell, with
the module's name and its declared parameters and nothing else, and ended when it takes too long.
"""

import contextlib
import os
import re
import signal
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL
from typing import Final, Protocol

import anyio

from liken.machine.modules import Seen
from liken.machine.spec import MODULE

DEADLINE_S: Final = 60.0
WORDS_LIMIT: Final = 400
CAP_SYS_MODULE: Final = 16
ADVICE: Final = (
    (
        "key was rejected|required key not available|module verification",
        "the kernel loads signed modules only (Secure Boot): sign it, or enrol the key it was signed with",
    ),
    (
        "exec format error|invalid module format|version magic",
        "the module was built for another kernel: install the running one's modules, or boot the kernel it fits",
    ),
    (
        "unknown symbol",
        "the module does not fit this kernel, or a module it needs is missing: run depmod and try again",
    ),
    (
        "not found in directory",
        "modprobe does not find it: mount the host's /lib/modules where liken runs, or run depmod",
    ),
    ("no such device", "the driver looked and found no device it can drive"),
    ("cannot allocate memory", "the machine has too little memory for it"),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a load said: `words` is empty when modprobe reported success."""

    words: str = ""


class ModuleLoader(Protocol):
    """Loads one module; never raises for a refusal."""

    async def load(self, name: str, parameters: Mapping[str, str]) -> Outcome:
        """Try once; the answer has the kernel's words and the remedy."""


class Modprobe:
    """The real loader."""

    def __init__(
        self,
        program: str = "modprobe",
        *,
        proc: Path = Path("/proc"),
        sysfs: Path = Path("/sys"),
        deadline_s: float = DEADLINE_S,
    ) -> None:
        self._program = program
        self._deadline_s = deadline_s
        self._proc = proc
        self._sysfs = sysfs

    async def load(self, name: str, parameters: Mapping[str, str]) -> Outcome:
        """Run modprobe for one module; a name that is none is refused here, whatever admission thought of it."""
        if MODULE.fullmatch(name) is None:
            return Outcome(f"{name!r} is no module name")
        command = [self._program, "--", name, *(f"{key}={_quoted(value)}" for key, value in parameters.items())]
        try:
            code, said = await _run(command, self._deadline_s)
        except FileNotFoundError:
            return Outcome("modprobe is not installed where liken runs: use the project's image, or install kmod")
        except OSError as error:
            return Outcome(f"cannot run modprobe: {error.strerror}")
        if code is None:
            return Outcome(
                f"modprobe did not end within {self._deadline_s:g} s and was stopped: look at dmesg on the machine"
            )
        if code == 0:
            return Outcome()
        return Outcome(refusal(said, capable=self._capable(), lockdown=self._lockdown(), disabled=self._disabled()))

    def _capable(self) -> bool:
        try:
            found = re.search(r"^CapEff:\s*([0-9a-f]+)", (self._proc / "self/status").read_text(), re.MULTILINE)
        except OSError:
            return True
        return found is None or bool(int(found[1], 16) >> CAP_SYS_MODULE & 1)

    def _lockdown(self) -> str:
        try:
            found = re.search(r"\[(\w+)\]", (self._sysfs / "kernel/security/lockdown").read_text())
        except OSError:
            return ""
        return found[1] if found and found[1] != "none" else ""

    def _disabled(self) -> bool:
        try:
            return (self._proc / "sys/kernel/modules_disabled").read_text().strip() == "1"
        except OSError:
            return False


def refusal(said: str, *, capable: bool, lockdown: str = "", disabled: bool = False) -> str:
    """Words of modprobe with what they mean and what to do."""
    words = " ".join(said.split())[:WORDS_LIMIT] or "modprobe failed without a word"
    lower = words.lower()
    if "operation not permitted" in lower:
        if not capable:
            return f"liken may not load modules here, it lacks CAP_SYS_MODULE: deploy the `modules` overlay ({words})"
        if disabled:
            return f"kernel.modules_disabled is 1, so no module loads until the next boot ({words})"
        if lockdown:
            return f"the kernel's lockdown ({lockdown}) keeps unsigned modules out: sign it ({words})"
        return f"the kernel refused it: look at dmesg on the machine ({words})"
    for pattern, advice in ADVICE:
        if re.search(pattern, lower):
            return f"{advice} ({words})"
    return words


async def _run(command: list[str], deadline_s: float) -> tuple[int | None, str]:
    """Exit code (None: it took too long) and what the program said on stderr, at most a page."""
    environment = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"}
    process = await anyio.open_process(command, stdin=DEVNULL, stdout=DEVNULL, env=environment, start_new_session=True)
    said = b""
    try:
        with anyio.move_on_after(deadline_s) as scope:
            assert process.stderr is not None
            async for chunk in process.stderr:
                said = (said + chunk)[:4096]
            await process.wait()
        return (None if scope.cancelled_caught else process.returncode), said.decode("utf-8", "backslashreplace")
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # modprobe.d may have made it start others
        with anyio.CancelScope(shield=True), anyio.move_on_after(2):
            await process.aclose()


def _quoted(value: str) -> str:
    """A parameter's value as the kernel splits it: with blanks it stands in double quotes (it never holds any)."""
    return f'"{value}"' if " " in value else value


def seen_modules(wanted: Mapping[str, Collection[str]], sysfs: Path) -> dict[str, Seen]:
    """Which of the modules `/sys/module` has in effect, with these of their parameters; names with `_`. Blocking."""
    found = {}
    for name, parameters in wanted.items():
        folder = sysfs / "module" / name
        try:
            state = (folder / "initstate").read_text().strip()
        except FileNotFoundError:
            state = "builtin" if folder.is_dir() else ""
        except OSError:
            state = ""
        if state in {"live", "builtin"}:
            found[name] = Seen(builtin=state == "builtin", parameters=_values(folder / "parameters", parameters))
    return found


def _values(folder: Path, names: Collection[str]) -> dict[str, str]:
    values = {}
    for name in sorted(names):
        try:
            with (folder / name).open("rb") as file:
                values[name] = "".join(filter(str.isprintable, file.read(1024).decode("utf-8", "backslashreplace")))
        except OSError:
            continue
    return values
