"""One watch of the in-memory API server: where it begins, which events it sees, bookmarks, the 410 in the stream.

An object that a selector no longer matches is DELETED for that watch, one that comes into it ADDED. Too old a
version is an ERROR event in a stream that answered 200, as the real server does it.
"""

import json
from collections.abc import Callable, Iterator, Mapping

import anyio
from aiohttp import web

from liken.demo import apiserver_refusals as refusals
from liken.demo import apiserver_tables as tables
from liken.demo.apiserver_store import Change
from liken.demo.apiserver_verbs import Target, Verbs
from liken.model.api import Json

DEFAULT_S = 1800.0
INITIAL_END = {"k8s.io/initial-events-end": "true"}


class Watch:
    """One client's watch."""

    def __init__(
        self, verbs: Verbs, target: Target, query: Mapping[str, str], *, as_table: bool, bookmark_s: float
    ) -> None:
        self._objects = verbs.objects
        self._target = target
        self._as_table = as_table
        self._bookmark_s = bookmark_s
        self._wants_bookmarks = query.get("allowWatchBookmarks", "").lower() == "true"
        self._wants_initial = query.get("sendInitialEvents", "").lower() == "true"
        self._version = query.get("resourceVersion", "")
        self._seconds = float(query.get("timeoutSeconds") or DEFAULT_S)
        self._chosen = verbs.selected(
            target, fields=query.get("fieldSelector", ""), labels=query.get("labelSelector", "")
        )

    async def stream(self, request: web.Request, *, ended: Callable[[], bool]) -> web.StreamResponse:
        """Serve until the time is over, the client goes, or `ended` says so."""
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        try:
            for event in self._first():
                await self._write(response, event)
            if self._version != "gone":
                await self._follow(response, ended)
        except ConnectionError:
            pass
        return response

    def _first(self) -> Iterator[Json]:
        """What comes before the changes; sets `_version` to where those begin."""
        if self._version in ("", "0") or self._wants_initial:
            for _, item in self._objects.select(self._chosen):
                yield self._event("ADDED", item)
            self._version = str(self._objects.version)
            if self._wants_initial and self._wants_bookmarks:
                yield self._bookmark(INITIAL_END)
        elif int(self._version) < self._objects.floor:
            status = refusals.too_old(int(self._version), self._objects.floor).status()
            self._version = "gone"
            yield {"type": "ERROR", "object": status}

    async def _follow(self, response: web.StreamResponse, ended: Callable[[], bool]) -> None:
        at = int(self._version)
        until = anyio.current_time() + self._seconds
        while not ended():
            for change in self._objects.since(at):
                event = self._seen(change)
                if event is not None:
                    await self._write(response, event)
                at = change.version
            left = until - anyio.current_time()
            if left <= 0:
                return
            if not self._objects.since(at):
                at = self._objects.version
            with anyio.move_on_after(min(left, self._bookmark_s)) as quiet:
                await self._objects.changed(at)
            if quiet.cancelled_caught and self._wants_bookmarks:
                await self._write(response, self._bookmark({}))

    def _seen(self, change: Change) -> Json | None:
        before = change.before is not None and self._chosen(change.key, change.before)
        after = change.after is not None and self._chosen(change.key, change.after)
        match before, after:
            case False, True:
                return self._event("ADDED", change.last)
            case True, True:
                return self._event("MODIFIED", change.last)
            case True, False:
                return self._event("DELETED", change.last)
            case _:
                return None

    def _event(self, kind: str, item: Json) -> Json:
        shown = {**item, "apiVersion": self._target.kind.group_version, "kind": self._target.kind.kind}
        if self._as_table:
            shown = tables.table(self._target.kind, [shown], item["metadata"]["resourceVersion"])
        return {"type": kind, "object": shown}

    def _bookmark(self, annotations: Mapping[str, str]) -> Json:
        version = str(self._objects.version)
        metadata: Json = {"resourceVersion": version, "creationTimestamp": None}
        if annotations:
            metadata["annotations"] = dict(annotations)
        about = {"kind": self._target.kind.kind, "apiVersion": self._target.kind.group_version}
        if self._as_table:
            return {"type": "BOOKMARK", "object": tables.table(self._target.kind, [], version)}
        return {"type": "BOOKMARK", "object": {**about, "metadata": metadata}}

    async def _write(self, response: web.StreamResponse, event: Json) -> None:
        await response.write(json.dumps(event).encode() + b"\n")
