"""Positives that are reported weeks later while negatives never are: false alarms and wrong verdicts.

    python -m benchmarks.alarms.late_positives        # two minutes on one core

A stream is half a year of a fraud model: 20,000 answers, each a fraud with probability p, from Beta(.5, 9.5), 5% on
average. A fraud is reported after a log-normal delay (median 10 days, one in 200 after more than 45). A negative is
never reported. The model predicts p (calibrated), or p with its odds multiplied or divided by 3. Labels count

- "as they come": each report when it arrives, as without a window;
- "at once": an answer without a report is negative from the first day; a report corrects it;
- after 14 or 45 days: `TRUEODDS_MATURES=fraud=14d:ok` or `45d:ok`; a later report corrects.

The alarm takes labels in the order in which they count, with their first value. The verdict is that of the report on
the last day. The judge compares two models on the labels of that day. All three are the service's own functions.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy
from scipy.special import expit, logit

from benchmarks.record import RESULTS, Run, options_parser, whole_from
from pipeline.recalibrate.candidate_comparison import compare
from service.alarm import AlarmState, advice_of, alarm_of
from service.settings import Settings
from service.store.rows import LabelBlock
from trueodds.calibrators import Identity
from trueodds.metrics import CELLS, CalibrationSums, cell_of
from trueodds.reports import ReportOptions, report_of
from trueodds.sums.answers import AnswerSums
from trueodds.sums.maturity import DAY_MS
from trueodds.sums.positive import PositiveClass, PositiveSums

Array = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

RESULT = RESULTS / "late_positives.json"
ANSWERS, DAYS = 20_000, 180.0
MEDIAN, LATE, LONG = 10.0, 0.005, 45.0
"""Days until half of the frauds are reported, and the share that is reported after `LONG` days."""
SIGMA = float(np.log(LONG / MEDIAN) / -scipy.special.ndtri(LATE))
ODDS = {"calibrated": 1.0, "odds x 3": 3.0, "odds / 3": 1 / 3}
COUNTED = {"as they come": None, "at once": 0.0, "after 14 days": 14.0, "after 45 days": 45.0}
POSITIVE = PositiveClass("fraud", 1)
SETTINGS = Settings()
SAYS_OFF = ("over_confident", "under_confident", "uneven", "too_high", "too_low", "off_at_times")


@dataclass(frozen=True)
class Stream:
    """The answers of half a year, in order."""

    day_N: Array
    truth_N: Array
    """Probability of fraud, p(fraud)."""
    fraud_N: Flags
    reported_N: Array
    """Day of the report; inf without one."""


@dataclass(frozen=True)
class Labels:
    """The labels that count on the last day, in the order in which they began to count."""

    row_L: npt.NDArray[np.intp]
    day_L: Array
    first_L: Flags
    """Whether the answer was a fraud when its label began to count."""
    now_L: Flags
    """Whether the answer is a fraud by the last day."""


@dataclass
class Found:
    """Results as shares of streams."""

    model: str
    counted: str
    streams: int
    alarm: float
    says_off: float
    """Share whose verdict is "off", by the evidence."""
    leans: float
    """Share whose verdict is "leans", by one test."""
    green: float
    """Share whose verdict is "within the tolerance"."""
    wrong: float
    """Share of wrong verdicts: off for a calibrated model; green or the other direction for another."""
    mean_signed_gap: float
    """Share of frauds among the labels minus the mean p(fraud), averaged over the streams."""


@dataclass
class Judged:
    """Shares of streams in which the interval of the mean gain over the served model lies on one side of 0."""

    served: str
    candidate: str
    counted: str
    streams: int
    better: float
    worse: float


def stream(rng: np.random.Generator) -> Stream:
    day_N = np.sort(rng.uniform(0, DAYS, ANSWERS))
    truth_N = rng.beta(0.5, 9.5, ANSWERS)
    fraud_N = rng.random(ANSWERS) < truth_N
    delay_N = MEDIAN * np.exp(SIGMA * rng.standard_normal(ANSWERS))
    return Stream(day_N, truth_N, fraud_N, np.where(fraud_N, day_N + delay_N, np.inf))


def labels(rows: Stream, window: float | None) -> Labels:
    """Return the labels that count on the last day, with a window of some days; None: as they come."""
    is_known_N = rows.reported_N <= DAYS
    if window is None:
        row_L = np.flatnonzero(is_known_N)
        row_L = row_L[np.argsort(rows.reported_N[row_L])]
        every_L = np.ones(len(row_L), bool)
        return Labels(row_L, rows.reported_N[row_L], every_L, every_L)
    row_L = np.flatnonzero(rows.day_N + window <= DAYS)
    due_L = rows.day_N[row_L] + window
    return Labels(row_L, due_L, rows.reported_N[row_L] < due_L, is_known_N[row_L])


def said(rows: Stream, model: str) -> Array:
    """Return the model's prediction of p(fraud)."""
    p_N: Array = np.clip(expit(logit(rows.truth_N) + np.log(ODDS[model])), 1e-9, 1 - 1e-9)
    return p_N


