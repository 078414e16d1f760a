"""A small replay of two decision models: a real service process, all by HTTP, as benchmarks/evidence measures it."""

from __future__ import annotations

import lzma
from pathlib import Path

import numpy as np
import pytest

from benchmarks.evidence import decision_questions
from benchmarks.evidence.decision_models import Setup, changes, replay
from benchmarks.evidence.decision_questions import Question, pair, rounded, sharpened
from benchmarks.evidence.forecasts import gap_interval
from trueodds.inputs.decisions import read_pair
from trueodds.metrics import softmax

COUNTS = {"first_team_wins": 100, "home_team_wins": 100, "object": 700, "scene": 120, "wins_of_three": 100}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forecasts and records like the real ones, calibrated."""
    tmp_path = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    (tmp_path / "forecasts").mkdir()
    for sport, count in (("mlb", 500), ("nba", 300)):
        p_N = rng.uniform(0.3, 0.7, count)
        lines = ["season,date,team1,team2,prob1,prob1_outcome,prob2,prob2_outcome"]
        for n, (p, won) in enumerate(zip(p_N, rng.random(count) < p_N, strict=True)):
            lines.append(f"2022,2022-05-{n % 28 + 1:02d},A,B,{p},{int(won)},{1 - p},{int(not won)}")
        lines.append("2022,2022-06-01,A,B,0.5,0.5,0.5,0.5")
        (tmp_path / "forecasts" / f"{sport}_games.csv.xz").write_bytes(lzma.compress("\n".join(lines).encode()))
    (tmp_path / "records").mkdir()
    for name, classes in (("lenet-5-cifar-10", 10), ("wideresnet-16-4-cifar-100", 100)):
        p_NC = softmax(rng.normal(0, 2, (1500, classes)))
        truth_N = (p_NC.cumsum(axis=1) > rng.random((1500, 1))).argmax(axis=1)
        np.savez(tmp_path / "records" / f"{name}.npz", predictions=p_NC.astype(np.float32), ground_truth=truth_N)
    return tmp_path


@pytest.fixture(scope="module")
def found(data: Path) -> dict[str, Question]:
    return decision_questions.questions(data, dict.fromkeys(COUNTS, 50), np.random.default_rng(1))


@pytest.mark.full  # half a minute with a real service, which waits for its watch
def test_one_alarm_and_one_notice_for_each_question_of_the_changed_model(data: Path) -> None:
    """Each model asks in another shape. The notices show that the shape does not matter: the questions are of both."""
    setup = Setup(
        0, "object", {"lark": "systemone", "heron": "decisions"}, "heron", COUNTS, error=0.35, days=4, delay=1
    )
    run = replay(setup, data)
    sent = run["sent"]
    assert (sent["stored"] + sent["declined"], sent["known"]) == (sum(COUNTS.values()), 0)
    assert sent["labels"] == sent["stored"] and sent["declined"] == run["expected_declined"] > 0
    assert run["alarms"] == [{"question": "object", "version": "lark-2"}]
    assert sorted((one["question"], one["notice"]) for one in run["notices"]) == [
        (name, "served_model_changed") for name in ("first_team_wins", "object", "wins_of_three")
    ]
    assert run["messages"] == {"question-notice": 3, "calibration-alarm": 1}
    score = [one for one in run["reports"] if one["question"] == "wins_of_three"]
    assert len(score) == 2 and all(one["rps"] > 0 and one["at_least"] == 3 for one in score)
    assert run["recalibration"]["status"] == 0 and run["recalibration"]["calibrator"] != "identity"


@pytest.mark.parametrize("shape", ["decisions", "systemone"])
@pytest.mark.parametrize("is_rounded", [False, True])
def test_pairs_are_read_as_the_questions_they_are_made_of(
    found: dict[str, Question], shape: decision_questions.Shape, is_rounded: bool
) -> None:
    asked = [(rounded(one) if is_rounded else one, 7) for one in found.values()]
    tree = pair(shape, "m-1", asked, ["scene"], "x", 0.0)
    read = read_pair(tree["request"], tree["response"])
    assert (read.shape, read.served, read.problems) == (shape, "m-1", ())
    by_name = {answer.question.name: answer for answer in read.answers}
    for one, row in asked:
        answer = by_name[one.name]
        if one.name == "scene":
            assert answer.probabilities is None
            continue
        order = [one.options.index(name) for name in answer.classes] if one.kind == "choice" else slice(None)
        assert answer.probabilities == pytest.approx(one.p_NC[row][order], abs=1e-12)


@pytest.mark.parametrize("kind", ["binary", "choice"])
def test_a_question_gets_worse_by_what_was_asked(kind: decision_questions.Kind) -> None:
    rng = np.random.default_rng(3)
    p_NC = softmax(rng.normal(0, 1, (2000, 2 if kind == "binary" else 6)))
    truth_N = (p_NC.cumsum(axis=1) > rng.random((2000, 1))).argmax(axis=1)
    worse = sharpened(Question("q", kind, (), p_NC, truth_N), 0.05)
    assert worse.p_NC.sum(axis=1) == pytest.approx(1)
    if kind == "binary":
        assert (worse.p_NC - p_NC)[:, 1].mean() == pytest.approx(0.05)
    else:
        assert (worse.p_NC.max(axis=1) - p_NC.max(axis=1)).mean() == pytest.approx(0.05)
        assert (worse.p_NC.argmax(axis=1) == p_NC.argmax(axis=1)).all()


def test_a_timeline_keeps_its_changes() -> None:
    def row(day: int, question: str, verdict: str) -> dict[str, object]:
        return {"day": day, "question": question, "served": "m", "verdict": verdict, "state": "fine", "alarm": "quiet"}

    rows = [row(1, "a", "x"), row(1, "b", "x"), row(2, "a", "x"), row(2, "b", "y"), row(3, "a", "y"), row(3, "b", "y")]
    assert [(one["day"], one["question"]) for one in changes(rows)] == [(1, "a"), (1, "b"), (2, "b"), (3, "a")]


def test_the_interval_by_blocks_is_that_of_sums_by_block() -> None:
    """Blocks of one row give the interval of a mean; blocks of copies give that of the blocks."""
    rng = np.random.default_rng(0)
    value_N = rng.normal(0.3, 1, 40)
    one = gap_interval(value_N, np.arange(40), "rows")
    half = 2.0226909 * value_N.std(ddof=1) / np.sqrt(40)
    assert (one.lower, one.upper) == pytest.approx((value_N.mean() - half, value_N.mean() + half), rel=1e-6)
    copies = gap_interval(np.repeat(value_N, 5), np.repeat(np.arange(40), 5), "blocks")
    assert (copies.lower, copies.upper) == pytest.approx((one.lower, one.upper))
    assert gap_interval(value_N, np.zeros(40), "all").lower is None


def test_the_interval_by_blocks_covers_under_dependence_where_that_of_rows_does_not() -> None:
    rng = np.random.default_rng(5)
    block_N = np.repeat(np.arange(8), 100)
    covered = {"rows": 0, "blocks": 0}
    for _ in range(400):
        value_N = rng.normal(0, 1, 800) + rng.normal(0, 0.3, 8)[block_N]
        for name, blocks in (("rows", np.arange(800)), ("blocks", block_N)):
            gap = gap_interval(value_N, blocks, name)
            assert gap.lower is not None and gap.upper is not None
            covered[name] += gap.lower <= 0 <= gap.upper
    assert 0.92 <= covered["blocks"] / 400 <= 0.98 and covered["rows"] / 400 < 0.7
