import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from liken.wire import pluginregistration, v1, v1alpha1
from liken.wire.k8s.io.kubelet.pkg.apis.dra import v1 as dra
from liken.wire.k8s.io.kubelet.pkg.apis.dra import v1beta1 as dra_beta
from tests.unit.wire_contract import CONTRACT, message

DRA, BETA = "k8s.io.kubelet.pkg.apis.dra.v1", "k8s.io.kubelet.pkg.apis.dra.v1beta1"

# Made with Google's protobuf from the contract's numbers; kept as bytes so that no later runtime can move them.
GOLDEN: list[tuple[str, Any, str]] = [
    (
        "a prepare call",
        dra.NodePrepareResourcesRequest(claims=[dra.Claim(namespace="home", uid="c1", name="zigbee")]),
        "0a120a04686f6d65120263311a067a6967626565",
    ),
    (
        "an answer with a share",
        dra.NodePrepareResourcesResponse(
            claims={
                "c1": dra.NodePrepareResourceResponse(
                    devices=[
                        dra.Device(
                            request_names=["gpu"],
                            pool_name="n",
                            device_name="pci-0",
                            cdi_device_ids=["liken.sh/device=x"],
                            share_id="s1",
                        )
                    ]
                )
            }
        ),
        "0a2e0a02633112280a260a0367707512016e1a057063692d3022116c696b656e2e73682f6465766963653d782a027331",
    ),
    (
        "an error",
        dra_beta.NodeUnprepareResourcesResponse(claims={"c1": dra_beta.NodeUnprepareResourceResponse(error="no")}),
        "0a0a0a02633112040a026e6f",
    ),
    (
        "who we are",
        pluginregistration.PluginInfo(
            type="DRAPlugin", name="liken.sh", endpoint="/p", supported_versions=["v1.DRAPlugin", "v1beta1.DRAPlugin"]
        ),
        (
            "0a09445241506c7567696e12086c696b656e2e73681a022f70"
            "220c76312e445241506c7567696e22117631626574"
            "61312e445241506c7567696e"
        ),
    ),
    (
        "a refusal by the kubelet",
        pluginregistration.RegistrationStatus(plugin_registered=False, error="e"),
        "120165",
    ),
    (
        "health",
        v1.NodeWatchResourcesResponse(
            devices=[
                v1.DeviceHealth(
                    device=v1.DeviceIdentifier(pool_name="n", device_name="d"),
                    health=v1.HealthStatus.UNHEALTHY,
                    last_updated_time=1_800_000_000,
                    health_check_timeout_seconds=30,
                    message="m",
                )
            ]
        ),
        "0a150a060a016e12016410021880a4a7da06201e2a016d",
    ),
]
MODULES = {
    DRA: dra,
    BETA: dra_beta,
    "pluginregistration": pluginregistration,
    "v1": v1,
    "v1alpha1": v1alpha1,
}


@pytest.mark.parametrize(("ours", "golden"), [pytest.param(o, g, id=t) for t, o, g in GOLDEN])
def test_our_bytes_are_the_golden_ones(ours: Any, golden: str) -> None:
    assert bytes(ours).hex() == golden
    assert type(ours).parse(bytes.fromhex(golden)) == ours


@pytest.mark.parametrize(("ours", "golden"), [pytest.param(o, g, id=t) for t, o, g in GOLDEN])
def test_google_s_protobuf_reads_the_golden_bytes_as_the_contract_s_message(ours: Any, golden: str) -> None:
    package = next(package for package, module in MODULES.items() if module.__name__ == type(ours).__module__)
    theirs = message(package, type(ours).__name__).FromString(bytes.fromhex(golden))
    assert theirs.SerializeToString(deterministic=True).hex() == golden
    theirs.DiscardUnknownFields()
    assert theirs.SerializeToString(deterministic=True).hex() == golden


@pytest.mark.parametrize("package", CONTRACT)
def test_every_message_of_the_contract_is_generated_with_its_fields(package: str) -> None:
    module = MODULES[package]
    for name, fields in CONTRACT[package].items():
        made = getattr(module, name)
        expected = {text.split()[3]: int(text.split()[0]) for text in fields}
        assert {field: meta.number for field, meta in made._betterproto.meta_by_field_name.items()} == expected


def test_a_field_of_a_newer_kubelet_is_ignored() -> None:
    newer = bytes(dra.NodePrepareResourcesRequest(claims=[dra.Claim(uid="c1")])) + bytes.fromhex("7a0178")
    assert dra.NodePrepareResourcesRequest.parse(newer).claims[0].uid == "c1"


@pytest.mark.parametrize(
    ("module", "service", "paths"),
    [
        (dra, "DraPluginBase", [f"/{DRA}.DRAPlugin/Node{verb}Resources" for verb in ("Prepare", "Unprepare")]),
        (dra_beta, "DraPluginBase", [f"/{BETA}.DRAPlugin/Node{verb}Resources" for verb in ("Prepare", "Unprepare")]),
        (v1, "DraResourceHealthBase", ["/v1.DRAResourceHealth/NodeWatchResources"]),
        (v1alpha1, "DraResourceHealthBase", ["/v1alpha1.DRAResourceHealth/NodeWatchResources"]),
        (
            pluginregistration,
            "RegistrationBase",
            [f"/pluginregistration.Registration/{call}" for call in ("GetInfo", "NotifyRegistrationStatus")],
        ),
    ],
)
def test_the_kubelet_s_paths_are_served(module: Any, service: str, paths: list[str]) -> None:
    assert sorted(getattr(module, service)().__mapping__()) == sorted(paths)


def test_a_share_id_is_absent_or_given_never_empty() -> None:
    assert dra.Device.parse(b"").share_id is None
    assert dra.Device.parse(bytes.fromhex("2a00")).share_id == ""
    assert not hasattr(dra_beta.Device(), "share_id")


def test_the_committed_package_is_what_the_proto_files_generate() -> None:
    script = Path(__file__).parents[2] / "proto" / "generate.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_stale_package_is_shown_as_a_diff(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("generate", Path(__file__).parents[2] / "proto" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    (tmp_path / "a.py").write_text("old\n")
    (tmp_path / "py.typed").write_text("")
    assert generate.differences(generate.contents(tmp_path), {"a.py": "new\n"}) == [
        "--- liken/wire/a.py",
        "+++ generated/a.py",
        "@@ -1 +1 @@",
        "-old",
        "+new",
        "liken/wire/py.typed: is not generated any more",
    ]
