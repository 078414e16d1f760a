"""Recalibration of independent labels: fitted on the live labels of a real service, judged, and served."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from benchmarks.evidence.judge_labels import Setting, wrong_verdicts
from pipeline.__main__ import main
from pipeline.flows.recalibrate import label_rows
from pipeline.recalibrate import Recalibration, Rules, judge, rehearse
from pipeline.recalibrate.gains import label_gain_limits
from pipeline.recalibrate.judging import evidence_about, fetch_truths
from pipeline.recalibrate.label_choice import choose_labels
from pipeline.recalibrate.label_comparison import SETTLE_MS, closed_answers, compare_labels, label_scores
from pipeline.recalibrate.model_state import ModelState
from service.labels.label_matrix import matrix
from service.store.rows import LabelledLogits
from tests import reference_gain_sequence as twin
from tests.importing.test_multilabel import NAMES, WEIGHTS
from tests.service.hooks import until
from tests.service.label_bundle import write_labels
from tests.service.test_process import server
from tests.test_recalibrate import until_served
from trueodds.bundle import BundleError, LabelBundle, load_bundle, open_models
from trueodds.calibrators import MultilabelPlatt
from trueodds.calibrators.affine.label_platt import cross_fit
from trueodds.client import CallError, Client
from trueodds.client.label_truths import LabelTruths
from trueodds.sums.inputs import Array

NAN = math.nan


def curves(slopes: list[float], offsets: list[float]) -> MultilabelPlatt:
    names = tuple(f"l{k}" for k in range(len(slopes)))
    return MultilabelPlatt(slopes, offsets, slopes[0], offsets[0], 0.3, 0.3, names)


def label(service: httpx.Client, count: int, seed: int, slope: float = 0.2, known: float = 1.0) -> None:
    """Ask `count` times, and label the answers by sigma(slope z); `known` is the share of known truths."""
    rng = np.random.default_rng(seed)
    for _ in range(count // 100):
        x_N2 = rng.normal(0, 2, (100, 2)).astype(np.float32)
        body = service.post("/predict", json={"instances": x_N2.tolist()}).raise_for_status().json()
        truth_NL = rng.random((100, 3)) < 1 / (1 + np.exp(-slope * (x_N2 @ WEIGHTS)))
        known_NL = rng.random(truth_NL.shape) < known
        labels = [
            {"id": one["id"], "question": answer["name"], "label": bool(truth_NL[row, k])}
            for row, one in enumerate(body["predictions"])
            for k, answer in enumerate(one["answers"])
            if known_NL[row, k]
        ]
        service.post("/feedback", json={"labels": labels}).raise_for_status()


@pytest.mark.full
def test_from_labels_to_served_curves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    models = open_models(tmp_path / "models")
    first = models.publish(write_labels(tmp_path / "bundle").directory).name

    def typed(*words: str) -> str:
        main([*words, "--models", str(tmp_path / "models")])
        shown = capsys.readouterr()
        return shown.err + shown.out

    with server(tmp_path) as (service, _), Client(str(service.base_url)) as client:
        where = ("--url", str(service.base_url))
        assert len(client.label_truths("tagger", first)) == 0
        assert "has 0 labelled answers; at least 200 are needed" in typed("recalibrate", *where)
        label(service, 400, seed=1, known=0.7)
        rows = client.label_truths("tagger", first)
        assert rows.labels == NAMES and 380 < len(rows) <= 400
        assert np.isnan(rows.truth_NL).mean() == pytest.approx(0.3, abs=0.05)
        assert len(client.label_truths("tagger", first, last=50)) == 50
        report = client.label_report("tagger", first, since="2026-01-01", level=0.9)
        assert (report.n, report.level, [one.name for one in report.by_label]) == (len(rows), 0.9, [*NAMES])
        with pytest.raises(CallError, match="no answers to yes/no questions are stored of 'cat'"):
            client.label_report("cat")
        with pytest.raises(CallError, match=r"read them with client\.label_truths"):
            client.labelled("tagger", first)
        with pytest.raises(CallError, match=r"read its labels with client\.labelled"):
            client.label_truths("tagger-rain", first)
        assert f"Labelled answers of tagger/{first} for a fit: {len(rows)}" in rehearse(Recalibration(client, models))
        assert "allowed is multilabel_platt" in typed("recalibrate", *where, "--candidates", "temperature")
        assert "allowed is multilabel_platt" in typed("recalibrate", *where, "--groups", "tag")
        assert "class shares are of exclusive classes" in typed("recalibrate", *where, "--prior-shift")

        text = typed("recalibrate", *where, "--why", "drift")
        second = models.version_of("tagger", "recalibrated")
        assert second and f"tagger/{second} is published as the recalibrated version" in text
        assert f"{len(rows)} labelled answers, cross-validated" in text and "* multilabel_platt" in text
        bundle = load_bundle(tmp_path / "models" / "tagger" / second)
        assert isinstance(bundle, LabelBundle)
        assert np.asarray(bundle.calibrator.slope_L) == pytest.approx([0.2] * 3, abs=0.1)
        assert bundle.card.training["recalibration"] == {
            "from": first,
            "labels": len(rows),
            "candidates": ["multilabel_platt"],
        }
        assert f"{len(rows)} live labelled answers" in (bundle.directory / "MODEL_CARD.md").read_text()
        until(lambda: service.get("/models").json()["models"][0]["recalibrated"] == second)
        assert service.get("/models").json()["problems"] == []
        assert "compared by the logits of the labelled answers" in models.standing("tagger", second)

        assert "No fresh labels yet" in typed("judge", *where)
        request, times = Recalibration(client, models), []

        def slowly(step: Callable[..., Any], *arguments: Any) -> Any:
            """A label may come while the labels are read: its answer must not be closed by then."""
            if step is fetch_truths:
                times.append(time.time_ns() // 1_000_000)
                time.sleep(0.05)
            elif step is compare_labels:
                times.append(arguments[-1])
            return step(*arguments)

        state = ModelState.of(request)
        evidence_about(request, state, state.candidates["recalibrated"], slowly)
        assert times[1] <= times[0]
        label(service, 100, seed=2, known=0.5)
        assert "will count when all labels are known, or an hour after" in typed("judge", *where)
        label(service, 500, seed=3)
        assert "of independent labels, which has no shadow" in typed("shadow", "tagger", second)
        text = typed("versions", *where)
        assert f"{second} is the recalibrated version, judged since" in text and "fresh answers: gain" in text
        text = typed("judge", *where)
        assert f"tagger/{second} answers now." in text and "An answer counts once" in text
        until_served(service, second)
        assert any(change.why.startswith("better on ") for change in models.changes("tagger"))
        assert f"tagger/{first} is served again" in typed("rollback", "tagger", *where)


@pytest.mark.full
def test_a_version_with_another_net_is_not_judged(tmp_path: Path) -> None:
    models = open_models(tmp_path / "models")
    models.publish(write_labels(tmp_path / "one").directory)
    other = write_labels(tmp_path / "other", log=True)
    models.publish(other.directory, None)
    models.shadow("tagger", other.version, slot="recalibrated")
    with server(tmp_path) as (service, _):
        until(lambda: service.get("/models").json()["problems"] != [])
        assert "it has another net" in service.get("/models").json()["problems"][0]
        assert service.get("/models").json()["models"][0]["recalibrated"] is None
        words = r"has another net than .* and cannot recalibrate it"
        with Client(str(service.base_url)) as client, pytest.raises(BundleError, match=words):
            judge(Recalibration(client, models, "tagger"))


def test_the_file_joins_the_labels_by_id() -> None:
    def block(ids: list[str], z: list[float], y: list[int], at: list[int]) -> LabelledLogits:
        z_N = np.array(z, np.float32)
        two_N2 = np.stack([np.minimum(-z_N, 0), np.minimum(z_N, 0)], axis=1)
        count = len(ids)
        tags: list[str | None] = ["t" if id_ == "b" else None for id_ in ids]
        chance_N = np.full(count, 0.5)
        return LabelledLogits(two_N2, np.array(y), ids, np.arange(count), chance_N, tags, np.array(at))

    found = matrix([[block(["a", "b"], [2, -3], [1, 0], [50, 60])], [block(["c"], [7], [1], [40])], []], NAMES)
    assert found["labels"].tolist() == [[-1, 1, -1], [1, -1, -1], [0, -1, -1]]
    assert found["logits"].tolist() == [[0, 7, 0], [2, 0, 0], [-3, 0, 0]]
    assert found["arrived_ms"].tolist() == [[0, 40, 0], [50, 0, 0], [60, 0, 0]]
    assert found["tag"].tolist() == [-1, -1, 0] and found["tag_names"].tolist() == ["t"]


def test_an_answer_is_closed_when_its_labels_are_fixed() -> None:
    hour = SETTLE_MS
    truth_NL = np.array([[1, NAN], [1, 0], [0, 1], [NAN, 1]])
    arrived_NL = np.array([[10, 0], [20, 30], [5, 5 + hour + 1], [0, 100 + hour]])
    early = closed_answers(truth_NL, arrived_NL, 40)
    assert early.place_M.tolist() == [1] and (early.waiting, early.late) == (3, 0)
    later = closed_answers(truth_NL, arrived_NL, 50 + hour)
    assert later.place_M.tolist() == [1, 2, 0] and (later.waiting, later.late) == (1, 1)
    assert np.array_equal(later.truth_ML, np.array([[1, 0], [0, NAN], [1, NAN]]), equal_nan=True)
    assert closed_answers(truth_NL, arrived_NL, 100 + 2 * hour).waiting == 0


def truths(z_NL: Array, truth_NL: Array, chance: float | Array = NAN) -> LabelTruths:
    arrived_NL = np.where(np.isnan(truth_NL), 0, np.arange(1, len(z_NL) + 1)[:, None])
    count = len(z_NL)
    names = tuple(f"l{k}" for k in range(z_NL.shape[1]))
    chance_N = np.broadcast_to(np.asarray(chance, float), count)
    none_N = np.full(count, None)
    return LabelTruths(z_NL.astype(np.float32), truth_NL, arrived_NL, np.arange(count), names, chance_N, none_N)


def drawn(count: int, labels: int, seed: int, known: float = 0.6) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    z_NL = rng.normal(-1, 2, (count, labels)).astype(np.float32).astype(float)
    truth_NL = (rng.random(z_NL.shape) < 1 / (1 + np.exp(-z_NL / 2))).astype(float)
    truth_NL[rng.random(z_NL.shape) >= known] = NAN
    some_N = ~np.isnan(truth_NL).all(axis=1)
    return z_NL[some_N], truth_NL[some_N]


@pytest.mark.parametrize("weighted", [False, True])
def test_the_interval_is_the_confidence_sequence_by_answer(weighted: bool) -> None:
    """The gain of an answer by a loop, and the limits by the slow twin."""
    (z_NL, truth_NL), e, now = drawn(140, 3, 1), 0.01, 10 * SETTLE_MS
    z_NL, truth_NL = z_NL[:120], truth_NL[:120]
    served, candidate = curves([1.0, 1.2, 0.8], [0.0, 0.1, -0.2]), curves([0.5, 0.5, 0.6], [0.0, 0.0, 0.1])
    chance_N = np.random.default_rng(0).choice([0.02, 0.1, 0.5, 1.0], 120) if weighted else NAN
    found = compare_labels(served, candidate, truths(z_NL, truth_NL, chance_N), Rules(smoothing=e), now)
    gains, weights = [], []
    order_N = sorted(range(120), key=lambda n: n + 1 + (SETTLE_MS if np.isnan(truth_NL[n]).any() else 0))
    for n in order_N:
        of_labels = []
        for k in range(3):
            if np.isnan(truth_NL[n, k]):
                continue
            scores = []
            for one in (served, candidate):
                p = 1 / (1 + math.exp(-(np.asarray(one.slope_L)[k] * z_NL[n, k] + np.asarray(one.offset_L)[k])))
                p = p if truth_NL[n, k] else 1 - p
                scores.append(math.log((1 - e) * p + e / 2))
            of_labels.append(scores[1] - scores[0])
        chance = float(np.broadcast_to(chance_N, 120)[n])
        if weighted and chance < 0.05:
            continue
        gains.append(sum(of_labels) / len(of_labels))
        weights.append(0.05 / chance)
    least, most = label_gain_limits(served, candidate, e)
    mean = np.average(gains, weights=weights) if weighted else np.mean(gains)
    assert found.gain == pytest.approx(mean) and found.labels == len(gains)
    assert found.left_out == 120 - len(gains) and (found.left_out > 0) == weighted
    given = weights if weighted else None
    assert found.lower == pytest.approx(twin.lower(gains, least, weights=given), abs=1e-7)
    assert found.upper == pytest.approx(-twin.lower([-gain for gain in gains], -most, weights=given), abs=1e-7)
    assert "answers left out" in found.words() or not weighted


def test_the_limits_hold_for_every_logit_and_are_reached() -> None:
    served, candidate, e = curves([1.0, 3.0], [0.0, -1.0]), curves([0.4, 6.0], [0.5, 1.0]), 0.001
    least, most = label_gain_limits(served, candidate, e)
    seen = []
    for truth in (0.0, 1.0):
        for k in range(2):
            z_NL = np.zeros((20_001, 2))
            z_NL[:, k] = np.linspace(-40, 40, 20_001)
            truth_NL = np.full(z_NL.shape, NAN)
            truth_NL[:, k] = truth
            p_N, q_N = (label_scores(one, z_NL, truth_NL, e)[0] for one in (served, candidate))
            seen.append(q_N - p_N)
    assert least <= np.min(seen) < least + 0.02 and most - 0.02 < np.max(seen) <= most


def test_the_choice_is_cross_fitted_and_keeps_curves_without_labels() -> None:
    z_NL, truth_NL = drawn(400, 3, 2)
    served = curves([1.0] * 3, [0.0] * 3)
    choice = choose_labels(served, z_NL, truth_NL)
    p_NL = cross_fit(np.where(np.isnan(truth_NL), 0, z_NL), truth_NL)
    losses = []
    for before_L, after_L, truth_L in zip(served.apply(z_NL), p_NL, truth_NL, strict=True):
        known_L = ~np.isnan(truth_L)
        both = [np.where(truth_L == 1, p_L, 1 - p_L)[known_L] for p_L in (before_L, after_L)]
        losses.append(np.mean(np.log(both[1]) - np.log(both[0])))
    assert choice.gain == pytest.approx(np.mean(losses)) and choice.better
    assert choice.gain_standard_error == pytest.approx(np.std(losses, ddof=1) / len(losses) ** 0.5)
    assert [row["label"] for row in label_rows(choice)] == ["l0", "l1", "l2"]
    truth_NL[:, 1] = NAN
    some_N = ~np.isnan(truth_NL).all(axis=1)
    z_NL, truth_NL = z_NL[some_N], truth_NL[some_N]
    without = choose_labels(served, z_NL, truth_NL)
    assert without.kept == ("l1",) and "the served curve is kept" in without.calibrator.warnings[-1]
    assert (np.asarray(without.calibrator.slope_L)[1], np.asarray(without.calibrator.offset_L)[1]) == (1.0, 0.0)


def test_nothing_is_published_where_nothing_changed() -> None:
    better = [choose_labels(curves([0.5] * 3, [0.0] * 3), *drawn(600, 3, seed)).better for seed in range(8)]
    assert sum(better) <= 3


@pytest.mark.parametrize("how", ["independent", "together", "same"])
def test_equal_curves_are_seldom_told_apart(how: str) -> None:
    """Small version of the benchmark. Single labels as steps are wrong where labels are the same."""
    found = wrong_verdicts(Setting(20, how, 0.6, "equal"), runs=40, answers=400, seed=5)
    assert found["wrong"] <= 5
    if how == "same":
        assert found["by_label_wrong"] > 10
