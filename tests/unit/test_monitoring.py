"""The alert rules, their runbooks and the dashboard speak of metrics that exist."""

import json
import pathlib
import re
import shutil
import subprocess
from typing import Any

import pytest
import yaml

from liken.metrics import Metrics

ROOT = pathlib.Path(__file__).parents[2]
MONITORING = ROOT / "container" / "monitoring"
SERIES = re.compile(r"\bliken_[a-z_]+\b")


def exposed() -> set[str]:
    names: set[str] = set()
    for family in Metrics().registry.collect():
        suffixes = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}.get(family.type, [""])
        names |= {family.name + suffix for suffix in suffixes}
    return names


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule["alert"]))
def test_an_alert_reads_metrics_that_exist_and_has_a_runbook_that_names_it(rule: dict[str, Any]) -> None:
    assert set(SERIES.findall(rule["expr"])) <= exposed()
    runbook = ROOT / rule["annotations"]["runbook_url"]
    assert f"`{rule['alert']}`" in runbook.read_text()


def test_every_panel_of_the_dashboard_reads_metrics_that_exist() -> None:
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert len(expressions) >= len(dashboard["panels"])
    for expression in expressions:
        found = set(SERIES.findall(expression))
        assert found
        assert found <= exposed()


def test_no_metric_has_a_label_that_hardware_or_a_claim_could_fill() -> None:
    closed = {"cause", "verdict", "verb", "result", "to", "state", "version", "le"}
    metrics = Metrics()
    for collector in vars(metrics).values():
        assert set(getattr(collector, "_labelnames", ())) <= closed


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (package prometheus)")
def test_promtool_accepts_the_rules_and_their_unit_tests() -> None:
    check = subprocess.run(
        ["promtool", "check", "rules", "alerts.yaml"], cwd=MONITORING, capture_output=True, text=True, check=False
    )
    assert check.returncode == 0, check.stderr
    test = subprocess.run(
        ["promtool", "test", "rules", "alerts_test.yaml"], cwd=MONITORING, capture_output=True, text=True, check=False
    )
    assert test.returncode == 0, test.stderr + test.stdout
