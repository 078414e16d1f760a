"""Test of the difference of two calibrated models' ECE by the bootstrap of rows, which studies do not use, and of NLL.

    python -m benchmarks.ece_differences        # a minute on one core

Both models are calibrated: the top label is right with its confidence, which is uniform from a lower end to 1. So both
have an ECE of 0, and each time that a test at 5% calls them different it is wrong. The bootstrap draws rows, the same
for both models, and takes the difference of the plug-in ECEs over its standard deviation for normal. Beside it stands
the test of `pipeline.studies.chance.of_rows` on the difference in NLL of two models with the same distribution of
confidences, whose expected difference is 0.
"""

from __future__ import annotations

import argparse
import json
import platform
import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from benchmarks.interval_coverage import processor
from pipeline.studies.chance import of_rows

Array = npt.NDArray[np.float64]

RESULT = Path(__file__).parent / "results" / "ece-differences.json"
PAIRS = ((0.8, 0.4), (0.9, 0.4), (0.95, 0.4), (0.95, 0.3), (0.97, 0.3))
"""Lower ends of the confidences of the two models."""
SIZES = (1_000, 4_000)
BINS, RESAMPLES, LEVEL = 15, 100, 0.05


def drawn(lowest: float, n: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Confidences, and 1 where the top label is right."""
    confidence_N = rng.uniform(lowest, 1, n)
    return confidence_N, (rng.random(n) < confidence_N).astype(np.float64)


def bootstrap_z(one: tuple[Array, Array], other: tuple[Array, Array], rng: np.random.Generator) -> float:
    """Difference of the plug-in ECEs in units of its bootstrap standard deviation."""
    n = len(one[0])
    gap_N2B = np.zeros((n, 2 * BINS))
    for k, (confidence_N, hit_N) in enumerate((one, other)):
        bin_N = np.clip(np.ceil(confidence_N * BINS).astype(int) - 1, 0, BINS - 1)
        gap_N2B[np.arange(n), k * BINS + bin_N] = confidence_N - hit_N

    def differences(weights_RN: Array) -> Array:
        eces_R2 = np.abs((weights_RN @ gap_N2B).reshape(-1, 2, BINS)).sum(axis=2) / n
        found: Array = eces_R2[:, 0] - eces_R2[:, 1]
        return found

    weights_RN = rng.multinomial(n, np.full(n, 1 / n), size=RESAMPLES).astype(np.float64)
    return float(differences(np.ones((1, n)))[0] / differences(weights_RN).std(ddof=1))


def nll(model: tuple[Array, Array]) -> Array:
    """-ln of the probability of what came true, of the top label alone."""
    confidence_N, hit_N = model
    return -np.log(np.where(hit_N > 0, confidence_N, 1 - confidence_N))


def measure(pair: tuple[float, float], n: int, runs: int, seed: int) -> dict[str, Any]:
    """Shares of runs in which each test calls two models different."""
    rng, limit = np.random.default_rng([seed, n, *(round(100 * low) for low in pair)]), float(ndtri(1 - LEVEL / 2))
    called = np.zeros(2)
    for _ in range(runs):
        one, other = (drawn(low, n, rng) for low in pair)
        twin = drawn(pair[0], n, rng)
        p_value = of_rows((nll(one) - nll(twin))[None]).p_value
        assert p_value is not None
        called += abs(bootstrap_z(one, other, rng)) > limit, p_value <= LEVEL
    return {"pair": list(pair), "n": n, "runs": runs, "ece": called[0] / runs, "nll": called[1] / runs}


def markdown(found: dict[str, Any]) -> str:
    """Table for docs/results.md."""
    lines = ["| confidences of the two models | rows | bootstrap of the ECE's difference | NLL's difference |"]
    lines.append("|---|---:|---:|---:|")
    for row in found["settings"]:
        one, other = row["pair"]
        lines.append(f"| {one} to 1, {other} to 1 | {row['n']:,} | {row['ece']:.0%} | {row['nll']:.1%} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    settings = [measure(pair, n, options.runs, options.seed) for pair in PAIRS for n in SIZES]
    record = {
        "command": shlex.join(["python", "-m", "benchmarks.ece_differences", *sys.argv[1:]]),
        "versions": {"python": platform.python_version(), "numpy": np.__version__},
        "processor": processor(),
        "settings": settings,
    }
    RESULT.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(markdown(record))


if __name__ == "__main__":
    main()
