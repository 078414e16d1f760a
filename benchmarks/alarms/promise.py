"""The alarm on a promise to act alone: false alarms while the promise holds, and labels until a broken one is found.

    python -m benchmarks.alarms.promise        # about two minutes on one core

A version promises that at most 5% of the answers with confidence .9 or more are wrong.

The promise holds: streams of 10,000 answers in which the confidences above the threshold and their error rates stay
constant (5% on average, less for higher confidences), while anything may change below it. "below drifts": the share
that acts moves between .2 and .9, and the other answers are wrong never to always. "complaints": only an audit of 2%
requests labels of acting answers, and three tenths of the wrong ones come back as complaints. The service leaves out
labels that it did not request; "all labels" does not. "peeking" applies an exact binomial test at 5% to the labels so
far at a hundred moments, as readers of a report would do.

The promise is broken: the error rate is 1.5, 2 or 3 times the promised one, from the start or after 5,000 labels. With
an audit of 2% a label takes fifty acting answers.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp
from scipy.stats import binom, binomtest

from benchmarks.record import RESULTS, Run, options_parser, whole_from
from trueodds.bundle import ActAlone
from trueodds.metrics import RiskEProcess
from trueodds.metrics.alarms.promise import ODDS, log_laid, payoffs_of
from trueodds.metrics.intervals.risk_sequence import LOG_RATIOS

Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

RESULT = RESULTS / "promise.json"
PROMISE = ActAlone.of_text("threshold=.9,risk=.05,confidence=.95")
ANSWERS, AUDIT, COMPLAINTS = 10_000, 0.02, 0.3
AUDITED = 100_000
"""Number of answers in a stream of complaints, where an audit of 2% requests few labels."""
FACTORS, GOOD, HORIZON = (1.5, 2.0, 3.0), 5_000, 20_000
ALPHA = 0.05
LEVEL = -math.log(ALPHA)
STREAMS = ("constant", "below drifts", "complaints, as the service counts", "complaints, all labels")


@dataclass
class Kept:
    """Results for streams whose promise holds."""

    stream: str
    streams: int
    labels: int
    """Number of labels of acting answers in each stream."""
    alarms: int
    share: float
    p_value: float
    """p-value of the exact one-sided test of "at most 5% of such streams alarm"."""
    peeking: float
    """Share of streams in which an exact binomial test at 5% rejects the promise at one of 100 looks."""
    covered: float
    """Share of streams in which the confidence sequence contains the mean error probability at every look."""


@dataclass
class Broken:
    """Results for streams whose promise is broken from some moment on."""

    risk: float
    factor: float
    since: str
    streams: int
    found: float
    """Share of streams with an alarm within 20,000 labels of the break, among those without an earlier one."""
    median: float | None
    """Labels of acting answers from the break to the alarm; None: half of the streams have no alarm."""
    ninth: float | None
    """Number of labels after which 90% of the streams have their alarm."""
    stated: float
    """Number that the service predicts at the break for this error rate (median of 20 streams)."""
    answers: float | None
    """Number of acting answers behind the median if an audit of 2% requests the labels."""


def chance_of_error(confidence_N: Array) -> Array:
    """Return the error rate of acting answers: 5% on average over uniform confidences from .9 to 1, 0 at 1."""
    return np.minimum(1 - confidence_N, 1.0)


def labels_of(stream: str, rng: np.random.Generator) -> Mask:
    """Return whether each label of an acting answer says wrong, in order."""
    answers = AUDITED if stream.startswith("complaints") else ANSWERS
    drift_N = np.sin(np.arange(answers) / 500) if stream == "below drifts" else np.zeros(answers)
    above_N = rng.random(answers) < 0.55 + 0.35 * drift_N
    confidence_N = np.where(above_N, rng.uniform(0.9, 1, answers), rng.uniform(0.2, 0.9, answers))
    acts_N = PROMISE.acts(confidence_N)
    error_N = np.where(acts_N, chance_of_error(confidence_N), 0.5 + 0.5 * drift_N)
    wrong_N = rng.random(answers) < error_N
    if stream.startswith("complaints"):
        asked_N = rng.random(answers) < AUDIT
        complained_N = wrong_N & (rng.random(answers) < COMPLAINTS)
        counted_N = asked_N if stream.endswith("counts") else asked_N | complained_N
        acts_N &= counted_N
    return wrong_N[acts_N]


def together(streams: list[Mask]) -> Mask:
    """Cut streams to the length of the shortest."""
    shortest = min(map(len, streams))
    return np.stack([stream[:shortest] for stream in streams])


def log_e(wrong_RL: Mask, risk: float) -> Array:
    """Return log E of `RiskEProcess` after every label, for many streams at once."""
    payoffs, number_L = payoffs_of(risk), np.arange(1, wrong_RL.shape[1] + 1)
    laid_L, wealth_RK = log_laid(number_L), np.full((len(wrong_RL), len(ODDS)), -np.inf)
    log_e_RL = np.empty(wrong_RL.shape)
    for n in range(wrong_RL.shape[1]):
        paid_RK = np.where(wrong_RL[:, n, None], payoffs.log_wrong_K, payoffs.log_right_K)
        wealth_RK = np.logaddexp(wealth_RK, laid_L[n]) + paid_RK
        most_R = wealth_RK.max(axis=1)
        mean_R = most_R + np.log(np.exp(wealth_RK - most_R[:, None]).mean(axis=1))
        log_e_RL[:, n] = np.logaddexp(-np.log1p(np.log2(n + 2.0)), mean_R)
    own = RiskEProcess.start(risk).advance(wrong_RL[0])[1]
    assert np.allclose(log_e_RL[0], own, atol=1e-9), "this is not the test that the service runs"
    return log_e_RL


def uncovered(wrong_RL: Mask, mean: float) -> Mask:
    """Return the streams in which the confidence sequence misses `mean` at least once in a hundred looks."""
    count_RL, labels = wrong_RL.cumsum(axis=1), wrong_RL.shape[1]
    looks = np.unique(np.geomspace(1, labels, 100).astype(int))
    missed_R = np.zeros(len(wrong_RL), bool)
    for sign in (1.0, -1.0):
        ratio_K = sign * LOG_RATIOS
        paid_RTK = count_RL[:, looks - 1, None] * ratio_K - looks[:, None] * np.log1p(mean * np.expm1(ratio_K))
        wealth_RT = logsumexp(paid_RTK, axis=2) - math.log(len(ratio_K))
        missed_R |= (wealth_RT >= math.log(2 / ALPHA)).any(axis=1)
    return missed_R


def peeked(wrong_RL: Mask, risk: float) -> Mask:
    """Return the streams in which an exact one-sided binomial test rejects the promise at one of a hundred looks."""
    count_RL, labels = wrong_RL.cumsum(axis=1), wrong_RL.shape[1]
    looks = np.unique(np.linspace(labels / 100, labels, 100).astype(int))
    p_RT = binom.sf(count_RL[:, looks - 1] - 1, looks, risk)
    found_R: Mask = (p_RT <= ALPHA).any(axis=1)
    return found_R


def kept(stream: str, streams: int, seed: int) -> Kept:
    rng = np.random.default_rng([seed, *stream.encode()])
    wrong_RL = together([labels_of(stream, rng) for _ in range(streams)])
    alarms = int((log_e(wrong_RL, PROMISE.risk).max(axis=1) >= LEVEL).sum())
    return Kept(
        stream=stream,
        streams=streams,
        labels=wrong_RL.shape[1],
        alarms=alarms,
        share=alarms / streams,
        p_value=float(binomtest(alarms, streams, ALPHA, alternative="greater").pvalue),
        peeking=float(peeked(wrong_RL, PROMISE.risk).mean()),
        covered=1 - float(uncovered(wrong_RL, PROMISE.risk).mean()),
    )


def broken(risk: float, factor: float, since: str, streams: int, seed: int) -> Broken:
    good = GOOD if since == "change" else 0
    rng = np.random.default_rng([seed, round(1000 * risk), round(10 * factor), good])
    rate_L = np.where(np.arange(good + HORIZON) < good, risk, factor * risk)
    wrong_RL = rng.random((streams, good + HORIZON)) < rate_L
    log_e_RL = log_e(wrong_RL, risk)
    states = (RiskEProcess.start(risk).advance(wrong_L[:good])[0] for wrong_L in wrong_RL[:20])
    stated = [state.labels_to_notice(factor * risk, ALPHA) for state in states]
    quiet_R = ~(log_e_RL[:, :good] >= LEVEL).any(axis=1)
    reached_RL = log_e_RL[quiet_R, good:] >= LEVEL
    after_R = np.where(reached_RL.any(axis=1), reached_RL.argmax(axis=1) + 1.0, np.inf)
    median, ninth = (float(np.quantile(after_R, q, method="inverted_cdf")) for q in (0.5, 0.9))
    half = median if math.isfinite(median) else None
    return Broken(
        risk=risk,
        factor=factor,
        since=since,
        streams=streams,
        found=float(np.isfinite(after_R).mean()),
        median=half,
        ninth=ninth if math.isfinite(ninth) else None,
        stated=float(np.median(stated)),
        answers=None if half is None else half / AUDIT,
    )


def markdown(found: dict[str, Any]) -> str:
    """Return the tables of docs/explanation/results.md from the JSON."""

    def shown(number: float | None) -> str:
        return "none" if number is None else f"{number:,.0f}"

    lines = ["| kept promise (5%) | labels | alarm in | p of at most 5% | peeking alarms in | sequence covers in |"]
    lines.append("|---" * 6 + "|")
    for row in found["kept"]:
        cells = (row["stream"], f"{row['labels']:,}", f"{row['share']:.1%} of {row['streams']:,}")
        shares = f"{row['p_value']:.3g}", f"{row['peeking']:.1%}", f"{row['covered']:.1%}"
        lines.append(f"| {' | '.join((*cells, *shares))} |")
    head = (
        "promised, broken by, since | found in 20,000 labels | median labels | 90% after | stated | answers, audit 2%"
    )
    lines += ["", f"| {head} |", "|---" * 6 + "|"]
    for row in found["broken"]:
        name = f"{row['risk']:.0%}, {row['factor']:g} times, {row['since']}"
        numbers = (shown(row[key]) for key in ("median", "ninth", "stated", "answers"))
        lines.append(f"| {name} | {row['found']:.1%} | {' | '.join(numbers)} |")
    return "\n".join(lines)


def summary(measured: dict[str, list[dict[str, Any]]]) -> dict[str, float]:
    """Return the numbers of docs/explanation/claims.md."""
    sound = [row for row in measured["kept"] if row["stream"] != STREAMS[-1]]
    twice = [row for row in measured["broken"] if row["risk"] == PROMISE.risk and row["factor"] == 2]
    return {
        "streams": sound[0]["streams"],
        "most_false_alarms": max(row["share"] for row in sound),
        "least_covered": min(row["covered"] for row in sound),
        "most_by_peeking": max(row["peeking"] for row in sound),
        "alarms_with_complaints": measured["kept"][-1]["share"],
        "median_of_twice": next(row["median"] for row in twice if row["since"] == "start"),
        "median_of_twice_after_good": next(row["median"] for row in twice if row["since"] == "change"),
    }


def main() -> None:
    parser = options_parser(__doc__, RESULT)
    parser.add_argument(
        "--streams", type=whole_from(10), default=1000, help="per setting of kept promises; a fifth for broken ones"
    )
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    run = Run()
    measured: dict[str, Any] = {"kept": [], "broken": []}
    for stream in STREAMS:
        measured["kept"].append(asdict(kept(stream, options.streams, options.seed)))
        run.say(stream)
    for risk in (0.05, 0.01):
        for since in ("start", "change"):
            for factor in FACTORS:
                found = broken(risk, factor, since, options.streams // 5, options.seed)
                measured["broken"].append(asdict(found))
        run.say(f"broken, {risk:g}")
    run.finish(options.out, markdown, summary=summary(measured), **measured)


if __name__ == "__main__":
    main()
