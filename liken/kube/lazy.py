"""Makes kubernetes_asyncio import only what is used; `install()` before anything imports it.

Its five package files import about a thousand generated modules (37 MiB). Here those packages are replaced by bare
ones with the same search path that find an attribute's module on first use (PEP 562). Two more things that its
configuration imports and liken does not use are kept out: urllib3 is loaded when one of its attributes is asked for,
and the name ApiClient in `kubernetes_asyncio.client` stands for an empty class (the real one brings a process pool and
dateutil; it is in `kubernetes_asyncio.client.api_client`). Together 3 MiB instead of 37. Where the library is already
imported, nothing is changed.
"""

import importlib
import importlib.machinery
import sys
import types
from collections.abc import Callable
from pathlib import Path

LIBRARY = "kubernetes_asyncio"
CLIENT = f"{LIBRARY}.client"
CONFIG = f"{LIBRARY}.config"
GENERATED = (f"{CLIENT}.api", f"{CLIENT}.models")
DEFERRED = "urllib3"


def install() -> None:
    """Put the five bare packages in place, once for the process. Raises ModuleNotFoundError without the library."""
    if LIBRARY in sys.modules:
        return
    root = _folder(LIBRARY)
    if root is None:
        raise ModuleNotFoundError(f"{LIBRARY} is not installed", name=LIBRARY)
    _package(LIBRARY, root, _submodules(LIBRARY))
    _package(CLIENT, root / "client", _classes(CLIENT, *GENERATED))
    _package(CONFIG, root / "config", _submodules(CONFIG))
    for name in GENERATED:
        _package(name, root / "client" / name.rpartition(".")[2], _classes(name))
    sys.modules[CLIENT].ApiClient = type("ApiClient", (), {})  # type: ignore[attr-defined]
    deferred = _folder(DEFERRED)
    if deferred is not None and DEFERRED not in sys.modules:
        _package(DEFERRED, deferred, _whole(DEFERRED))


def _folder(package: str) -> Path | None:
    """Where a package is installed; None: nowhere."""
    spec = importlib.machinery.PathFinder.find_spec(package)
    places = spec.submodule_search_locations if spec is not None else None
    return Path(next(iter(places))) if places else None


def _whole(package: str) -> Callable[[str], object]:
    """Finds in the package itself, imported in the place of the bare one.

    `importlib.util.LazyLoader` would not do: until Python 3.12 the next `import` of the name loads it.
    """

    def find(attribute: str) -> object:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        if getattr(sys.modules.get(package), "__file__", None) is None:
            sys.modules.pop(package, None)
        return getattr(importlib.import_module(package), attribute)

    return find


def _package(name: str, folder: Path, find: Callable[[str], object]) -> None:
    module = types.ModuleType(name, doc=f"{name}, of which only what is used is imported.")
    module.__path__ = [str(folder)]
    module.__package__ = name
    spec = importlib.machinery.ModuleSpec(name, None, is_package=True)
    spec.submodule_search_locations = module.__path__
    module.__spec__ = spec
    module.__getattr__ = find  # type: ignore[method-assign]
    sys.modules[name] = module
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, module)


def _submodules(package: str) -> Callable[[str], object]:
    def find(attribute: str) -> object:
        try:
            return importlib.import_module(f"{package}.{attribute}")
        except ModuleNotFoundError:
            raise AttributeError(attribute) from None

    return find


def _classes(*packages: str) -> Callable[[str], object]:
    """Finds `V1Node` in `v1_node.py` of the first of these packages that has such a file."""
    files: dict[str, dict[str, str]] = {}

    def names(package: str) -> dict[str, str]:
        if package not in files:
            folder = Path(sys.modules[package].__path__[0])
            stems = (path.stem for path in folder.glob("*.py") if path.stem != "__init__")
            files[package] = {stem.replace("_", ""): stem for stem in stems}
        return files[package]

    def find(attribute: str) -> object:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        for package in packages:
            stem = names(package).get(attribute.replace("_", "").lower())
            if stem is not None:
                module = importlib.import_module(f"{package}.{stem}")
                return module if attribute == stem else getattr(module, attribute)
        exceptions = importlib.import_module(f"{CLIENT}.exceptions")
        return getattr(exceptions, attribute)

    return find
