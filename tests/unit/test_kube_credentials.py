"""Credentials: what is accepted, what is refused and in which words, and how they are renewed."""

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml

from liken.demo.apiserver import ApiServer
from liken.kube import paths
from liken.kube.client import Kube
from liken.kube.credentials import CredentialsError, environment_proxy, load
from liken.kube.transport import Source

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return "asyncio", {"use_uvloop": True}


def kubeconfig(path: Path, *, user: dict[str, Any] | None = None, **cluster: Any) -> Path:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "clusters": [{"name": "k", "cluster": {"server": "http://127.0.0.1:1", **cluster}}],
        "users": [{"name": "u", "user": user or {}}],
        "contexts": [
            {"name": "c", "context": {"cluster": "k", "user": "u"}},
            {"name": "bare", "context": {"cluster": "k"}},
            {"name": "lost", "context": {"cluster": "nowhere", "user": "u"}},
        ],
    }
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.mark.parametrize(
    ("cluster", "words"),
    [
        ({"server": "https://h:1", "insecure-skip-tls-verify": True}, "insecure-skip-tls-verify is refused"),
        ({"server": "http://192.0.2.1:1"}, "is not https"),
        ({"server": "http://example.com"}, "is not https"),
        ({"server": "http://127.0.0.1.example.com"}, "is not https"),
        ({"server": ""}, "is not https"),
        ({"server": "https://"}, "names no host"),
        ({"server": "https://h:1", "certificate-authority": "/nonexistent/ca.crt"}, "/nonexistent/ca.crt"),
        ({"server": "https://h:1", "certificate-authority-data": "bm8gY2VydA=="}, "kubeconfig"),
    ],
)
async def test_an_unverified_server_is_refused(tmp_path: Path, cluster: dict[str, Any], words: str) -> None:
    with pytest.raises(CredentialsError, match=words):
        await load(kubeconfig(tmp_path / "k", **cluster), None)


@pytest.mark.parametrize("server", ["http://127.0.0.1:1", "http://localhost:1", "http://[::1]:1"])
async def test_plain_http_is_for_loopback(tmp_path: Path, server: str) -> None:
    cluster: dict[str, Any] = {"server": server, "insecure-skip-tls-verify": True}
    login = await load(kubeconfig(tmp_path / "k", **cluster), None)
    await login.close()
    assert login.server == server


@pytest.mark.parametrize("text", ["", "[]", "a: [", "users: 5", "clusters: x\ncurrent-context: c", "\x00"])
async def test_what_is_no_kubeconfig_is_one_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "k"
    path.write_text(text)
    with pytest.raises(CredentialsError, match=str(path)):
        await load(path, None)


async def test_a_kubeconfig_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CredentialsError, match=r"nope"):
        await load(tmp_path / "nope", None)


async def test_a_context_is_chosen_or_named_when_it_is_not_there(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "k", user={"token": "t"})
    login = await load(path, "bare")
    assert login.headers(0.0) == {}
    await login.close()
    with pytest.raises(CredentialsError, match="no context named 'other'"):
        await load(path, "other")
    with pytest.raises(CredentialsError, match="no cluster named 'nowhere'"):
        await load(path, "lost")


async def test_outside_of_a_pod_a_kubeconfig_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(CredentialsError, match="not in a pod"):
        await load(None, None)


async def test_a_pod_without_its_token_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "192.0.2.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    with pytest.raises(CredentialsError, match="in-cluster credentials"):
        await load(None, None, service_account=tmp_path)


async def test_a_token_file_is_read_again_and_may_end_in_a_newline(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("one\n")
    login = await load(kubeconfig(tmp_path / "k", user={"tokenFile": "token"}), None)
    assert login.headers(0.0) == {"Authorization": "Bearer one"}
    token.write_text("two\n\n")
    assert login.headers(59.0) == {"Authorization": "Bearer one"}
    assert login.headers(61.0) == {"Authorization": "Bearer two"}
    token.write_text("a\nb")
    with pytest.raises(CredentialsError, match="holds no token"):
        login.headers(200.0)
    token.unlink()
    with pytest.raises(CredentialsError, match="cannot be read"):
        login.headers(200.0)
    await login.close()


PLUGIN = """#!{python}
import json, pathlib, datetime
count = pathlib.Path("{count}")
number = int(count.read_text()) + 1
count.write_text(str(number))
until = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds={seconds})
status = {{"token": f"token-{{number}}", "expirationTimestamp": until.strftime("%Y-%m-%dT%H:%M:%SZ")}}
print(json.dumps({{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}}))
"""


def plugin(folder: Path, seconds: int) -> dict[str, Any]:
    count = folder / "count"
    count.write_text("0")
    program = folder / "plugin"
    program.write_text(PLUGIN.format(python=sys.executable, count=count, seconds=seconds))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    exec_ = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(program), "interactiveMode": "Never"}
    return {"exec": exec_}


