"""The in-memory API server: an honest subset of Kubernetes over HTTP on loopback, for the demo and the tests.

    async with ApiServer.serve() as server:
        server.kubeconfig(path)     # kubectl --kubeconfig path get resourceslices -w

Its objects and verbs are in `apiserver_verbs`; here are routes, watches, request log and faults. There is no TLS,
and no authorisation beside `deny`; it listens on loopback only.
"""

import contextlib
import socket
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import yaml
from aiohttp import web

from liken.demo import apiserver_discovery as discovery
from liken.demo import apiserver_refusals as refusals
from liken.demo import apiserver_tables as tables
from liken.demo.apiserver_faults import REASONS, Fault, Faults, How
from liken.demo.apiserver_refusals import Refusal
from liken.demo.apiserver_requests import Seen, options, parsed, verb_of
from liken.demo.apiserver_types import SLICES, TypeKey
from liken.demo.apiserver_verbs import Options, Target, Verbs
from liken.demo.apiserver_watch import Watch
from liken.model.api import Json

BODY_LIMIT = 3 << 20
LOG_LIMIT = 20_000
WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})


@dataclass(slots=True)
class ApiServer:
    """One server. Make it with `serve`; `verbs` is its state, for direct access without HTTP."""

    verbs: Verbs = field(default_factory=Verbs)
    git_version: str = "v1.37.2"
    token: str = ""
    bookmark_s: float = 60.0
    port: int = 0
    faults: Faults = field(default_factory=Faults)
    requests: deque[Seen] = field(default_factory=lambda: deque(maxlen=LOG_LIMIT))
    on_request: Callable[[Seen], None] | None = None
    sockets: Sequence[socket.socket] = ()
    total: int = 0
    _denied: set[tuple[str, str]] = field(default_factory=set)
    _runner: web.AppRunner | None = None
    _watch_epoch: int = 0
    _answered: anyio.Event = field(default_factory=anyio.Event)

    @classmethod
    @contextlib.asynccontextmanager
    async def serve(
        cls,
        *,
        port: int = 0,
        git_version: str = "v1.37.2",
        gates: Mapping[str, bool] | None = None,
        token: str = "",
        bookmark_s: float = 60.0,
        sockets: Sequence[socket.socket] = (),
    ) -> AsyncIterator["ApiServer"]:
        """Serve on loopback, or on these bound sockets too (of other network namespaces; `port=-1`: on them alone).

        `gates`: feature gates that are off (`{"DRAConsumableCapacity": False}`).
        """
        server = cls(Verbs(gates=dict(gates or {})), git_version, token, bookmark_s, port, sockets=sockets)
        await server.start()
        try:
            yield server
        finally:
            await server.stop()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def writes(self) -> list[Seen]:
        """The accepted writes of ResourceSlices so far, oldest first, without dry runs."""
        return [
            seen
            for seen in self.requests
            if seen.verb in WRITES
            and seen.resource == SLICES.plural
            and 200 <= seen.status < 300  # noqa: PLR2004  (2xx)
            and "dryRun" not in seen.query
        ]

    async def start(self) -> None:
        """Listen; after a `stop` on the same port and with the same objects."""
        application = web.Application(client_max_size=BODY_LIMIT)
        application.router.add_route("*", "/{path:.*}", self._entry)
        runner = web.AppRunner(application, handler_cancellation=True, shutdown_timeout=0.1, access_log=None)
        await runner.setup()
        if self.port >= 0:
            await web.TCPSite(runner, "127.0.0.1", self.port, reuse_address=True).start()
            self.port = runner.addresses[0][1]
        for bound in self.sockets:
            await web.SockSite(runner, bound.dup()).start()
        self._runner = runner

    async def stop(self) -> None:
        """Refuse connections and end those there are."""
        if self._runner is not None:
            runner, self._runner = self._runner, None
            self.end_watches()
            with anyio.CancelScope(shield=True):
                await runner.cleanup()

    async def logged(self, after: int) -> Seen:
        """Wait until more than `after` requests were answered (`total` counts them); the newest of the log."""
        while self.total <= after:
            await self._answered.wait()
        return self.requests[-1]

    def kubeconfig(self, path: Path, url: str | None = None) -> Path:
        """Write a kubeconfig for this server, at another URL if given; returns the path."""
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "demo",
            "clusters": [{"name": "demo", "cluster": {"server": url or self.url}}],
            "users": [{"name": "demo", "user": {"token": self.token or "demo"}}],
            "contexts": [{"name": "demo", "context": {"cluster": "demo", "user": "demo"}}],
        }
        path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
        return path

    def fail(
        self,
        status: int,
        *,
        verb: Iterable[str] | str = (),
        resource: str = "",
        times: int = 1,
        retry_after: int | None = None,
        message: str = "",
        body: bytes | None = None,
    ) -> None:
        """Answer the next fitting requests with a failure instead of doing them."""
        fault = Fault(how=How.ANSWER, status=status, resource=resource, times=times, message=message, body=body)
        fault.retry_after = retry_after
        self.faults.add(fault, verb)

    def disturb(
        self, how: How, *, verb: Iterable[str] | str = (), resource: str = "", times: int = 1, seconds: float = 0.0
    ) -> None:
        """Let the next fitting requests hang, be reset, break off, or come `seconds` late."""
        self.faults.add(Fault(how=how, resource=resource, times=times, seconds=seconds), verb)

    def deny(self, verb: str, resource: str) -> None:
        """Take a right away (403, and the access review says so)."""
        self._denied.add((verb, resource))

    def end_watches(self) -> None:
        """End every watch, as a server does that goes away."""
        self._watch_epoch += 1
        self.verbs.objects.wake()

    def compact(self) -> None:
        """Forget the past: watches from an old version get a 410."""
        self.verbs.objects.compact()

    def put(self, item: Json) -> Json:
        """Create or replace an object as somebody else would, without HTTP."""
        kind = next(kind for kind in self.verbs.types() if (kind.group_version, kind.kind) == _type(item))
        metadata = item["metadata"]
        target = Target(kind=kind, namespace=metadata.get("namespace", ""), name=metadata.get("name", ""))
        options = Options(manager="somebody")
        if target.name and self.verbs.objects.get(target.key) is not None:
            return self.verbs.replace(target, item, options)
        return self.verbs.create(target, item, options)

    def items(self, plural: str) -> list[Json]:
        """All objects of a type, by its plural name."""
        kind = next(kind for kind in self.verbs.types() if kind.key.plural == plural)
        items: list[Json] = self.verbs.list(Target(kind=kind))["items"]
        return items

    def remove(self, plural: str, name: str, namespace: str = "") -> None:
        """Delete an object as somebody else would, without HTTP."""
        kind = next(kind for kind in self.verbs.types() if kind.key.plural == plural)
        self.verbs.delete(Target(kind=kind, namespace=namespace, name=name), None, Options())

    async def _entry(self, request: web.Request) -> web.StreamResponse:
        try:
            return await self._logged(request)
        except Refusal as refusal:
            return web.json_response(refusal.status(), status=refusal.code, headers=refusal.headers())

    async def _logged(self, request: web.Request) -> web.StreamResponse:
        parts = [part for part in request.path.split("/") if part]
        target = self._target(parts) if parts[:1] in (["api"], ["apis"]) else None
        verb = verb_of(request, target)
        seen = Seen(
            at=anyio.current_time(),
            method=request.method,
            path=request.path,
            verb=verb,
            resource=target.kind.key.plural if target else "",
            name=target.name if target else "",
            query=dict(request.query),
            content_type=request.content_type,
            body=await request.read(),
        )
        self.requests.append(seen)
        if self.on_request is not None:
            self.on_request(seen)

        async def work() -> web.StreamResponse:
            if target is None:
                return self._about(parts, request, seen)
            return await self._resource(target, request, seen)

        try:
            self._authenticated(request)
            response = await self._disturbed(request, seen, work)
        except Refusal as refusal:
            self._close(seen, refusal.code)
            raise
        self._close(seen, response.status)
        return response

    def _close(self, seen: Seen, status: int) -> None:
        seen.status, seen.done = status, anyio.current_time()
        self.total += 1
        event, self._answered = self._answered, anyio.Event()
        event.set()

    async def _disturbed(
        self, request: web.Request, seen: Seen, work: Callable[[], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        fault = self.faults.take(seen.verb, seen.resource)
        if fault is None:
            return await work()
        if fault.how is How.LATE:
            await anyio.sleep(fault.seconds)
            return await work()
        if fault.how is How.ANSWER:
            if fault.body is not None:
                return web.Response(body=fault.body, status=fault.status, content_type="text/html")
            message = fault.message or f"asked to answer {fault.status}"
            raise Refusal(fault.status, REASONS.get(fault.status, ""), message, retry_after=fault.retry_after)
        if fault.how is How.HANG:
            await anyio.sleep_forever()
        if fault.how is How.HALF:
            whole = await work()
            text = whole.body if isinstance(whole, web.Response) and isinstance(whole.body, bytes) else b'{"kind":'
            half = web.StreamResponse(headers={"Content-Type": "application/json"})
            half.content_length = len(text)
            await half.prepare(request)
            await half.write(text[: len(text) // 2])
        if request.transport is not None:
            request.transport.abort()
        return web.Response()

    def _authenticated(self, request: web.Request) -> None:
        if self.token and request.headers.get("Authorization") != f"Bearer {self.token}":
            raise Refusal(401, "Unauthorized", "Unauthorized")

    def _about(self, parts: list[str], request: web.Request, seen: Seen) -> web.Response:
        if parts[:1] and parts[0] in ("healthz", "readyz", "livez"):
            return web.Response(text="ok")
        if parts == ["apis", *discovery.AUTHORIZATION, discovery.REVIEWS] and request.method == "POST":
            return web.json_response(self._review(parsed(seen.body)), status=201)
        found = discovery.document(parts, self.verbs.types(), self.git_version)
        if found is None or request.method != "GET":
            raise refusals.not_served()
        return web.json_response(found)

    def _review(self, body: Any) -> Json:
        asked = body["spec"].get("resourceAttributes") or {}
        resource = "/".join(filter(None, (asked.get("resource"), asked.get("subresource"))))
        return {**body, "status": {"allowed": (asked.get("verb"), resource) not in self._denied}}

    async def _resource(self, target: Target, request: web.Request, seen: Seen) -> web.StreamResponse:
        self._authorised(target, seen.verb)
        as_table = tables.wanted(request.headers.get("Accept", ""))
        if seen.verb == "watch":
            epoch = self._watch_epoch
            watch = Watch(self.verbs, target, request.query, as_table=as_table, bookmark_s=self.bookmark_s)
            return await watch.stream(request, ended=lambda: self._watch_epoch != epoch)
        answer = self._done(target, request, seen)
        if as_table and seen.verb in ("get", "list"):
            items = answer["items"] if seen.verb == "list" else [answer]
            answer = tables.table(target.kind, items, answer["metadata"]["resourceVersion"])
        return web.json_response(answer, status=201 if seen.verb == "create" else 200)

    def _done(self, target: Target, request: web.Request, seen: Seen) -> Json:
        chosen, body = options(request), parsed(seen.body)
        selectors = {
            "fields": request.query.get("fieldSelector", ""),
            "labels": request.query.get("labelSelector", ""),
        }
        actions: dict[str, Callable[[], Json]] = {
            "list": lambda: self.verbs.list(target, **selectors),
            "get": lambda: self.verbs.get(target),
            "create": lambda: self.verbs.create(target, body, chosen),
            "update": lambda: self.verbs.replace(target, body, chosen),
            "patch": lambda: self.verbs.patch(target, request.content_type, body, chosen),
            "delete": lambda: self.verbs.delete(target, body, chosen),
            "deletecollection": lambda: self.verbs.delete_collection(target, chosen, **selectors),
        }
        action = actions.get(seen.verb)
        if action is None:
            raise Refusal(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
        return action()

    def _authorised(self, target: Target, verb: str) -> None:
        resource = "/".join(filter(None, (target.kind.key.plural, target.subresource)))
        if (verb, resource) in self._denied:
            raise Refusal(
                403,
                "Forbidden",
                f'{target.kind.resource} is forbidden: User "demo" cannot {verb} resource "{resource}" '
                f'in API group "{target.kind.key.group}" at the cluster scope',
            )

    def _target(self, parts: list[str]) -> Target | None:
        """The object or collection a path names; None for the discovery documents."""
        match parts:
            case ["api", version, *rest]:
                group = ""
            case ["apis", group, version, *rest]:
                pass
            case _:
                return None
        if not rest or (group, version) == discovery.AUTHORIZATION:
            return None
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2:  # noqa: PLR2004  (namespaces, its name, a resource)
            namespace, rest = rest[1], rest[2:]
        kind = self.verbs.type_of(TypeKey(group, version, rest[0]))
        name, subresource = [*rest[1:], "", ""][:2]
        if subresource and not (subresource == "status" and kind.status):
            raise refusals.not_served()
        return Target(kind=kind, namespace=namespace, name=name, subresource=subresource)


def _type(item: Json) -> tuple[str, str]:
    return item["apiVersion"], item["kind"]