def block(p_L: Array, of: Labels) -> LabelBlock:
    """Return labels in the form of the store."""
    none, unknown = np.zeros(len(p_L)), np.full(len(p_L), np.nan)
    predicted_L, at_L = (p_L > 0.5).astype(np.int64), (DAY_MS * of.day_L).astype(np.int64)
    number = np.arange(1, len(p_L) + 1)
    label_L, confidence_L = of.now_L.astype(np.int64), np.maximum(p_L, 1 - p_L)
    right_L, first_L = label_L == predicted_L, of.first_L == predicted_L
    parts = at_L, at_L, label_L, predicted_L, confidence_L, right_L, first_L, none, none, unknown
    return LabelBlock(number, [""] * len(p_L), *parts, [None] * len(p_L), label_L, np.zeros((len(p_L), 0)))


def read(rows: Stream, model: str, of: Labels) -> tuple[bool, str, float]:
    """Return whether the alarm has fired, the report's verdict, and the signed gap of p(fraud)."""
    p_N = said(rows, model)
    p_L = p_N[of.row_L]
    top_N, top_L, right_L = np.maximum(p_N, 1 - p_N), np.maximum(p_L, 1 - p_L), (p_L > 0.5) == of.now_L
    by_p = POSITIVE.sums_of(p_L, of.now_L)
    nll_L, brier_L = -np.log(np.where(of.now_L, p_L, 1 - p_L)), 2 * (p_L - of.now_L) ** 2
    by_top = CalibrationSums.from_top(top_L, right_L, nll_N=nll_L, brier_N=brier_L)
    sums = AnswerSums(np.bincount(cell_of(top_N), minlength=CELLS), by_top)
    positive = PositiveSums(POSITIVE.name, AnswerSums(np.bincount(cell_of(p_N), minlength=CELLS), by_p))
    state = AlarmState.start(SETTINGS).take(block(p_L, of), POSITIVE)
    alarm = alarm_of(state, SETTINGS, model="fraud", sums=sums, positive=POSITIVE.name)
    advice = advice_of(state, model="fraud", version="1", address="", positive=POSITIVE.name)
    report = report_of("fraud", "1", sums, ReportOptions(), positive=positive, alarm=alarm, advice=advice)
    return alarm.state == "fired", report.verdict, float(of.now_L.mean() - p_L.mean())


def is_wrong(model: str, verdict: str) -> bool:
    """Return whether a verdict is wrong."""
    if model == "calibrated":
        return verdict in SAYS_OFF
    other = "too_low" if ODDS[model] > 1 else "too_high"
    return verdict in ("within_tolerance", other, f"leans_{other}")


def judged(rows: Stream, served: str, candidate: str, of: Labels) -> tuple[bool, bool]:
    """Return whether the judge's interval of the mean gain lies above 0, and below 0."""
    logits = [_logits(said(rows, model)[of.row_L]) for model in (served, candidate)]
    found = compare(Identity(), Identity(), logits[0], of.now_L.astype(np.int64), logits[1])
    if found.lower is None or found.upper is None:
        return False, False
    return found.lower > 0, found.upper < 0


