"""Numbers of equal mass, and what labels cannot tell: their choice, their delay, drift."""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from trueodds import metrics
from trueodds.bundle import Reference
from trueodds.metrics import CELLS, CalibrationSums, cell_of
from trueodds.reports import LabelledRows, ReportOptions, Window, labelling_of, report_of
from trueodds.reports.data import memoise
from trueodds.sums.answers import AnswerSums


def answered(
    answers: int = 20_000, likely: Any = 0.1, truth: float = 0.0, seed: int = 0
) -> tuple[AnswerSums, LabelledRows]:
    """Answers with confidences .5 to 1, right with probability c + truth, labelled with probability likely(c, right);
    labels of wrong answers come ten times as fast."""
    rng = np.random.default_rng(seed)
    c = rng.uniform(0.5, 1, answers)
    right = rng.random(answers) < c + truth
    chance = np.broadcast_to(likely(c, right) if callable(likely) else likely, answers)
    labelled = rng.random(answers) < chance
    n = int(labelled.sum())
    nll, brier = np.full(n, 0.3), np.full(n, 0.1)
    sums = CalibrationSums.from_top(c[labelled], right[labelled], nll_N=nll, brier_N=brier)
    rows = LabelledRows(
        confidence_L=c[labelled],
        correct_L=right[labelled],
        propensity_L=chance[labelled].astype(float),
        delay_ms_L=(rng.exponential(1e6, n) / np.where(right[labelled], 1, 10)).astype(int),
    )
    return AnswerSums(np.bincount(cell_of(c), minlength=CELLS), sums), rows


def test_labels_chosen_at_random_raise_no_doubt() -> None:
    sums, _ = answered()
    labelling = labelling_of(sums, ReportOptions())
    assert labelling.coverage == sums.labelled.n / sums.answers
    assert labelling.choice and not labelling.choice.warning
    assert labelling.choice.p_value == metrics.choice_of_labels(sums.labelled, sums.answers_C).p_value
    (strata,) = labelling.weighted
    assert strata.how == "strata" and strata.effective_n == pytest.approx(sums.labelled.n, rel=0.1)
    assert [s.ratio for s in labelling.sensitivity] == [1, 2]
    assert labelling.sensitivity[0].ece == pytest.approx(strata.ece)
    assert labelling.crowded is None
    expected = labelling.expected_accuracy
    assert expected and expected.accuracy == pytest.approx(0.75, abs=0.01)
    assert expected.answers == sums.answers - sums.labelled.n and expected.lower < expected.accuracy < expected.upper
    gap = metrics.signed_gap(sums.labelled)
    assert expected.reading.endswith(
        f"If the same holds for the others, {expected.accuracy + gap:.1%} of them are right."
    )
    assert labelling.delay is None and labelling.drift is None


def test_labels_chosen_by_confidence_are_weighted_back() -> None:
    """Rows with low confidence are labelled ten times as often; all answers are right at c - .1, so the accuracy of
    all is .65, that of the labelled ones below .6."""
    sums, rows = answered(60_000, lambda c, right: np.where(c < 0.6, 0.3, 0.03), -0.1)
    report = report_of("m", "v", sums, labelling=labelling_of(sums, ReportOptions(), rows))
    about = report.labelling
    assert about.choice and about.choice.warning
    assert report.accuracy and report.accuracy < 0.6
    assert [w.how for w in about.weighted] == ["strata", "propensity"]
    for weighted in about.weighted:
        assert weighted.accuracy == pytest.approx(0.65, abs=0.03)
        assert weighted.ece_lower <= 0.1 <= weighted.ece_upper
    (sentence,) = (caution for caution in report.cautions if "Weighted to stand for all answers" in caution)
    assert f"{about.weighted[1].ece_estimate:.3f}" in sentence  # by propensity, as that is known
    assert f"of the last {len(rows):,} labels" in about.weighted[1].reading
    # The rows are all labels, so they stand for the answers as counted; some of them stand for what is not known.
    counted = metrics.inverse_probability_ece(
        rows.confidence_L, rows.correct_L, rows.propensity_L, sums.answers_C
    ).interval
    assert about.weighted[1].ece_estimate == counted.estimate
    some = labelling_of(sums, ReportOptions(), some_of(rows, slice(1, None))).weighted[1]
    assert some.ece_estimate != counted.estimate


