"""Coverage of `trueodds.metrics.prior_shift`, and how often it speaks, under prior shift and under other changes.

    python -m benchmarks.intervals.prior_shift --runs 60        # about ten minutes on one core

Scores are normal, of heavy tails, in two humps, in steps of .1, or those of 3 or 10 classes; sharp and dull, with rare
and common classes. The served probabilities are calibrated on the reference's shares, too sharp, or too dull and
shifted. A run draws 300 or 3,000 reference rows with labels, and 300 or 5,000 answers. Their class shares are those of
the reference, moderately changed, or changed to about 0. An interval covers if the share among these answers lies
inside. Coverage is counted where the test lets the metric speak.

Then the assumption is broken, and no share is to be said: p(x | y) moves (*inputs*), answers between the classes become
frequent (*covariates*: p(y | x) is unchanged), or labels change at equal scores (*concept*). The result has how often
the metric speaks all the same, how far its share is off, and after how many labels it is withdrawn. With these labels
the shares are asked for after every 20th one. Streams without a change tell how often sound shares are withdrawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import expit, softmax

from benchmarks.record import RESULTS, Run, options_parser, whole_from
from trueodds.metrics import CalibrationSums, PriorShift, prior_shift
from trueodds.reports.before_labels.class_shares import contradiction
from trueodds.sums.positive import PositiveClass

Array = npt.NDArray[np.float64]
Labels = npt.NDArray[np.intp]
REFERENCE, ANSWERS, SEED = (300, 3_000), (300, 5_000), 5
LABELS, STEP = 1_000, 20
RESULT = RESULTS / "prior_shift.json"
METHODS = ("em", "bbse")


def _humps(e_N: Array) -> Array:
    density_N: Array = np.logaddexp(-((e_N - 1.5) ** 2) / 2, -((e_N + 1.5) ** 2) / 2)
    return density_N


DENSITIES: dict[str, Callable[[Array], Array]] = {
    "normal": lambda e_N: -(e_N**2) / 2,
    "tails": lambda e_N: -2 * np.log1p(e_N**2 / 3),
    "humps": _humps,
}
"""Log density of the noise, up to a constant. "tails" is Student's law with 3 degrees of freedom."""


@dataclass(frozen=True)
class Population:
    """Scores x of each class, p(y | x) for the reference's shares, and the shares of the answers."""

    name: str
    reference: tuple[float, ...]
    new: dict[str, tuple[float, ...]]
    gap: float
    noise: str = "normal"
    slope: float = 1.0
    """Factor of the served log-odds: 1 is calibrated, 2 too sharp."""
    offset: float = 0.0
    """Added to the served log-odds of the last class."""
    step: float | None = None
    """Step of rounded probabilities."""

    def draw(self, n: int, shares: tuple[float, ...], rng: np.random.Generator) -> tuple[Array, Labels]:
        """Return scores (N, C - 1), or (N, C) of more than two classes, and labels."""
        y_N = rng.choice(len(shares), n, p=shares)
        if len(shares) > 2:
            return self.gap * np.eye(len(shares))[y_N] + rng.normal(size=(n, len(shares))), y_N
        centre_N = self.gap * (y_N - 0.5)
        if self.noise == "humps":
            centre_N = centre_N + rng.choice([-1.5, 1.5], n)
        noise_N = rng.standard_t(3, n) if self.noise == "tails" else rng.normal(size=n)
        return (centre_N + noise_N)[:, None], y_N

    def served(self, x_NC: Array) -> Array:
        """Return the served probabilities of scores."""
        if len(self.reference) > 2:
            logits_NC = self.gap * x_NC + np.log(self.reference)
            logits_NC = self.slope * logits_NC + self.offset * np.eye(len(self.reference))[-1]
            p_NC: Array = softmax(logits_NC, axis=1)
        else:
            z_N = self._log_ratio(x_NC[:, 0]) + math.log(self.reference[1] / self.reference[0])
            p_N = expit(self.slope * z_N + self.offset)
            p_NC = np.stack([1 - p_N, p_N], axis=1)
        if self.step is not None:
            top_N = np.round(p_NC[:, 1] / self.step) * self.step
            p_NC = np.stack([1 - top_N, top_N], axis=1)
        return p_NC

    def _log_ratio(self, x_N: Array) -> Array:
        """Return log p(x | 1) / p(x | 0)."""
        density = DENSITIES[self.noise]
        ratio_N: Array = density(x_N - self.gap / 2) - density(x_N + self.gap / 2)
        return ratio_N


