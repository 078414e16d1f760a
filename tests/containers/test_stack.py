"""docker/compose.yaml on a real engine: what docs/how-to/containers.md says, deaths, several workers and services.

The tests are one story: each goes on with what the one before it left.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from sklearn.datasets import load_digits

from tests.conftest import ROOT
from tests.containers.stack import Stack, until
from tests.docs.terminal import blocks

pytestmark = pytest.mark.containers

PAGE, SCALED = (block.commands() for block in blocks(ROOT / "docs" / "how-to" / "containers.md"))
RUNS = ("database", "server", "worker", "service", "prometheus")
UNCOMPILED = """
import importlib.util, os, sys
roots = [p for p in (*sys.path, "/app") if os.path.isdir(os.path.join(p, "trueodds"))]
files = [os.path.join(f, n) for r in {os.path.join(r, p) for r in roots for p in ("trueodds", "service", "pipeline")}
         for f, _, names in os.walk(r) for n in names if n.endswith(".py")]
missing = [f for f in files if not os.path.exists(importlib.util.cache_from_source(f))]
print(len(files), len(missing), *missing[:3])
"""


def digits(first: int, count: int) -> dict[str, Any]:
    """A body for /predict, of images as the pipeline scales them."""
    images = (load_digits().images[first : first + count] * 15.9375).round().astype(int)
    return {"instances": images.tolist()}


def label(answers: list[dict[str, Any]], first: int) -> dict[str, Any]:
    truth = load_digits().target
    return {"labels": [{"id": one["id"], "label": str(truth[first + k])} for k, one in enumerate(answers)]}


def healthy(stack: Stack, *names: str) -> bool:
    states = {name: one["State"].get("Health", {}).get("Status") for name, one in stack.containers().items()}
    return all(states.get(name) == "healthy" for name in names)


def report(stack: Stack) -> dict[str, Any]:
    whole: dict[str, Any] = stack.get("/calibration-report")
    return {name: whole[name] for name in ("model", "version", "answers", "labelled", "ece", "accuracy")}


def asked(stack: Stack, query: str) -> list[Any]:
    """The values that Prometheus has for a query."""
    result = stack.get("/api/v1/query", "PROMETHEUS_PORT", params={"query": query})["data"]["result"]
    return [(one["metric"], float(one["value"][1])) for one in result]


def scraped(stack: Stack) -> list[str]:
    """How the services are that Prometheus asks now.

    `up` has those of a stack that ended within five minutes, too: nobody told Prometheus, which ended with them.
    """
    return [one["health"] for one in stack.get("/api/v1/targets", "PROMETHEUS_PORT")["data"]["activeTargets"]]


def answering(stack: Stack) -> Iterator[int]:
    """The ports of the range at which a service is ready."""
    first, last = map(int, stack.environment["PORTS"].split("-"))
    for port in range(first, last + 1):
        with contextlib.suppress(httpx.HTTPError):
            if stack.client.get(f"http://127.0.0.1:{port}/health/ready").status_code == 200:
                yield port


def flow_runs(stack: Stack, **where: Any) -> list[dict[str, Any]]:
    answer = stack.client.post(stack.url("PREFECT_PORT", "/api/flow_runs/filter"), json={"flow_runs": where})
    assert answer.status_code == 200, answer.text
    runs: list[dict[str, Any]] = answer.json()
    return runs


def test_both_images_are_built_and_all_comes_up(stack: Stack) -> None:
    stack.typed(PAGE[0])
    until(lambda: healthy(stack, "database-1", "server-1", "worker-1"), 120, "health")
    assert {name.rsplit("-", 1)[0] for name in stack.containers()} >= set(RUNS)
    assert not healthy(stack, "service-1"), "without a model"
    assert stack.client.get(stack.url("PORT", "/health/live")).status_code == 200


@pytest.mark.parametrize("name", RUNS)
def test_a_container_is_confined(stack: Stack, name: str) -> None:
    """As its kernel sees it: not root, without a capability, on a file system that it cannot write."""
    status = stack.compose("exec", "-T", name, "cat", "/proc/1/status")
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert "0" not in fields["Uid"].split() and int(fields["CapEff"], 16) == int(fields["CapBnd"], 16) == 0
    assert fields["NoNewPrivs"] == "1"
    mounts = stack.compose("exec", "-T", name, "cat", "/proc/mounts").splitlines()
    (root,) = [line.split()[3].split(",") for line in mounts if line.split()[1] == "/"]
    assert "ro" in root
    host = stack.containers()[f"{name}-1"]["HostConfig"]
    assert host["Memory"] > 0 and host["LogConfig"]["Config"] == {"max-file": "3", "max-size": "10m"}


@pytest.mark.parametrize("name", ["worker", "service"])
def test_the_code_is_compiled(stack: Stack, name: str) -> None:
    files, missing, *some = stack.compose("exec", "-T", name, "python", "-c", UNCOMPILED).split()
    assert int(files) > 200 and int(missing) == 0, some


def test_the_page_from_the_run_to_the_versions(stack: Stack) -> None:
    run, image, predict, versions, down = PAGE[1:]
    assert down.endswith(" down")
    stack.typed(run)
    stack.typed(image)
    until(lambda: stack.client.get(stack.url("PORT", "/health/ready")).status_code == 200, 20, "the model")
    (answer,) = json.loads(stack.typed(predict))["predictions"]
    assert answer["label"] == str(load_digits().target[-1])
    assert answer["id"] and "digits" in stack.typed(versions)
    until(lambda: healthy(stack, "service-1"), 30, "health with a model")


def test_predict_feedback_report_and_metrics(stack: Stack) -> None:
    answers = stack.client.post(stack.url("PORT", "/predict"), json=digits(0, 100)).json()["predictions"]
    assert stack.client.post(stack.url("PORT", "/feedback"), json=label(answers, 0)).json()["stored"] == 100
    seen = report(stack)
    assert (seen["model"], seen["labelled"]) == ("digits", 100) and seen["accuracy"] > 0.9
    until(lambda: [value for _, value in asked(stack, "max(trueodds_labelled)")] == [100], 40, "a scrape")
    assert [value for _, value in asked(stack, 'up{job="trueodds"}')] == [1]
    (build,) = asked(stack, "trueodds_build_info")
    assert build[0]["python"].startswith("3.11")


def test_grafana_shows_the_dashboard(stack: Stack) -> None:
    if not stack.has_grafana:
        pytest.skip("Grafana's image is not on this engine, and cannot be pulled")
    until(lambda: stack.get("/api/health", "GRAFANA_PORT"), 60, "Grafana")
    board = stack.get("/api/dashboards/uid/trueodds", "GRAFANA_PORT")
    assert board["meta"]["provisioned"] and not board["meta"]["canEdit"]
    query = {"refId": "A", "datasource": {"uid": "prometheus"}, "expr": "max(trueodds_labelled)", "instant": True}
    body = {"queries": [query], "from": "now-5m", "to": "now"}
    answer = stack.client.post(stack.url("GRAFANA_PORT", "/api/ds/query"), json=body)
    assert answer.status_code == 200 and answer.json()["results"]["A"]["frames"], answer.text


def test_a_scheduled_run_appears(stack: Stack) -> None:
    """Of the deployment `weekly`, whose schedule is on: Prefect's scheduler works on this database."""

    def scheduled() -> list[str]:
        runs = flow_runs(stack, state={"type": {"any_": ["SCHEDULED"]}})
        return [run["expected_start_time"] for run in runs if run["auto_scheduled"]]

    times = until(scheduled, 90, "a scheduled run")
    assert all("T06:00:00" in start for start in times), "Mondays at six"


