"""Recalibration: the choice is honest, the evidence valid, and a person closes the loop of a real service."""

from __future__ import annotations

import dataclasses
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import httpx
import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest
from scipy.special import softmax

import trueodds
from pipeline.__main__ import main
from pipeline.recalibrate import Recalibration, choose, compare, rehearse, write_candidate
from pipeline.recalibrate.set_rows import divide, labels_are_chosen
from service.http import hashed_keys
from tests.local_server import LocalServer, QuietHandler
from tests.service.hooks import until
from tests.service.test_process import server
from tests.service.tiny_bundle import change_card, pictures, write_bundle
from trueodds import calibrators
from trueodds.bundle import ActAlone, Bundle, open_models
from trueodds.calibrators import Temperature
from trueodds.calibrators.conformal import SetSettings, fit_sets, measure
from trueodds.client import NO_ANSWER, CallError, Client, Labelled, labelled
from trueodds.client.clients import admin_key
from trueodds.errors import ConfigError
from trueodds.metrics import CalibrationSums
from trueodds.processes.choices import ADMIN_KEY, ADMIN_KEY_FILE
from trueodds.sums.inputs import Array

SERVED, TRUE = 1.7, 4.0
"""Temperature of the tiny bundle's calibrator, and of the drifted truth."""


def answers(count: int, truth: float, seed: int = 0) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Logits of 4 classes, and labels drawn from softmax(z / truth)."""
    rng = np.random.default_rng(seed)
    z_NC = rng.normal(0, 3, (count, 4)).astype(np.float32)
    return z_NC, drawn(softmax(z_NC.astype(float) / truth, axis=1), rng)


def drawn(p_NC: Array, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    labels_N: npt.NDArray[np.int64] = (p_NC.cumsum(axis=1) > rng.random((len(p_NC), 1))).argmax(axis=1)
    return labels_N


@pytest.mark.full
def test_a_drifted_model_gets_a_better_calibrator_and_says_so_in_its_card(tmp_path: Path) -> None:
    promise = ActAlone.of_text("threshold=.9,risk=.05,confidence=.95")
    served = Bundle.load(write_bundle(tmp_path / "served", act_alone=promise))
    change_card(served.directory, training={"epochs": 3}, notes=["about the old calibrator"])
    served = Bundle.load(served.directory)
    choice = choose(served.calibrator, *answers(2_000, TRUE))
    assert choice.better and choice.gain > 5 * choice.gain_standard_error
    assert choice.best.nll is not None and choice.served.nll is not None
    assert choice.gain == pytest.approx(choice.served.nll - choice.best.nll, abs=0.005)
    assert choice.gain == pytest.approx(choice.before.values["nll"] - choice.after.values["nll"], abs=1e-9)
    assert choice.before.values["ece"] > 0.1 and choice.after.values["ece"] < choice.after.values["floor_p95"]
    assert {line.name for line in choice.table} >= {"temperature", "identity", "structured_vector"}
    made = write_candidate(served, choice, tmp_path / "made")
    assert made.model_path.read_bytes() == served.model_path.read_bytes()
    session = onnxruntime.InferenceSession(made.model_path)
    made.check_golden(lambda pixels: session.run(None, {"images": pixels})[0])
    card = made.card
    assert card.golden.logits == served.card.golden.logits
    assert card.golden.probabilities != served.card.golden.probabilities
    assert card.training["epochs"] == 3 and card.training["recalibration"]["from"] == served.version
    assert card.metrics["n"] == 2_000 and card.metrics["after"]["ece"] == choice.after.values["ece"]
    assert card.notes[0].startswith(f"Recalibrated from version {served.version} on its 2,000 newest live labels")
    assert "about the old calibrator" not in card.notes
    assert card.act_alone is None and "This promise does not apply to this version" in card.notes[1]
    assert card.risk_coverage is not None and card.risk_coverage.at(0.5).rows == 2_000
    assert card.risk_coverage.split == "live labelled"
    again = write_candidate(served, choose(served.calibrator, *answers(2_000, TRUE)), tmp_path / "again")
    assert again.version == made.version, "equal labels, equal cards"


@pytest.mark.full
def test_conformal_sets_are_fitted_again_on_labels_of_their_own(tmp_path: Path) -> None:
    settings = SetSettings.of("aps", {"levels": [0.9, 0.8]})
    served = Bundle.load(write_bundle(tmp_path / "served", sets=settings))
    z_NC, labels_N = answers(2_000, TRUE)
    rows = Labelled(z_NC, labels_N, np.arange(2_000))
    fitting, apart = divide(served, rows)
    assert apart is not None and len(fitting.labels_N) == len(apart.labels_N) == 1_000
    choice = choose(served.calibrator, fitting.logits_NC, fitting.labels_N)
    made = write_candidate(served, choice, tmp_path / "made", apart)
    assert made.conformal == fit_sets(made.calibrator, apart.logits_NC, apart.labels_N, settings)
    assert made.card.sets is not None and [rule.level for rule in made.card.sets.rules] == [0.9, 0.8]
    fresh_NC, fresh_N = answers(4_000, TRUE, seed=1)
    old, new = (
        measure(one.card.sets.rules[0], one.calibrator(fresh_NC), fresh_N).coverage
        for one in (served, made)
        if one.card.sets
    )
    assert old < 0.8 and 0.87 < new < 0.93
    chances = dataclasses.replace(rows, propensities_N=np.where(np.arange(2_000) % 2, 0.1, 1.0))
    assert divide(served, chances).sets is None and len(divide(served, chances).fitting.labels_N) == 2_000
    without = write_candidate(served, choice, tmp_path / "without")
    assert without.conformal is None and without.card.sets is None
    assert any("has conformal sets. They do not apply to this version" in note for note in without.card.notes)


@pytest.mark.full
def test_the_served_calibrator_stays_where_nothing_is_better() -> None:
    choices = [choose(Temperature(SERVED), *answers(600, SERVED, seed), ["temperature"]) for seed in range(12)]
    assert sum(choice.better for choice in choices) <= 3


def test_classes_that_never_come_leave_candidates_out_but_not_all() -> None:
    z_NC, labels_N = answers(600, TRUE)
    rows = labels_N < 3
    choice = choose(Temperature(SERVED), z_NC[rows], labels_N[rows], ["matrix", "temperature"])
    problems = {line.name: line.problem for line in choice.table}
    assert choice.best.name == "temperature"
    assert "never hold class 3" in (problems["matrix"] or "")


@contextmanager
def serving(folder: Path, sets: SetSettings | None = None) -> Iterator[tuple[httpx.Client, str]]:
    """A service of the tiny bundle, and the version it answers with."""
    path = open_models(folder / "models").publish(write_bundle(folder / "bundle", sets=sets))
    with server(folder) as (http, _):
        yield http, path.name


def label(service: httpx.Client, count: int, truth: float, seed: int, served: float = SERVED) -> str:
    """Ask `count` times and label the answers by a truth of that temperature, `served` being the calibrator's.

    Returns the version that answered.
    """
    rng = np.random.default_rng(seed)
    for start in range(0, count, 200):
        body = {"instances": pictures(min(200, count - start), seed=1000 * seed + start)}
        answer = service.post("/predict", json=body).raise_for_status().json()
        p_NC = np.array([p["probabilities"] for p in answer["predictions"]])
        labels = drawn(softmax(np.log(p_NC) * served / truth, axis=1), rng)
        rows = [{"id": p["id"], "index": int(y)} for p, y in zip(answer["predictions"], labels, strict=True)]
        service.post("/feedback", json={"labels": rows}).raise_for_status()
    return str(answer["version"])


@pytest.mark.full
@pytest.mark.parametrize("chosen", [False, True])
def test_only_a_random_sample_of_labels_gives_reference_rows_by_class(tmp_path: Path, chosen: bool) -> None:
    """The labels of the most confident answers have other scores in each class than all answers."""
    models = open_models(tmp_path / "models")
    models.publish(write_bundle(tmp_path / "bundle", classes=("ok", "fraud"), positive="fraud"))
    with server(tmp_path) as (service, _):
        bodies = [{"instances": pictures(200, seed=seed)} for seed in range(4)]
        rows = [one for body in bodies for one in service.post("/predict", json=body).json()["predictions"]]
        rows = sorted(rows, key=lambda one: -float(one["confidence"]))[:300] if chosen else rows[:300]
        p_NC = np.array([one["probabilities"] for one in rows])
        truths = drawn(softmax(np.log(p_NC) * SERVED / TRUE, axis=1), np.random.default_rng(0))
        labels = [{"id": one["id"], "index": int(y)} for one, y in zip(rows, truths, strict=True)]
        service.post("/feedback", json={"labels": labels}).raise_for_status()
        where = ("--url", str(service.base_url), "--models", str(tmp_path / "models"))
        assert main(["recalibrate", *where, "--promote", "now", "--candidates", "temperature"]) == 0
    card = Bundle.load(tmp_path / "models" / "tiny" / str(models.version_of("tiny", "default"))).card
    assert "recalibration" in card.training and card.reference is not None
    assert (card.reference.rows_by_class is None) == chosen


def until_served(service: httpx.Client, version: str) -> None:
    until(lambda: service.get("/models").json()["default"]["version"] == version)


def until_shadowed(service: httpx.Client, version: str) -> None:
    until(lambda: service.get("/models").json()["models"][0]["shadow"] == version)


def until_answers(service: httpx.Client, model: str, count: int) -> None:
    until(lambda: service.get("/calibration-report", params={"model": model}).json().get("answers") == count)


@pytest.mark.full
def test_from_drift_to_a_promoted_version_and_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def typed(*words: str) -> str:
        status = main([*words, "--models", str(tmp_path / "models")])
        shown = capsys.readouterr()
        assert status == (1 if shown.err else 0)
        return shown.err + shown.out

    with serving(tmp_path) as (service, first):
        ask = ("recalibrate", "--url", str(service.base_url), "--why", "drift")
        few = typed(*ask)
        assert "has 0 labelled answers; at least 200 are needed" in few and "a label counts when the window" in few
        label(service, 150, TRUE, seed=1)
        assert f"error: tiny/{first} has 150 labelled answers; at least 200" in typed(*ask)
        assert "no recalibrated version and no shadow to judge" in typed("judge", *ask[1:])
        assert "there is no model 'no'" in typed(*ask, "--model", "no")
        label(service, 450, TRUE, seed=2)
        text = typed(*ask, "--labels", "500", "--candidates", "temperature")
        second = open_models(tmp_path / "models").version_of("tiny", "recalibrated")
        assert second and f"tiny/{second} is published as the recalibrated version" in text
        assert "500 live labels" in text and "temperature (served)" in text
        change = open_models(tmp_path / "models").changes("tiny")[-1]
        assert (change.action, change.after) == ("recalibrated", second)
        assert change.why == "drift: recalibrated on 500 labels"
        assert change.since_ms is not None
        before = sorted(p.name for p in (tmp_path / "models" / "tiny").iterdir())
        text = typed(*ask)
        assert f"tiny/{second} stays the recalibrated version. No fresh labels yet" in text
        assert "No other calibrator is fitted, so that its evidence grows" in text, "a second trigger makes no other"
        assert sorted(p.name for p in (tmp_path / "models" / "tiny").iterdir()) == before
        assert "is no longer served" in typed(*ask, "--version", "000000000000")

        label(service, 60, TRUE, seed=3)
        assert "60 fresh labels" in (few := typed("judge", *ask[1:3])) and "valid however often you look" in few
        label(service, 440, TRUE, seed=4)
        text = typed("judge", *ask[1:3], "--promote", "never")
        assert f"tiny/{second} stays the recalibrated version. 500 fresh labels: the candidate's log loss is" in text
        assert "95% interval of the gain" in text and "The candidate is better." in text
        assert "A person decides (--promote when-better" in text
        wide = ("--margin", "10", "--budget", "together", "--promote", "never")
        assert "at most 10 nats worse" in typed("judge", *ask[1:3], *wide)
        assert "margin is -1.0; allowed is" in typed("judge", *ask[1:3], "--margin", "-1")
        assert f"Promote it: trueodds promote tiny {second}. End it: trueodds shadow tiny none --slot recalib" in text
        assert open_models(tmp_path / "models").version_of("tiny", "default") == first
        assert f"tiny/{second} answers now" in typed("judge", *ask[1:3], "--why", "drift")
        assert open_models(tmp_path / "models").changes("tiny")[-2].why.startswith("drift: better on 500 fresh labels")
        until_served(service, second)
        assert service.get("/models").json()["models"][0]["recalibrated"] is None
        fitted = Bundle.load(tmp_path / "models" / "tiny" / second).calibrator
        assert isinstance(fitted, Temperature) and abs(fitted.temperature - TRUE) < 1
        assert label(service, 600, TRUE, seed=5, served=fitted.temperature) == second
        report = service.get("/calibration-report").json()
        was = service.get("/calibration-report", params={"version": first}).json()
        assert report["version"] == second and report["ece"] < 1.25 * report["floor_p95"]
        assert was["ece"] > 2 * was["floor_p95"] and was["ece_lower"] > 0.04 > 0.02 > report["ece_lower"]
        assert f"tiny/{first} is served again" in typed("rollback", "tiny", "--why", "a try")
        until_served(service, first)
        text = typed("versions")
        assert text.index(first) < text.index(second) and f"rollback     {second} -> {first}" in text


@pytest.mark.full
def test_promoted_at_once_and_nothing_where_nothing_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    models = tmp_path / "models"
    with serving(tmp_path, SetSettings.of("lac", {"levels": [0.9]})) as (service, first):
        monkeypatch.setenv("TRUEODDS_SERVICE", str(service.base_url))
        label(service, 400, SERVED, seed=1)
        assert main(["recalibrate", "--models", str(models), "--candidates", "temperature"]) == 0
        assert "Nothing published: 200 labels do not distinguish" in capsys.readouterr().out
        assert open_models(models).version_of("tiny", "recalibrated") is None
        assert len(list(models.glob("tiny/*/"))) == 1
        assert main(["recalibrate", "--models", str(models), "--candidates", "temperatur"]) == 1
        assert "Did you mean 'temperature'?" in capsys.readouterr().err
        label(service, 400, TRUE, seed=2)
        client = Client(str(service.base_url))
        assert not labels_are_chosen(client, "tiny", first)
        bodies = [{"instances": pictures(200, seed=seed)} for seed in range(9, 13)]
        answered = [one for body in bodies for one in service.post("/predict", json=body).json()["predictions"]]
        sure = sorted(answered, key=lambda one: -float(one["confidence"]))[:100]
        rows = [{"id": one["id"], "label": one["label"]} for one in sure]
        service.post("/feedback", json={"labels": rows}).raise_for_status()
        assert labels_are_chosen(client, "tiny", first), "the most confident quarter got labels"
        assert main(["recalibrate", "--models", str(models), "--promote", "now", "--labels", "400"]) == 0
        second = open_models(models).version_of("tiny", "default")
        assert second != first and open_models(models).version_of("tiny", "recalibrated") is None
        card = Bundle.load(models / "tiny" / str(second)).card
        assert card.sets is None and any("its labels were no random sample" in note for note in card.notes)
        assert f"tiny/{second} answers now." in capsys.readouterr().out
        (models / "tiny" / "shadow").write_text("../tiny\n")
        assert main(["judge", "--models", str(models)]) == 1
        assert "there is no folder" in capsys.readouterr().err
        unlike = open_models(models).publish(write_bundle(tmp_path / "unlike", classes=("a", "b")), None).name
        (models / "tiny" / "shadow").write_text(f"{unlike}\n")
        assert main(["judge", "--models", str(models)]) == 1
        assert "takes other inputs or has other classes" in capsys.readouterr().err
        with open_models(models).lock("tiny", "recalibrate"):
            assert main(["recalibrate", "--models", str(models)]) == 0
        assert "Another recalibration of tiny is running" in capsys.readouterr().out


@pytest.mark.full
def test_a_retrained_net_is_compared_by_labels_of_what_both_scored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    models = tmp_path / "models"
    retrained = Bundle.load(write_bundle(tmp_path / "retrained", seed=9))
    session = onnxruntime.InferenceSession(retrained.model_path)

    def traffic(service: httpx.Client, seed: int) -> None:
        """200 answers, whose labels are as the retrained net says."""
        images = pictures(200, seed=seed)
        answers = service.post("/predict", json={"instances": images}).raise_for_status().json()["predictions"]
        logits_NC = session.run(None, {"images": np.array(images, np.uint8)})[0]
        labels = drawn(retrained.calibrator(logits_NC), np.random.default_rng(seed)).tolist()
        rows = [{"id": p["id"], "index": y} for p, y in zip(answers, labels, strict=True)]
        service.post("/feedback", json={"labels": rows}).raise_for_status()

    def typed(*words: str) -> str:
        assert main([*words, "--models", str(models)]) == 0
        return capsys.readouterr().out

    with serving(tmp_path) as (service, first):
        monkeypatch.setenv("TRUEODDS_SERVICE", str(service.base_url))
        traffic(service, 1)
        second = open_models(models).publish(retrained.directory, "shadow").name
        assert open_models(models).version_of("tiny", "default") == first, "it does not take over"
        assert f"tiny/{second} is the shadow of {first}" in open_models(models).standing("tiny", second)
        assert "stays the shadow. No fresh labels yet" in typed("judge")
        until_shadowed(service, second)
        traffic(service, 2)
        until_answers(service, "tiny~shadow", 200)
        rows = Client.from_environment().labelled("tiny", first, shadow=second)
        assert len(rows) == 200 and len(Client.from_environment().labelled("tiny", first)) == 400
        assert rows.shadow_logits_NC is not None
        twin = compare(Temperature(SERVED), retrained.calibrator, rows.logits_NC, rows.labels_N, rows.shadow_logits_NC)
        row_N, q_NC = np.arange(200), softmax(rows.shadow_logits_NC.astype(float) / SERVED, axis=1)
        p_NC = softmax(rows.logits_NC.astype(float) / SERVED, axis=1)
        mixed = (0.999 * q_NC + 0.00025) / (0.999 * p_NC + 0.00025)
        assert twin.gain == pytest.approx(np.log(mixed)[row_N, rows.labels_N].mean())
        assert rows.propensities_N is not None and np.isnan(rows.propensities_N).all()
        net = f"tiny/{second} stays the shadow. 200 fresh labels: the candidate's log loss is"
        assert net in (text := typed("judge")) and "A person decides (--promote-net when-better" in text
        text = typed("versions", "--url", str(service.base_url))
        assert f"{second} is the shadow, judged since" in text
        assert "on 200 fresh labels: gain" in text
        assert open_models(models).version_of("tiny", "default") == first
        typed("promote", "tiny", second, "--why", "it is mine")
        promoted = open_models(models).changes("tiny")[-2]
        assert promoted.why.startswith("it is mine; on the evidence: better on 200 fresh labels: gain +")
        until_served(service, second)
        open_models(models).shadow("tiny", first)
        until_shadowed(service, first)
        traffic(service, 3)
        until_answers(service, "tiny~shadow", 200)
        assert "nats a label higher" in typed("judge", "--slot", "shadow")
        assert open_models(models).version_of("tiny", "shadow") == first, "nothing is withdrawn without a person"
        assert open_models(models).version_of("tiny", "default") == second
        assert f"tiny/{first} was withdrawn" in typed("judge", "--promote-net", "when-better")
        assert open_models(models).version_of("tiny", "shadow") is None
        assert open_models(models).changes("tiny")[-1].why.startswith("worse on 200 fresh labels: gain -")


@pytest.mark.full
def test_a_calibrator_that_turns_out_worse_is_withdrawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    models = tmp_path / "models"
    key, hashed = hashed_keys.make()
    (tmp_path / "key").write_text(key)
    monkeypatch.setenv("TRUEODDS_ADMIN_KEY_HASH", hashed)
    with serving(tmp_path) as (service, first):
        ask = ["--models", str(models), "--url", str(service.base_url)]
        monkeypatch.setenv("TRUEODDS_ADMIN_KEY", hashed)
        assert main(["recalibrate", *ask]) == 1
        assert "holds the key's hash" in capsys.readouterr().err
        monkeypatch.delenv("TRUEODDS_ADMIN_KEY")
        assert main(["recalibrate", *ask]) == 1
        assert "answered 401: a key is needed" in capsys.readouterr().err
        ask += ["--key-file", str(tmp_path / "key")]
        assert main(["recalibrate", *ask, "--labels", "199"]) == 1
        assert "labels is 199; allowed is a whole number from 200" in capsys.readouterr().err
        other = open_models(tmp_path / "others").publish(write_bundle(tmp_path / "other", name="elsewhere"))
        assert main(["recalibrate", *ask, "--models", str(other.parents[1])]) == 1
        assert "serves another model directory than" in capsys.readouterr().err
        same = open_models(tmp_path / "twins").publish(tmp_path / "bundle")  # the same version, in another directory
        assert same.name == first and main(["judge", *ask, "--models", str(tmp_path / "twins")]) == 1
        assert "Give the service's own: --models, or TRUEODDS_MODELS" in capsys.readouterr().err
        label(service, 300, TRUE, seed=1)
        assert main(["recalibrate", *ask]) == 0
        label(service, 400, SERVED, seed=2)  # the drift was a passing one
        assert main(["judge", *ask, "--promote", "never", "--wait", "1"]) == 0
        text = capsys.readouterr().out
        assert "400 fresh labels: the candidate's log loss is" in text and "higher" in text
        assert "End it: trueodds shadow tiny none --slot recalibrated" in text
        assert open_models(models).version_of("tiny", "recalibrated") is not None
        assert main(["judge", *ask]) == 0
        assert "was withdrawn. 400 fresh labels" in capsys.readouterr().out
        assert open_models(models).version_of("tiny", "recalibrated") is None
        assert open_models(models).changes("tiny")[-1].why.startswith("worse on 400 fresh labels: gain -")
        assert open_models(models).version_of("tiny", "default") == first


@pytest.mark.full
def test_an_alarm_fits_a_calibrator_whatever_net_waits_and_training_runs_reset_no_evidence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The story of an unreviewed net that an alarm promoted because it was less bad on noise."""
    folder, models = open_models(tmp_path / "models"), str(tmp_path / "models")
    nets = [write_bundle(tmp_path / f"net{seed}", seed=seed) for seed in (9, 10, 11, 12)]

    def typed(*words: str) -> str:
        assert main([*words, "--models", models]) == 0
        return capsys.readouterr().out

    def roles() -> list[str | None]:
        return [folder.version_of("tiny", role) for role in ("default", "shadow", "recalibrated", "waiting")]

    with serving(tmp_path) as (service, first):
        monkeypatch.setenv("TRUEODDS_SERVICE", str(service.base_url))
        net = folder.publish(nets[0], "shadow", why="trained").name
        until_shadowed(service, net)
        label(service, 400, TRUE, seed=1)
        text = typed("recalibrate", "--candidates", "temperature", "--why", "alarm")
        second = folder.version_of("tiny", "recalibrated")
        assert second and f"tiny/{second} is published as the recalibrated version" in text
        assert f"tiny/{net} stays the shadow" in text and "A person decides (--promote-net" in text
        assert roles() == [first, net, second, None], "the fit comes first, and the net is not promoted"

        since_ms = folder.since_ms("tiny", "shadow")
        later = [typed("publish", "--bundle", str(bundle), "--role", "shadow") for bundle in nets[1:]]
        last = folder.version_of("tiny", "waiting")
        assert last and all(f"waits behind {net}, the shadow of tiny" in text for text in later)
        assert roles() == [first, net, second, last] and folder.since_ms("tiny", "shadow") == since_ms
        text = typed("versions")
        assert f"{last} waits behind {net}, the shadow" in text
        assert f"{second} is the recalibrated version, judged since" in text

        label(service, 600, TRUE, seed=2)
        until_answers(service, "tiny~shadow", 1000)
        text = typed("recalibrate", "--candidates", "temperature", "--why", "alarm")
        assert f"tiny/{second} answers now. 600 fresh labels" in text
        assert roles() == [second, net, None, last], "the verdict promotes the calibrator, and no net"
        promoted = next(change for change in folder.changes("tiny")[::-1] if change.action == "promote")
        assert promoted.why.startswith("alarm: better on 600 fresh labels: gain +")
        assert f"; ends the evidence about {net}: " in promoted.why and "on 1,000 fresh labels" in promoted.why
        assert f"tiny/{net} stays the shadow. No fresh labels yet" in text, "it is compared with what answers now"

        until_served(service, second)
        assert label(service, 100, TRUE, seed=3, served=TRUE) == second
        until_answers(service, "tiny~shadow", 1100)
        assert "100 fresh labels" in typed("judge", "--slot", "shadow")
        text = typed("publish", "--bundle", str(nets[1]), "--role", "shadow", "--displace")
        assert f"displaces {net}: " in text and "on 100 fresh labels" in text
        assert (change := folder.changes("tiny")[-1]).before == net and f"displaces {net}: " in change.why
        third = folder.version_of("tiny", "shadow")
        assert third and main(["shadow", "tiny", third, "--slot", "recalibrated", "--models", models]) == 1
        assert f"tiny/{third} has another net than {second}" in capsys.readouterr().err
        text = typed("shadow", "tiny", "none")
        assert text.startswith(
            f"tiny/{last}, which waited, is the shadow now (ends the evidence about {third}: no fresh"
        )


