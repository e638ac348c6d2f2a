"""Logging in at a real API server: TLS that is verified, client certificates, a pod's service account."""

import base64
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from liken.kube import paths
from liken.kube.client import Kube
from liken.kube.credentials import CredentialsError
from liken.model.api import Forbidden, Json, Unauthorized, Unavailable
from tests.contract.control_plane import ControlPlane

pytestmark = [pytest.mark.anyio, pytest.mark.contract]


def kubeconfig(plane: ControlPlane, path: Path, user: Json, cluster: Json) -> Path:
    document = yaml.safe_load(plane.kubeconfig.read_text())
    document["users"][0]["user"] = user
    document["clusters"][0]["cluster"] = {"server": plane.server, **cluster}
    path.write_text(yaml.safe_dump(document))
    return path


def authority(plane: ControlPlane) -> Json:
    return {"certificate-authority-data": base64.b64encode((plane.root / "ca.crt").read_bytes()).decode()}


@pytest.mark.parametrize("inline", [False, True])
async def test_a_client_certificate_logs_in(control_plane: ControlPlane, tmp_path: Path, inline: bool) -> None:  # noqa: FBT001
    user: Json = {}
    for key, name in (("client-certificate", "client.crt"), ("client-key", "client.key")):
        file = control_plane.root / name
        user |= {f"{key}-data": base64.b64encode(file.read_bytes()).decode()} if inline else {key: str(file)}
    path = kubeconfig(control_plane, tmp_path / "k", user, authority(control_plane))
    async with Kube.connect(kubeconfig=path) as kube:
        assert await kube.can_i("create", "resource.k8s.io", "resourceslices")


async def test_a_server_without_a_known_authority_is_not_talked_to(control_plane: ControlPlane, tmp_path: Path) -> None:
    path = kubeconfig(control_plane, tmp_path / "k", {"token": "administrator"}, {})
    async with Kube.connect(kubeconfig=path) as kube:
        with pytest.raises(Unavailable, match="its certificate is not trusted"):
            await kube.list(paths.slices())


async def test_a_server_of_another_name_is_not_talked_to(control_plane: ControlPlane, tmp_path: Path) -> None:
    cluster = authority(control_plane) | {"tls-server-name": "elsewhere.example"}
    path = kubeconfig(control_plane, tmp_path / "k", {"token": "administrator"}, cluster)
    async with Kube.connect(kubeconfig=path) as kube:
        with pytest.raises(Unavailable, match="its certificate is not trusted"):
            await kube.list(paths.slices())


async def test_verification_is_never_turned_off(control_plane: ControlPlane, tmp_path: Path) -> None:
    path = kubeconfig(control_plane, tmp_path / "k", {"token": "x"}, {"insecure-skip-tls-verify": True})
    with pytest.raises(CredentialsError, match="refused"):
        async with Kube.connect(kubeconfig=path):
            pass


async def test_a_wrong_token_is_unauthorized(control_plane: ControlPlane, tmp_path: Path) -> None:
    path = kubeconfig(control_plane, tmp_path / "k", {"token": "wrong"}, authority(control_plane))
    async with Kube.connect(kubeconfig=path) as kube:
        with pytest.raises(Unauthorized):
            await kube.list(paths.slices())


async def test_a_pods_service_account_logs_in_and_its_missing_right_is_named(
    control_plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Kube.connect(kubeconfig=control_plane.kubeconfig) as admin:
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"generateName": "liken-"}}
        name = (await admin.create("/api/v1/namespaces/default/serviceaccounts", account))["metadata"]["name"]
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        answer = await admin.create(f"/api/v1/namespaces/default/serviceaccounts/{name}/token", asked)
    (tmp_path / "token").write_text(answer["status"]["token"] + "\n")
    (tmp_path / "ca.crt").write_bytes((control_plane.root / "ca.crt").read_bytes())
    address = urlsplit(control_plane.server)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", str(address.hostname))
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(address.port))
    async with Kube.connect(kubeconfig=None, service_account=tmp_path) as kube:
        assert (await kube.version())["gitVersion"]
        with pytest.raises(Forbidden, match='cannot list resource "resourceslices"') as caught:
            await kube.list(paths.slices())
        assert name in str(caught.value)
