"""The verbs of the in-memory API server on its objects, without HTTP: what is stored, what is refused and why.

Bodies in, objects out, `Refusal` for the rest. A dry run does everything but store. CustomResourceDefinitions are
objects like any other; a type of theirs is served while the definition exists, and deleting it deletes its objects.
"""

import copy
import random
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from liken.demo import apiserver_fields, apiserver_patch, apiserver_schema, apiserver_slices
from liken.demo import apiserver_refusals as refusals
from liken.demo.apiserver_refusals import Refusal
from liken.demo.apiserver_selectors import matcher
from liken.demo.apiserver_store import ObjectKey, Objects
from liken.demo.apiserver_types import BUILT_IN, DEFINITIONS, SLICES, ResourceType, TypeKey, defined
from liken.model.api import Json

KEPT = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "generation", "selfLink")
SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a request is about: a type, and as far as named a namespace, an object and a subresource."""

    kind: ResourceType
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def key(self) -> ObjectKey:
        """Where the object is stored."""
        return ObjectKey.of(self.kind.key, self.namespace, self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Query parameters of a write."""

    dry_run: bool = False
    strict: bool = False
    manager: str = "unknown"
    force: bool = False


@dataclass(slots=True)
class Verbs:
    """The objects of one server. `gates`: feature gates that are off."""

    objects: Objects = field(default_factory=Objects)
    gates: dict[str, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Begin with the namespaces every cluster has."""
        for name in ("default", "kube-system"):
            kind = self.type_of(TypeKey("", "v1", "namespaces"))
            self.create(Target(kind=kind), {"metadata": {"name": name}}, Options())

    def types(self) -> Iterator[ResourceType]:
        """Every type served now."""
        yield from BUILT_IN
        for _, definition in self.objects.select(lambda key, _: key.plural == DEFINITIONS.plural):
            yield from defined(definition)

    def type_of(self, key: TypeKey) -> ResourceType:
        """The type of a URL; raises a 404 when it is not served."""
        for kind in self.types():
            if kind.key == key:
                return kind
        raise refusals.not_served()

    def get(self, target: Target) -> Json:
        """One object."""
        found = self.objects.get(target.key)
        if found is None:
            raise refusals.not_found(target.kind.resource, target.name)
        return self._shown(target.kind, found)

    def list(self, target: Target, *, fields: str = "", labels: str = "") -> Json:
        """A list object."""
        chosen = self.selected(target, fields=fields, labels=labels)
        items = [self._shown(target.kind, item) for _, item in self.objects.select(chosen)]
        metadata = {"resourceVersion": str(self.objects.version)}
        head = {"kind": f"{target.kind.kind}List", "apiVersion": target.kind.group_version, "metadata": metadata}
        return {**head, "items": items}

    def selected(self, target: Target, *, fields: str = "", labels: str = "") -> Callable[[ObjectKey, Json], bool]:
        """Whether an object belongs to a list or watch; a name in the target narrows it to that object."""
        matches = matcher(target.kind, fields=fields, labels=labels)

        def chosen(key: ObjectKey, item: Json) -> bool:
            same_type = (key.group, key.plural) == (target.kind.key.group, target.kind.key.plural)
            in_place = target.namespace in ("", key.namespace) and target.name in ("", key.name)
            return same_type and in_place and matches(item)

        return chosen

    def create(self, target: Target, body: Any, options: Options) -> Json:
        """Create an object."""
        item = _checked_body(target.kind, body)
        metadata = item["metadata"]
        if metadata.get("resourceVersion"):
            raise refusals.bad_request("resourceVersion should not be set on objects to be created")
        if not metadata.get("name"):
            if not metadata.get("generateName"):
                words = "Required value: name or generateName is required"
                raise refusals.invalid(target.kind.qualified_kind, "", [("metadata.name", words)])
            metadata["name"] = metadata["generateName"] + "".join(random.choices(SUFFIX_ALPHABET, k=5))  # noqa: S311
        target = replace(target, name=metadata["name"])
        self._placed(target, metadata)
        if self.objects.get(target.key) is not None:
            raise refusals.exists(target.kind.resource, target.name)
        if target.kind.status and not target.kind.status_on_create:
            item.pop("status", None)
        metadata |= {"uid": str(uuid.uuid4()), "creationTimestamp": _now()}
        if target.kind.generation:
            metadata["generation"] = 1
        item, _ = self._admitted(target, item, None, options)
        if "managedFields" not in metadata:
            item = apiserver_fields.updated(None, item, options.manager)
        return self._stored(target, item, options)

    def replace(self, target: Target, body: Any, options: Options) -> Json:
        """PUT."""
        before = self.get(target)
        item = _checked_body(target.kind, body)
        if item["metadata"].get("name", target.name) != target.name:
            name = item["metadata"]["name"]
            raise refusals.bad_request(
                f"the name of the object ({name}) does not match the name on the URL ({target.name})"
            )
        if target.kind.custom and not item["metadata"].get("resourceVersion"):
            words = "Invalid value: 0: must be specified for an update"
            raise refusals.invalid(target.kind.qualified_kind, target.name, [("metadata.resourceVersion", words)])
        return self._written(target, item, before, options)

    def patch(self, target: Target, media_type: str, body: Any, options: Options) -> Json:
        """PATCH, of every kind; an apply creates what is not there."""
        if media_type == "application/apply-patch+yaml":
            return self._apply(target, body, options)
        before = self.get(target)
        match media_type:
            case "application/json-patch+json":
                item = apiserver_patch.json_patched(before, body)
            case "application/merge-patch+json":
                item = apiserver_patch.merge_patched(before, body)
            case "application/strategic-merge-patch+json" if not target.kind.custom:
                item = apiserver_patch.strategic_patched(before, body)
            case _:
                raise Refusal(
                    415,
                    "UnsupportedMediaType",
                    "the body of the request was in an unknown format - accepted media types include: "
                    "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
                )
        return self._written(target, _checked_body(target.kind, item), before, options)

    def delete(self, target: Target, body: Any, options: Options) -> Json:
        """Delete one object, or mark it when it has finalizers."""
        before = self.get(target)
        wanted = (body or {}).get("preconditions") or {} if isinstance(body, dict) else {}
        for name in ("uid", "resourceVersion"):
            if name in wanted and wanted[name] != before["metadata"][name]:
                why = f"Precondition failed: {name} in precondition: {wanted[name]}, {name} in object meta: "
                raise refusals.conflict(target.kind.resource, target.name, why + before["metadata"][name])
        if options.dry_run:
            return before
        if before["metadata"].get("finalizers"):
            before["metadata"].setdefault("deletionTimestamp", _now())
            return self._shown(target.kind, self.objects.put(target.key, before))
        gone = self.objects.remove(target.key)
        if target.kind.key == DEFINITIONS:
            self._forget(gone)
        about = {"name": target.name, "kind": target.kind.key.plural, "uid": gone["metadata"]["uid"]}
        about |= {"group": target.kind.key.group} if target.kind.key.group else {}
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": about}

    def delete_collection(self, target: Target, options: Options, *, fields: str = "", labels: str = "") -> Json:
        """Delete everything selected; answers with the list of it."""
        listing = self.list(target, fields=fields, labels=labels)
        for item in listing["items"]:
            metadata = item["metadata"]
            self.delete(replace(target, namespace=metadata.get("namespace", ""), name=metadata["name"]), None, options)
        return listing

    def _apply(self, target: Target, body: Any, options: Options) -> Json:
        item = _checked_body(target.kind, body)
        before = self.objects.get(target.key)
        if before is None and target.subresource:
            raise refusals.not_found(target.kind.resource, target.name)
        if before is None:
            item["metadata"]["name"] = target.name
            return self.create(target, apiserver_fields.applied(None, item, options.manager, force=True), options)
        before = self._shown(target.kind, before)
        merged = apiserver_fields.applied(before, item, options.manager, force=options.force)
        return self._written(target, merged, before, options, apply=True)

    def _written(self, target: Target, item: Json, before: Json, options: Options, *, apply: bool = False) -> Json:
        metadata, old = item["metadata"], before["metadata"]
        if metadata.get("resourceVersion") not in (None, "", old["resourceVersion"]):
            raise refusals.modified(target.kind.resource, target.name)
        if metadata.get("uid") not in (None, "", old["uid"]):
            why = f"Precondition failed: UID in precondition: {metadata['uid']}, UID in object meta: {old['uid']}"
            raise refusals.conflict(target.kind.resource, target.name, why)
        metadata |= {name: old[name] for name in KEPT if name in old}
        if target.subresource == "status":
            item = {**before, "metadata": {**old, "managedFields": metadata.get("managedFields", [])}} | (
                {"status": item["status"]} if "status" in item else {}
            )
        elif target.kind.status:
            item.pop("status", None)
            item |= {"status": before["status"]} if "status" in before else {}
        item, dropped = self._admitted(target, item, before, options)
        if not dropped and _content(item) == _content(before):
            return before
        if target.kind.generation and (dropped or item.get("spec") != before.get("spec")):
            item["metadata"]["generation"] = old.get("generation", 0) + 1
        if not apply:
            item = apiserver_fields.updated(before, item, options.manager, target.subresource)
        return self._stored(target, item, options)

    def _admitted(self, target: Target, item: Json, before: Json | None, options: Options) -> tuple[Json, bool]:
        """Pruned, defaulted, checked; and whether a feature gate dropped a field."""
        kind = target.kind
        schema = apiserver_slices.SCHEMA if kind.key == SLICES else kind.schema
        dropped = False
        if kind.key == SLICES:
            item = apiserver_slices.decoded(item)
        if schema:
            head = {"apiVersion": {}, "kind": {}, "metadata": {"x-kubernetes-preserve-unknown-fields": True}}
            schema = {**schema, "properties": {**(schema.get("properties") or {}), **head}}
            item, unknown = apiserver_schema.pruned(item, schema)
            if unknown and options.strict:
                said = ", ".join(f'unknown field "{path}"' for path in unknown)
                raise refusals.bad_request(f"strict decoding error: {said}")
            item = apiserver_schema.defaulted(item, schema)
            found = list(apiserver_schema.problems(item, schema))
            if kind.key == SLICES and not found:
                dropped = apiserver_slices.admitted(item, self.gates)
                found = list(apiserver_slices.problems(item, before))
            if found:
                raise refusals.invalid(kind.qualified_kind, target.name, found)
        if kind.key == DEFINITIONS:
            item = _established(item)
        return item, dropped

    def _stored(self, target: Target, item: Json, options: Options) -> Json:
        if options.dry_run:
            return self._shown(target.kind, item)
        if item["metadata"].get("deletionTimestamp") and not item["metadata"].get("finalizers"):
            return self._shown(target.kind, self.objects.remove(target.key))
        return self._shown(target.kind, self.objects.put(target.key, item))

    def _placed(self, target: Target, metadata: Json) -> None:
        """The namespace exists and is the URL's."""
        if not target.kind.namespaced:
            metadata.pop("namespace", None)
            return
        if metadata.setdefault("namespace", target.namespace) != target.namespace:
            raise refusals.bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        if self.objects.get(ObjectKey("", "namespaces", "", target.namespace)) is None:
            raise refusals.not_found("namespaces", target.namespace)

    def _forget(self, definition: Json) -> None:
        for kind in defined(definition):
            for key, _ in self.objects.select(self.selected(Target(kind=kind))):
                self.objects.remove(key)

    def _shown(self, kind: ResourceType, item: Json) -> Json:
        return {**item, "apiVersion": kind.group_version, "kind": kind.kind}


def _checked_body(kind: ResourceType, body: Any) -> Json:
    if not isinstance(body, dict):
        raise refusals.bad_request("the body of the request is no object")
    item = copy.deepcopy(body)
    for name, wanted in (("apiVersion", kind.group_version), ("kind", kind.kind)):
        if item.setdefault(name, wanted) != wanted:
            raise refusals.bad_request(f"the {name} in the data ({item[name]}) does not match the expected ({wanted})")
    if not isinstance(item.setdefault("metadata", {}), dict):
        raise refusals.bad_request("metadata is no object")
    return item


def _content(item: Mapping[str, Any]) -> Json:
    metadata = {
        key: entry for key, entry in item["metadata"].items() if key not in ("resourceVersion", "managedFields")
    }
    return {**item, "metadata": metadata}


def _established(item: Json) -> Json:
    names = {"plural": "", "kind": "", **item["spec"]["names"]}
    wanted = f"{names['plural']}.{item['spec']['group']}"
    if item["metadata"]["name"] != wanted:
        words = f'Invalid value: "{item["metadata"]["name"]}": must be spec.names.plural+"."+spec.group'
        raise refusals.invalid("CustomResourceDefinition.apiextensions.k8s.io", wanted, [("metadata.name", words)])
    names.setdefault("singular", names["kind"].lower())
    names.setdefault("listKind", f"{names['kind']}List")
    moment = (item.get("status") or {}).get("conditions", [{}])[0].get("lastTransitionTime") or _now()
    conditions = [
        {"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": moment}
        for kind, reason, message in (
            ("NamesAccepted", "NoConflicts", "no conflicts found"),
            ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        )
    ]
    stored = [version["name"] for version in item["spec"]["versions"] if version.get("storage")]
    return {**item, "status": {"acceptedNames": names, "conditions": conditions, "storedVersions": stored}}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