def test_down_and_up_keep_all(stack: Stack) -> None:
    before, versions = report(stack), stack.typed(PAGE[4])
    runs = {run["id"] for run in flow_runs(stack, state={"type": {"any_": ["COMPLETED"]}})}
    stack.typed(PAGE[-1])
    assert stack.containers() == {}
    stack.compose("up", "-d")
    until(lambda: healthy(stack, "service-1", "worker-1"), 120, "health")
    assert report(stack) == before and stack.typed(PAGE[4]) == versions
    assert runs and runs <= {run["id"] for run in flow_runs(stack, state={"type": {"any_": ["COMPLETED"]}})}


@pytest.mark.parametrize("name", RUNS)
def test_one_that_is_killed_comes_back(stack: Stack, name: str) -> None:
    container = stack.containers()[f"{name}-1"]
    before = report(stack)
    stack.kill(container)

    def back() -> bool:
        now = stack.containers().get(f"{name}-1", {})
        return (now.get("Id"), now.get("RestartCount")) == (container["Id"], container["RestartCount"] + 1)

    until(back, 30, f"{name} to be started again")
    until(lambda: healthy(stack, "database-1", "server-1", "worker-1", "service-1"), 90, "health")
    assert report(stack) == before
    assert flow_runs(stack, state={"type": {"any_": ["COMPLETED"]}}), "the server's connections to its database, too"
    if name == "prometheus":
        ready = stack.url("PROMETHEUS_PORT", "/-/ready")  # 503 while it reads what it had written
        until(lambda: stack.client.get(ready).status_code == 200, 60, "Prometheus to be ready")
        until(lambda: asked(stack, "max(trueodds_labelled)"), 60, "what it had scraped")


