"""What the in-memory API server says about itself: groups, resources, version, and the OpenAPI stub kubectl asks for.

The OpenAPI documents name only the query parameters of a patch, which is all that `kubectl apply` looks for before
it lets the server validate; field documentation (`kubectl explain`) is not served.
"""

from collections.abc import Iterable, Sequence

from liken.demo.apiserver_refusals import not_served
from liken.demo.apiserver_types import VERBS, ResourceType
from liken.model.api import Json

REVIEWS = "selfsubjectaccessreviews"
AUTHORIZATION = ("authorization.k8s.io", "v1")


def document(parts: Sequence[str], types: Iterable[ResourceType], git_version: str) -> Json | None:
    """The answer to a GET below `/version`, `/api`, `/apis` and `/openapi`; None: the path is a resource's."""
    kinds = list(types)
    match parts:
        case ["version"]:
            found = version(git_version)
        case ["api"]:
            found = {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        case ["apis"]:
            names = sorted({kind.key.group for kind in kinds if kind.key.group} | {AUTHORIZATION[0]})
            groups = [_group(name, kinds) for name in names]
            found = {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        case ["apis", group]:
            found = {"kind": "APIGroup", "apiVersion": "v1", **_group(group, kinds)}
        case ["api", "v1"]:
            found = _resources("", "v1", kinds)
        case ["apis", group, of]:
            found = _resources(group, of, kinds)
        case ["openapi", "v3"]:
            found = {"paths": {path: {"serverRelativeURL": f"/openapi/v3/{path}?hash=1"} for path in _roots(kinds)}}
        case ["openapi", "v3", *root]:
            found = _openapi("/".join(root), kinds)
        case _:
            return None
    return found


def version(git_version: str) -> Json:
    """The body of `/version`."""
    major, minor = git_version.lstrip("v").split(".")[:2]
    return {
        "major": major,
        "minor": minor,
        "gitVersion": git_version,
        "gitCommit": "in-memory",
        "gitTreeState": "clean",
        "buildDate": "2026-01-01T00:00:00Z",
        "goVersion": "none",
        "compiler": "none",
        "platform": "linux/amd64",
    }


def _group(name: str, kinds: Sequence[ResourceType]) -> Json:
    served = sorted({kind.key.version for kind in kinds if kind.key.group == name})
    if name == AUTHORIZATION[0]:
        served = [AUTHORIZATION[1]]
    if not served:
        raise not_served()
    versions = [{"groupVersion": f"{name}/{entry}", "version": entry} for entry in served]
    return {"name": name, "versions": versions, "preferredVersion": versions[0]}


def _resources(group: str, of: str, kinds: Sequence[ResourceType]) -> Json:
    resources: list[Json] = []
    for kind in kinds:
        if (kind.key.group, kind.key.version) == (group, of):
            about = {"namespaced": kind.namespaced, "kind": kind.kind}
            names = {"name": kind.key.plural, "singularName": kind.kind.lower(), "shortNames": list(kind.short)}
            resources.append({**names, **about, "verbs": list(VERBS)})
            if kind.status:
                status = {"name": f"{kind.key.plural}/status", "singularName": ""}
                resources.append({**status, **about, "verbs": ["get", "patch", "update"]})
    if (group, of) == AUTHORIZATION:
        review = {"name": REVIEWS, "singularName": "selfsubjectaccessreview", "namespaced": False}
        resources.append({**review, "kind": "SelfSubjectAccessReview", "verbs": ["create"]})
    if not resources:
        raise not_served()
    group_version = f"{group}/{of}" if group else of
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources}


def _root(kind: ResourceType) -> str:
    return f"apis/{kind.group_version}" if kind.key.group else f"api/{kind.group_version}"


def _roots(kinds: Sequence[ResourceType]) -> list[str]:
    return sorted({_root(kind) for kind in kinds})


def _openapi(root: str, kinds: Sequence[ResourceType]) -> Json:
    if root not in _roots(kinds):
        raise not_served()
    parameters = [
        {"name": name, "in": "query", "schema": {"type": "string"}}
        for name in ("dryRun", "fieldManager", "fieldValidation", "force")
    ]
    paths = {}
    for kind in kinds:
        if _root(kind) == root:
            place = "namespaces/{namespace}/" if kind.namespaced else ""
            about = {"group": kind.key.group, "version": kind.key.version, "kind": kind.kind}
            operation = {
                "operationId": f"patch{kind.kind}",
                "parameters": parameters,
                "responses": {"200": {"description": "OK"}},
                "x-kubernetes-action": "patch",
                "x-kubernetes-group-version-kind": about,
            }
            paths[f"/{root}/{place}{kind.key.plural}/{{name}}"] = {"patch": operation}
    info = {"title": "liken's in-memory API server", "version": "1"}
    return {"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": {}}}
