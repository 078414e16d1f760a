"""The alert rules: sound, tested by promtool, and explained. test_queries.py holds their queries against /metrics."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

FOLDER = Path(__file__).parents[2] / "docker" / "prometheus"
RULES, TESTS = FOLDER / "trueodds.rules.yml", FOLDER / "trueodds.rules.test.yml"
ALERTS: list[dict[str, Any]] = [
    rule for group in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"] for rule in group["rules"]
]
RUNBOOK = "https://github.com/trueodds/trueodds/blob/main/docker/prometheus/README.md#"


@pytest.mark.parametrize(
    "command", [["check", "rules", RULES.name], ["check", "config", "prometheus.yml"], ["test", "rules", TESTS.name]]
)
def test_promtool_agrees(command: list[str]) -> None:
    if not (promtool := shutil.which("promtool")):
        pytest.skip("promtool is not installed (Debian: apt-get install prometheus)")
    done = subprocess.run([promtool, *command], cwd=FOLDER, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "SUCCESS" in done.stdout + done.stderr, done.stdout + done.stderr


def test_each_alert_is_seen_to_fire() -> None:
    tests = yaml.safe_load(TESTS.read_text(encoding="utf-8"))["tests"]
    fired = {one["alertname"] for test in tests for one in test["alert_rule_test"] if one["exp_alerts"]}
    assert fired == {rule["alert"] for rule in ALERTS} and len(fired) == len(ALERTS)


def test_each_says_what_to_do() -> None:
    headings = re.findall(r"^## (.+)$", (FOLDER / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    anchors = {RUNBOOK + re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    for rule in ALERTS:
        assert rule["labels"]["severity"] in ("page", "warning", "info"), rule["alert"]
        assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}, rule["alert"]
        assert rule["annotations"]["runbook_url"] in anchors, rule["alert"]
    assert anchors == {rule["annotations"]["runbook_url"] for rule in ALERTS}, "a section that no alert leads to"
