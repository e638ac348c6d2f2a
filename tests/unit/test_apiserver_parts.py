"""The parts of the in-memory API server that need no sockets: patches, selectors, schemas, fields, the store."""

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from liken.demo import apiserver_fields as fields
from liken.demo import apiserver_schema as schema
from liken.demo.apiserver_patch import json_patched, merge_patched, strategic_patched
from liken.demo.apiserver_refusals import Refusal
from liken.demo.apiserver_selectors import matcher, value
from liken.demo.apiserver_slices import admitted, problems
from liken.demo.apiserver_store import ObjectKey, Objects
from liken.demo.apiserver_tables import table, wanted
from liken.demo.apiserver_types import SLICES, TypeKey
from liken.demo.apiserver_verbs import Options, Target, Verbs
from liken.model.api import Json
from liken.state.slices import NodeRef, json_patch, slices
from tests.unit.fakes_publish import offer

DOCUMENT: Json = {"a": {"b": [1, 2, 3]}, "c/d": 1, "e~f": 2}

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=10,
)


class TestJsonPatch:
    @pytest.mark.parametrize(
        ("operation", "after"),
        [
            ({"op": "add", "path": "/a/b/1", "value": 9}, {"a": {"b": [1, 9, 2, 3]}}),
            ({"op": "add", "path": "/a/b/-", "value": 9}, {"a": {"b": [1, 2, 3, 9]}}),
            ({"op": "add", "path": "/a/b/3", "value": 9}, {"a": {"b": [1, 2, 3, 9]}}),
            ({"op": "remove", "path": "/a/b/0"}, {"a": {"b": [2, 3]}}),
            ({"op": "replace", "path": "/a/b/2", "value": None}, {"a": {"b": [1, 2, None]}}),
            ({"op": "replace", "path": "/c~1d", "value": 5}, {"c/d": 5}),
            ({"op": "replace", "path": "/e~0f", "value": 5}, {"e~f": 5}),
            ({"op": "move", "from": "/a/b/0", "path": "/a/x"}, {"a": {"b": [2, 3], "x": 1}}),
            ({"op": "copy", "from": "/a/b/0", "path": "/a/x"}, {"a": {"b": [1, 2, 3], "x": 1}}),
            ({"op": "test", "path": "/a/b", "value": [1, 2, 3]}, {}),
        ],
    )
    def test_each_operation(self, operation: Json, after: Json) -> None:
        before = copy.deepcopy(DOCUMENT)
        assert json_patched(DOCUMENT, [operation]) == DOCUMENT | after
        assert before == DOCUMENT

    @pytest.mark.parametrize(
        "operation",
        [
            {"op": "add", "path": "/a/b/4", "value": 9},
            {"op": "remove", "path": "/a/b/3"},
            {"op": "replace", "path": "/x", "value": 9},
            {"op": "remove", "path": "/x"},
            {"op": "test", "path": "/c~1d", "value": 2},
            {"op": "replace", "path": "/a/b/-1", "value": 9},
            {"op": "replace", "path": "x", "value": 9},
            {"op": "add", "path": "/a"},
            {"op": "invent", "path": "/a", "value": 1},
            {"path": "/a"},
        ],
    )
    def test_what_does_not_fit_is_unprocessable(self, operation: Json) -> None:
        with pytest.raises(Refusal) as caught:
            json_patched(DOCUMENT, [operation])
        assert caught.value.code == 422

    @pytest.mark.parametrize("patch", [None, {}, "x", [1], [[]]])
    def test_what_is_no_patch_is_a_bad_request(self, patch: Any) -> None:
        with pytest.raises(Refusal) as caught:
            json_patched(DOCUMENT, patch)
        assert caught.value.code == 400

    @settings(max_examples=80, deadline=None)
    @given(st.sets(st.integers(0, 40), max_size=20), st.sets(st.integers(0, 40), max_size=20))
    def test_the_patches_liken_makes_lead_where_they_should(self, before: set[int], after: set[int]) -> None:
        node = NodeRef(name="n", uid="u")
        (old,) = slices([offer(f"usb-1-{number}-1-0") for number in sorted(before)], node=node)
        (new,) = slices([offer(f"usb-1-{number}-1-0") for number in sorted(after)], node=node)
        assert json_patched(old, json_patch(old, new))["spec"] == new["spec"]


