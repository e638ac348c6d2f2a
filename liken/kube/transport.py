"""One request to the API server and its answer: time-outs, the Authorization header, renewal of the credentials.

A 401, or a certificate that does not verify, loads the credentials anew (at most once in half a minute) and the
request is sent once more. Nothing else is retried here, because only the caller knows the newest state.
"""

import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import anyio
import structlog
from yarl import URL

from liken import __version__
from liken.kube import failures
from liken.kube.credentials import SERVICE_ACCOUNT, CredentialsError, Login, load
from liken.model.api import ApiError, Unauthorized

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

JSON = "application/json"
RELOAD_PAUSE_S = 30.0
LOAD_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where credentials are loaded from: a kubeconfig and its context, or the pod's service account folder."""

    kubeconfig: Path | None
    context: str | None = None
    service_account: Path = SERVICE_ACCOUNT
    load_s: float = LOAD_S

    async def load(self) -> Login:
        """Load them; raises CredentialsError, also for an exec plugin that does not come to an end."""
        try:
            with anyio.fail_after(self.load_s):
                return await load(self.kubeconfig, self.context, service_account=self.service_account)
        except TimeoutError:
            raise CredentialsError(
                f"kubeconfig {self.kubeconfig}: its credentials were not there after {self.load_s:g} s: "
                "does its exec plugin wait for somebody?"
            ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request. `verb` is Kubernetes' (get, list, patch), for messages; `silence_s` replaces all read limits."""

    verb: str
    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    data: bytes | None = None
    kind: str = JSON
    silence_s: float | None = None


class Transport:
    """Sends requests with one login at a time; `timeout_s` bounds connecting and each wait for bytes."""

    def __init__(self, login: Login, source: Source, *, timeout_s: float) -> None:
        self._login = login
        self._source = source
        self._timeout_s = timeout_s
        self._renewing = anyio.Lock()
        self._renewed_at = float("-inf")

    @property
    def server(self) -> str:
        """The server's URL."""
        return self._login.server

    async def close(self) -> None:
        """Close every connection."""
        with anyio.CancelScope(shield=True):
            await self._login.close()

    @contextlib.asynccontextmanager
    async def request(self, request: Request) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send one request; yields a 2xx answer whose body is still to be read. Raises liken.model.api errors."""
        login = self._login
        if login.outlived(anyio.current_time()):
            await self._renew(login)
            login = self._login
        try:
            response = await self._send(login, request)
        except Unauthorized:
            if not await self._renew(login):
                raise
            response = await self._send(self._login, request)
        try:
            yield response
        finally:
            response.release()

    async def read(self, request: Request) -> tuple[int, bytes]:
        """Send one request and read the whole answer: its status and body."""
        async with self.request(request) as response:
            try:
                return response.status, await response.read()
            except (TimeoutError, aiohttp.ClientError, OSError) as error:
                raise failures.no_answer(request.verb, request.path, self.server, error) from error

    async def _send(self, login: Login, request: Request) -> aiohttp.ClientResponse:
        headers = {"Accept": JSON, "User-Agent": f"liken/{__version__}", **login.headers(anyio.current_time())}
        if request.data is not None:
            headers["Content-Type"] = request.kind
        limit = float("inf") if request.silence_s is None else 3 * self._timeout_s
        try:
            with anyio.fail_after(limit):  # a watch may be silent, but not before its headers
                response = await login.session.request(
                    request.method,
                    URL(login.server + request.path, encoded=True).with_query(dict(request.query)),
                    data=request.data,
                    headers=headers,
                    timeout=self._timeout(request.silence_s),
                    allow_redirects=False,
                    proxy=login.proxy,
                    server_hostname=login.tls_name,
                )
            if 200 <= response.status < 300:  # noqa: PLR2004  (2xx)
                return response
            async with response:
                body = await response.read()
        except (TimeoutError, aiohttp.ClientError, OSError, RuntimeError) as error:
            if isinstance(error, aiohttp.ClientSSLError) and await self._renew(login):
                log.info("kube.credentials_reloaded", server=login.server)  # a rotated certificate: good next time
            raise failures.no_answer(request.verb, request.path, login.server, error) from error
        raise failures.refusal(request.verb, request.path, response.status, body, response.headers)

    def _timeout(self, silence_s: float | None) -> aiohttp.ClientTimeout:
        limit = self._timeout_s
        total = 3 * limit if silence_s is None else None
        return aiohttp.ClientTimeout(total=total, connect=limit, sock_connect=limit, sock_read=silence_s or limit)

    async def _renew(self, seen: Login) -> bool:
        """Load the credentials anew; False when that was done a moment ago, or failed."""
        async with self._renewing:
            now = anyio.current_time()
            if self._login is not seen:
                return True
            if now - self._renewed_at < RELOAD_PAUSE_S:
                return False
            self._renewed_at = now
            try:
                self._login = await self._source.load()
            except ApiError as error:
                log.warning("kube.credentials_unusable", error=str(error))
                return False
        await seen.close()
        return True