def test_a_key_is_sent_to_the_service_and_nowhere_else(tmp_path: Path) -> None:
    seen: list[tuple[str, str | None]] = []

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            seen.append((self.path, self.headers["authorization"]))
            self.send_response(302 if self.path.startswith("/a/") else 200)
            self.send_header("location", "/elsewhere")
            self.end_headers()
            self.wfile.write(b"not a zip")

    with LocalServer().serve(Handler) as away:
        with pytest.raises(CallError, match="answered 302"):
            Client(f"{away.url}/a", key="secret").labelled("m", "v", last=3)
        with pytest.raises(CallError, match=r"labelled\.npz is incomplete"):
            Client(away.url, key="secret").labelled("m", "v", since=datetime.fromtimestamp(1.5, UTC))
    assert [key for _, key in seen] == ["Bearer secret"] * 2
    assert "since=1970-01-01T00%3A00%3A01.500%2B00%3A00" in seen[1][0]
    assert "secret" not in repr(Client(away.url, key="secret"))


def test_clear_words_where_nobody_answers_or_a_key_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(CallError, match=f"no service answers at http://127.0.0.1:{port} .*--url") as error:
        Client.from_environment(f"http://127.0.0.1:{port}").labelled("m", "v")
    assert error.value.code == NO_ANSWER
    for url in ("file:///etc/passwd", "127.0.0.1:8000", "http://", "http://x/?a=b"):
        with pytest.raises(ConfigError, match="allowed is a URL such as"):
            Client.from_environment(url)
    monkeypatch.delenv(ADMIN_KEY_FILE, raising=False)
    monkeypatch.setenv(ADMIN_KEY, "a" * 64)
    with pytest.raises(
        ConfigError, match=r"holds the key's hash; commands take the key itself .*from TRUEODDS_ADMIN_KEY_HASH"
    ):
        admin_key()
    (tmp_path / "key").write_text("word\n")
    assert admin_key(tmp_path / "key") == "word"
    (tmp_path / "key").write_text("\n")
    with pytest.raises(ConfigError, match="is empty"):
        admin_key(tmp_path / "key")
    with pytest.raises(ConfigError, match="cannot be read"):
        admin_key(tmp_path / "none")


