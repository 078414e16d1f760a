"""Coverage of `trueodds.metrics.expected_decisions`: precision and recall of answers whose labels are hidden.

    python -m benchmarks.intervals.expected_decisions --runs 60        # about four minutes on one core

Scores are normal, or a mixture of two normals, on the log-odds: sharp and dull, balanced and rare (5%, .1%). The true
log-odds are known. Each population is measured with exact probabilities, and with a calibrator that was fitted on 50,
500 or 5,000 rows: Platt scaling of scores that are shifted by half a unit, temperature scaling, or an isotonic
regression. A run draws the rows of the fit, 500 or 20,000 answers and their hidden
labels. An interval covers if the share among these answers lies inside.

"drift" has answers whose labels follow other log-odds than the rows of the fit (a concept shift): half a unit lower.
Nothing without labels shows this; the coverage says how badly the interval then fails. With 400 labels of them, one
after another, the report is asked after every tenth label whether they contradict the calibration.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import isotonic_regression, minimize
from scipy.special import expit

from benchmarks.record import RESULTS, Run, options_parser, whole_from
from trueodds.metrics import CalibrationRows, expected_decisions
from trueodds.reports.before_labels.expected_results import LabelEvidence
from trueodds.sums.positive import PositiveClass

Array = npt.NDArray[np.float64]
NAMES = ("precision", "recall", "specificity", "f1")
FIT_ROWS, ANSWERS, SEED = (0, 50, 500, 5_000), (500, 20_000), 3
EVENTS = 10
"""Expected positives (or negatives) among the rows of the fit below which a setting counts as one of few events."""
SHIFT, LABELS, STEP = -0.5, 400, 10
RESULT = RESULTS / "expected_decisions.json"


@dataclass(frozen=True)
class Population:
    """Normal log-odds (mean, spread, weight of each part) and the threshold of alerts."""

    name: str
    parts: tuple[tuple[float, float, float], ...]
    threshold: float

    def draw(self, n: int, rng: np.random.Generator) -> Array:
        part_N = rng.choice(len(self.parts), n, p=[weight for *_, weight in self.parts])
        mean_P, spread_P, _ = np.array(self.parts).T
        z_N: Array = rng.normal(mean_P[part_N], spread_P[part_N])
        return z_N


POPULATIONS = (
    Population("dull", ((0.0, 1.0, 1.0),), 0.5),
    Population("sharp", ((0.0, 5.0, 1.0),), 0.5),
    Population("two humps", ((-3.0, 1.0, 0.7), (2.5, 1.5, 0.3)), 0.3),
    Population("10% positives", ((-2.5, 1.0, 1.0),), 0.2),
    Population("5% positives, sharp", ((-6.0, 3.0, 1.0),), 0.5),
    Population("0.1% positives", ((-9.0, 2.2, 1.0),), 0.05),
)


@dataclass
class Outcome:
    """Coverage and mean width of each share in one setting."""

    population: str
    calibrator: str
    fit_rows: int
    answers: int
    few_events: bool
    runs: int
    covered: dict[str, float]
    width: dict[str, float]
    unknown: dict[str, float]
    """Share of runs in which there is no such share, or no expectation of it."""


def platt(z_N: Array, y_N: npt.NDArray[np.bool_], intercept: bool = True) -> Array:
    """Fit intercept and slope by maximum likelihood; a trace of a penalty keeps separable rows finite."""

    def loss(map_2: Array) -> tuple[float, Array]:
        s_N = map_2[0] + map_2[1] * z_N
        off_N = expit(s_N) - y_N
        slope = np.array([off_N.sum() if intercept else 0.0, off_N @ z_N]) + 2e-3 * (map_2 - [0, 1])
        return float(np.logaddexp(0, s_N).sum() - s_N @ y_N + 1e-3 * ((map_2 - [0, 1]) ** 2).sum()), slope

    fitted: Array = minimize(loss, [0.0, 1.0], jac=True, method="BFGS").x
    return fitted


def calibrated(kind: str, z_N: Array, fit_z_N: Array, fit_y_N: npt.NDArray[np.bool_]) -> tuple[Array, Array]:
    """Return the calibrated probabilities of the answers and of the rows of the fit."""
    if kind == "isotonic":
        order = np.argsort(fit_z_N)
        # One made-up row of each kind at the ends keeps the steps inside (0, 1).
        steps_N = isotonic_regression(np.concatenate([[0.0], fit_y_N[order], [1.0]])).x[1:-1]
        steps_N = np.clip(steps_N, 0.5 / len(order), 1 - 0.5 / len(order))
        return np.interp(z_N, fit_z_N[order], steps_N), steps_N
    score_N, fit_score_N = (z - (0.5 if kind == "Platt" else 0.0) for z in (z_N, fit_z_N))
    map_2 = platt(fit_score_N, fit_y_N, kind == "Platt")
    return expit(map_2[0] + map_2[1] * score_N), expit(map_2[0] + map_2[1] * fit_score_N)


def truths(p_N: Array, y_N: npt.NDArray[np.bool_], t: float) -> dict[str, float]:
    """Return the shares of the hidden labels; NaN without a denominator."""
    alert_N = p_N > t
    hits, alerts, positives, n = (alert_N & y_N).sum(), alert_N.sum(), y_N.sum(), len(y_N)
    silent = (~alert_N & ~y_N).sum()
    pairs = ((hits, alerts), (hits, positives), (silent, n - positives), (2 * hits, alerts + positives))
    return {name: float(a / b) if b else math.nan for name, (a, b) in zip(NAMES, pairs, strict=True)}


def measure(population: Population, kind: str, fit_rows: int, answers: int, runs: int, shift: float = 0.0) -> Outcome:
    """Return coverage and width over `runs` draws of the rows of the fit, of answers and of their labels."""
    rng = np.random.default_rng([SEED, fit_rows, answers, *population.name.encode(), *kind.encode()])
    inside: dict[str, list[bool]] = {name: [] for name in NAMES}
    widths: dict[str, list[float]] = {name: [] for name in NAMES}
    events = 0.0
    for _ in range(runs):
        z_N = population.draw(answers, rng)
        p_N, y_N, rows = expit(z_N), rng.random(answers) < expit(z_N + shift), None
        if fit_rows:
            fit_z_N = population.draw(fit_rows, rng)
            events += min(expit(fit_z_N).sum(), (1 - expit(fit_z_N)).sum()) / runs
            p_N, fit_p_N = calibrated(kind, z_N, fit_z_N, rng.random(fit_rows) < expit(fit_z_N))
            rows = CalibrationRows.of(fit_p_N)
        (expected,) = expected_decisions(p_N, at=[population.threshold], calibration=rows)
        for name, truth in truths(p_N, y_N, population.threshold).items():
            share = getattr(expected, name)
            if not math.isnan(truth) and share.value is not None:
                inside[name].append(bool(share.lower - 1e-12 <= truth <= share.upper + 1e-12))
                widths[name].append(share.upper - share.lower)
    return Outcome(
        population=population.name,
        calibrator=kind if fit_rows else "exact",
        fit_rows=fit_rows,
        answers=answers,
        few_events=bool(fit_rows and events < EVENTS),
        runs=runs,
        covered={name: round(float(np.mean(rows)), 4) for name, rows in inside.items() if rows},
        width={name: round(float(np.mean(rows)), 4) for name, rows in widths.items() if rows},
        unknown={name: round(1 - len(rows) / runs, 4) for name, rows in inside.items()},
    )


def withdrawals(population: Population, shift: float, streams: int) -> dict[str, Any]:
    """Return how many streams of labels contradict the calibration, and after how many labels (median)."""
    rng, after = np.random.default_rng([SEED, *population.name.encode(), 9]), []
    for _ in range(streams):
        z_N = population.draw(LABELS, rng)
        p_N, y_N = expit(z_N), rng.random(LABELS) < expit(z_N + shift)
        for n in range(STEP, LABELS + 1, STEP):
            evidence = LabelEvidence(PositiveClass.sums_of(p_N[:n], y_N[:n]))
            if evidence.contradiction(population.threshold):
                after.append(n)
                break
    return {
        "population": population.name,
        "shift": shift,
        "streams": streams,
        "withdrawn": round(len(after) / streams, 4),
        "median_labels": float(np.median(after)) if after else None,
    }


def summary(outcomes: list[Outcome], drifted: list[Outcome], streams: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the lowest coverage of each group of settings."""
    groups = {
        "exact": [o for o in outcomes if o.calibrator == "exact"],
        "fitted": [o for o in outcomes if o.calibrator in ("Platt", "temperature") and not o.few_events],
        "few events": [o for o in outcomes if o.calibrator in ("Platt", "temperature") and o.few_events],
        "isotonic": [o for o in outcomes if o.calibrator == "isotonic" and not o.few_events],
        "concept shift": drifted,
    }
    found: dict[str, Any] = {}
    for name, group in groups.items():
        rows = [(c, share, o) for o in group for share, c in o.covered.items()]
        low, share, worst = min(rows, key=lambda row: row[0])
        found[name] = {
            "settings": len(group),
            "lowest_coverage": low,
            "lowest_setting": f"{share}, {worst.population}, {worst.fit_rows:,} rows, {worst.answers:,} answers",
            "standard_error": round(math.sqrt(low * (1 - low) / worst.runs), 4),
            "mean_coverage": round(float(np.mean([c for c, *_ in rows])), 4),
            "mean_width": round(float(np.mean([w for o in group for w in o.width.values()])), 4),
        }
    sound, shifted = ([one for one in streams if bool(one["shift"]) is is_shifted] for is_shifted in (False, True))
    found["sound_withdrawn"] = max(one["withdrawn"] for one in sound)
    found["shifted_withdrawn"] = {one["population"]: (one["withdrawn"], one["median_labels"]) for one in shifted}
    return found


