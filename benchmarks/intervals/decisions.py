"""Coverage of `trueodds.metrics.decision_cost`: the cost at the costs' threshold, and the saving by a better one.

    python -m benchmarks.intervals.decisions --runs 250        # about three minutes on one core

p(positive) = sigmoid(z), z normal with deviation 2 around 0 (half of the rows are positive), -3 (one in ten) or -6 (one
in seventy). It is served as sigmoid(z / T): calibrated, over-confident (T = 0.6) and under-confident (T = 1.6). A run
draws rows and their labels. The truths come from two million rows with probabilities in place of labels. If an error is
costly and rare, 300 rows hardly ever contain one. Limits that ask these rows for the best threshold then miss the
saving.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import numpy as np
from scipy.special import expit

from benchmarks.record import RESULTS, Run, options_parser, whole_from
from trueodds.metrics import CELLS, Costs, decision_cost

LEVEL, SEED, PROMISE = 0.95, 1, 0.93
ROWS = 2_000_000
CENTRES, TEMPERATURES, SIZES = (0.0, -3.0, -6.0), (1.0, 0.6, 1.6), (300, 2_000)
SHARES = {0.0: "half", -3.0: "one in ten", -6.0: "one in seventy"}
"""Shares of positive rows, by the centre of z."""
COSTS = (Costs(miss=10, alarm=1), Costs(miss=1, alarm=1), Costs(miss=50, alarm=1), Costs(miss=1, alarm=10))
RESULT = RESULTS / "decisions.json"


@dataclass
class Outcome:
    """Results of one setting, a row."""

    centre: float
    temperature: float
    miss: float
    alarm: float
    n: int
    runs: int
    cost: float
    saving: float
    """Cost at the costs' threshold minus the lowest cost."""
    cost_covered: float
    saving_covered: float
    mean_saving: float
    """Mean of the estimates."""
    mean_plug_in: float
    """Mean of cost - best_cost on the same rows."""
    cost_width: float
    saving_width: float


def truths(centre: float, temperature: float, costs: Costs) -> tuple[float, float]:
    """Return the expected cost at the costs' threshold, and the saving by the best threshold."""
    z_N = np.sort(np.random.default_rng(SEED).normal(centre, 2, ROWS))
    q_N = expit(z_N)
    missed_N, alarmed_N = np.cumsum(q_N), np.cumsum(1 - q_N)
    cost_N = (costs.miss * missed_N + costs.alarm * (alarmed_N[-1] - alarmed_N)) / ROWS
    cost_N = np.concatenate([[costs.alarm * alarmed_N[-1] / ROWS], cost_N])  # first: an alert at every row
    below = np.searchsorted(expit(z_N / temperature), round(costs.threshold * CELLS) / CELLS, side="right")
    return float(cost_N[below]), float(cost_N[below] - cost_N.min())


def measure(centre: float, temperature: float, costs: Costs, n: int, runs: int) -> Outcome:
    """Return coverage over `runs` samples."""
    rng = np.random.default_rng([SEED, n, int(10 * temperature), int(costs.miss), int(costs.alarm), int(-centre)])
    cost, saving = truths(centre, temperature, costs)
    rows = []
    for _ in range(runs):
        z_N = rng.normal(centre, 2, n)
        one = decision_cost(expit(z_N / temperature), rng.random(n) < expit(z_N), costs, level=LEVEL)
        covered = one.lower <= cost <= one.upper, one.saving_lower <= saving <= one.saving_upper
        rows.append(
            (*covered, one.saving, one.cost - one.best_cost, one.upper - one.lower, one.saving_upper - one.saving_lower)
        )
    return Outcome(centre, temperature, costs.miss, costs.alarm, n, runs, cost, saving, *np.mean(rows, axis=0).tolist())


def summary(outcomes: list[Outcome]) -> dict[str, Any]:
    """Return the lowest coverages, and the bias of the estimate and of the plug-in."""
    calibrated = [o for o in outcomes if o.temperature == 1]
    lowest = {name: min(getattr(o, name) for o in outcomes) for name in ("cost_covered", "saving_covered")}
    return {
        "settings": len(outcomes),
        "lowest_of_cost": lowest["cost_covered"],
        "lowest_of_saving": lowest["saving_covered"],
        "standard_error": float(np.sqrt(LEVEL * (1 - LEVEL) / outcomes[0].runs)),
        "lowest_of_saving_at_300": min(o.saving_covered for o in outcomes if o.n == 300),
        "widest_saving": max(o.saving_width / o.cost for o in outcomes if o.n == 300),
        "settings_at_93_percent": float(np.mean([min(o.cost_covered, o.saving_covered) >= PROMISE for o in outcomes])),
        "calibrated_saving": max(o.mean_saving / o.cost for o in calibrated),
        "calibrated_plug_in": max(o.mean_plug_in / o.cost for o in calibrated),
    }


def markdown(result: dict[str, Any]) -> str:
    """Return the table of docs/explanation/results.md."""
    lines = ["| rows | positive | T | miss : alarm | cost | covered | saving | estimated | plug-in | covered |"]
    lines.append("|---" * 10 + "|")
    for o in (Outcome(**setting) for setting in result["settings"]):
        share = SHARES[o.centre]
        lines.append(
            f"| {o.n:,} | {share} | {o.temperature:g} | {o.miss:g} : {o.alarm:g} |"
            f" {o.cost:.3f} | {o.cost_covered:.1%} |"
            f" {o.saving:.4f} | {o.mean_saving:.4f} | {o.mean_plug_in:.4f} | {o.saving_covered:.1%} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = options_parser(__doc__, RESULT)
    parser.add_argument("--runs", type=whole_from(1), default=250, help="samples per setting")
    options = parser.parse_args()
    run, outcomes = Run(), list[Outcome]()
    for n, centre, temperature, costs in product(SIZES, CENTRES, TEMPERATURES, COSTS):
        outcomes.append(o := measure(centre, temperature, costs, n, options.runs))
        words = f"{n:6} rows, z about {centre:4}, T = {temperature}, miss {costs.miss:4}, alarm {costs.alarm:4}"
        run.say(f"{words}: cost covered {o.cost_covered:.3f}, saving {o.saving_covered:.3f}")
    run.finish(options.out, markdown, level=LEVEL, summary=summary(outcomes), settings=[asdict(o) for o in outcomes])


if __name__ == "__main__":
    main()