def test_two_workers_share_the_runs(stack: Stack) -> None:
    """Side by side in one pool; what a run of before has built they take from the cache."""
    stack.compose("up", "-d", "--no-recreate", "--scale", "worker=2")
    until(lambda: healthy(stack, "worker-1", "worker-2"), 90, "health of two workers")
    online = stack.client.post(stack.url("PREFECT_PORT", "/api/work_pools/gpu/workers/filter"), json={}).json()
    assert len([worker for worker in online if worker["status"] == "ONLINE"]) >= 2
    before = submitted(stack)
    for _ in range(2):
        stack.compose("exec", "-T", "worker", "prefect", "deployment", "run", "train/digits")
    until(lambda: newest_done(stack, 2), 180, "two runs")
    assert [count - before[name] for name, count in submitted(stack).items()] == [1, 1], "each took one"


def submitted(stack: Stack) -> dict[str, int]:
    """How many runs each worker has started.

    Two workers may ask for one run at the same moment, and both log its id. Only the one that gets the run logs this
    line, which has the run's name alone.
    """
    workers = {name: one["Id"] for name, one in stack.containers().items() if name.startswith("worker-")}
    logs = {name: stack.docker("logs", number) for name, number in workers.items()}
    return {name: (log.stdout + log.stderr).count("submitted to infrastructure") for name, log in logs.items()}


def newest_done(stack: Stack, count: int) -> list[dict[str, Any]]:
    """The last runs of the flow that were asked for, once all have been completed."""
    runs = [run for run in flow_runs(stack) if not run["auto_scheduled"] and run["parent_task_run_id"] is None]
    runs = sorted(runs, key=lambda run: run["created"])[-count:]
    assert not [run for run in runs if run["state_type"] in ("FAILED", "CRASHED")], runs
    return runs if all(run["state_type"] == "COMPLETED" for run in runs) else []


def test_three_services_on_postgresql(stack: Stack) -> None:
    """300 answers, a third of each service, each labelled at another one."""
    up, port, down = SCALED
    assert "--scale service=3" in up and "--index 2" in port
    stack.typed(up)
    addresses = [f"http://{stack.typed(port.replace('--index 2', f'--index {k}')).strip()}" for k in (1, 2, 3)]
    assert len(set(addresses)) == 3
    until(lambda: all(stack.client.get(f"{one}/health/ready").status_code == 200 for one in addresses), 60, "all three")
    answered = []
    for k, address in enumerate(addresses):
        answered.append(stack.client.post(f"{address}/predict", json=digits(100 * k, 100)).json()["predictions"])
    for k, address in enumerate([*addresses[1:], addresses[0]]):
        counts = stack.client.post(f"{address}/feedback", json=label(answered[k], 100 * k)).json()
        assert counts["stored"] == 100, counts
    seen = [stack.client.get(f"{address}/calibration-report").json() for address in addresses]
    assert [(one["answers"], one["labelled"]) for one in seen] == [(300, 300)] * 3
    assert len({one["ece"] for one in seen}) == 1
    until(lambda: scraped(stack) == ["up"] * 3, 90, "all in Prometheus, by DNS")
    ready = "the range's ports that a load balancer tries"
    until(lambda: len(list(answering(stack))) == 3, 30, ready)
    stack.kill(stack.containers()["service-2"])
    until(lambda: len(list(answering(stack))) < 3, 30, f"{ready}, less the killed service's")
    until(
        lambda: len(list(answering(stack))) == 3, 90, f"{ready}, with the service that came back, wherever it listens"
    )
    for found in answering(stack):
        assert stack.client.get(f"http://127.0.0.1:{found}/calibration-report").json()["labelled"] == 300
    stack.typed(down)
    assert stack.containers() == {}