def two(reference: float, **new: float) -> dict[str, Any]:
    """Return the shares of two classes, from those of the second one."""
    every = {"none": reference, **new}
    return {
        "reference": (1 - reference, reference),
        "new": {name: (1 - share, share) for name, share in every.items()},
    }


TEN = tuple(np.array([10, 9, 8, 7, 6, 5, 4, 3, 2, 2]) / 56)
POPULATIONS = (
    Population("dull", gap=1.0, **two(0.5, moderate=0.3, far=0.02)),
    Population("sharp", gap=5.0, **two(0.5, moderate=0.3, far=0.02)),
    Population("15% positives", gap=2.5, **two(0.15, moderate=0.3, far=0.005)),
    Population("heavy tails", gap=3.0, noise="tails", **two(0.4, moderate=0.2, far=0.02)),
    Population("two humps", gap=3.0, noise="humps", **two(0.4, moderate=0.2, far=0.02)),
    Population("too sharp", gap=2.0, slope=2.0, **two(0.5, moderate=0.3, far=0.02)),
    Population("too dull, shifted", gap=2.0, slope=0.5, offset=0.8, **two(0.5, moderate=0.3, far=0.02)),
    Population("steps of .1", gap=2.0, step=0.1, **two(0.5, moderate=0.3, far=0.02)),
    Population(
        "3 classes",
        reference=(0.5, 0.3, 0.2),
        new={"none": (0.5, 0.3, 0.2), "moderate": (0.3, 0.3, 0.4), "far": (0.01, 0.19, 0.8)},
        gap=2.0,
    ),
    Population(
        "10 classes, too sharp",
        reference=(0.1,) * 10,
        new={"none": (0.1,) * 10, "moderate": TEN, "far": (0.5, 0.3, 0.15, 0.04, 0.01, 0.0, 0.0, 0.0, 0.0, 0.0)},
        gap=2.5,
        slope=1.5,
    ),
)


@dataclass
class Outcome:
    """Results of one setting."""

    population: str
    shift: str
    reference: int
    answers: int
    runs: int
    spoken: float
    """Share of runs in which the metric gives shares."""
    covered: dict[str, float | None]
    """Coverage of each method, over runs that speak and classes."""
    width: dict[str, float | None]
    error: dict[str, float | None]
    """Root mean squared error of the values."""


def reference_rows(population: Population, n: int, rng: np.random.Generator) -> tuple[Array, Labels]:
    """Draw reference rows with 20 or more of each class."""
    while True:
        x_NC, y_N = population.draw(n, population.reference, rng)
        if np.bincount(y_N, minlength=len(population.reference)).min() >= 20:
            return population.served(x_NC), y_N


def measure(population: Population, shift: str, reference: int, answers: int, runs: int) -> Outcome:
    """Return how often the metric speaks and covers over `runs` draws."""
    rng = np.random.default_rng([SEED, reference, answers, *population.name.encode(), *shift.encode()])
    inside: dict[str, list[bool]] = {name: [] for name in METHODS}
    width: dict[str, list[float]] = {name: [] for name in METHODS}
    error: dict[str, list[float]] = {name: [] for name in METHODS}
    spoken = 0
    for _ in range(runs):
        known = reference_rows(population, reference, rng)
        x_NC, y_N = population.draw(answers, population.new[shift], rng)
        found = prior_shift(population.served(x_NC), *known)
        spoken += found.refusal is None
        truth_C = np.bincount(y_N, minlength=len(population.reference)) / answers
        for name in METHODS:
            for truth, one in zip(truth_C, getattr(found, name), strict=False):
                if one.value is not None:
                    inside[name].append(bool(one.lower - 1e-12 <= truth <= one.upper + 1e-12))
                    width[name].append(one.upper - one.lower)
                    error[name].append((one.value - truth) ** 2)
    return Outcome(
        population=population.name,
        shift=shift,
        reference=reference,
        answers=answers,
        runs=runs,
        spoken=round(spoken / runs, 4),
        covered={name: round(float(np.mean(rows)), 4) if rows else None for name, rows in inside.items()},
        width={name: round(float(np.mean(rows)), 4) if rows else None for name, rows in width.items()},
        error={name: round(float(np.mean(rows)) ** 0.5, 4) if rows else None for name, rows in error.items()},
    )


