"""Who liken is to the API server: in-cluster credentials or a kubeconfig, and how they are renewed.

In: environment and files, read by kubernetes_asyncio. Out: a `Login` with the session that carries the requests and
the Authorization header of the moment (the library's own session reads ~/.netrc in a thread before each request). A
service account's token is read again each minute (and when the server refuses it); everything else is loaded anew on
demand, because certificates and exec plugins rotate too. A cluster whose certificate is not to be verified is refused,
unless its server is plain HTTP on loopback.
"""

import contextlib
import ipaddress
import os
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies_environment, proxy_bypass

import aiohttp
import anyio
import yaml

from liken.kube import lazy
from liken.model.api import ApiError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
READ_BUFFER = 2 << 20
"""An object in a watch may be as large as etcd takes (1.5 MiB)."""
TOKEN_AGE_S = 60.0
EXEC_SKEW_S = 60.0


class CredentialsError(ApiError):
    """The credentials cannot be used: a file is missing or malformed, or it asks for what liken refuses."""


@dataclass(slots=True, kw_only=True)
class Login:
    """One loaded set of credentials. `expires` is on anyio's clock; None: good until the server refuses it."""

    server: str
    session: aiohttp.ClientSession
    token_file: Path | None = None
    authorization: str | None = None
    expires: float | None = None
    tls_name: str | None = None
    proxy: str | None = None

    def headers(self, now: float) -> Mapping[str, str]:
        """The Authorization header, if any; a token file older than a minute is read again."""
        if self.token_file is not None and (self.expires is None or now >= self.expires):
            self.authorization = f"Bearer {_token(self.token_file)}"
            self.expires = now + TOKEN_AGE_S
        return {} if self.authorization is None else {"Authorization": self.authorization}

    def outlived(self, now: float) -> bool:
        """Whether all of it must be loaded anew (an exec plugin's token has nearly run out)."""
        return self.token_file is None and self.expires is not None and now >= self.expires

    async def close(self) -> None:
        """Close the session and every connection of it."""
        await self.session.close()


async def load(kubeconfig: Path | None, context: str | None, *, service_account: Path = SERVICE_ACCOUNT) -> Login:
    """Load the credentials from a kubeconfig, or those of the pod; raises CredentialsError."""
    lazy.install()
    with _explained(kubeconfig):
        return _in_cluster(service_account) if kubeconfig is None else await _from_file(kubeconfig, context)


def _in_cluster(folder: Path) -> Login:
    from kubernetes_asyncio.client.configuration import Configuration  # noqa: PLC0415  (only a cluster needs it)
    from kubernetes_asyncio.config.incluster_config import InClusterConfigLoader  # noqa: PLC0415

    if not os.environ.get("KUBERNETES_SERVICE_HOST"):
        raise CredentialsError("not in a pod (KUBERNETES_SERVICE_HOST is not set): name a kubeconfig with --kubeconfig")
    configuration = Configuration()
    loader = InClusterConfigLoader(str(folder / "token"), str(folder / "ca.crt"), try_refresh_token=False)
    loader.load_and_set(configuration)
    login = _login(configuration)
    login.token_file = folder / "token"
    return login


async def _from_file(path: Path, context: str | None) -> Login:
    from kubernetes_asyncio.client.configuration import Configuration  # noqa: PLC0415
    from kubernetes_asyncio.config.kube_config import load_kube_config  # noqa: PLC0415

    cluster, user = _chosen(yaml.safe_load(await anyio.Path(path).read_text(encoding="utf-8")), path, context)
    _refuse_unverified(cluster, path)
    configuration = Configuration()
    loader = await load_kube_config(str(path), context, configuration, persist_config=False)
    _refuse_no_server(str(configuration.host), path)
    login = _login(configuration)
    login.authorization = (configuration.api_key.get("BearerToken") or "").strip() or None
    if "tokenFile" in user:
        login.token_file = path.parent / user["tokenFile"]
    elif (expiry := getattr(loader, "exec_plugin_expiry", None)) is not None:
        left = (expiry - type(expiry).now(expiry.tzinfo)).total_seconds()
        login.expires = anyio.current_time() + max(left - EXEC_SKEW_S, EXEC_SKEW_S)
    return login


