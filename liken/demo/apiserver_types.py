"""The resource types the in-memory API server knows, built in and from CustomResourceDefinitions.

A type says how objects are addressed, which field selectors it has, what its update strategy is and which columns
`kubectl get` shows.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from liken.model.api import Json

VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
META_FIELDS = ("metadata.name", "metadata.namespace")


class TypeKey(NamedTuple):
    """Group (empty for core), version and plural name: how a URL names a type."""

    group: str
    version: str
    plural: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of `kubectl get`; `path` is a JSONPath without braces."""

    name: str
    path: str
    kind: str = "string"
    priority: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceType:
    """One served type. `generation`: spec changes are counted in `metadata.generation`."""

    key: TypeKey
    kind: str
    namespaced: bool = False
    short: tuple[str, ...] = ()
    status: bool = False
    status_on_create: bool = False
    generation: bool = False
    custom: bool = False
    fields: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()
    schema: Json = field(default_factory=dict)

    @property
    def group_version(self) -> str:
        """The `apiVersion` of its objects."""
        return f"{self.key.group}/{self.key.version}" if self.key.group else self.key.version

    @property
    def resource(self) -> str:
        """Plural name with group, as messages have it."""
        return f"{self.key.plural}.{self.key.group}" if self.key.group else self.key.plural

    @property
    def qualified_kind(self) -> str:
        """Kind with group, as messages have it."""
        return f"{self.kind}.{self.key.group}" if self.key.group else self.kind

    @property
    def selectable(self) -> tuple[str, ...]:
        """Fields that a field selector may name."""
        return (*META_FIELDS, *self.fields)


EVENT_FIELDS = (
    *(f"involvedObject.{name}" for name in ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion")),
    *("reason", "type", "source", "reportingComponent"),
)

DRA = ("resource.k8s.io", "v1")

BUILT_IN = (
    ResourceType(key=TypeKey("", "v1", "namespaces"), kind="Namespace", short=("ns",), status=True),
    ResourceType(
        key=TypeKey("", "v1", "nodes"),
        kind="Node",
        short=("no",),
        status=True,
        status_on_create=True,
        fields=("spec.unschedulable",),
        columns=(Column(name="Version", path=".status.nodeInfo.kubeletVersion"),),
    ),
    ResourceType(
        key=TypeKey("", "v1", "pods"),
        kind="Pod",
        namespaced=True,
        short=("po",),
        status=True,
        status_on_create=True,
        generation=True,
        fields=("spec.nodeName", "status.phase"),
        columns=(Column(name="Status", path=".status.phase"),),
    ),
    ResourceType(
        key=TypeKey("", "v1", "events"),
        kind="Event",
        namespaced=True,
        short=("ev",),
        fields=EVENT_FIELDS,
        columns=(
            Column(name="Type", path=".type"),
            Column(name="Reason", path=".reason"),
            Column(name="Object", path=".involvedObject.name"),
            Column(name="Message", path=".message"),
        ),
    ),
    ResourceType(
        key=TypeKey(*DRA, "resourceslices"),
        kind="ResourceSlice",
        generation=True,
        fields=("spec.nodeName", "spec.driver", "spec.pool.name"),
        columns=(
            Column(name="Node", path=".spec.nodeName"),
            Column(name="Driver", path=".spec.driver"),
            Column(name="Pool", path=".spec.pool.name"),
        ),
    ),
    ResourceType(key=TypeKey(*DRA, "deviceclasses"), kind="DeviceClass", generation=True),
    ResourceType(key=TypeKey(*DRA, "resourceclaims"), kind="ResourceClaim", namespaced=True, status=True),
    ResourceType(key=TypeKey(*DRA, "resourceclaimtemplates"), kind="ResourceClaimTemplate", namespaced=True),
    ResourceType(
        key=TypeKey("apiextensions.k8s.io", "v1", "customresourcedefinitions"),
        kind="CustomResourceDefinition",
        short=("crd", "crds"),
        status=True,
        generation=True,
    ),
)

SLICES = TypeKey(*DRA, "resourceslices")
DEFINITIONS = TypeKey("apiextensions.k8s.io", "v1", "customresourcedefinitions")


def defined(definition: Json) -> Iterable[ResourceType]:
    """The types that one CustomResourceDefinition serves."""
    spec = definition["spec"]
    names = spec["names"]
    for version in spec["versions"]:
        if not version.get("served", True):
            continue
        yield ResourceType(
            key=TypeKey(spec["group"], version["name"], names["plural"]),
            kind=names["kind"],
            namespaced=spec.get("scope") == "Namespaced",
            short=tuple(names.get("shortNames") or ()),
            status="status" in (version.get("subresources") or {}),
            generation=True,
            custom=True,
            fields=tuple(entry["jsonPath"].lstrip(".") for entry in version.get("selectableFields") or ()),
            columns=tuple(_column(entry) for entry in version.get("additionalPrinterColumns") or ()),
            schema=(version.get("schema") or {}).get("openAPIV3Schema") or {},
        )


def _column(entry: Mapping[str, str | int]) -> Column:
    return Column(
        name=str(entry["name"]),
        path=str(entry["jsonPath"]),
        kind=str(entry.get("type", "string")),
        priority=int(entry.get("priority", 0)),
    )
