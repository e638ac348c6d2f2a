"""The HTTP server: `/metrics`, `/healthz`, `/readyz`, and to loopback peers the status page with its live data.

A browser page on another site must not read the status through a rebound DNS name, so a request whose Host is a
name other than `localhost` is refused; the page runs under a content security policy that lists the hashes of its
own script and style and nothing else.
"""

import base64
import hashlib
import ipaddress
import json
import re
from collections.abc import Awaitable, Callable
from importlib import resources
from typing import Protocol
from urllib.parse import urlsplit

import anyio
import anyio.abc
import structlog
from aiohttp import web
from prometheus_client.exposition import choose_encoder

from liken.metrics import Metrics
from liken.model.offers import Snapshot
from liken.web.status import Outlook, document, readiness

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

KEEPALIVE_S = 15.0
MAX_WATCHERS = 16
LOOPBACK_ONLY = "The status page is answered to this machine only: use kubectl port-forward, or ssh -L.\n"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Snapshots(Protocol):
    """Where the newest snapshot stands, and how to wait for a newer one."""

    @property
    def snapshot(self) -> Snapshot:
        """The newest snapshot."""

    async def settled(self, after: int) -> Snapshot:
        """The newest snapshot, once its revision is above `after`."""


class ListenError(Exception):
    """The address cannot be listened on; the message names it and the reason."""


def address(listen: str) -> tuple[str, int]:
    """Host and port of `HOST:PORT` (`[::1]:9180` too); raises ListenError when it is none."""
    host, _, port = listen.rpartition(":")
    try:
        host = host.strip("[]")
        ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
        number = int(port)
    except ValueError:
        raise ListenError(f"web listen address {listen!r}: write an IP address and a port, as 127.0.0.1:9180") from None
    if not 0 <= number <= 65535:  # noqa: PLR2004  (the range of a TCP port)
        raise ListenError(f"web listen address {listen!r}: a port is between 0 and 65535")
    return host, number


def policy(page: str) -> str:
    """The content security policy under which `page` runs its own inline style and script and no other."""

    def hashes(tag: str) -> str:
        blocks = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digests = (hashlib.sha256(block.encode()).digest() for block in blocks)
        return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)

    return (
        f"default-src 'none'; script-src {hashes('script')}; style-src {hashes('style')}; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


class Web:
    """Serves until cancelled. `outlook` is asked anew for each answer; `port` is known once started."""

    def __init__(self, *, listen: str, metrics: Metrics, store: Snapshots, outlook: Callable[[], Outlook]) -> None:
        self._host, self.port = address(listen)
        self._metrics = metrics
        self._store = store
        self._outlook = outlook
        self._page = resources.files("liken.web").joinpath("page.html").read_text(encoding="utf-8")
        self._policy = policy(self._page)
        self._watchers = 0
        self._stopping = anyio.Event()

    async def run(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Listen and serve; raises ListenError when the address is taken or not ours."""
        app = web.Application(middlewares=[self._guard])
        app.router.add_get("/metrics", self._metrics_text)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/", self._page_html)
        app.router.add_get("/status.json", self._status)
        app.router.add_get("/changes", self._changes)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        try:
            site = web.TCPSite(runner, self._host, self.port)
            try:
                await site.start()
            except OSError as error:
                raise ListenError(
                    f"cannot listen on {self._host}:{self.port} for the web: {error.strerror}; "
                    "choose another address with --web-listen"
                ) from error
            self.port = runner.addresses[0][1]
            log.info("web.listening", address=f"{self._host}:{self.port}")
            task_status.started()
            await anyio.sleep_forever()
        finally:
            self._stopping.set()
            with anyio.CancelScope(shield=True), anyio.move_on_after(3):
                await runner.cleanup()

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if not _literal(request.host):
            return web.Response(status=421, text="ask by IP address or as localhost\n")
        public = request.path in {"/metrics", "/healthz", "/readyz"}
        if not public and not _loopback(request.remote):
            return web.Response(status=403, text=LOOPBACK_ONLY)
        answer = await handler(request)
        if not answer.prepared:
            answer.headers.setdefault("X-Content-Type-Options", "nosniff")
            answer.headers.setdefault("Cache-Control", "no-store")
        return answer

    async def _metrics_text(self, request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(self._metrics.registry), headers={"Content-Type": content_type})

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _: web.Request) -> web.Response:
        ready, text = readiness(self._outlook().parts)
        return web.Response(status=200 if ready else 503, text=text)

    async def _page_html(self, _: web.Request) -> web.Response:
        headers = {"Content-Security-Policy": self._policy, "Referrer-Policy": "no-referrer"}
        return web.Response(text=self._page, content_type="text/html", charset="utf-8", headers=headers)

    async def _status(self, _: web.Request) -> web.Response:
        return web.Response(
            text=json.dumps(document(self._store.snapshot, self._outlook())), content_type="application/json"
        )

    async def _changes(self, request: web.Request) -> web.StreamResponse:
        """Server-sent events: one `change` with the revision at once and at each new snapshot, comments in between."""
        if self._watchers >= MAX_WATCHERS:
            return web.Response(status=503, text=f"{MAX_WATCHERS} pages already follow the changes\n")
        self._watchers += 1
        try:
            return await self._follow(request)
        finally:
            self._watchers -= 1

    async def _follow(self, request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        await answer.prepare(request)
        seen = -1
        while not self._stopping.is_set():
            with anyio.move_on_after(KEEPALIVE_S):
                seen = (await self._store.settled(after=seen)).revision
                await answer.write(f"event: change\ndata: {seen}\n\n".encode())
                continue
            await answer.write(b": still here\n\n")
        return answer


def _literal(host: str) -> bool:
    """Whether a Host header is an IP address or `localhost`."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or bool(ipaddress.ip_address(name))
    except ValueError:
        return False


def _loopback(remote: str | None) -> bool:
    try:
        return remote is not None and ipaddress.ip_address(remote).is_loopback
    except ValueError:
        return False