def markdown(record: dict[str, Any]) -> str:
    """Return the table of docs/explanation/results.md."""
    lines = [
        "| probabilities | settings | lowest coverage at a nominal 95% | mean coverage | mean width |",
        "|---" * 5 + "|",
    ]
    words = {
        "exact": "exact",
        "fitted": f"Platt or temperature scaling, {EVENTS} events or more",
        "few events": f"the same, fewer than {EVENTS} events",
        "isotonic": f"isotonic regression, {EVENTS} events or more",
        "concept shift": "exact, then a concept shift (log-odds lower by .5)",
    }
    for name, text in words.items():
        group = record["summary"][name]
        lowest = f"{group['lowest_coverage']:.1%} +- {group['standard_error']:.1%} ({group['lowest_setting']})"
        lines.append(
            f"| {text} | {group['settings']} | {lowest} | {group['mean_coverage']:.1%} | {group['mean_width']:.3f} |"
        )
    lines += [
        "",
        "| population | withdrawn without a shift | with the shift | after labels (median) |",
        "|---" * 4 + "|",
    ]
    streams = {(one["population"], bool(one["shift"])): one for one in record["streams"]}
    for population in dict.fromkeys(one["population"] for one in record["streams"]):
        sound, shifted = streams[population, False], streams[population, True]
        after = "" if shifted["median_labels"] is None else f"{shifted['median_labels']:.0f}"
        lines.append(f"| {population} | {sound['withdrawn']:.1%} | {shifted['withdrawn']:.1%} | {after} |")
    return "\n".join(lines)


def main() -> None:
    parser = options_parser(__doc__, RESULT)
    parser.add_argument("--runs", type=whole_from(1), default=60, help="draws of each setting")
    parser.add_argument("--streams", type=whole_from(1), default=50, help="streams of labels of each population")
    options = parser.parse_args()
    run, outcomes, drifted, streams = Run(), list[Outcome](), list[Outcome](), list[dict[str, Any]]()
    for population in POPULATIONS:
        for fit_rows in FIT_ROWS:
            for answers in ANSWERS:
                for kind in ("Platt", "temperature", "isotonic") if fit_rows else ("exact",):
                    outcomes.append(one := measure(population, kind, fit_rows, answers, options.runs))
                    run.say(one.population, one.calibrator, fit_rows, answers, one.covered)
        drifted.append(measure(population, "exact", 0, ANSWERS[-1], options.runs, SHIFT))
        streams += [withdrawals(population, shift, options.streams) for shift in (0.0, SHIFT)]
    run.finish(
        options.out,
        markdown,
        level=0.95,
        summary=summary(outcomes, drifted, streams),
        settings=[asdict(one) for one in outcomes],
        concept_shift=[asdict(one) for one in drifted],
        streams=streams,
    )


if __name__ == "__main__":
    main()
