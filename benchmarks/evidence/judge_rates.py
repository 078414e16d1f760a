"""A judge's error rates by class: do their intervals cover with many classes, rare ones and few labels?

    python -m benchmarks.evidence.judge_rates        # about ten minutes on one core

Each run draws the answers, their kinds, the human labels and the judge's labels. Kinds of answers differ in propensity
and in how often the judge errs on them. `worse if rare` errs most on the kind with the smallest propensity, `worse if
common` on that with the largest, and `alike` errs alike. Classes are equal, or the frequency of class k is
proportional to 1 / k. Coverage is that of all rates with at least one label: sensitivity and specificity of each class.

For comparison, the limits of Korn and Graubard for the same rows: those of Clopper and Pearson at an effective number
of rows, which is estimated from them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from benchmarks.markdown import table
from benchmarks.record import RESULTS, Run, options_parser, whole_from
from trueodds.metrics import judge_errors
from trueodds.metrics.labelling.powered import degrees_of_freedom

Array = npt.NDArray[np.float64]
Floats = tuple[float, ...]
RESULT = RESULTS / "judge_rates.json"
SEED = 2026
CLASSES, LABELS = (2, 10, 100), (2, 8, 30)
"""Classes, and human labels of each class on average."""
PLAIN: tuple[Floats, Floats, Floats] = ((1.0,), (1.0,), (0.15,))
KINDS: dict[str, tuple[Floats, Floats, Floats]] = {
    "plain": PLAIN,
    "2 times, worse if rare": ((0.5, 0.5), (1.0, 0.5), (0.05, 0.3)),
    "4 times, alike": ((0.7, 0.3), (1.0, 0.25), (0.15, 0.15)),
    "10 times, worse if common": ((0.5, 0.5), (1.0, 0.1), (0.4, 0.05)),
    "10 times, worse if rare": ((0.8, 0.2), (1.0, 0.1), (0.05, 0.8)),
    "20 times, worse if rare": ((0.9, 0.1), (1.0, 0.05), (0.1, 0.9)),
    "20 times, worse if common": ((0.5, 0.5), (1.0, 0.05), (0.5, 0.05)),
    "three kinds": ((0.4, 0.3, 0.3), (1.0, 0.3, 0.05), (0.05, 0.2, 0.6)),
}
"""Shares of the kinds, their relative propensities, and the judge's error rate on each."""
HIDDEN = "20 times, worse if rare"
ALONE = "smallest propensity unknown"


@dataclass
class Rates:
    classes: int
    sizes: str
    kinds: str
    labels: int
    """Human labels of each class on average."""
    runs: int
    rates: int
    """Rates over all runs."""
    covered: float
    covered_rare: float | None
    """Coverage of the sensitivities of classes with 1 to 5 labels."""
    covered_effective: float
    """Coverage of the limits of Korn and Graubard."""
    width: float
    """Mean width of the sensitivities' intervals."""
    width_effective: float


def effective_limits(hit_L: npt.NDArray[np.bool_], weight_L: Array, level: float = 0.95) -> tuple[float, float]:
    """Compute the limits of Korn and Graubard (1998)."""
    share_L = weight_L / weight_L.sum()
    value, kish, q = float(share_L @ hit_L), 1 / float(share_L @ share_L), (1 - level) / 2
    n = float(weight_L.sum() / weight_L.max())
    if (weight_L == weight_L[0]).all():
        n = float(len(weight_L))
    elif hit_L.any() and not hit_L.all():
        t = scipy.special.stdtrit(max(degrees_of_freedom(share_L), 1.0), 1 - q)
        spread = value * (1 - value) / float(share_L**2 @ (hit_L - value) ** 2)
        n = min(spread, kish) * float(scipy.special.ndtri(1 - q) / t) ** 2
    hits = value * n
    lower = float(scipy.special.betaincinv(hits, n - hits + 1, q)) if hit_L.any() else 0.0
    upper = float(scipy.special.betaincinv(hits + 1, n - hits, 1 - q)) if not hit_L.all() else 1.0
    return lower, upper


class Cover:
    """Coverage of each class's two rates over the runs."""

    def __init__(self, classes: int, truth_2C: Array) -> None:
        self.truth_2C = truth_2C
        self.seen_2C, self.covered_2C = np.zeros((2, classes)), np.zeros((2, classes))
        self.rare, self.effective, self.widths = [0, 0], [0, 0], [0.0, 0.0]

    def add(self, human_L: npt.NDArray[np.intp], judge_L: npt.NDArray[np.intp], p_L: Array, smallest: float) -> None:
        classes = self.truth_2C.shape[1]
        errors = judge_errors(human_L, judge_L, classes, propensity_L=p_L, smallest_propensity=smallest)
        for side, rates in enumerate((errors.sensitivity_C, errors.specificity_C)):
            for k, rate in enumerate(rates):
                if rate.value is None:
                    continue
                is_of = human_L == k if side == 0 else human_L != k
                covers, truth = rate.lower <= self.truth_2C[side, k] <= rate.upper, self.truth_2C[side, k]
                self.seen_2C[side, k] += 1
                self.covered_2C[side, k] += covers
                if side == 1 and k > 1:  # the specificities of many classes are almost alike
                    continue
                hit_L = judge_L[is_of] == k if side == 0 else judge_L[is_of] != k
                lower, upper = effective_limits(hit_L, 1 / p_L[is_of])
                self.effective[0] += bool(lower <= truth <= upper)
                self.effective[1] += 1
                if side == 0:
                    self.widths[0] += rate.upper - rate.lower
                    self.widths[1] += upper - lower
                    if is_of.sum() <= 5:
                        self.rare[0] += int(covers)
                        self.rare[1] += 1