async def test_an_exec_plugin_gives_the_token_and_is_asked_again_when_it_is_refused(tmp_path: Path) -> None:
    async with ApiServer.serve(token="token-1") as server:
        path = kubeconfig(tmp_path / "k", user=plugin(tmp_path, 3600), server=server.url)
        async with Kube.connect(kubeconfig=path) as kube:
            await kube.list(paths.slices())
            await kube.list(paths.slices())
            assert (tmp_path / "count").read_text() == "1"
            server.token = "token-2"
            await kube.list(paths.slices())
            assert (tmp_path / "count").read_text() == "2"


async def test_an_exec_plugins_token_is_renewed_before_it_ends(tmp_path: Path) -> None:
    login = await load(kubeconfig(tmp_path / "k", user=plugin(tmp_path, 3600)), None)
    await login.close()
    assert login.expires is not None
    assert not login.outlived(login.expires - 1)
    assert login.outlived(login.expires)


async def test_a_plugin_that_fails_is_an_error_with_its_words(tmp_path: Path) -> None:
    program = tmp_path / "plugin"
    program.write_text("#!/bin/sh\necho no luck >&2\nexit 3\n")
    program.chmod(0o755)
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(program)}}
    with pytest.raises(CredentialsError, match="no luck"):
        await load(kubeconfig(tmp_path / "k", user=user), None)


async def test_a_plugin_that_hangs_is_given_up(tmp_path: Path) -> None:
    program = tmp_path / "plugin"
    program.write_text("#!/bin/sh\nexec sleep 1\n")
    program.chmod(0o755)
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(program)}}
    source = Source(kubeconfig=kubeconfig(tmp_path / "k", user=user), load_s=0.2)
    with pytest.raises(CredentialsError, match="does its exec plugin wait for somebody"):
        await source.load()
    await anyio.sleep(2)  # the program ends by itself


def test_only_what_is_used_is_imported() -> None:
    program = (
        "import sys\n"
        "from liken.kube import lazy\n"
        "lazy.install(); lazy.install()\n"
        "from kubernetes_asyncio.client.api_client import ApiClient\n"
        "from kubernetes_asyncio.config.kube_config import load_kube_config\n"
        "from kubernetes_asyncio.client import V1Pod, ApiException, CoreV1Api\n"
        "from kubernetes_asyncio.client.models import V1Node\n"
        "import kubernetes_asyncio.client\n"
        "assert V1Pod.__module__.endswith('v1_pod') and CoreV1Api\n"
        "assert not hasattr(kubernetes_asyncio.client, 'V1Nonsense')\n"
        "assert not hasattr(kubernetes_asyncio, 'nonsense')\n"
        "assert 'urllib3.util' not in sys.modules\n"
        "import urllib3\n"
        "assert urllib3.util.make_headers(user_agent='me') == {'user-agent': 'me'} and urllib3.PoolManager\n"
        "assert urllib3.util is sys.modules['urllib3'].util and sys.modules['urllib3'].__file__\n"
        "from kubernetes_asyncio.config import incluster_config\n"
        "print(sum(name.startswith('kubernetes_asyncio') for name in sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=os.environ)
    assert int(done.stdout) < 60


@pytest.mark.parametrize(
    ("server", "skip", "through"),
    [
        ("https://api.example.test:6443", "", True),
        ("https://api.example.test:6443", "example.test", False),
        ("https://api.example.test:6443", "other.test,.example.test", False),
        ("https://10.96.0.1:443", "10.96.0.1", False),
        ("https://10.96.0.1:443", "192.168.0.0/16, 10.96.0.0/12", False),
        ("https://10.96.0.1:443", "192.168.0.0/16,10.0.0.0/nonsense", True),
        ("https://[fd00::1]:443", "fd00::/8", False),
        ("https://api.example.test", "*", False),
        ("https://127.0.0.1:6443", "", False),
        ("https://localhost:6443", "", False),
    ],
)
def test_a_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch, server: str, skip: str, *, through: bool) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.test:3128")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("NO_PROXY", skip)
    assert environment_proxy(server) == ("http://proxy.test:3128" if through else None)


async def test_a_netrc_is_not_read(tmp_path: Path) -> None:
    login = await load(kubeconfig(tmp_path / "k"), None)
    assert login.session.trust_env is False
    await login.close()