def some_of(rows: LabelledRows, which: slice) -> LabelledRows:
    return LabelledRows(**{field.name: getattr(rows, field.name)[which] for field in fields(rows)})


def sums_of(confidence: list[float], correct: list[int]) -> CalibrationSums:
    scores = np.full(len(confidence), 0.3)
    return CalibrationSums.from_top(confidence, correct, nll_N=scores, brier_N=scores)


def crowded(sure: int, labels: int) -> AnswerSums:
    """1,000 answers, `sure` of them at .9999, the others at .6 and .7; 200 labels, of which `labels` are of those."""
    confidence = [0.9999] * labels + [0.6] * (100 - labels // 2) + [0.7] * (100 - labels // 2)
    labelled = sums_of(confidence, [1] * 190 + [0] * 10)
    others = 1000 - sure
    all_of = [0.9999] * sure + [0.6] * (others // 2) + [0.7] * (others - others // 2)
    answers_C = np.bincount(cell_of(all_of), minlength=CELLS)
    return AnswerSums(answers_C, labelled)


def test_one_cell_with_most_of_the_answers() -> None:
    """Nothing is weighted by counts, and the page and the cautions say why and what helps; below half it is a word."""
    labelling = report_of("m", "v", crowded(501, 20)).labelling
    assert labelling.crowded and (labelling.crowded.refused, labelling.crowded.warning) == (True, True)
    assert (labelling.crowded.share, labelling.crowded.lower, labelling.crowded.upper) == (0.501, 2999 / 3000, 1)
    assert (labelling.weighted, labelling.sensitivity) == ([], [])
    cautions = report_of("m", "v", crowded(501, 20)).cautions
    assert any("weighting by counts is impossible" in caution and "(its propensity)" in caution for caution in cautions)
    fair = report_of("m", "v", crowded(501, 100)).labelling.crowded
    assert fair and (fair.refused, fair.warning) == (True, False)
    half = report_of("m", "v", crowded(499, 20)).labelling
    assert half.crowded and not half.crowded.refused and "neither detected nor corrected" in half.crowded.reading
    assert len(half.weighted) == 1 and len(half.sensitivity) == 2
    group = labelling_of(crowded(499, 20), ReportOptions(Window(predicted_class="a"), cells=60)).crowded
    assert group and (group.lower, group.upper) == (59 / 60, 1)  # of a class 60 cells are kept


@pytest.mark.parametrize(("answers", "guesses"), [(200, 0), (202, 0), (203, 2), (400, 2)])
def test_what_the_unlabelled_could_be_is_asked_from_one_percent_on(answers: int, guesses: int) -> None:
    """And nothing is said that those without a label could not make true: 167 of 200 labels are right."""
    labelled = sums_of([0.8] * 100 + [0.9] * 100, [1] * 67 + [0] * 33 + [1] * 100)
    answers_C = np.bincount(cell_of([0.8] * 100 + [0.9] * 100 + [0.85] * (answers - 200)), minlength=CELLS)
    report = report_of("m", "v", AnswerSums(answers_C, labelled))
    assert len(report.labelling.sensitivity) == guesses
    cautions = [caution for caution in report.cautions if "labelled twice as often" in caution]
    assert len(cautions) == (guesses > 0)
    for one in report.labelling.sensitivity:
        assert 167 / answers <= one.lowest_accuracy <= one.accuracy <= one.highest_accuracy <= 1 - 33 / answers
    assert all("as far as there are answers without labels" in caution for caution in cautions if answers == 203)


def test_wrong_answers_that_are_told_sooner_are_noticed() -> None:
    sums, rows = answered()
    about = labelling_of(sums, ReportOptions(), rows)
    assert about.delay and about.delay.warning and about.delay.statistic < -2.58
    assert "wrong answers arrive sooner" in about.delay.reading
    assert about.delay.reading in report_of("m", "v", sums, labelling=about).cautions
    for few in (99, 0):
        assert labelling_of(sums, ReportOptions(), some_of(rows, slice(few))).delay is None


def test_confidences_that_left_the_validation_rows() -> None:
    sums, _ = answered()
    rng = np.random.default_rng(1)
    for reference, warns in [(rng.uniform(0.5, 1, 3000), False), (rng.uniform(0.7, 1, 3000), True)]:
        known = Reference.of(reference)
        report = report_of("m", "v", sums, labelling=labelling_of(sums, ReportOptions(), reference=known))
        drift = report.labelling.drift
        assert drift and drift.warning is warns
        assert drift.validation_mean_confidence == pytest.approx(reference.mean())
        assert drift.distance == pytest.approx(0.4 if warns else 0.0, abs=0.04)
        assert (drift.reading in report.cautions) is warns
        of_class = ReportOptions(Window(predicted_class="a"))
        assert labelling_of(sums, of_class, reference=known).drift is None


def test_everything_labelled_leaves_nothing_to_guess() -> None:
    sums, _ = answered(1000, 1.0)
    part = report_of("m", "v", sums).labelling
    assert part.coverage == 1 and part.choice is None and part.weighted == [] and part.sensitivity == []
    assert "all with labels" in part.coverage_reading


def test_every_number_of_equal_mass() -> None:
    sums, _ = answered(truth=-0.1)
    report = report_of("m", "v", sums, ReportOptions(binning="mass", bins=10))
    interval = metrics.ece_interval(sums.labelled, bins=10, binning="mass")
    assert (report.ece, report.ece_lower, report.ece_upper) == (interval.ece, interval.lower, interval.upper)
    assert report.ece_by_binning["width"].ece == metrics.ece(sums.labelled, bins=10)
    counts = [b.count for b in report.bins]
    assert len(counts) == 10 and max(counts) - min(counts) < 0.05 * sum(counts) / 10 + 5
    assert report.mce == pytest.approx(max(abs(b.gap or 0) for b in report.bins))
    assert report.mce_bin and report.mce_bin.count in counts
    assert report.ks_p_value is not None and report.ks_p_value < 1e-6
    assert report.smooth_ece == metrics.smooth_ece(sums.labelled)
    assert report.nll_lower is not None and report.nll_lower == pytest.approx(0.3)
    gap = metrics.gap_sequence(sums.labelled)
    assert (report.signed_gap_lower, report.signed_gap_upper) == (gap.lower, gap.upper)
    window = report_of("m", "v", sums, ReportOptions(Window(since=datetime(2023, 11, 14, tzinfo=UTC))))
    assert window.signed_gap_lower is not None and window.accuracy_lower is not None
    assert window.signed_gap_lower - window.accuracy_lower == pytest.approx(-(window.mean_confidence or 0))
    assert "one look" in window.estimands["signed_gap"] and "every label" in report.estimands["signed_gap"]
    names = {name.split(".")[0] for name in report.estimands} - {"population"}
    assert names <= set(type(report).model_fields)


def test_few_labels_do_not_break_a_number() -> None:
    for n in (1, 2, 3):
        sums = CalibrationSums.from_top([0.9] * n, [1] * n, nll_N=[0.1] * n, brier_N=[0.02] * n)
        for binning in ("width", "mass"):
            report = report_of(
                "m", "v", AnswerSums(sums.cells[0].astype(int) * 2, sums), ReportOptions(binning=binning)
            )
            assert report.accuracy == 1 and report.verdict == "cannot_tell"
            assert (report.nll_upper is None) == (n == 1)
            assert "would fit these labels as well" in report.headline


def test_the_same_sums_are_computed_once() -> None:
    calls = []

    @memoise(2)
    def work(sums: CalibrationSums, option: int) -> int:
        calls.append(option)
        return sums.n + option

    one, same, other = (CalibrationSums.from_top([0.5, c], [1, 0]) for c in (0.7, 0.7, 0.8))
    assert [work(one, 1), work(same, 1), work(other, 1), work(one, 1)] == [3, 3, 3, 3]
    assert calls == [1, 1]
    work(one, 2)  # the third: the one that was used longest ago goes
    work(one, 1)
    assert calls == [1, 1, 2]
    work(other, 1)
    assert calls == [1, 1, 2, 1]
