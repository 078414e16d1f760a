"""What the Grafana dashboard and the alert rules ask Prometheus, held against what a running service exposes.

A query about a metric or a label that is not there shows nothing and never fires, and nobody notices.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import promql_parser as promql
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from service.app import create_app
from service.settings import Settings
from tests.service.app_client import Client
from tests.service.hooks import Hook, until
from tests.service.tiny_bundle import CLASSES, pictures, write_bundle
from trueodds.bundle import open_models

DOCKER = Path(__file__).parents[2] / "docker"
DASHBOARD: dict[str, Any] = json.loads((DOCKER / "grafana/dashboards/trueodds.json").read_text(encoding="utf-8"))
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
RULES = yaml.safe_load((DOCKER / "prometheus/trueodds.rules.yml").read_text(encoding="utf-8"))["groups"]
ALERTS = [rule for group in RULES for rule in group["rules"]]
TARGET = {"instance", "job"}
"""Labels that Prometheus gives to what it scrapes."""
VARIABLES = {"$__rate_interval": "1m", "$model": ".*", "$instance": ".*"}

Labels = dict[str, set[str]]
"""The full name of a metric's samples -> their labels."""


@pytest.fixture(scope="module")
def exposed(tmp_path_factory: pytest.TempPathFactory) -> Labels:
    """Of a service that has seen everything once: labels of all kinds, a shadow, other servers' answers, a webhook."""
    folder = tmp_path_factory.mktemp("exposed")
    models = open_models(folder / "models")
    models.publish(write_bundle(folder / "bundle"))
    models.publish(write_bundle(folder / "shadow", seed=1), role="shadow")
    with Hook() as hook:
        settings = Settings(
            models=models.path,
            store=str(folder / "s.sqlite"),
            threads=1,
            alarm_webhook=hook.url,
            retention_days=9,
            archive=str(folder / "archive"),
        )
        with Client(create_app(settings)) as client:
            answered = client.predict(pictures(2))
            client.label([{"id": answered[0]["id"], "index": 1}, {"id": "early", "model": "tiny", "index": 1}])
            assert client.post("/kserve/logger", json={}).is_client_error
            one = {"id": "a", "probabilities": [0.7, 0.1, 0.1, 0.1]}
            whose = {"model": "other", "version": "1", "act_alone": "threshold=.5,risk=.05,confidence=.95"}
            seen = {**whose, "classes": list(CLASSES), "observations": [one]}
            assert client.post("/observe", json=seen).status_code == 200
            assert client.post("/admin/alarm/test").json()["webhooks"][0]["taken"]
            until(lambda: "trueodds_label_age_seconds{" in client.get("/metrics").text)  # the watch has taken the label
            text = client.get("/metrics").text
    labels: Labels = {"up": set(TARGET), "ALERTS": {"alertname", "alertstate", "model", "version", *TARGET}}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels.setdefault(sample.name, set(TARGET)).update(sample.labels)
    for name in labels:
        if name.startswith("process_"):
            labels[name].add("pid")  # of several workers: test_process.py
    return labels


class Check:
    """Follows which labels the result of an expression has, and collects what it asks for in vain."""

    def __init__(self, text: str, exposed: Labels) -> None:
        self._exposed, self.problems = exposed, list[str]()
        for name, value in VARIABLES.items():
            text = text.replace(name, value)
        self.labels = self._of(promql.parse(text)) or set()

    def _of(self, node: promql.Expr) -> set[str] | None:
        """None: a number, which has none."""
        match node:
            case promql.VectorSelector():
                name = str(node.name)
                if name not in self._exposed:
                    self.problems.append(f"there is no metric {name}")
                labels = self._exposed.get(name, set())
                self._need((matcher.name for matcher in node.matchers.matchers), labels, name)
                return labels
            case promql.MatrixSelector():
                return self._of(node.vector_selector)
            case promql.Call(func=promql.Function(name="absent"), args=[promql.VectorSelector() as selected]):
                self._of(selected)
                equal = promql.MatchOp.Equal
                return {matcher.name for matcher in selected.matchers.matchers if matcher.op == equal}
            case promql.Call():
                several = [labels for labels in map(self._of, node.args) if labels is not None]
                return set().union(*several) - ({"le"} if node.func.name == "histogram_quantile" else set())
            case promql.AggregateExpr():
                inner = self._of(node.expr) or set()
                if node.modifier is None:
                    return set()
                assert node.modifier.type == promql.AggModifierType.By, "the others are not used yet"
                self._need(node.modifier.labels, inner, "by")
                return set(node.modifier.labels)
            case promql.BinaryExpr():
                left, right = self._of(node.lhs), self._of(node.rhs)
                if node.modifier and node.modifier.matching:
                    for side in (left, right):
                        self._need(node.modifier.matching.labels, side or set(), "on")
                return right if left is None else left
            case promql.ParenExpr() | promql.UnaryExpr():
                return self._of(node.expr)
            case promql.NumberLiteral():
                return None
        raise AssertionError(f"{type(node).__name__} is not followed yet")

    def _need(self, names: Any, there: set[str], where: str) -> None:
        self.problems += [f"{where}: there is no label {name}" for name in names if name not in there]

    def show(self, text: str, form: str) -> None:
        """What a legend or an annotation names must be left in the result."""
        self._need(re.findall(form, text), self.labels, text)


