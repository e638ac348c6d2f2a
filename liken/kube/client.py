"""The API server as the rest of liken sees it: verbs on paths, plain JSON in and out, errors of `liken.model.api`.

`Kube.connect` logs in and hands out the one client of the process. kubernetes_asyncio brings credentials, TLS and
the session; its models and its watch are not used (they cost memory, and its watch neither backs off nor knows 410).
"""

import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from liken.kube import failures, paths
from liken.kube.credentials import SERVICE_ACCOUNT
from liken.kube.transport import Request, Source, Transport
from liken.kube.watch import Selection, follow, watch
from liken.model.api import ApiError, Followed, Json, WatchEvent

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"


class Kube:
    """One API server. Make it with `Kube.connect`; every method raises the errors of `liken.model.api`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    @classmethod
    @contextlib.asynccontextmanager
    async def connect(
        cls,
        *,
        kubeconfig: Path | None,
        context: str | None = None,
        service_account: Path = SERVICE_ACCOUNT,
        timeout_s: float = 10.0,
    ) -> AsyncIterator["Kube"]:
        """Log in with a kubeconfig, or as the pod when it is None; raises CredentialsError.

        `timeout_s`: seconds for a connection and for each wait for bytes; a whole request has three times that.
        """
        source = Source(kubeconfig=kubeconfig, context=context, service_account=service_account)
        transport = Transport(await source.load(), source, timeout_s=timeout_s)
        try:
            yield cls(transport)
        finally:
            await transport.close()

    @property
    def server(self) -> str:
        """The server's URL."""
        return self._transport.server

    async def get(self, path: str) -> Json:
        """One object."""
        return await self._ask(Request(verb="get", method="GET", path=path))

    async def list(self, path: str, *, field_selector: str = "", label_selector: str = "") -> Json:
        """A whole list object (`items`, `metadata.resourceVersion`)."""
        chosen = Selection(path=path, field_selector=field_selector, label_selector=label_selector)
        return await self._ask(Request(verb="list", method="GET", path=path, query=chosen.query()))

    async def create(self, path: str, body: Json, *, dry_run: bool = False) -> Json:
        """Create an object in a collection; `dry_run` only asks whether it would be accepted."""
        return await self._ask(Request(verb="create", method="POST", path=path), body, dry_run=dry_run)

    async def replace(self, path: str, body: Json) -> Json:
        """Replace an object; guarded when the body carries a resourceVersion."""
        return await self._ask(Request(verb="update", method="PUT", path=path), body)

    async def json_patch(self, path: str, ops: Sequence[Json], *, dry_run: bool = False) -> Json:
        """Apply an RFC 6902 patch."""
        request = Request(verb="patch", method="PATCH", path=path, kind=JSON_PATCH)
        return await self._ask(request, list(ops), dry_run=dry_run)

    async def merge_patch(self, path: str, body: Json) -> Json:
        """Apply an RFC 7386 patch; a subresource is part of the path."""
        return await self._ask(Request(verb="patch", method="PATCH", path=path, kind=MERGE_PATCH), body)

    async def apply(self, path: str, body: Json, *, manager: str, force: bool = True) -> Json:
        """Apply on the server as `manager`; with `force` fields of other managers are taken over."""
        query = {"fieldManager": manager, "force": "true" if force else "false"}
        return await self._ask(Request(verb="patch", method="PATCH", path=path, kind=APPLY_PATCH, query=query), body)

    async def delete(self, path: str) -> Json:
        """Delete an object; returns it, or a Status."""
        return await self._ask(Request(verb="delete", method="DELETE", path=path))

    def watch(
        self, path: str, *, field_selector: str = "", label_selector: str = "", resource_version: str = ""
    ) -> AsyncGenerator[WatchEvent, None]:
        """One connection's events, bookmarks included; ends when the server ends it. Raises Gone, Unavailable, …."""
        chosen = Selection(path=path, field_selector=field_selector, label_selector=label_selector)
        return watch(self._transport, chosen, resource_version=resource_version)

    def follow(
        self,
        path: str,
        *,
        field_selector: str = "",
        label_selector: str = "",
        on_error: Callable[[ApiError], None] | None = None,
    ) -> AsyncGenerator[Followed, None]:
        """List and watch for ever: `Listed` first and after each re-list, changes in between. Raises nothing.

        `on_error` is told of every failure, for those who must say that a resource is not served or forbidden.
        """
        chosen = Selection(path=path, field_selector=field_selector, label_selector=label_selector)
        return follow(self._transport, self.list, chosen, on_error=on_error)

    async def version(self) -> Json:
        """What `/version` says (`gitVersion`, …)."""
        return await self.get(paths.VERSION)

    async def can_i(self, verb: str, group: str, resource: str, *, subresource: str = "", namespace: str = "") -> bool:
        """Whether these credentials may do this (SelfSubjectAccessReview)."""
        attributes = {"verb": verb, "group": group, "resource": resource}
        attributes |= {"subresource": subresource} if subresource else {}
        attributes |= {"namespace": namespace} if namespace else {}
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        answer = await self.create(paths.ACCESS_REVIEWS, body)
        return bool((answer.get("status") or {}).get("allowed"))

    async def _ask(self, request: Request, body: Any = None, *, dry_run: bool = False) -> Json:
        if body is not None:
            request = replace(request, data=json.dumps(body, separators=(",", ":")).encode())
        if dry_run:
            request = replace(request, query={**request.query, "dryRun": "All"})
        status, payload = await self._transport.read(request)
        try:
            answer = json.loads(payload)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise failures.not_json(request.verb, request.path, status, payload)
        return answer