def measure(classes: int, sizes: str, kinds: str, labels: int, runs: int, *, known: bool = True) -> Rates:
    """Measure the coverage in one setting.

    Args:
        classes: Number of classes.
        sizes: "equal", or "zipf" for rare ones.
        kinds: A key of `KINDS`.
        labels: Human labels of each class on average.
        runs: Number of runs.
        known: Give the smallest propensity of all answers. Otherwise that of the labels counts as the smallest.
    """
    share_K, relative_K, error_K = (np.array(one) for one in KINDS[kinds])
    share_C = np.ones(classes) if sizes == "equal" else 1 / np.arange(1, classes + 1)
    share_C /= share_C.sum()
    wrong = float(share_K @ error_K)
    # A wrong judge takes any other class alike, so a class k is called by mistake in wrong / (classes - 1) of the rest.
    truth_2C = np.stack([np.full(classes, 1 - wrong), np.full(classes, 1 - wrong / (classes - 1))])
    drawn_K = share_K * relative_K / (share_K @ relative_K)
    rng = np.random.default_rng([SEED, classes, labels, len(sizes), list(KINDS).index(kinds)])
    cover = Cover(classes, truth_2C)
    for _ in range(runs):
        count = max(int(rng.poisson(labels * classes)), 1)
        kind_L = rng.choice(len(drawn_K), count, p=drawn_K)
        human_L = rng.choice(classes, count, p=share_C)
        other_L = (human_L + rng.integers(1, classes, count)) % classes
        judge_L = np.where(rng.random(count) < error_K[kind_L], other_L, human_L)
        p_L = relative_K[kind_L]
        cover.add(human_L, judge_L, p_L, float(relative_K.min() if known else p_L.min()))
    seen = cover.seen_2C
    return Rates(
        classes=classes,
        sizes=sizes,
        kinds=kinds if known else f"{kinds}; {ALONE}",
        labels=labels,
        runs=runs,
        rates=int(seen.sum()),
        covered=float(cover.covered_2C.sum() / seen.sum()),
        covered_rare=cover.rare[0] / cover.rare[1] if cover.rare[1] else None,
        covered_effective=cover.effective[0] / cover.effective[1],
        width=cover.widths[0] / float(max(seen[0].sum(), 1)),
        width_effective=cover.widths[1] / float(max(seen[0].sum(), 1)),
    )


def summary(rows: list[Rates], alone: list[Rates]) -> dict[str, Any]:
    """Return the figures of the claim."""

    def below(one: Rates) -> bool:
        """Return whether coverage is below 95%, significantly at 5% for all settings, if the rates were independent."""
        return float(scipy.stats.binom.cdf(round(one.covered * one.rates), one.rates, 0.95)) < 0.05 / len(rows)

    unequal = [one for one in rows if one.kinds != "plain"]
    return {
        "settings": len(rows),
        "rates": sum(one.rates for one in rows),
        "lowest_covered": min(one.covered for one in rows),
        "mean_covered": sum(one.covered * one.rates for one in rows) / sum(one.rates for one in rows),
        "lowest_covered_rare": min(one.covered_rare for one in rows if one.covered_rare is not None),
        "settings_below": sum(below(one) for one in rows),
        "lowest_covered_effective": min(one.covered_effective for one in rows),
        "median_width_ratio": float(np.median([one.width / one.width_effective for one in unequal])),
        "most_width_ratio": max(one.width / one.width_effective for one in unequal),
        "lowest_covered_alone": min(one.covered for one in alone),
    }


def markdown(result: dict[str, Any]) -> str:
    """Format the result as tables."""
    of_setting = ("classes", "sizes", "propensities", "labels of a class")
    head = (*of_setting, "covered", "classes of 1 to 5 labels", "Korn and Graubard", "width", "theirs")

    def row(one: dict[str, Any]) -> tuple[str, ...]:
        rare = one["covered_rare"]
        return (
            f"{one['classes']}",
            one["sizes"],
            one["kinds"],
            f"{one['labels']}",
            f"{one['covered']:.1%}",
            "" if rare is None else f"{rare:.1%}",
            f"{one['covered_effective']:.1%}",
            f"{one['width']:.3f}",
            f"{one['width_effective']:.3f}",
        )

    shown = [one for one in result["rows"] if one["sizes"] == "zipf" or one["classes"] == 2]
    lowest = sorted(result["rows"], key=lambda one: one["covered"])[:8]
    parts = [
        "The settings with the lowest coverage:",
        table(head, [row(one) for one in lowest]),
        "Two classes, and classes with frequencies proportional to 1 / k:",
        table(head, [row(one) for one in shown]),
        "The smallest propensity of all answers is not given, and a kind may have no label:",
        table(head, [row(one) for one in result["alone"]]),
    ]
    return "\n\n".join(parts)


def main() -> None:
    """Measure all settings."""
    parser = options_parser(__doc__, RESULT)
    parser.add_argument("--runs", type=whole_from(20), default=300, help="runs of 2 classes (default: 300)")
    arguments = parser.parse_args()
    run, rows = Run(), list[Rates]()
    runs: Callable[[int], int] = lambda classes: max(arguments.runs * 2 // classes, 4)  # noqa: E731
    for classes in CLASSES:
        for sizes in ("equal", "zipf") if classes > 2 else ("equal",):
            for kinds in KINDS:
                rows += [measure(classes, sizes, kinds, labels, runs(classes)) for labels in LABELS]
            run.say(classes, sizes, min(one.covered for one in rows))
    alone = [measure(2, "equal", HIDDEN, labels, arguments.runs, known=False) for labels in LABELS]
    run.finish(
        arguments.out,
        markdown,
        summary=summary(rows, alone),
        rows=[asdict(one) for one in rows],
        alone=[asdict(one) for one in alone],
    )


if __name__ == "__main__":
    main()