class TestMergePatch:
    @settings(max_examples=100, deadline=None)
    @given(JSON, JSON)
    def test_a_patch_applied_twice_is_applied_once(self, document: Any, patch: Any) -> None:
        once = merge_patched(document, patch)
        assert merge_patched(once, patch) == once

    def test_null_removes_and_lists_are_replaced(self) -> None:
        assert merge_patched({"a": [1], "b": {"c": 1, "d": 2}}, {"a": [2], "b": {"c": None}}) == {
            "a": [2],
            "b": {"d": 2},
        }

    def test_strategic_merge_knows_merge_keys(self) -> None:
        before = {"conditions": [{"type": "A", "status": "1"}, {"type": "B", "status": "1"}], "plain": [1, 2]}
        patch = {
            "conditions": [{"type": "B", "status": "2"}, {"type": "C"}, {"type": "A", "$patch": "delete"}],
            "$setElementOrder/conditions": [],
            "plain": [3],
        }
        after = strategic_patched(before, patch)
        assert after == {"conditions": [{"type": "B", "status": "2"}, {"type": "C"}], "plain": [3]}


class TestSelectors:
    kind = next(kind for kind in Verbs().types() if kind.key == SLICES)

    @pytest.mark.parametrize(
        ("fields_", "labels", "matches"),
        [
            ("", "", True),
            ("spec.nodeName=a", "", True),
            ("spec.nodeName==a,spec.driver!=x", "", True),
            ("spec.nodeName!=a", "", False),
            ("", "x=1", True),
            ("", "x!=1", False),
            ("", "x,!y", True),
            ("", "x in (1, 2)", True),
            ("", "x notin (1,2)", False),
            ("", "z notin (1)", True),
        ],
    )
    def test_terms(self, fields_: str, labels: str, matches: bool) -> None:  # noqa: FBT001
        item = {"metadata": {"name": "n", "labels": {"x": "1"}}, "spec": {"nodeName": "a", "driver": "liken.sh"}}
        assert matcher(self.kind, fields=fields_, labels=labels)(item) is matches

    def test_json_paths_of_columns(self) -> None:
        item = {"status": {"conditions": [{"type": "Ready", "status": "True"}], "n": 3}}
        assert value(item, '.status.conditions[?(@.type=="Ready")].status') == "True"
        assert value(item, '.status.conditions[?(@.type=="Gone")].status') is None
        assert value(item, ".status.n") == 3
        assert value(item, ".spec.x.y") is None


SHAPE: Json = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 3},
        "count": {"type": "integer", "minimum": 1, "maximum": 5, "default": 2},
        "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "port": {"x-kubernetes-int-or-string": True},
        "none": {"type": "string", "nullable": True},
        "map": {"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 1},
        "keyed": {
            "type": "array",
            "minItems": 1,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "properties": {"k": {"type": "string"}, "d": {"default": 1}}},
        },
    },
}


class TestSchemas:
    def test_pruning_keeps_what_is_declared(self) -> None:
        item = {"name": "a", "x": 1, "open": {"any": 1}, "keyed": [{"k": "1", "y": 2}], "map": {"a": "b"}}
        kept, dropped = schema.pruned(item, SHAPE)
        assert kept == {"name": "a", "open": {"any": 1}, "keyed": [{"k": "1"}], "map": {"a": "b"}}
        assert dropped == ["x", "keyed[0].y"]

    def test_defaults_fill_what_is_absent(self) -> None:
        assert schema.defaulted({"keyed": [{}]}, SHAPE) == {"keyed": [{"d": 1}], "count": 2}

    @pytest.mark.parametrize(
        ("item", "words"),
        [
            ({"name": ""}, "at least 1 chars"),
            ({"name": "long"}, "may not be more than 3 bytes"),
            ({"name": 1}, "must be of type string"),
            ({"name": None}, "must be of type string"),
            ({"count": 0}, "greater than or equal to 1"),
            ({"count": 6}, "less than or equal to 5"),
            ({"count": True}, "must be of type integer"),
            ({"port": 1.5}, None),
            ({"map": {"a": 1}}, "must be of type string"),
            ({"map": {"a": "1", "b": "2"}}, "must have at most 1 items"),
            ({"keyed": [{"k": "1"}, {"k": "1"}]}, "Duplicate value"),
            ({"keyed": []}, "at least 1 items"),
            ({"none": None, "port": "http", "name": "abc", "count": 5}, None),
        ],
    )
    def test_violations_are_said(self, item: Json, words: str | None) -> None:
        found = [text for _, text in schema.problems(item, SHAPE)]
        assert found == [] if words is None else words in found[0]


