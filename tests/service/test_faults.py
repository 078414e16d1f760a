"""Faults over HTTP with real processes: what was acknowledged is there, counts once, and bad input is never a 5xx.

`python -m benchmarks.faults` does hundreds of what is done a few times here.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.faults import bundles as damaged
from benchmarks.faults import (
    clock,
    connections,
    crowds,
    database,
    disk,
    floods,
    hostile,
    kills,
    postgres,
    publishing,
    restarts,
)
from benchmarks.faults import replicas as apart
from benchmarks.faults.ledger import Ledger, LostError
from benchmarks.faults.process import Service
from benchmarks.faults.watch import watched
from service.app import create_app
from service.settings import Settings
from tests.service.app_client import Client
from tests.service.tiny_bundle import CLASSES, SHAPE, write_bundle
from trueodds.bundle import DEFAULT, open_models

WORST_MS = 5_000  # a loaded machine runs these too; the benchmark records what a quiet one needs
UNDER_LOAD = 30  # labels that show that there were clients: a loaded machine took 170, a quiet one takes a thousand


@pytest.fixture
def service(models: Path, tmp_path: Path) -> Iterator[Service]:
    with Service(tmp_path, models) as service:
        yield service


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One service for the tests that do it no harm."""
    folder = tmp_path_factory.mktemp("service")
    open_models(folder / "models").publish(write_bundle(folder / "bundle"))
    with Service(folder, folder / "models") as service:
        service.start().until(200)
        yield service


@pytest.fixture
def store_url(request: pytest.FixtureRequest) -> str | None:
    """None: SQLite in the service's folder."""
    return None if request.param == "sqlite" else request.getfixturevalue("cluster").database()


@pytest.fixture
def ledger() -> Ledger:
    return Ledger(0, len(CLASSES), SHAPE)


@pytest.fixture
def bystander() -> Ledger:
    """A ledger of clients who ask and label some twenty times a second; others would take a processor from the rest."""
    return Ledger(0, len(CLASSES), SHAPE, pause=0.05)


@pytest.mark.full
def test_the_ledger_sees_what_is_lost(running: Service, ledger: Ledger) -> None:
    """Otherwise the other tests here would prove nothing."""
    with ledger.load(running):
        while len(ledger.labels) < 20:
            time.sleep(0.01)
    ledger.settle(running)
    id_ = next(iter(ledger.labels))
    true = ledger.labels[id_]
    running.post("/feedback", {"id": id_, "index": (true + 1) % len(CLASSES), "correct": True})
    with pytest.raises(LostError, match="409"):
        ledger.settle(running)
    running.post("/feedback", {"id": id_, "index": true, "correct": True})
    ledger.settle(running)
    ledger.probabilities["0" * 36] = ledger.probabilities[id_]
    with pytest.raises(LostError, match="404"):
        ledger.settle(running)


@pytest.mark.full
@pytest.mark.parametrize("store_url", ["sqlite", "postgresql"], indirect=True)
def test_kills(models: Path, tmp_path: Path, store_url: str | None, ledger: Ledger) -> None:
    count = 5  # the fourth restart is killed too, and the fifth kill meets a service that stops
    with Service(tmp_path, models, store=store_url) as service:
        done = kills.kill_at_random(service, ledger, count)
        assert service.starts == 1 + count + done["while_starting"]
    assert done["under_load"] == count - count // 5 and done["while_starting"] == count // 4
    assert ledger.counts["settled"] == count
    assert ledger.counts["images_without_answer"] > 0
    assert len(ledger.labels) == len(ledger.probabilities) > UNDER_LOAD


@pytest.mark.full
def test_disk_full_by_a_limit_on_files(service: Service, bystander: Ledger) -> None:
    assert disk.fill_and_free(service, bystander, disk.FileLimit(), 1) == {
        "filled": 1, "recovered": 1, "live_while_full": 1
    }  # fmt: skip
    assert bystander.counts["predict_503"] >= 10 and bystander.counts["settled"] == 2


@pytest.mark.full
def test_disk_full_by_a_full_file_system(models: Path, tmp_path: Path, bystander: Ledger) -> None:
    try:
        with disk.tmpfs(tmp_path / "small") as folder, Service(folder, models) as service:
            done = disk.fill_and_free(service, bystander, disk.SmallFileSystem(), 1)
    except PermissionError as error:
        pytest.skip(str(error))
    assert done == {"filled": 1, "recovered": 1, "live_while_full": 1}
    assert bystander.counts["predict_503"] >= 10 and bystander.counts["settled"] == 2


