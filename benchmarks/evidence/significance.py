"""Size and power of `trueodds.metrics.calibration_test` at 5%, compared with the usual tests.

    python -m benchmarks.evidence.significance        # about five minutes on one core

Shapes A to D are those of benchmarks/shapes.py. The other tests are a chi-square over the 15 occupied bins, and the
plug-in ECE against its noise floor's 95th percentile.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import chdtrc

from benchmarks.record import RESULTS, Run, options_parser, whole_from
from benchmarks.shapes import chance_at, pool_logits
from trueodds.metrics import CalibrationSums, calibration_test, ece, noise_floor

Array = npt.NDArray[np.float64]

POOL, LEVEL = 100_000, 0.05
SIZES = (50, 500, 5_000, 50_000)
RESULT = RESULTS / "significance.json"


@dataclass
class Rejected:
    """Share of runs with p <= .05. For a calibrated model this is the size."""

    shape: str
    truth: str
    n: int
    runs: int
    test: float
    chi_square: float
    plug_in: float


def chances(logits_NC: Array, confidence_N: Array) -> dict[str, Array]:
    """Return the probability of being right, by name of the truth."""
    bin_N = np.ceil(confidence_N * 15)
    return {
        "calibrated": confidence_N,
        "T = 1.1": chance_at(logits_NC, 1.1),
        "T = 1.25": chance_at(logits_NC, 1.25),
        "local": confidence_N - 0.1 * ((confidence_N > 0.5) & (confidence_N <= 0.8)),
        "alternating .03": np.clip(confidence_N + np.where(bin_N % 2, 0.03, -0.03), 0, 1),
        "last bin .01": confidence_N - 0.01 * (bin_N == 15),
    }


def measure(shape: str, truth: str, confidence_M: Array, chance_M: Array, n: int, runs: int, seed: int) -> Rejected:
    rng = np.random.default_rng([seed, n, *f"{shape}{truth}".encode()])
    rejected = np.zeros(3)
    for _ in range(runs):
        row_N = rng.integers(0, len(confidence_M), n)
        sums = CalibrationSums.from_top(confidence_M[row_N], rng.random(n) < chance_M[row_N])
        table = sums.bins(15)
        known = table.variance_B > 0
        chi_square = float((table.gap_B[known] ** 2 / table.variance_B[known]).sum())
        rejected += (
            calibration_test(sums).p_value <= LEVEL,
            chdtrc(known.sum(), chi_square) <= LEVEL,
            ece(sums) > noise_floor(sums).p95,
        )
    return Rejected(shape, truth, n, runs, *(rejected / runs).tolist())


def markdown(found: dict[str, Any]) -> str:
    """Return a table of rejection rates at 5%; calibrated models as a range, others on average."""
    lines = ["| truth | `calibration_test` | chi-square over bins | ECE above its noise floor |", "|---|---|---|---|"]
    for truth in dict.fromkeys(row["truth"] for row in found["settings"]):
        rows, cells = [row for row in found["settings"] if row["truth"] == truth], []
        for test in ("test", "chi_square", "plug_in"):
            shares = [row[test] for row in rows]
            low_high, mean = f"{min(shares):.1%} .. {max(shares):.1%}", f"{sum(shares) / len(shares):.0%}"
            cells.append(low_high if truth == "calibrated" else mean)
        lines.append(f"| {truth} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = options_parser(__doc__, RESULT)
    parser.add_argument(
        "--runs", type=whole_from(5), default=1000, help="per calibrated setting; a fifth for the others"
    )
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    run = Run()
    outcomes = []
    for shape in "ABCD":
        logits_NC = pool_logits(shape, POOL, seed=13)
        confidence = chance_at(logits_NC, 1.0)
        for truth, chance in chances(logits_NC, confidence).items():
            runs = options.runs if truth == "calibrated" else options.runs // 5
            for n in SIZES if truth == "calibrated" else SIZES[1:3]:
                outcomes.append(measure(shape, truth, confidence, chance, n, runs, options.seed))
                run.say(*asdict(outcomes[-1]).values())
    sizes = [o.test for o in outcomes if o.truth == "calibrated"]
    run.finish(
        options.out,
        markdown,
        summary={
            "lowest_size": min(sizes),
            "highest_size": max(sizes),
            "mean_power": {
                name: float(np.mean([getattr(o, name) for o in outcomes if o.truth != "calibrated"]))
                for name in ("test", "chi_square", "plug_in")
            },
        },
        settings=[asdict(o) for o in outcomes],
    )


if __name__ == "__main__":
    main()
