"""Probabilities in steps of .01: what rounding costs, and whether ties and piles break intervals, floors and the alarm.

    python -m benchmarks.evidence.rounding --records FOLDER        # about four minutes on one core

FOLDER holds test records of nets: .npz files with `predictions` (probabilities N x C) and `ground_truth`. Each is
rounded, and scored and fitted on one half of the rows, with the other half to measure. Exact values do the same.

The tables of ties have a third of their answers at a confidence of exactly .95. The others are spread. All are given to
two decimals. Each answer is right with its unrounded confidence, or the pile alone is right less often.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import trueodds
from benchmarks.record import RESULTS, Run, circumstances, options_parser
from benchmarks.streams import Pool, first_alarms
from trueodds.calibrators.fitting.rounded import Rounded
from trueodds.metrics import CalibrationSums, calibration_test, cell_of, ece, ece_interval, ks_test, noise_floor
from trueodds.processes.choices import Binning
from trueodds.sums.losses import rounded_losses
from trueodds.sums.rounding import Resolution

Array = npt.NDArray[np.float64]

STEP, LEVEL, PILE, POOL = 0.01, 0.95, 0.95, 90_000
SIZES = (300, 3_000)
SPREADS = {"sharp": (8.0, 1.0), "dull": (6.0, 5.0), "two-sided": (0.5, 0.5)}
"""Beta distributions of the confidences beside the pile."""
PILES = {"calibrated": 0.95, "pile off by .05": 0.90, "pile off by .15": 0.80}
"""Probability that an answer of the pile is right."""
RESULT = RESULTS / "rounding.json"


@dataclass
class Record:
    """One record, exact and rounded; means over the splits."""

    record: str
    rows: int
    classes: int
    zeros: int
    """Rows whose true class is rounded to 0."""
    nll: float
    nll_rounded: float
    nll_at_least: float
    nll_zeros_as_they_are: float
    temperature: float
    temperature_rounded: float
    ece_temperature: float
    ece_temperature_rounded: float
    ece_select: float
    ece_select_rounded: float


@dataclass
class Ties:
    """Shares of the runs of one population with a pile."""

    spread: str
    truth: str
    n: int
    runs: int
    covered_width: float
    """The ECE interval of bins of equal width contains the population's ECE in these bins."""
    covered_mass: float
    """The same for bins of equal count; NaN if the truth is not calibrated, because the bins depend on the sample."""
    above_floor_width: float
    above_floor_mass: float
    test_width: float
    """Share with p <= .05 of the test of calibration."""
    test_mass: float
    ks: float


@dataclass
class Alarms:
    spread: str
    truth: str
    streams: int
    labels: int
    alarmed: float


def of_record(path: Path, splits: int, seed: int) -> Record:
    with np.load(path) as arrays:
        p_NC, label_N = arrays["predictions"].astype(np.float64), arrays["ground_truth"].astype(np.intp)
    p_NC = np.maximum(p_NC / p_NC.sum(axis=1, keepdims=True), 1e-38)
    rounded_NC, row_N = np.rint(p_NC / STEP) * STEP, np.arange(len(p_NC))
    losses = rounded_losses(rounded_NC, label_N, STEP)
    logits = {"exact": np.log(p_NC), "rounded": trueodds.logits_of(rounded_NC, resolution=STEP)}
    found: dict[str, list[float]] = {}
    for split in range(splits):
        fit_N = np.random.default_rng([seed, split]).permutation(len(p_NC)) < len(p_NC) // 2
        for name, z_NC in logits.items():
            resolution = STEP if name == "rounded" else None
            for method in ("temperature", "select"):
                own = trueodds.fit(z_NC[fit_N], label_N[fit_N], method, resolution=resolution)
                found.setdefault(f"{method} {name}", []).append(ece(own(z_NC[~fit_N]), label_N[~fit_N]))
                inner = own.calibrator if isinstance(own, Rounded) else own
                if isinstance(inner, trueodds.calibrators.Temperature) and method == "temperature":
                    found.setdefault(f"T {name}", []).append(inner.temperature)
    mean = {name: float(np.mean(values)) for name, values in found.items()}
    true_N = rounded_NC[row_N, label_N]
    return Record(
        record=path.stem,
        rows=len(p_NC),
        classes=p_NC.shape[1],
        zeros=int((true_N < STEP / 2).sum()),
        nll=float(-np.log(p_NC[row_N, label_N]).mean()),
        nll_rounded=float(losses.nll_N.mean()),
        nll_at_least=float(losses.least_N.mean()),
        nll_zeros_as_they_are=float(-np.log(np.maximum(true_N, np.finfo(float).tiny)).mean()),
        temperature=mean["T exact"],
        temperature_rounded=mean["T rounded"],
        ece_temperature=mean["temperature exact"],
        ece_temperature_rounded=mean["temperature rounded"],
        ece_select=mean["select exact"],
        ece_select_rounded=mean["select rounded"],
    )