class TestFields:
    def test_a_manager_owns_what_it_applied_and_loses_what_others_change(self) -> None:
        head = {"apiVersion": "v1", "kind": "Thing", "metadata": {"name": "x"}}
        first = fields.applied(None, {**head, "spec": {"a": 1, "b": 2}}, "one", force=False)
        assert first["spec"] == {"a": 1, "b": 2}
        changed = fields.updated(first, {**first, "spec": {"a": 5, "b": 2}}, "two")
        with pytest.raises(Refusal, match=r"conflict with \"two\": .spec.a"):
            fields.applied(changed, {**head, "spec": {"a": 1}}, "one", force=False)
        forced = fields.applied(changed, {**head, "spec": {"a": 1}}, "one", force=True)
        assert forced["spec"] == {"a": 1}

    def test_what_two_managers_apply_stays_until_both_let_go(self) -> None:
        head = {"apiVersion": "v1", "kind": "Thing", "metadata": {"name": "x"}}
        item = fields.applied(None, {**head, "spec": {"a": 1}}, "one", force=False)
        item = fields.applied(item, {**head, "spec": {"a": 1}}, "two", force=False)
        item = fields.applied(item, {**head}, "one", force=False)
        assert item["spec"] == {"a": 1}
        item = fields.applied(item, {**head}, "two", force=False)
        assert "spec" not in item


class TestSlices:
    def test_a_gate_that_is_off_drops_its_field_and_says_that_it_did(self) -> None:
        spec = {"devices": [{"name": "a", "allowMultipleAllocations": True, "taints": [{"key": "k"}]}]}
        item: Json = {"spec": copy.deepcopy(spec)}
        assert not admitted(item, {})
        assert item["spec"]["devices"][0]["taints"][0]["timeAdded"]
        item = {"spec": copy.deepcopy(spec)}
        assert admitted(item, {"DRAConsumableCapacity": False, "DRADeviceTaints": False})
        assert item["spec"]["devices"] == [{"name": "a"}]

    def test_what_liken_makes_has_no_problem(self) -> None:
        for item in slices([offer(f"usb-1-{n}-1-0") for n in range(300)], node=NodeRef(name="n", uid="u")):
            assert list(problems(item, None)) == []


class TestStore:
    def test_versions_grow_and_what_is_handed_out_is_a_copy(self) -> None:
        objects = Objects()
        key = ObjectKey("", "nodes", "", "n")
        first = objects.put(key, {"metadata": {"name": "n"}, "spec": {}})
        first["spec"]["x"] = 1
        second = objects.get(key)
        assert second is not None
        assert second["spec"] == {}
        objects.put(key, second)
        last = objects.remove(key)
        changes = list(objects.since(0))
        assert [change.version for change in changes] == sorted({change.version for change in changes})
        assert int(last["metadata"]["resourceVersion"]) == objects.version
        objects.compact()
        assert list(objects.since(0)) == []
        assert objects.floor == objects.version

    def test_finalizers_keep_an_object_until_they_are_gone(self) -> None:
        verbs = Verbs()
        target = Target(kind=verbs.type_of(TypeKey("", "v1", "nodes")), name="n")
        verbs.create(target, {"metadata": {"name": "n", "finalizers": ["x/y"]}}, Options())
        verbs.delete(target, None, Options())
        assert verbs.get(target)["metadata"]["deletionTimestamp"]
        verbs.patch(target, "application/merge-patch+json", {"metadata": {"finalizers": None}}, Options())
        with pytest.raises(Refusal, match="not found"):
            verbs.get(target)

    def test_preconditions_of_a_deletion_hold(self) -> None:
        verbs = Verbs()
        target = Target(kind=verbs.type_of(TypeKey("", "v1", "nodes")), name="n")
        made = verbs.create(target, {"metadata": {"name": "n"}}, Options())
        for wrong in ({"uid": "other"}, {"resourceVersion": "1"}):
            with pytest.raises(Refusal, match="Precondition failed"):
                verbs.delete(target, {"preconditions": wrong}, Options())
        verbs.delete(target, {"preconditions": {"uid": made["metadata"]["uid"]}}, Options())


def test_a_table_has_the_columns_of_its_type() -> None:
    kind = TestSelectors.kind
    item = {"metadata": {"name": "a", "creationTimestamp": "2020-01-01T00:00:00Z"}, "spec": {"nodeName": "n"}}
    found = table(kind, [item], "7")
    assert [column["name"] for column in found["columnDefinitions"]] == ["Name", "Node", "Driver", "Pool", "Age"]
    assert found["rows"][0]["cells"][:3] == ["a", "n", "<none>"]
    assert found["rows"][0]["cells"][4].endswith("d")
    assert wanted("application/json;as=Table;v=v1;g=meta.k8s.io,application/json")
    assert not wanted("application/json")
