"""The alarm on daily sums: false alarms within a year, and its delay beside the alarm that reads label by label.

    python -m benchmarks.alarms.daily        # some ten minutes on one core

A population has 200 confidences, each in the middle of a part of a shape of benchmarks/shapes.py: A (100 classes), C
(two classes, dull) or D (sharp, errors are rare). A day has a Poisson number of labels, and none on each seventh day.

False alarms: 365 days in which each label is right as often as its confidence says (calibrated), or .02 more or less
often (at the edge of the tolerance), or more and less on alternate days (alternating). All are within the null.

Delay: 30 calibrated days, then a change in the middle of a day, after which the truth is softmax(z / T). The alarm by
label is that of the service, in blocks of 20. Both read the same labels. A day by itself bets on the labels from
before the change, too.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.record import RESULTS, circumstances, options_parser, write
from benchmarks.shapes import chance_at, pool_logits
from trueodds.metrics import EProcess, PartitionEProcess, cell_of
from trueodds.metrics.alarms.payoffs import Null, payoffs
from trueodds.metrics.alarms.sequential import BLOCK

Array = npt.NDArray[np.float64]

TOLERANCE, ALPHA, SEED = 0.02, 0.05, 44
DAYS, GOOD_DAYS, PARTS, POOL = 365, 30, 200, 100_000
LABELS_A_DAY = (5, 200, 20_000)
DELAYS_A_DAY = {20: 300, 200: 60, 2_000: 20}
"""Labels a day, and the number of days after the change."""
TEMPERATURES = (1.5, 2.5)
NULLS: tuple[Null, ...] = ("ece", "point")
TRUTHS = ("calibrated", "below", "above", "alternating")
RESULT = RESULTS / "daily_alarm.json"


@dataclass(frozen=True)
class Population:
    """Confidences of equal weight, their cells, and how often the answer is right at each temperature."""

    shape: str
    confidence_M: Array
    cell_M: npt.NDArray[np.intp]
    chance_at: dict[float, Array]

    @classmethod
    def of(cls, shape: str) -> Population:
        """Return the population of a shape."""
        logits_NC = pool_logits(shape, POOL, seed=11)
        c_N = chance_at(logits_NC, 1.0)
        order_N = c_N.argsort()
        chances = {T: chance_at(logits_NC, T)[order_N].reshape(PARTS, -1).mean(axis=1) for T in (1.0, *TEMPERATURES)}
        return cls(shape, chances[1.0], cell_of(chances[1.0]), chances)

    def truth(self, name: str, day: int) -> Array:
        """Return how often each answer is right on a day."""
        sign = {"calibrated": 0.0, "below": -1.0, "above": 1.0, "alternating": 1.0 if day % 2 else -1.0}[name]
        return np.clip(self.confidence_M + sign * TOLERANCE, 0.0, 1.0)


def false_alarms(population: Population, truth: str, labels: int, runs: int) -> dict[str, float]:
    """Return the share of runs that alarm within a year, for each null."""
    rng = np.random.default_rng([SEED, *population.shape.encode(), *truth.encode(), labels])
    tables = {null: payoffs(null, TOLERANCE) for null in NULLS}
    wealth = {null: np.full((runs, len(table.log_weight_K)), -np.inf) for null, table in tables.items()}
    alarmed = {null: np.zeros(runs, bool) for null in NULLS}
    taken_R = np.zeros(runs, np.int64)
    equal_M = np.full(PARTS, 1 / PARTS)
    for day in range(DAYS):
        if day % 7 == 6:
            continue
        count_RM = rng.multinomial(rng.poisson(labels, runs), equal_M)
        right_RM = rng.binomial(count_RM, population.truth(truth, day))
        has_labels_R = count_RM.any(axis=1)
        taken_R[has_labels_R] += 1
        for null, table in tables.items():
            right_MK, wrong_MK = table.log_right_CK[population.cell_M], table.log_wrong_CK[population.cell_M]
            paid_RK = right_RM @ right_MK + (count_RM - right_RM) @ wrong_MK
            for number in np.unique(taken_R[has_labels_R]).tolist():
                these_R = has_labels_R & (taken_R == number)
                stepped_RK = PartitionEProcess.step(wealth[null][these_R], paid_RK[these_R], number)
                wealth[null][these_R] = stepped_RK
                log_e_R = PartitionEProcess.value(stepped_RK, table.log_weight_K, number)
                alarmed[null][these_R] |= log_e_R >= -np.log(ALPHA)
    return {null: float(alarmed_R.mean()) for null, alarmed_R in alarmed.items()}


def delays(population: Population, temperature: float, null: Null, labels: int, runs: int) -> dict[str, Any]:
    """Return the median numbers of labels after the change, by label and by day, and the shares that alarmed before."""
    rng = np.random.default_rng([SEED, *population.shape.encode(), *null.encode(), labels, int(10 * temperature)])
    table, limit = payoffs(null, TOLERANCE), -np.log(ALPHA)
    by_label_RK = np.full((runs, len(table.log_weight_K)), -np.inf)
    by_day_RK = by_label_RK.copy()
    change = GOOD_DAYS * labels + labels // 2
    first = {"label": np.full(runs, np.inf), "day": np.full(runs, np.inf)}
    paid_2MK = np.stack([table.log_wrong_CK[population.cell_M], table.log_right_CK[population.cell_M]])
    block = 0
    for day in range(GOOD_DAYS + 1 + DELAYS_A_DAY[labels]):
        drawn_RL = rng.integers(0, PARTS, (runs, labels))
        is_late_L = day * labels + np.arange(labels) >= change
        good_RL, bad_RL = population.confidence_M[drawn_RL], population.chance_at[temperature][drawn_RL]
        right_RL = rng.random((runs, labels)) < np.where(is_late_L, bad_RL, good_RL)
        paid_RBK = paid_2MK[right_RL.astype(int), drawn_RL].reshape(runs, labels // BLOCK, BLOCK, -1).sum(axis=2)
        for paid_RK in paid_RBK.swapaxes(0, 1):
            block += 1
            by_label_RK = EProcess.step(by_label_RK, paid_RK, block)
            log_e_R = EProcess.value(by_label_RK, table.log_weight_K, block)
            first["label"] = np.where(log_e_R >= limit, np.minimum(first["label"], block * BLOCK), first["label"])
        by_day_RK = PartitionEProcess.step(by_day_RK, paid_RBK.sum(axis=1), day + 1)
        log_e_R = PartitionEProcess.value(by_day_RK, table.log_weight_K, day + 1)
        first["day"] = np.where(log_e_R >= limit, np.minimum(first["day"], (day + 1) * labels), first["day"])
        if all(np.isfinite(one).mean() > 0.7 for one in first.values()):
            break
    found: dict[str, Any] = {}
    for name, after_R in first.items():
        median = float(np.median(after_R[after_R > change])) - change
        found[f"by_{name}_labels"] = median if np.isfinite(median) else None
        found[f"by_{name}_days"] = round(median / labels, 2) if np.isfinite(median) else None
        found[f"by_{name}_before"] = float((after_R <= change).mean())
    return found


def markdown(record: dict[str, Any]) -> str:
    """Return the tables of docs/explanation/results.md."""
    lines = ["| shape | labels a day | calibrated | edge of the tolerance | alternating |", "|---" * 5 + "|"]
    for shape in ("A", "C", "D"):
        for labels in LABELS_A_DAY:
            of = [one for one in record["false_alarms"] if (one["shape"], one["labels_a_day"]) == (shape, labels)]
            cells = [
                " / ".join(f"{max(one[null] for one in of if one['truth'] in truths):.1%}" for null in NULLS)
                for truths in (("calibrated",), ("below", "above"), ("alternating",))
            ]
            lines.append(f"| {shape} | {labels:,} | {' | '.join(cells)} |")
    lines += [
        "",
        "| shape | truth | labels a day | ece: by label, by day | point: by label, by day |",
        "|---" * 5 + "|",
    ]
    for shape in ("A", "C"):
        for temperature in TEMPERATURES:
            for labels in DELAYS_A_DAY:
                of = [
                    one
                    for one in record["delays"]
                    if (one["shape"], one["T"], one["labels_a_day"]) == (shape, temperature, labels)
                ]
                cells = [
                    f"{_days(one['by_label_days'])}, {_days(one['by_day_days'])}"
                    for null in NULLS
                    for one in of
                    if one["null"] == null
                ]
                lines.append(f"| {shape} | T = {temperature:g} | {labels:,} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _days(value: float | None) -> str:
    return "none" if value is None else f"{value:.1f}"


def main() -> None:
    parser = options_parser(__doc__, RESULT)
    parser.add_argument("--runs", type=int, default=400, help="years of each setting")
    parser.add_argument("--streams", type=int, default=60, help="streams of each setting with a change")
    options = parser.parse_args()
    if min(options.runs, options.streams) < 10:
        parser.error("--runs and --streams: allowed are 10 and more")
    started, result = time.perf_counter(), circumstances("numpy")
    record: dict[str, Any] = {"false_alarms": [], "delays": []}
    for shape in ("A", "C", "D"):
        population = Population.of(shape)
        for labels in LABELS_A_DAY:
            for truth in TRUTHS:
                one: dict[str, Any] = {"shape": shape, "labels_a_day": labels, "truth": truth, "runs": options.runs}
                one.update(false_alarms(population, truth, labels, options.runs))
                record["false_alarms"].append(one)
                print(f"{time.perf_counter() - started:4.0f} s {one}", file=sys.stderr, flush=True)
        if shape == "D":
            continue
        for temperature in TEMPERATURES:
            for labels in DELAYS_A_DAY:
                for null in NULLS:
                    setting = {"shape": shape, "T": temperature, "null": null, "labels_a_day": labels}
                    found = delays(population, temperature, null, labels, options.streams)
                    record["delays"].append(setting | {"streams": options.streams} | found)
                    print(f"{time.perf_counter() - started:4.0f} s {setting} {found}", file=sys.stderr, flush=True)
    result |= {"seconds": round(time.perf_counter() - started, 1), "alpha": ALPHA, "days": DAYS}
    highest = max(max(one[null] for null in NULLS) for one in record["false_alarms"])
    result["summary"] = {"highest": highest, "settings": len(record["false_alarms"]), "runs": options.runs}
    write(options.out, result | record)
    print(markdown(record))


if __name__ == "__main__":
    main()