Change = Callable[[int, np.random.Generator], tuple[Array, Labels]]
"""Draws the served probabilities and the labels of answers."""


def changes(population: Population) -> dict[str, Change]:
    """Return draws of answers of two normal classes, without a change and with changes that are no prior shift."""
    shares = population.new["moderate"]

    def none(n: int, rng: np.random.Generator) -> tuple[Array, Labels]:
        x_NC, y_N = population.draw(n, shares, rng)
        return population.served(x_NC), y_N

    def inputs(n: int, rng: np.random.Generator) -> tuple[Array, Labels]:
        x_NC, y_N = population.draw(n, population.reference, rng)
        return population.served(x_NC - 0.5 * y_N[:, None]), y_N

    def covariates(n: int, rng: np.random.Generator) -> tuple[Array, Labels]:
        x_NC, y_N = population.draw(8 * n, population.reference, rng)
        kept_N = np.flatnonzero(rng.random(8 * n) < np.exp(-(x_NC[:, 0] ** 2)))[:n]
        return population.served(x_NC[kept_N]), y_N[kept_N]

    def concept(n: int, rng: np.random.Generator) -> tuple[Array, Labels]:
        x_NC, _ = population.draw(n, population.reference, rng)
        p_NC = population.served(x_NC)
        z_N = np.log(p_NC[:, 1] / p_NC[:, 0]) - 1.0
        return p_NC, (rng.random(n) < expit(z_N)).astype(np.intp)

    return {"none": none, "inputs": inputs, "covariates": covariates, "concept": concept}


def broken(population: Population, change: str, runs: int, answers: int = 3_000) -> dict[str, Any]:
    """Return how often the metric speaks in spite of a change, how far it is off, and when labels withdraw it."""
    rng = np.random.default_rng([SEED, *population.name.encode(), *change.encode()])
    draw, spoken, missed, off, after = changes(population)[change], 0, 0, list[float](), list[int]()
    for _ in range(runs):
        known = reference_rows(population, 3_000, rng)
        p_NC, y_N = draw(answers, rng)
        found = prior_shift(p_NC, *known)
        if found.refusal is not None:
            continue
        spoken += 1
        one, truth = found.em[1], float(y_N.mean())
        assert one.value is not None and one.lower is not None and one.upper is not None
        missed += not one.lower <= truth <= one.upper
        off.append(abs(one.value - truth))
        if (labels := withdrawn_after(found, *draw(LABELS, rng))) is not None:
            after.append(labels)
    return {
        "population": population.name,
        "change": change,
        "runs": runs,
        "spoken": round(spoken / runs, 4),
        "spoken_wrongly": round(missed / runs, 4),
        "off_by": round(float(np.mean(off)), 4) if off else None,
        "withdrawn": round(len(after) / spoken, 4) if spoken else None,
        "median_labels": float(np.median(after)) if after else None,
    }


def withdrawn_after(found: PriorShift, p_NC: Array, y_N: Labels) -> int | None:
    """Return the number of labels after which they contradict the shares; None if 1,000 do not."""
    for n in range(STEP, LABELS + 1, STEP):

        def sums_of_labels(label: int, share: float, n: int = n) -> CalibrationSums:
            p_N = found.correct(p_NC[:n], label=label, share=share)[:, label]
            return PositiveClass.sums_of(p_N, y_N[:n] == label)

        if contradiction(found, ("0", "1"), sums_of_labels):
            return n
    return None