def population(spread: str, truth: str, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return confidences in steps of .01, and the probability of each answer to be right."""
    exact_M = rng.beta(*SPREADS[spread], POOL)
    pile_M = np.arange(POOL) < POOL // 3
    confidence_M = Resolution(STEP).confidence(np.where(pile_M, PILE, np.rint(exact_M / STEP) * STEP))
    return confidence_M, np.where(pile_M, PILES[truth], exact_M)


def population_ece(confidence_M: Array, chance_M: Array, bins: int = 15) -> float:
    bin_M = np.maximum(np.ceil(cell_of(confidence_M) + 1.0) * bins / 3_000, 0)
    gap_B = np.bincount(np.ceil(bin_M).astype(np.intp), chance_M - confidence_M)
    return float(np.abs(gap_B).sum() / len(confidence_M))


def of_ties(spread: str, truth: str, n: int, runs: int, seed: int) -> Ties:
    rng = np.random.default_rng([seed, n, *f"{spread}{truth}".encode()])
    confidence_M, chance_M = population(spread, truth, rng)
    true = population_ece(confidence_M, chance_M)
    counts = np.zeros(7)
    for _ in range(runs):
        row_N = rng.integers(0, POOL, n)
        sums = CalibrationSums.from_top(confidence_M[row_N], rng.random(n) < chance_M[row_N])
        inside, above, rejected = list[bool](), list[bool](), list[bool]()
        kinds: tuple[Binning, ...] = ("width", "mass")
        for binning in kinds:
            interval = ece_interval(sums, binning=binning, level=LEVEL)
            known = 0.0 if binning == "mass" else true
            inside.append(interval.lower - 1e-3 <= known <= interval.upper)  # rounding alone moves the ECE by < 1e-3
            above.append(interval.ece > noise_floor(sums, binning=binning).p95)
            rejected.append(calibration_test(sums, binning=binning).p_value <= 1 - LEVEL)
        counts += (*inside, *above, *rejected, ks_test(sums).p_value <= 1 - LEVEL)
    shares = (counts / runs).tolist()
    if truth != "calibrated":
        shares[1] = float("nan")
    return Ties(spread, truth, n, runs, *shares)


def of_alarm(spread: str, truth: str, streams: int, labels: int, seed: int) -> Alarms:
    confidence_M, chance_M = population(spread, truth, np.random.default_rng([seed, 2]))
    rows = Pool(spread, confidence_M, cell_of(confidence_M), {truth: chance_M, "calibrated": chance_M})
    at_S = first_alarms(rows, truth, "ece", 20, streams, labels, 0, seed)["starts"]
    return Alarms(spread, truth, streams, labels, float(np.isfinite(at_S).mean()))


def markdown(found: dict[str, Any]) -> str:
    """Return the table of the records and the table of ties."""
    lines = [
        "| record | NLL exact, rounded, at least, zeros as they are | T exact, rounded | ECE by temperature, exact and"
        " rounded | ECE by `select`, exact and rounded |",
        "|---|---|---|---|---|",
    ]
    for one in found["records"]:
        nll = f"{one['nll']:.3f}, {one['nll_rounded']:.3f}, {one['nll_at_least']:.3f}"
        eces = [f"{one[f'ece_{m}']:.4f}, {one[f'ece_{m}_rounded']:.4f}" for m in ("temperature", "select")]
        own = (
            f"{nll}, {one['nll_zeros_as_they_are']:.1f}",
            f"{one['temperature']:.3f}, {one['temperature_rounded']:.3f}",
        )
        lines.append(f"| {one['record']} | {' | '.join((*own, *eces))} |")
    lines += [
        "",
        "| truth, a third of the answers at .95 | ECE interval covers | ECE above its noise floor | test of calibration"
        " rejects | alarm within the stream |",
        "|---|---|---|---|---|",
    ]
    for truth in PILES:
        rows = [one for one in found["ties"] if one["truth"] == truth]
        cells = tuple(
            f"{min(one[name] for one in rows):.1%} .. {max(one[name] for one in rows):.1%}"
            for name in ("covered_width", "above_floor_width", "test_width")
        )
        alarmed = [one["alarmed"] for one in found["alarms"] if one["truth"] == truth]
        lines.append(f"| {truth} | {' | '.join(cells)} | {min(alarmed):.1%} .. {max(alarmed):.1%} |")
    return "\n".join(lines)


def summary_of(records: list[Record], ties: list[Ties], alarms: list[Alarms]) -> dict[str, Any]:
    calm = [one for one in ties if one.truth == "calibrated"]
    summary: dict[str, Any] = {
        "lowest_coverage": min(one.covered_width for one in ties),
        "highest_size_of_test": max(max(one.test_width, one.test_mass) for one in calm),
        "highest_above_floor": max(max(one.above_floor_width, one.above_floor_mass) for one in calm),
        "highest_size_of_ks": max(one.ks for one in calm),
        "highest_false_alarms": max(one.alarmed for one in alarms if one.truth == "calibrated"),
        "lowest_found": min(one.alarmed for one in alarms if one.truth == "pile off by .15"),
    }
    if records:
        summary |= {
            "records": len(records),
            "largest_nll_difference": max(abs(one.nll_rounded - one.nll) for one in records),
            "largest_temperature_difference": max(abs(one.temperature_rounded - one.temperature) for one in records),
            "largest_ece_loss_temperature": max(one.ece_temperature_rounded - one.ece_temperature for one in records),
            "largest_ece_loss_select": max(one.ece_select_rounded - one.ece_select for one in records),
            "largest_nll_zeros_as_they_are": max(one.nll_zeros_as_they_are for one in records),
        }
    return summary


def main() -> None:
    parser = options_parser(__doc__, RESULT)
    parser.add_argument("--records", type=Path, metavar="FOLDER", help="test records of nets (default: none)")
    parser.add_argument("--runs", type=int, default=300, help="per population of ties and number of answers")
    parser.add_argument("--streams", type=int, default=100, help="per population, for the alarm")
    parser.add_argument("--splits", type=int, default=4, help="per record")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    run = Run()
    records, ties, alarms = list[Record](), list[Ties](), list[Alarms]()
    for path in sorted(options.records.glob("*.npz")) if options.records else []:
        records.append(of_record(path, options.splits, options.seed))
        run.say(*asdict(records[-1]).values())
    for spread in SPREADS:
        for truth in PILES:
            for n in SIZES:
                ties.append(of_ties(spread, truth, n, options.runs, options.seed))
                run.say(*asdict(ties[-1]).values())
            alarms.append(of_alarm(spread, truth, options.streams, 20_000, options.seed))
            run.say(*asdict(alarms[-1]).values())
    run.finish(
        options.out,
        markdown,
        command=circumstances()["command"].replace(str(options.records), "FOLDER"),
        step=STEP,
        level=LEVEL,
        summary=summary_of(records, ties, alarms),
        records=[asdict(one) for one in records],
        ties=[{k: None if v != v else v for k, v in asdict(one).items()} for one in ties],
        alarms=[asdict(one) for one in alarms],
    )


if __name__ == "__main__":
    main()
