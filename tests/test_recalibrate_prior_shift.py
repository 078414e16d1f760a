"""Correction for class shares: from answers without labels of a real service to a version that labels judge."""

from __future__ import annotations

import dataclasses
import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from scipy.special import expit, log_softmax, logit

from benchmarks.faults.clock import DAY, Clock
from pipeline.__main__ import main
from pipeline.recalibrate import Recalibration
from tests.service.test_process import server
from tests.service.tiny_bundle import change_card, write_bundle
from tests.test_recalibrate import serving, until_served
from trueodds import calibrators
from trueodds.bundle import ActAlone, Bundle, Reference, open_models
from trueodds.calibrators import PriorCorrected
from trueodds.client import Client
from trueodds.errors import ConfigError
from trueodds.metrics import nll, prior_shift
from trueodds.sums.positive import PositiveClass

CLASSES = ("ok", "fraud")
ROWS = 2_000


def scores(n: int, positives: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Log-odds that are calibrated for 50% positives, and labels."""
    y_N = (rng.random(n) < positives).astype(int)
    return 2 * rng.normal(2 * y_N - 1, 1), y_N


def both(z_N: np.ndarray) -> np.ndarray:
    return np.stack([1 - expit(z_N), expit(z_N)], axis=1)


def publish(folder: Path, positive: str, rows: tuple[np.ndarray, np.ndarray]) -> str:
    """Publish a bundle of one feature, whose card has these reference rows, and return its version."""
    promise = ActAlone.of_text("threshold=.9,risk=.05,confidence=.95")
    bundle = write_bundle(folder / "bundle", features=["z"], classes=CLASSES, positive=positive, act_alone=promise)
    known = PositiveClass(positive, CLASSES.index(positive))
    change_card(bundle, reference=Reference.of_probabilities(both(rows[0]), known, rows[1]).model_dump())
    return open_models(folder / "models").publish(bundle).name


def slope_of(service: httpx.Client) -> float:
    """Return the log-odds of a feature of 1."""
    rows = service.post("/predict", json={"instances": [[0.5]]}).raise_for_status().json()["predictions"]
    return float(logit(rows[0]["probabilities"][1]) / 0.5)


def ask(service: httpx.Client, z_N: np.ndarray, slope: float) -> list[str]:
    """Ask for answers with these log-odds, and return their ids."""

    def answers(values: list[float]) -> list[dict[str, Any]]:
        body = {"instances": [[value] for value in values]}
        found: list[dict[str, Any]] = service.post("/predict", json=body).raise_for_status().json()["predictions"]
        return found

    return [one["id"] for part in np.array_split(z_N / slope, len(z_N) // 250 + 1) for one in answers(part.tolist())]


def label(service: httpx.Client, ids: list[str], y_N: np.ndarray) -> None:
    rows = [{"id": id_, "index": int(y)} for id_, y in zip(ids, y_N.tolist(), strict=True)]
    service.post("/feedback", json={"labels": rows}).raise_for_status()


@pytest.mark.full
@pytest.mark.parametrize("positive", CLASSES)
def test_from_answers_without_labels_to_a_version_that_labels_promote(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], positive: str
) -> None:
    rng = np.random.default_rng(1)
    known, (z_N, _) = scores(ROWS, 0.5, rng), scores(ROWS, 0.1, rng)
    first = publish(tmp_path, positive, known)
    models = open_models(tmp_path / "models")

    def typed(*words: str) -> str:
        status = main([*words, "--models", str(tmp_path / "models"), "--url", str(service.base_url)])
        shown = capsys.readouterr()
        assert status == (1 if shown.err else 0)
        return shown.err + shown.out

    with server(tmp_path) as (service, _):
        nothing = typed("recalibrate", "--prior-shift")
        assert f"tiny/{first} has no answer without a label in this time" in nothing
        slope = slope_of(service)
        ask(service, known[0][:9], slope)
        few = typed("recalibrate", "--prior-shift")
        assert "are not estimated: there are 10 answers; at least 50 are needed. Recalibrate on labels" in few
        ask(service, z_N, slope)
        assert "since" in typed("recalibrate", "--since", "2026-01-01")
        text = typed("recalibrate", "--prior-shift", "--why", "more orders")
        second = str(models.version_of("tiny", "recalibrated"))
        assert f"tiny/{second} is published as the recalibrated version, corrected for the class shares of" in text
        change = models.changes("tiny")[-1]
        assert change.why.startswith("more orders: corrected for the class shares of 2,01")
        made, report = Bundle.load(tmp_path / "models" / "tiny" / second), service.get("/calibration-report").json()
        # The card holds what the report shows
        estimate = made.card.training["recalibration"]["prior_shift"]
        shares = {one["name"]: one for one in report["class_shares"]["classes"]}
        assert report["class_shares"]["changed_classes"] == [one["name"] for one in report["class_shares"]["classes"]]
        for name, one in estimate["classes"].items():
            em = shares[name]["em"]
            assert (one["share"], one["lower"], one["upper"]) == (em["value"], em["lower"], em["upper"])
            assert one["reference"] == shares[name]["reference"]
        assert (estimate["answers"], estimate["reference_rows"]) == (report["class_shares"]["answers"], ROWS)
        assert estimate["since"] is None and estimate["until"] > "2026" and estimate["level"] == 0.95
        assert made.card.metrics == {} and made.card.reference is None and made.card.act_alone is None
        assert made.card.notes[0].startswith(f"Corrected from version {first} for the class shares of 2,01")
        assert "This promise does not apply to this version" in made.card.notes[1]
        # The calibrator is that of exact rows
        assert isinstance(made.calibrator, PriorCorrected)
        exact = prior_shift(both(z_N), both(known[0]), known[1])
        p_N = made.calibrator.within(Bundle.load(tmp_path / "bundle").calibrator)(
            np.stack([np.zeros(ROWS), 1.7 * z_N], axis=1)
        )
        assert np.abs(p_N - exact.correct(both(z_N))).mean() < 0.005
        # Later labels judge it like any other
        fresh = scores(800, 0.1, rng)
        assert "No fresh labels yet" in typed("judge")
        label(service, ask(service, fresh[0], slope), fresh[1])
        assert "No other calibrator is fitted" in typed("recalibrate", "--prior-shift", "--promote", "never")
        assert f"tiny/{second} answers now. 800 fresh labels" in typed("judge")
        until_served(service, second)
        again_text = typed("recalibrate", "--prior-shift")
        assert f"tiny/{second} has no card with reference rows by class" in again_text and "(--since)" in again_text
        # Labels recalibrate a corrected version too
        again = scores(600, 0.1, rng)
        label(service, ask(service, again[0], slope), again[1])
        assert "temperature" in typed("recalibrate", "--candidates", "platt")


@pytest.mark.full
def test_three_classes_by_the_labelled_answers_of_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service answers and takes labels three days ago; then class `spam` becomes rare."""
    names, even, rng = ("ham", "news", "spam"), (0.3, 0.3, 0.4), np.random.default_rng(2)
    weights_CC = np.random.default_rng(0).normal(0, 3 / np.sqrt(3), (3, 3)).astype(np.float32)  # as `write_linear`'s

    def drawn(count: int, shares: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
        """Log-probabilities that are calibrated for even shares, and labels by other shares."""
        y_N = rng.choice(3, count, p=shares)
        return log_softmax(4 * np.eye(3)[y_N] + 2 * rng.normal(size=(count, 3)) + np.log(even), axis=1), y_N

    def asked(service: httpx.Client, log_NC: np.ndarray) -> list[str]:
        rows = (1.7 * log_NC @ np.linalg.inv(weights_CC)).tolist()
        answers: list[str] = []
        for k in range(0, len(rows), 200):
            body = service.post("/predict", json={"instances": rows[k : k + 200]}).raise_for_status().json()
            answers += [one["id"] for one in body["predictions"]]
        return answers

    bundle = write_bundle(tmp_path / "bundle", features=list("abc"), classes=names)
    first = open_models(tmp_path / "models").publish(bundle).name
    wall = Clock(tmp_path)
    known = os.pathsep.join(filter(None, (wall.environment["PYTHONPATH"], os.environ.get("PYTHONPATH"))))
    for name, value in (wall.environment | {"PYTHONPATH": known}).items():
        monkeypatch.setenv(name, value)
    wall.set(-3 * DAY)
    old, new = drawn(800, even), drawn(900, (0.6, 0.35, 0.05))
    with server(tmp_path) as (service, _):
        label(service, asked(service, old[0]), old[1])
        wall.set(0)
        asked(service, new[0])
        since = (datetime.now(UTC) - timedelta(days=1)).isoformat(timespec="seconds")
        where = ("--models", str(tmp_path / "models"), "--url", str(service.base_url), "--prior-shift")
        assert main(["recalibrate", *where]) == 1
        assert "the labelled answers from before it are then the reference" in capsys.readouterr().err
        assert main(["recalibrate", *where, "--since", since]) == 0
    second = str(open_models(tmp_path / "models").version_of("tiny", "recalibrated"))
    assert f"tiny/{second} is published as the recalibrated version" in capsys.readouterr().out
    made, served = Bundle.load(tmp_path / "models" / "tiny" / second), Bundle.load(tmp_path / "models/tiny" / first)
    exact = prior_shift(np.exp(new[0]), np.exp(old[0]), old[1])
    estimate = made.card.training["recalibration"]["prior_shift"]
    for name, one in zip(names, exact.em, strict=True):
        assert estimate["classes"][name]["share"] == pytest.approx(one.value, abs=1e-3)
    assert (estimate["answers"], estimate["reference_rows"]) == (900, 800)
    assert "are spam (95% interval" in made.card.notes[0]
    assert isinstance(made.calibrator, PriorCorrected)
    corrected = made.calibrator.within(served.calibrator)(1.7 * new[0])
    assert np.abs(corrected - exact.correct(np.exp(new[0]))).max() < 0.005
    # The corrected probabilities are closer to the truth of these answers than the served ones
    assert nll(corrected, new[1]) < nll(np.exp(new[0]), new[1]) - 0.1


@pytest.mark.full
def test_labels_that_contradict_and_shares_without_a_change(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(1)
    known = scores(ROWS, 0.5, rng)
    publish(tmp_path, "fraud", known)
    with server(tmp_path) as (service, _):
        where = ("--models", str(tmp_path / "models"), "--url", str(service.base_url), "--prior-shift")
        same, slope = scores(1_000, 0.5, rng), slope_of(service)
        ask(service, same[0], slope)
        assert main(["recalibrate", *where]) == 0
        assert "Nothing published: Of 1,001 answers" in capsys.readouterr().out
        z_N, _ = scores(6_000, 0.1, rng)
        ids = ask(service, z_N, slope)
        concept_N = (rng.random(len(z_N)) < expit(z_N)).astype(int)
        label(service, ids[:1_500], concept_N[:1_500])
        assert main(["recalibrate", *where]) == 1
        text = capsys.readouterr().err
        assert "Withdrawn: there are no class shares, because labels contradict them." in text
        assert "Recalibrate on labels instead: trueodds recalibrate" in text
        assert open_models(tmp_path / "models").version_of("tiny", "recalibrated") is None


@pytest.mark.full
def test_versions_without_scores_by_class_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(tmp_path) as (service, first):
        where = ("--url", str(service.base_url), "--models", str(tmp_path / "models"), "--prior-shift")
        assert main(["recalibrate", *where]) == 1
        assert f"tiny/{first} has no card with reference rows by class" in capsys.readouterr().err
        assert main(["recalibrate", *where, "--since", "2026-01-01"]) == 1
        assert f"tiny/{first} has no answer without a label in this time" in capsys.readouterr().err
        rows = [{"id": f"a{n}", "model": "other", "version": "1", "probabilities": [0.2, 0.8]} for n in range(3)]
        body = "\n".join(json.dumps(row) for row in rows)
        service.post("/observe", content=body, headers={"content-type": "application/x-ndjson"}).raise_for_status()
        assert main(["recalibrate", *where, "--model", "other"]) == 1
        assert "other/1 has no card with reference rows by class" in capsys.readouterr().err
        request = Recalibration(Client(str(service.base_url)), open_models(tmp_path / "models"), prior_shift=True)
        with pytest.raises(ConfigError, match="prior_shift and candidates given"):
            dataclasses.replace(request, candidates=("temperature",))
        with pytest.raises(ConfigError, match="since is 2026-01-01; allowed only with prior_shift"):
            dataclasses.replace(request, prior_shift=False, since="2026-01-01")


@pytest.mark.full
def test_answers_of_another_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The correction is a file for that server, and applies to the probabilities that it sent."""
    rng = np.random.default_rng(1)
    old, new, now = scores(700, 0.5, rng), scores(900, 0.1, rng), datetime.now(UTC)
    out = tmp_path / "calibrator.json"
    with serving(tmp_path) as (service, _):
        for name, (z_N, _), days in (("old", old, 3), ("new", new, 0)):
            rows = [
                {
                    "id": f"{name}{k}",
                    "probabilities": p,
                    "time": (now - timedelta(days=days, minutes=1)).isoformat(),
                }
                for k, p in enumerate(both(z_N).tolist())
            ]
            body = {"observations": rows, "classes": CLASSES, "model": "other", "version": "1"}
            service.post("/observe", json=body).raise_for_status()
        labels = [{"id": f"old{k}", "index": int(y), "model": "other"} for k, y in enumerate(old[1])]
        service.post("/feedback", json={"labels": labels}).raise_for_status()
        since = (now - timedelta(days=1)).isoformat()
        words = ["recalibrate", "--url", str(service.base_url), "--model", "other", "--prior-shift", "--since", since]
        assert main([*words, "--out", str(tmp_path / "no" / "file")]) == 1
        assert "cannot be written" in capsys.readouterr().err
        assert main([*words, "--out", str(out)]) == 0
        text = capsys.readouterr().out
    assert "Of 900 answers" in text and f"{out} holds it; on the server of other, load it with calibrators.from" in text
    made = calibrators.from_json(json.loads(out.read_text()))
    exact = prior_shift(both(new[0]), both(old[0]), old[1])
    corrected = made(np.stack([np.zeros(900), new[0]], axis=1))
    assert np.abs(corrected - exact.correct(both(new[0]))).max() < 0.005
