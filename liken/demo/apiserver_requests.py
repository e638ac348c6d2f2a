"""One request to the in-memory API server: its entry in the log, its verb, its options and its body."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml
from aiohttp import web

from liken.demo import apiserver_refusals as refusals
from liken.demo.apiserver_refusals import Refusal
from liken.demo.apiserver_verbs import Options, Target


@dataclass(slots=True, kw_only=True)
class Seen:
    """One request of the log. `at` and `done`: `anyio.current_time()` of arrival and answer; `status` 0 until then."""

    at: float
    done: float = 0.0
    method: str
    path: str
    verb: str
    resource: str
    name: str
    query: Mapping[str, str]
    content_type: str = ""
    body: bytes = b""
    status: int = 0


def verb_of(request: web.Request, target: Target | None) -> str:
    """The verb, as rights and messages have it."""
    if target is None:
        return "get" if request.method == "GET" else "create"
    watching = request.query.get("watch", "").lower() in ("1", "true")
    match request.method:
        case "GET":
            return "watch" if watching else "get" if target.name else "list"
        case "DELETE":
            return "delete" if target.name else "deletecollection"
        case method:
            return {"POST": "create", "PUT": "update", "PATCH": "patch"}.get(method, method.lower())


def options(request: web.Request) -> Options:
    """The query parameters of a write."""
    agent = request.headers.get("User-Agent", "unknown").partition("/")[0]
    return Options(
        dry_run=request.query.get("dryRun") == "All",
        strict=request.query.get("fieldValidation") == "Strict",
        manager=request.query.get("fieldManager") or agent,
        force=request.query.get("force", "").lower() in ("1", "true"),
    )


def parsed(body: bytes) -> Any:
    """A body of JSON or YAML; None without one."""
    if not body:
        return None
    if body.startswith(b"k8s\0"):
        raise Refusal(415, "UnsupportedMediaType", "the in-memory API server takes JSON and YAML, no protobuf")
    try:
        return json.loads(body)
    except ValueError:
        pass
    try:
        return yaml.safe_load(body)
    except yaml.YAMLError as error:
        raise refusals.bad_request(f"the body of the request cannot be parsed: {error}") from None