@pytest.mark.full
def test_clock_jumps(models: Path, tmp_path: Path, bystander: Ledger) -> None:
    wall = clock.Clock(tmp_path)
    with Service(tmp_path, models, environment=wall.environment) as service:
        done = clock.jump(service, bystander, wall, len(clock.JUMPS))
    assert done == {"jumps": len(clock.JUMPS), "seen": len(clock.JUMPS), "restarts": len(clock.JUMPS) // 3}
    assert bystander.counts["settled"] == len(clock.JUMPS) and len(bystander.labels) > UNDER_LOAD


@pytest.mark.full
@pytest.mark.parametrize("kind", ["model cut", "calibrator flipped", "card noise"])
def test_a_damaged_bundle_is_refused_by_the_process(service: Service, kind: str) -> None:
    reason = damaged.refused_at_start(service, kind)
    assert "damaged-" in reason and "Traceback" not in reason


def test_a_damaged_bundle_is_refused_in_words(models: Path, settings: Settings) -> None:
    good = open_models(models).default()
    for kind in damaged.DAMAGES:
        damaged.damage(models, kind, 0)
        with Client(create_app(settings)) as client:
            assert client.get("/health/live").status_code == client.get("/metrics").status_code == 200
            refusal = client.read("/health/ready", 503)["error"]["message"]
            assert "damaged-" in refusal and "Traceback" not in refusal
        (models / DEFAULT).write_text(f"{good.parent.name}/{good.name}\n")
    with Client(create_app(settings)) as client:
        client.read("/health/ready")
    assert len(damaged.DAMAGES) == 12


@pytest.mark.full
def test_a_damaged_new_version_leaves_the_old_one_serving(service: Service) -> None:
    question = connections.question(SHAPE)
    service.start().until(200)
    before = service.post("/predict", question).json()
    damaged.damage(service.models, "model flipped", 0)
    deadline, requests = time.monotonic() + 3, 0
    while time.monotonic() < deadline:
        after = service.post("/predict", question).json()
        assert (after["version"], service.get("/health/ready").status) == (before["version"], 200)
        assert after["predictions"][0]["probabilities"] == before["predictions"][0]["probabilities"]
        requests += 1
    assert requests > 3


@pytest.mark.parametrize("count", [150, pytest.param(1_500, marks=pytest.mark.full)])
def test_hostile_bodies(running: Service, count: int) -> None:
    outcome = hostile.attack(running, count, SHAPE)
    assert outcome.server_errors == [] and outcome.odd_errors == []
    assert outcome.sent == sum(outcome.statuses.values()) == count
    assert set(outcome.kinds) == set(hostile.MAKERS)
    assert outcome.unheard < 0.05 * count
    assert sum(outcome.statuses[status] for status in (400, 404, 413, 415, 422)) > 0.9 * count
    assert outcome.watched.probes > 5 and outcome.watched.probes_failed == 0
    assert outcome.watched.worst_ms < WORST_MS
    assert outcome.watched.grown_mb < 250
    assert running.post("/predict", connections.question(SHAPE)).status == 200
    assert "Traceback" not in running.log()


@pytest.mark.full
def test_bodies_cut_in_the_middle(running: Service) -> None:
    before, answers = running.open_files(), running.get("/calibration-report").json()["answers"]
    done = connections.cut_bodies(running, 80, json.dumps(connections.question(SHAPE)).encode())
    assert done == {"fin": 20, "reset": 20, "half": 20, "chunk": 20, "answered_2xx": 0}
    assert connections.until_files_closed(running, before) <= before
    assert running.get("/calibration-report").json()["answers"] == answers
    assert "Traceback" not in running.log()


@pytest.mark.full
def test_floods_do_not_slow_the_others(running: Service) -> None:
    for kind in floods.FLOODS:
        outcome = floods.flood(running, kind, 0.5)
        if kind not in floods.ALLOWED:
            assert set(outcome.statuses) <= {"431", "400", "none"} and outcome.statuses["none"] <= 1, (kind, outcome)
        assert outcome.watched.probes > 0 and outcome.watched.probes_failed == 0, (kind, outcome)
        assert outcome.watched.worst_ms < WORST_MS and outcome.watched.grown_mb < 50, (kind, outcome)
    assert running.post("/predict", connections.question(SHAPE)).status == 200


@pytest.mark.full
def test_slow_clients_do_not_slow_the_others(service: Service) -> None:
    service.start().until(200)
    before, body = service.open_files(), json.dumps(connections.question(SHAPE)).encode()
    with watched(service) as beside, connections.slow_bodies(service, 300, body) as clients:
        sent, closed = connections.drip(clients, body, 4)
        assert service.post("/predict", connections.question(SHAPE)).status == 200
    assert sent > 300 and closed <= 300
    assert beside.probes > 5 and beside.probes_failed == 0 and beside.worst_ms < WORST_MS and beside.grown_mb < 100
    assert connections.until_files_closed(service, before) <= before + 2


@pytest.mark.full
@pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)
def test_the_database_restarted_gone_and_hanging(
    models: Path, tmp_path: Path, store_url: str, bystander: Ledger
) -> None:
    with database.Network(store_url) as network, Service(tmp_path, models, store=network.url) as service:
        done = database.interrupt(service, bystander, network, 1)
    assert (done["restarted"], done["gone"], done["hanging"]) == (1, 1, 1)
    assert done["connections_broken"] >= 2 and done["live"] == 2
    assert network.carried > 1_000 and bystander.counts["settled"] == 3 and len(bystander.labels) > UNDER_LOAD