def summary(outcomes: list[Outcome], others: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the coverage of each group of settings."""
    found: dict[str, Any] = {}
    for shift in ("none", "moderate", "far"):
        group = [one for one in outcomes if one.shift == shift]
        for name in METHODS:
            # A setting in which the metric hardly speaks has no coverage to count.
            told = [(one.covered[name], one) for one in group if one.covered[name] is not None and one.spoken >= 0.5]
            low, worst = min(told, key=lambda pair: pair[0] or 0.0)
            assert low is not None
            found[f"{shift}, {name}"] = {
                "settings": len(told),
                "spoken": round(float(np.mean([one.spoken for one in group])), 4),
                "lowest_spoken": min(one.spoken for one in group),
                "mean_coverage": round(float(np.mean([value for value, _ in told])), 4),
                "lowest_coverage": low,
                "lowest_setting": f"{worst.population}, {worst.reference:,} rows, {worst.answers:,} answers",
                "standard_error": round(math.sqrt(low * (1 - low) / (worst.runs * worst.spoken)), 4),
                "mean_width": round(float(np.mean([one.width[name] for _, one in told])), 4),
                "error": round(float(np.mean([one.error[name] for _, one in told])), 4),
            }
    every = [one.covered[name] for one in outcomes for name in METHODS if one.covered[name] is not None]
    found["mean_coverage"] = round(float(np.mean([value for value in every if value is not None])), 4)
    found["settings"] = len(outcomes)
    for change in ("none", "inputs", "covariates", "concept"):
        rows = [one for one in others if one["change"] == change]
        withdrawn = [one["withdrawn"] for one in rows if one["withdrawn"] is not None]
        found[change] = {
            "spoken": round(float(np.mean([one["spoken"] for one in rows])), 4),
            "spoken_wrongly": round(float(np.mean([one["spoken_wrongly"] for one in rows])), 4),
            "withdrawn": round(float(np.mean(withdrawn)), 4) if withdrawn else None,
            "most_withdrawn": max(withdrawn, default=None),
        }
    return found


def markdown(record: dict[str, Any]) -> str:
    """Return the tables of docs/explanation/results.md."""
    lines = [
        "| change of the class shares | method | settings | speaks in | mean coverage at a nominal 95% |"
        " lowest coverage | mean width | error (RMSE) |",
        "|---" * 8 + "|",
    ]
    words = {"none": "none", "moderate": "moderate", "far": "to about 0"}
    for shift, text in words.items():
        for name in METHODS:
            one = record["summary"][f"{shift}, {name}"]
            lowest = f"{one['lowest_coverage']:.1%} +- {one['standard_error']:.1%} ({one['lowest_setting']})"
            lines.append(
                f"| {text} | {name.upper()} | {one['settings']} | {one['spoken']:.1%} | {one['mean_coverage']:.1%} |"
                f" {lowest} | {one['mean_width']:.3f} | {one['error']:.3f} |"
            )
    lines += [
        "",
        "| other change | population | speaks in | speaks wrongly in | off by | withdrawn by labels | after (median) |",
        "|---" * 7 + "|",
    ]
    for one in record["changes"]:
        off = "" if one["off_by"] is None else f"{one['off_by']:.3f}"
        withdrawn = "" if one["withdrawn"] is None else f"{one['withdrawn']:.1%}"
        after = "" if one["median_labels"] is None else f"{one['median_labels']:.0f}"
        change = "prior shift only" if one["change"] == "none" else one["change"]
        lines.append(
            f"| {change} | {one['population']} | {one['spoken']:.1%} | {one['spoken_wrongly']:.1%} | {off} |"
            f" {withdrawn} | {after} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = options_parser(__doc__, RESULT)
    parser.add_argument("--runs", type=whole_from(1), default=60, help="draws of each setting")
    options = parser.parse_args()
    run, outcomes, others = Run(), list[Outcome](), list[dict[str, Any]]()
    for population in POPULATIONS:
        for shift in population.new:
            for reference in REFERENCE:
                for answers in ANSWERS:
                    outcomes.append(one := measure(population, shift, reference, answers, options.runs))
                    run.say(one.population, shift, reference, answers, one.spoken, one.covered, one.width)
    for population in (one for one in POPULATIONS if one.noise == "normal" and one.slope == 1 and one.step is None):
        for change in changes(population) if len(population.reference) == 2 else ():
            others.append(broken(population, change, options.runs))
            run.say(others[-1])
    run.finish(
        options.out,
        markdown,
        level=0.95,
        summary=summary(outcomes, others),
        settings=[asdict(one) for one in outcomes],
        changes=others,
    )


if __name__ == "__main__":
    main()
