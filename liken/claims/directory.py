"""The folder of CDI files: whole files only, whatever happens, and nobody else's touched.

In: names and texts. Out: files that exist entirely or not at all, also after SIGKILL or a power cut: a temporary file
in the same folder (a rename from another folder goes unnoticed by the runtime) under a name the runtime does not
read, fsync, rename, fsync of the folder. Calls block: run them in a worker thread. `FileSystem` is the only place
that makes system calls, so that a test can end the process at any one of them.
"""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

PREFIX = "liken.sh-"
SUFFIX = ".json"
TEMPORARY = ".liken.sh-"
STANDALONE = "liken.sh"
PRIVATE, READABLE = 0o600, 0o644

_EXPLANATIONS = {
    errno.ENOSPC: "the disk is full: free some space",
    errno.EDQUOT: "the disk quota is used up: free some space",
    errno.EROFS: "the file system is read-only: mount the folder writable",
    errno.EACCES: "permission denied: liken must run as root and the folder must be writable",
    errno.EPERM: "not permitted: liken must run as root and the folder must be writable",
    errno.ENOTDIR: "it is not a folder: remove what stands in its place",
    errno.ELOOP: "a symbolic link stands where liken's file belongs: remove it",
    errno.EIO: "the disk answers with I/O errors: see the kernel's log",
    errno.EISDIR: "a folder stands where liken's file belongs: remove it",
}


class DirectoryError(Exception):
    """The folder cannot be read or written now; the message names the folder, what is wrong and what to do."""


class FileSystem:
    """The system calls the folder needs, each a step at which the process may end."""

    def names(self, folder: Path) -> list[str]:
        """What the folder holds, unsorted."""
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries]

    def read(self, path: Path) -> bytes:
        """A regular file's content; never through a symbolic link."""
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        with open(file, "rb") as stream:  # noqa: PTH123 - of a descriptor
            return stream.read()

    def make(self, folder: Path) -> None:
        """The folder and those above it, where they are missing."""
        folder.mkdir(parents=True, exist_ok=True)

    def create(self, path: Path, mode: int) -> int:
        """A new, empty file; the descriptor to write it."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)

    def write(self, file: int, content: bytes) -> None:
        """All of `content`."""
        while content:
            content = content[os.write(file, content) :]

    def mode(self, file: int, mode: int) -> None:
        """What the umask may have taken from the mode."""
        os.fchmod(file, mode)

    def sync(self, file: int) -> None:
        """On the disk before this returns."""
        os.fsync(file)

    def close(self, file: int) -> None:
        """Give the descriptor back."""
        os.close(file)

    def rename(self, old: Path, new: Path) -> None:
        """Atomically, in place of what is there."""
        os.rename(old, new)  # noqa: PTH104 - Path.replace hides which call it is

    def remove(self, path: Path) -> None:
        """The name; FileNotFoundError when it is not there."""
        os.unlink(path)  # noqa: PTH108 - as above

    def sync_folder(self, folder: Path) -> None:
        """The folder's names on the disk before this returns."""
        file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(file)
        finally:
            os.close(file)


class SpecDirectory:
    """The CDI files of liken in one folder, by claim uid (and the one of standalone mode, by `STANDALONE`)."""

    def __init__(self, folder: Path, files: FileSystem | None = None) -> None:
        self.folder = folder
        self._files = files if files is not None else FileSystem()

    def path(self, uid: str) -> Path:
        """Where the file of a claim is."""
        return self.folder / f"{PREFIX}{uid}{SUFFIX}"

    def uids(self) -> set[str]:
        """The claims that have a file; none when the folder is not there."""
        try:
            names = self._files.names(self.folder)
        except FileNotFoundError:
            return set()
        except OSError as error:
            raise self._explained(error) from error
        return {name[len(PREFIX) : -len(SUFFIX)] for name in names if name.startswith(PREFIX) and name.endswith(SUFFIX)}

    def read(self, uid: str) -> bytes | None:
        """The file's content; None when there is none."""
        try:
            return self._files.read(self.path(uid))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._explained(error) from error

    def write(self, uid: str, content: bytes) -> None:
        """The claim's file with this content; on an error the old one stays as it was."""
        self.replace(self.path(uid), content, PRIVATE)

    def replace(self, path: Path, content: bytes, mode: int) -> None:
        """A whole file at `path`, whatever was there; on an error what was there stays."""
        temporary = self.folder / f"{TEMPORARY}{path.name.removeprefix(PREFIX).removesuffix(SUFFIX)}.{os.getpid()}"
        try:
            self._files.make(self.folder)
            file = self._create(temporary, mode)
            try:
                try:
                    self._files.mode(file, mode)
                    self._files.write(file, content)
                    self._files.sync(file)
                finally:
                    self._files.close(file)
                self._files.rename(temporary, path)
            except OSError:
                self._drop(temporary)
                raise
            self._files.sync_folder(self.folder)
        except OSError as error:
            raise self._explained(error) from error

    def _create(self, temporary: Path, mode: int) -> int:
        try:
            return self._files.create(temporary, mode)
        except FileExistsError:  # left by a predecessor with the same process id
            self._files.remove(temporary)
            return self._files.create(temporary, mode)

    def remove(self, uid: str) -> bool:
        """Remove the claim's file for good; False when there was none."""
        return self.discard(self.path(uid))

    def discard(self, path: Path) -> bool:
        """Remove a file of ours for good; False when there was none."""
        try:
            try:
                self._files.remove(path)
            except FileNotFoundError:
                return False
            self._files.sync_folder(self.folder)
        except OSError as error:
            raise self._explained(error) from error
        return True

    def leftovers(self) -> Iterator[tuple[str, Path]]:
        """(claim uid, path) of temporary files; those of a live instance are protected by its lock on the claim."""
        try:
            names = self._files.names(self.folder)
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._explained(error) from error
        for name in names:
            if name.startswith(TEMPORARY):
                yield name.removeprefix(TEMPORARY).rpartition(".")[0], self.folder / name

    def _drop(self, temporary: Path) -> None:
        try:
            self._files.remove(temporary)
        except OSError:
            return  # the next start removes it

    def _explained(self, error: OSError) -> DirectoryError:
        said = _EXPLANATIONS.get(error.errno or 0) or f"{error.strerror or error}"
        return DirectoryError(f"{self.folder}: {said}")