@pytest.fixture
def variants(models: Path, tmp_path: Path) -> publishing.Variants:
    return publishing.Variants(open_models(models).default(), tmp_path / "variants")


@pytest.mark.full
def test_publishing_with_a_limit_on_files(service: Service, bystander: Ledger, variants: publishing.Variants) -> None:
    done = publishing.publish_without_space(service, bystander, publishing.LimitOnFiles(), variants, 2)
    assert (done["failed"], done["copying"], done["changing_roles"]) == (2, 1, 1) and done["published"] >= 2
    assert bystander.counts["settled"] == 1 and len(set(bystander.versions.values())) > 1


@pytest.mark.full
def test_publishing_onto_a_full_volume(tmp_path: Path, bystander: Ledger) -> None:
    variants = publishing.Variants(write_bundle(tmp_path / "bundle"), tmp_path / "variants")
    try:
        with disk.tmpfs(tmp_path / "volume", 4) as models, Service(tmp_path, models) as service:
            open_models(models).publish(tmp_path / "bundle")
            done = publishing.publish_without_space(service, bystander, publishing.FullVolume(), variants, 2)
    except PermissionError as error:
        pytest.skip(str(error))
    assert (done["failed"], done["copying"], done["changing_roles"]) == (2, 1, 1)
    assert bystander.counts["settled"] == 1 and len(set(bystander.versions.values())) > 1


@pytest.mark.full
def test_killed_publishers(service: Service, bystander: Ledger, variants: publishing.Variants) -> None:
    done = publishing.kill_publishers(service, bystander, variants, len(publishing.MOMENTS))
    assert done["killed"] >= 2 and sum(done.values()) == len(publishing.MOMENTS) + done["killed"]
    assert bystander.counts["settled"] == 1 and len(bystander.labels) > UNDER_LOAD


@pytest.mark.full
@pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)
def test_two_replicas_whose_clocks_disagree(models: Path, tmp_path: Path, store_url: str, bystander: Ledger) -> None:
    folders = tmp_path / "one", tmp_path / "other"
    for folder in folders:
        folder.mkdir()
    one, other = (clock.Clock(folder) for folder in folders)
    with (
        apart.Hook() as hook,
        Service(folders[0], models, *hook.options, store=store_url, environment=one.environment) as first,
        Service(folders[1], models, *hook.options, store=store_url, environment=other.environment) as second,
    ):
        done = apart.run_apart((first, second), (one, other), bystander, hook, 2)
    assert done["labelled_elsewhere"] > UNDER_LOAD and done["hours"] >= 3 and done["webhook_calls"] >= 1


@pytest.mark.full
def test_a_postgres_that_restarts_under_two_replicas(models: Path, tmp_path: Path, bystander: Ledger) -> None:
    if reason := postgres.missing():
        pytest.skip(reason)
    folders = tmp_path / "one", tmp_path / "other"
    for folder in folders:
        folder.mkdir()
    with postgres.Cluster() as cluster:
        store = cluster.database()
        with Service(folders[0], models, store=store) as one, Service(folders[1], models, store=store) as other:
            done = restarts.restart((one, other), bystander, cluster, 1)
    assert done == {"stopped": 1, "killed": 1, "unready": 4, "recovered": 4}
    assert bystander.counts["settled"] == 4 and bystander.counts["predict_503"] > 0


@pytest.mark.full
def test_crowds_keep_nobody_waiting_and_no_files(service: Service) -> None:
    with crowds.few_files(128):
        service.start().until(200)
    before = service.open_files()
    read = crowds.crowd(service, crowds.Kind(30, 50, "/health/live"), 20)
    assert read.answers == 30 * 50 and not read.watched.probes_failed
    unread = crowds.crowd(service, crowds.Kind(60, 20, "/openapi.json", reads=False), 2)
    assert unread.answers == 0 and not unread.watched.probes_failed, "another address still has places"
    assert max(read.watched.worst_ms, unread.watched.worst_ms) < WORST_MS
    assert crowds.recovery(service, 200, 2) < 10
    assert connections.until_files_closed(service, before) <= before + 2