def checked(panel: dict[str, Any], exposed: Labels) -> list[str]:
    problems = []
    for target in panel["targets"]:
        check = Check(target["expr"], exposed)
        check.show(target["legendFormat"], r"{{(\w+)}}")
        problems += check.problems
    return problems


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_a_panel_asks_for_what_is_there(panel: dict[str, Any], exposed: Labels) -> None:
    if not Path("/proc/self/stat").exists() and "process_" in str(panel["targets"]):
        pytest.skip("process metrics are read from /proc")
    assert panel["targets"] and checked(panel, exposed) == []


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_an_alert_asks_for_what_is_there(rule: dict[str, Any], exposed: Labels) -> None:
    check = Check(rule["expr"], exposed)
    words = " ".join(rule["annotations"].values())
    check.show(words, r"\$labels\.(\w+)")
    for query in re.findall(r'printf "(.+?)" \$labels', words):
        check.problems += Check(query.replace("'", '"'), exposed).problems
    assert check.problems == []


def test_variables_and_annotations_ask_for_what_is_there(exposed: Labels) -> None:
    for variable in DASHBOARD["templating"]["list"]:
        found = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"])
        assert found and variable["definition"] == variable["query"]["query"]
        assert (check := Check(found[1], exposed)).problems == [] and found[2] in check.labels
        assert f"${variable['name']}" in VARIABLES
    for annotation in DASHBOARD["annotations"]["list"]:
        check = Check(annotation["expr"], exposed)
        check.show(f"{annotation['titleFormat']} {annotation['textFormat']}", r"{{(\w+)}}")
        assert check.problems == []


def test_every_metric_of_the_service_is_drawn_or_alerts(exposed: Labels) -> None:
    asked = " ".join([target["expr"] for panel in PANELS for target in panel["targets"]] + [r["expr"] for r in ALERTS])
    ours = {re.sub("_(bucket|sum|count|created)$", "", name) for name in exposed if name.startswith("trueodds_")}
    ours -= {name.removesuffix("_total") for name in ours if name.endswith("_total")}  # with their _created
    unasked = {name for name in ours if not re.search(rf"\b{name}(_bucket|_sum|_count)?\b", asked)}
    assert unasked == {
        "trueodds_bundle_loads_total", "trueodds_held_label_age_seconds",
        "trueodds_model_seconds", "trueodds_last_batch_timestamp_seconds",  # of /v2/models/M/stats
        "trueodds_archived_answers", "trueodds_archived_files", "trueodds_archive_failures",
        "trueodds_archive_waiting_answers",
        *(f"trueodds_groups_{name}" for name in ("watched", "marked", "ever_marked", "unacknowledged")),
        *(f"trueodds_expected_{name}" for name in ("alert_share", "precision", "recall", "withdrawn")),
        *(f"trueodds_expected_{name}_{end}" for name in ("precision", "recall") for end in ("lower", "upper")),
    }, "the list is of this test"  # fmt: skip


@pytest.mark.parametrize(
    ("expression", "legend", "words"),
    [
        ("rate(trueodds_label_total[5m])", "", "there is no metric trueodds_label_total"),
        ('trueodds_answers{role="default"}', "", "trueodds_answers: there is no label role"),
        ("sum by (modle) (trueodds_answers)", "", "by: there is no label modle"),
        ("trueodds_answers and on (role) trueodds_version_ready", "", "on: there is no label role"),
        ("1000 * max by (model) (trueodds_answers)", "{{version}}", "{{version}}: there is no label version"),
    ],
)
def test_one_slip_is_found(expression: str, legend: str, words: str, exposed: Labels) -> None:
    assert checked({"targets": [{"expr": expression, "legendFormat": legend}]}, exposed) == [words]


def test_panels_have_their_places() -> None:
    """Ids and places are each panel's own; all read the provisioned source."""
    source = yaml.safe_load((DOCKER / "grafana/provisioning/datasources/prometheus.yml").read_text())["datasources"][0]
    places = [tuple(panel["gridPos"].items()) for panel in DASHBOARD["panels"]]
    assert len(set(places)) == len(places) == len({panel["id"] for panel in DASHBOARD["panels"]})
    for panel in PANELS:
        assert panel["datasource"]["uid"] == source["uid"] and panel["description"], panel["title"]
        assert all(target["datasource"]["uid"] == source["uid"] for target in panel["targets"])