def test_the_services_clock_counts_where_it_differs() -> None:
    assert labelled.ahead_ms(None) == labelled.ahead_ms("yesterday") == 0
    assert abs(labelled.ahead_ms("Thu, 01 Jan 1970 00:00:00 GMT")) > 10**12


@pytest.mark.full
def test_a_model_that_another_server_serves_gets_its_calibrator_in_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (z_NC, labels_N), out = answers(1_500, TRUE), tmp_path / "calibrator.json"
    p_NC = softmax(z_NC.astype(float) / SERVED, axis=1)
    with server(tmp_path) as (service, _):
        address = ["--url", str(service.base_url), "--model", "mail"]

        def observe(p_NC: Array, **query: str) -> None:
            rows = [{"id": f"r{n}", "probabilities": row} for n, row in enumerate(p_NC.tolist())]
            service.post("/observe", json={"observations": rows}, params=query).raise_for_status()

        def label(rows: slice) -> None:
            labels = [{"id": f"r{n}", "index": int(labels_N[n])} for n in range(len(labels_N))[rows]]
            service.post("/feedback", json={"labels": labels}).raise_for_status()

        observe(p_NC, model="mail", version="7")
        label(slice(150))
        assert main(["recalibrate", *address, "--out", str(out)]) == 1
        assert "mail/7 has 150 labelled answers; at least 200 are needed" in capsys.readouterr().err
        assert main(["judge", *address]) == 1
        assert "mail has no shadow to judge; send the answers that another version" in capsys.readouterr().err
        label(slice(150, None))
        assert main(["recalibrate", *address, "--version", "8", "--out", str(out)]) == 1
        assert "unknown version of mail '8'; allowed: 7" in capsys.readouterr().err
        assert main(["recalibrate", *address, "--out", str(out)]) == 0
        assert f"{out} holds it" in capsys.readouterr().out
        observe(softmax(z_NC.astype(float) / TRUE, axis=1), model="mail", version="8", shadow="true")
        assert main(["judge", *address]) == 0
        text = capsys.readouterr().out
        assert "mail/8 beside 7. 1,500 fresh labels: the candidate's log loss is" in text
        assert "The candidate is better." in text and "Nothing changes here" in text
        request = Recalibration(Client(str(service.base_url)), open_models(tmp_path / "none"), "mail")
        assert "Labelled answers of mail/7 for a fit: 1,500" in rehearse(request)
        assert main(["recalibrate", *address, "--out", str(tmp_path)]) == 1
        assert "cannot be written" in capsys.readouterr().err
    mended_NC = calibrators.from_json(json.loads(out.read_text()))(trueodds.logits_of(p_NC))
    assert trueodds.metrics.ece(CalibrationSums.from_probabilities(p_NC, labels_N)) > 0.1
    assert trueodds.metrics.ece(CalibrationSums.from_probabilities(mended_NC, labels_N)) < 0.05