def _login(configuration: Any) -> Login:
    """A session to the server of a loaded configuration, with its certificates and its proxy."""
    server = str(configuration.host)
    tls: ssl.SSLContext | bool = True
    if server.startswith("https://"):
        tls = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
        if configuration.cert_file:
            tls.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)
    return Login(
        server=server,
        session=aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls), read_bufsize=READ_BUFFER),
        tls_name=configuration.tls_server_name,
        proxy=configuration.proxy or environment_proxy(server),
    )


def environment_proxy(server: str) -> str | None:
    """The proxy that HTTPS_PROXY (HTTP_PROXY) names for this server, as kubectl has it: NO_PROXY may name networks."""
    proxies, url = getproxies_environment(), urlsplit(server)
    host = url.hostname or ""
    skipped = (entry.strip() for entry in proxies.get("no", "").split(","))
    if _loopback(host) or any(_within(host, entry) for entry in skipped) or proxy_bypass(url.netloc.rpartition("@")[2]):
        return None
    return proxies.get(url.scheme)


def _within(host: str, network: str) -> bool:
    """Whether a host is an address of a network in CIDR form; False where either is something else."""
    try:
        return "/" in network and ipaddress.ip_address(host) in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False


def _chosen(document: Any, path: Path, context: str | None) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The cluster and the user that a kubeconfig's context names."""
    if not isinstance(document, dict):
        raise CredentialsError(f"kubeconfig {path}: this is no kubeconfig (a mapping with clusters, users, contexts)")
    name = context or document.get("current-context")
    if not name:
        raise CredentialsError(f"kubeconfig {path}: no current-context; name one with --context")

    def entry(kind: str, wanted: Any) -> Mapping[str, Any]:
        for item in document.get(f"{kind}s") or []:
            if isinstance(item, dict) and item.get("name") == wanted:
                found = item.get(kind)
                return found if isinstance(found, dict) else {}
        raise CredentialsError(f"kubeconfig {path}: there is no {kind} named {wanted!r}")

    chosen = entry("context", name)
    return entry("cluster", chosen.get("cluster")), entry("user", chosen["user"]) if chosen.get("user") else {}


def _refuse_unverified(cluster: Mapping[str, Any], path: Path) -> None:
    server = str(cluster.get("server", ""))
    if _plain_loopback(server):
        return
    if cluster.get("insecure-skip-tls-verify"):
        raise CredentialsError(
            f"kubeconfig {path}: insecure-skip-tls-verify is refused, liken always verifies the API server: "
            "give its certificate-authority instead"
        )
    if not server.startswith("https://"):
        raise CredentialsError(f"kubeconfig {path}: server {server!r} is not https (plain http is for loopback only)")


def _refuse_no_server(server: str, path: Path) -> None:
    if not urlsplit(server).hostname:
        raise CredentialsError(f"kubeconfig {path}: server {server!r} names no host")


def _plain_loopback(server: str) -> bool:
    url = urlsplit(server)
    return url.scheme == "http" and _loopback(url.hostname or "")


def _loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _token(path: Path) -> str:
    try:
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CredentialsError(f"token file {path}: cannot be read: {error}") from error
    if not token or any(ord(character) <= ord(" ") for character in token):
        raise CredentialsError(f"token file {path}: holds no token")
    return token


@contextlib.contextmanager
def _explained(kubeconfig: Path | None) -> Iterator[None]:
    """Turn what the library, the file system or TLS say while loading into one CredentialsError."""
    from kubernetes_asyncio.config.config_exception import ConfigException  # noqa: PLC0415

    what = "in-cluster credentials" if kubeconfig is None else f"kubeconfig {kubeconfig}"
    try:
        yield
    except (ConfigException, OSError, ssl.SSLError, yaml.YAMLError, ValueError, AssertionError, KeyError) as error:
        raise CredentialsError(f"{what}: {str(error) or type(error).__name__}") from error