def _logits(p_N: Array) -> npt.NDArray[np.float32]:
    logits_NC = np.log(np.stack([1 - p_N, p_N], axis=1))
    shifted: npt.NDArray[np.float32] = (logits_NC - logits_NC.max(axis=1, keepdims=True)).astype(np.float32)
    return shifted


def measure(streams: int, seed: int) -> tuple[list[Found], list[Judged]]:
    reads: dict[tuple[str, str], list[tuple[bool, str, float]]] = {}
    judgements: dict[tuple[str, str, str], list[tuple[bool, bool]]] = {}
    for number in range(streams):
        rows = stream(np.random.default_rng([seed, number]))
        for counted, window in COUNTED.items():
            of = labels(rows, window)
            for model in ODDS:
                reads.setdefault((model, counted), []).append(read(rows, model, of))
            for pair in (("calibrated", "odds x 3"), ("odds x 3", "calibrated")):
                judgements.setdefault((*pair, counted), []).append(judged(rows, *pair, of))
    found = []
    for (model, counted), each in reads.items():
        verdicts = [verdict for _, verdict, _ in each]
        found.append(
            Found(
                model,
                counted,
                streams,
                alarm=float(np.mean([fired for fired, _, _ in each])),
                says_off=float(np.mean([verdict in SAYS_OFF for verdict in verdicts])),
                leans=float(np.mean([verdict.startswith("leans_") for verdict in verdicts])),
                green=float(np.mean([verdict == "within_tolerance" for verdict in verdicts])),
                wrong=float(np.mean([is_wrong(model, verdict) for verdict in verdicts])),
                mean_signed_gap=float(np.mean([gap for *_, gap in each])),
            )
        )
    shares = {key: np.mean(pairs, axis=0).tolist() for key, pairs in judgements.items()}
    return found, [Judged(*key, streams, *share) for key, share in shares.items()]


def markdown(found: dict[str, Any]) -> str:
    """Return the tables of docs/explanation/results.md from the JSON."""
    heads = (
        "the model says",
        "labels count",
        "alarm",
        "says that it is off",
        "perhaps off",
        "green",
        "wrong verdict",
        "mean gap",
    )
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for row in found["verdicts"]:
        shares = " | ".join(f"{row[name]:.1%}" for name in ("alarm", "says_off", "leans", "green", "wrong"))
        lines.append(f"| {row['model']} | {row['counted']} | {shares} | {row['mean_signed_gap']:+.4f} |")
    lines += ["", "| served, candidate | labels count | the candidate is better | is worse |", "|---" * 4 + "|"]
    for row in found["judged"]:
        pair = f"{row['served']}, {row['candidate']}"
        lines.append(f"| {pair} | {row['counted']} | {row['better']:.1%} | {row['worse']:.1%} |")
    return "\n".join(lines)


def summary(verdicts: list[Found], judgements: list[Judged]) -> dict[str, float]:
    """Return the worst values with the window of 45 days, and without one, for docs/explanation/claims.md."""

    def worst(counted: str, name: str, model: str | None = None) -> float:
        return max(float(getattr(v, name)) for v in verdicts if v.counted == counted and model in (None, v.model))

    def promoted(counted: str) -> float:
        return next(j.better for j in judgements if (j.counted, j.served) == (counted, "calibrated"))

    return {
        "false_alarms": worst("after 45 days", "alarm", "calibrated"),
        "false_alarms_without": worst("as they come", "alarm", "calibrated"),
        "wrong": worst("after 45 days", "wrong"),
        "wrong_without": worst("as they come", "wrong", "calibrated"),
        "wrong_after_14": worst("after 14 days", "wrong"),
        "promoted": promoted("after 45 days"),
        "promoted_without": promoted("as they come"),
    }


def main() -> None:
    parser = options_parser(__doc__, RESULT)
    parser.add_argument("--streams", type=whole_from(1), default=100, help="streams (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    run = Run()
    verdicts, judgements = measure(options.streams, options.seed)
    run.finish(
        options.out,
        markdown,
        summary=summary(verdicts, judgements),
        verdicts=[asdict(row) for row in verdicts],
        judged=[asdict(row) for row in judgements],
    )


if __name__ == "__main__":
    main()
