"""Where the objects liken speaks of live on the API server: URL paths, and a path's words for a person.

Every argument is one path segment and is quoted, so that no name can leave its place in the path.
"""

from urllib.parse import quote, unquote

RESOURCE = "/apis/resource.k8s.io/v1"
CORE = "/api/v1"
LIKEN = "/apis/liken.sh/v1alpha1"
ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
VERSION = "/version"


def _segment(name: str) -> str:
    return quote(name, safe=":")


def slices() -> str:
    """All ResourceSlices."""
    return f"{RESOURCE}/resourceslices"


def slice(name: str) -> str:  # noqa: A001  (paths.slice reads as what it is)
    """One ResourceSlice."""
    return f"{slices()}/{_segment(name)}"


def claim(namespace: str, name: str) -> str:
    """One ResourceClaim."""
    return f"{RESOURCE}/namespaces/{_segment(namespace)}/resourceclaims/{_segment(name)}"


def node(name: str) -> str:
    """One Node."""
    return f"{CORE}/nodes/{_segment(name)}"


def machines() -> str:
    """All Machines."""
    return f"{LIKEN}/machines"


def machine(name: str) -> str:
    """One Machine."""
    return f"{machines()}/{_segment(name)}"


def machine_status(name: str) -> str:
    """The status of one Machine."""
    return f"{machine(name)}/status"


def events(namespace: str) -> str:
    """The Events of a namespace."""
    return f"{CORE}/namespaces/{_segment(namespace)}/events"


def event(namespace: str, name: str) -> str:
    """One Event."""
    return f"{events(namespace)}/{_segment(name)}"


def words(path: str) -> str:
    """An object's path as a person says it: `resourceslices node-1-liken.sh`, `resourceclaims zigbee in home`."""
    parts = [unquote(part) for part in path.partition("?")[0].split("/") if part]
    match parts:
        case ["api", _, *rest] | ["apis", _, _, *rest] if rest:
            pass
        case _:
            return path
    match rest:
        case ["namespaces", namespace, resource, *name]:
            return f"{' '.join([resource, *name])} in {namespace}"
        case _:
            return " ".join(rest)
