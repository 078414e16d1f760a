"""Independent labels: coverage of pooled intervals, marks of calibrated labels, and what shrinkage gains.

    python -m benchmarks.intervals.multilabel        # about twelve minutes on one core

Rows have 2, 20 or 200 labels, common or rare (mean logit -1 or -4, different for each label). Their truths are
`independent`, `together` (one normal score of the row decides 60% of each), or `exclusive` (one true label a row, drawn
from a softmax). The probabilities are `calibrated`, or `too high` (the log-odds by .5; exclusive ones 1.5 times as
sharp). In calibrated settings 40% of the truths are unknown; in `uneven` ones all truths of every tenth row are known,
and 3% of the others. An interval covers if it holds the value of the true
probabilities at the same pairs, in the same bins. `pairs` is the interval that takes pairs as independent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import expit, ndtr

from benchmarks.markdown import table
from benchmarks.record import RESULTS, Run, options_parser, whole_from
from trueodds import metrics
from trueodds.calibrators.affine.label_platt import MultilabelPlatt
from trueodds.errors import UserError
from trueodds.metrics.intervals import clustered
from trueodds.metrics.ranked import whole_bins
from trueodds.metrics.significance.at_least import FAMILY_RATE, holm
from trueodds.metrics.significance.expected_calibration_error import ece_test
from trueodds.reports.table.multilabel_rows import MultilabelRows
from trueodds.sums.positive import PositiveClass

SEED, LEVEL, KNOWN = 45, 0.95, 0.6
UNEVEN_ROWS, UNEVEN_KNOWN = 0.1, 0.03
"""Share of the rows whose truths are all known, and the share of known truths in the others, in uneven settings."""
UNEVEN = ((300, 20), (1_000, 20), (300, 200))
SIZES = ((50, 2), (300, 2), (50, 20), (300, 20), (100, 200))
BASES = {"common": -1.0, "rare": -4.0}
FAMILIES = ((300, 2, "common"), (300, 2, "rare"), (300, 20, "common"), (300, 20, "rare"), (300, 200, "rare"))
FITS = ((100, 20, 0.3), (1_000, 20, 0.3), (100, 200, 0.3), (300, 200, 0.3), (100, 20, 0.0), (300, 2, 0.3))
RESULT = RESULTS / "multilabel.json"

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Draw:
    """Probabilities of the model, true probabilities, and truths, with NaN for those that are not known."""

    p_NL: Array
    true_NL: Array
    truth_NL: Array


def draw(
    rng: np.random.Generator, rows: int, labels: int, base: float, how: str, calibrated: bool, *, uneven: bool = False
) -> Draw:
    """Draw a table. `uneven` knows very different numbers of truths in different rows."""
    z_NL = rng.normal(base, 1.0, labels) + rng.normal(0, 1.2, (rows, labels))
    if how == "exclusive":
        true_NL, p_NL = metrics.softmax(z_NL), metrics.softmax(z_NL * (1.0 if calibrated else 1.5))
        chosen_N = (true_NL.cumsum(axis=1) > rng.random((rows, 1))).argmax(axis=1)
        truth_NL = np.eye(labels)[chosen_N]
    else:
        p_NL, true_NL = expit(z_NL), expit(z_NL - (0.0 if calibrated else 0.5))
        same = 0.6 if how == "together" else 0.0
        score_NL = np.sqrt(same) * rng.normal(size=(rows, 1)) + np.sqrt(1 - same) * rng.normal(size=(rows, labels))
        truth_NL = (ndtr(score_NL) < true_NL).astype(np.float64)
    if uneven:
        known_N1 = np.where(rng.random((rows, 1)) < UNEVEN_ROWS, 1.0, UNEVEN_KNOWN)
        truth_NL = np.where(rng.random(truth_NL.shape) < known_N1, truth_NL, np.nan)
    elif calibrated:
        truth_NL = np.where(rng.random(truth_NL.shape) < KNOWN, truth_NL, np.nan)
    return Draw(p_NL, true_NL, truth_NL)


def coverage(
    rows: int, labels: int, base: str, how: str, calibrated: bool, runs: int, *, uneven: bool = False
) -> dict[str, Any]:
    """Return the share of intervals that cover, their mean width, and the exceeded floors of calibrated pairs."""
    rng = np.random.default_rng([SEED, rows, labels, int(calibrated), *f"{base}{how}{'uneven' * uneven}".encode()])
    holds = dict.fromkeys(("ece", "pairs", "gap", "nll", "brier"), 0)
    width, above, effect = 0.0, 0, 0.0
    for _ in range(runs):
        drawn = draw(rng, rows, labels, BASES[base], how, calibrated, uneven=uneven)
        known_NL = ~np.isnan(drawn.truth_NL)
        if not known_NL.any():
            continue
        of_rows = MultilabelRows(drawn.p_NL, drawn.truth_NL, tuple(map(str, range(labels))))
        pairs, sums, true_M = of_rows.pairs, of_rows.pooled_sums(), drawn.true_NL[known_NL]
        found = clustered.clustered_ece(sums, pairs, level=LEVEL)
        bins = whole_bins(sums, 15, "mass")
        bin_M = clustered.bins_of_pairs(bins.hi_B, pairs.p_M)
        gap_B = np.bincount(bin_M, true_M - pairs.p_M, len(bins.count_B))
        truth = float(np.abs(gap_B).sum()) / len(true_M)
        naive = metrics.ece_interval(sums, binning="mass", level=LEVEL)
        gap = clustered.clustered_gap(pairs, LEVEL)
        holds["ece"] += found.interval.lower <= truth + 1e-12 and truth <= found.interval.upper + 1e-12
        holds["pairs"] += naive.lower <= truth + 1e-12 and truth <= naive.upper + 1e-12
        holds["gap"] += gap.lower <= (true_M - pairs.p_M).mean() <= gap.upper
        for name, most in (("nll", np.inf), ("brier", 1.0)):
            if_true_M, if_false_M = losses(name, pairs.p_M, True), losses(name, pairs.p_M, False)
            loss_M = np.where(pairs.hit_M, if_true_M, if_false_M)
            if_wrong_M = np.where(pairs.p_M > 0.5, if_false_M, if_true_M)
            score = clustered.clustered_score(pairs, loss_M, if_wrong_M, float(most), LEVEL)
            holds[name] += score.lower <= (true_M * if_true_M + (1 - true_M) * if_false_M).mean() <= score.upper
        width += (found.interval.upper - found.interval.lower) / runs
        above += found.interval.ece > found.floor.p95
        effect += clustered.design_effect(pairs) / runs
    setting: dict[str, Any] = {"rows": rows, "labels": labels, "rate": base, "truths": how, "calibrated": calibrated}
    if uneven:
        setting["known"] = "uneven"
    shares = {name: count / runs for name, count in holds.items()}
    return {**setting, **shares, "width": width, "above_floor": above / runs if calibrated else None, "effect": effect}


def losses(name: str, p_M: Array, truth: bool) -> Array:
    """Return the score of each pair if its label is true, or if it is false."""
    right_M = p_M if truth else 1 - p_M
    score_M: Array = -np.log(right_M) if name == "nll" else (1 - right_M) ** 2
    return score_M


def family(rows: int, labels: int, base: str, how: str, tables: int) -> dict[str, Any]:
    """Return the share of tables of calibrated labels with a mark, and the share of labels found that are off."""
    rng = np.random.default_rng([SEED, 1, rows, labels, *f"{base}{how}".encode()])
    marked, uncorrected, power = 0, 0.0, 0.0
    for _ in range(tables):
        sound = draw(rng, rows, labels, BASES[base], how, calibrated=True)
        p_values = p_values_of(sound)
        marked += any(holm(p_values, FAMILY_RATE))
        uncorrected += any(p <= FAMILY_RATE for p in p_values)
        of_fifth = draw(rng, rows, labels, BASES[base], how, calibrated=False)
        off = max(labels // 10, 1)  # the last labels are off, the others are calibrated
        mixed = Draw(
            *(np.hstack([a[:, :-off], b[:, -off:]]) for a, b in zip(parts(sound), parts(of_fifth), strict=True))
        )
        power += float(np.mean(holm(p_values_of(mixed), FAMILY_RATE)[-off:]))
    setting = {"rows": rows, "labels": labels, "rate": base, "truths": how}
    return {**setting, "marked": marked / tables, "uncorrected": uncorrected / tables, "found": power / tables}


def parts(drawn: Draw) -> tuple[Array, Array, Array]:
    """Return the arrays of a draw."""
    return drawn.p_NL, drawn.true_NL, drawn.truth_NL


def p_values_of(drawn: Draw) -> list[float]:
    """Return the p-value of each label with a known truth, as the report tests it."""
    found = []
    for p_N, truth_N in zip(drawn.p_NL.T, drawn.truth_NL.T, strict=True):
        if (known_N := ~np.isnan(truth_N)).any():
            sums = PositiveClass.sums_of(p_N[known_N], truth_N[known_N] == 1)
            found.append(ece_test(sums, binning="mass").p_value)
    return found


def fits(rows: int, labels: int, spread: float, draws: int) -> dict[str, Any]:
    """Return the mean excess of the log loss over that of the true probabilities, in millinats a pair."""
    rng = np.random.default_rng([SEED, 2, rows, labels, int(100 * spread)])
    excess = dict.fromkeys(("raw", "shared", "each", "shrunk"), 0.0)
    for _ in range(draws):
        slope_L, offset_L = np.exp(rng.normal(-0.5, spread, labels)), rng.normal(0, 2 * spread, labels)
        centre_L = rng.normal(-2.5, 1.5, labels)
        (z_NL, _, truth_NL), (fresh_NL, true_NL, _) = (
            _rows(rng, n, slope_L, offset_L, centre_L) for n in (rows, 2_000)
        )
        each_NL = np.empty_like(fresh_NL)
        for label in range(labels):
            try:
                of_label = MultilabelPlatt.fit(z_NL[:, [label]], truth_NL[:, [label]])
                each_NL[:, label] = of_label(fresh_NL[:, [label]])[:, 0]
            except UserError:  # one kind of truth only: the label keeps its probabilities
                each_NL[:, label] = expit(fresh_NL[:, label])
        of_all = MultilabelPlatt.fit(z_NL.reshape(-1, 1), truth_NL.reshape(-1, 1))
        found = {
            "raw": expit(fresh_NL),
            "shared": of_all(fresh_NL.reshape(-1, 1)).reshape(fresh_NL.shape),
            "each": each_NL,
            "shrunk": MultilabelPlatt.fit(z_NL, truth_NL)(fresh_NL),
        }
        least = _expected_nll(true_NL, true_NL)
        for name, p_NL in found.items():
            excess[name] += 1e3 * (_expected_nll(true_NL, p_NL) - least) / draws
    return {"rows": rows, "labels": labels, "spread": spread, **excess}


def _rows(
    rng: np.random.Generator, n: int, slope_L: Array, offset_L: Array, centre_L: Array
) -> tuple[Array, Array, Array]:
    z_NL = centre_L + rng.normal(0, 2, (n, len(slope_L)))
    true_NL: Array = expit(slope_L * z_NL + offset_L)
    return z_NL, true_NL, (rng.random(true_NL.shape) < true_NL).astype(np.float64)


def _expected_nll(true_NL: Array, p_NL: Array) -> float:
    p_NL = np.clip(p_NL, 1e-12, 1 - 1e-12)
    return float(-(true_NL * np.log(p_NL) + (1 - true_NL) * np.log1p(-p_NL)).mean())


def markdown(record: dict[str, Any]) -> str:
    """Return the tables of docs/explanation/results.md."""
    head = ("rows", "labels", "truths", "ECE covers", "gap", "log loss", "Brier", "as pairs", "above the floor")
    lines = []
    for rows, labels in SIZES:
        for how in ("independent", "together", "exclusive"):
            of_size = [one for one in record["coverage"] if (one["rows"], one["labels"]) == (rows, labels)]
            some = [one for one in of_size if one["truths"] == how]
            least = [f"{min(one[name] for one in some):.1%}" for name in ("ece", "gap", "nll", "brier", "pairs")]
            above = max(one["above_floor"] for one in some if one["calibrated"])
            lines.append((f"{rows:,}", f"{labels:,}", how, *least, f"{above:.1%}"))
    for one in record["uneven"]:
        values = [f"{one[name]:.1%}" for name in ("ece", "gap", "nll", "brier", "pairs", "above_floor")]
        about = f"{one['truths']}, {one['rate']}, known unevenly"
        lines.append((f"{one['rows']:,}", f"{one['labels']:,}", about, *values))
    tables = [table(head, lines)]
    of_families = ("rows", "labels", "rate", "truths", "tables with a mark", "without correction", "off labels found")
    tables.append(
        table(
            of_families,
            [
                (
                    f"{one['rows']:,}",
                    f"{one['labels']:,}",
                    one["rate"],
                    one["truths"],
                    f"{one['marked']:.1%}",
                    f"{one['uncorrected']:.1%}",
                    f"{one['found']:.0%}",
                )
                for one in record["families"]
            ],
        )
    )
    of_fits = ("rows", "labels", "spread of slopes", "no calibration", "one curve", "a curve each", "shrunk")
    names = ("raw", "shared", "each", "shrunk")
    tables.append(
        table(
            of_fits,
            [
                (
                    f"{one['rows']:,}",
                    f"{one['labels']:,}",
                    f"{one['spread']:g}",
                    *(f"{one[name]:.1f}" for name in names),
                )
                for one in record["fits"]
            ],
        )
    )
    return "\n\n".join(tables)


def main() -> None:
    parser = options_parser(__doc__, RESULT)
    parser.add_argument("--runs", type=whole_from(10), default=200, help="tables of each setting of coverage")
    options = parser.parse_args()
    run, covered, families = Run(), list[dict[str, Any]](), list[dict[str, Any]]()
    for rows, labels in SIZES:
        for how in ("independent", "together", "exclusive"):
            for base in BASES if how != "exclusive" else ("common",):
                for calibrated in (True, False):
                    covered.append(coverage(rows, labels, base, how, calibrated, options.runs))
                    run.say(covered[-1])
    uneven = list[dict[str, Any]]()
    for rows, labels in UNEVEN:
        for how in ("independent", "together"):
            for base in BASES:
                runs = options.runs if labels < 200 else options.runs // 2
                uneven.append(coverage(rows, labels, base, how, True, runs, uneven=True))
                run.say(uneven[-1])
    for rows, labels, base in FAMILIES:
        for how in ("independent", "together"):
            families.append(family(rows, labels, base, how, options.runs if labels < 200 else options.runs // 4))
            run.say(families[-1])
    of_fits = [fits(*setting, draws=max(options.runs // 20, 2)) for setting in FITS]
    summary = {
        "settings": len(covered),
        "runs": options.runs,
        "least_ece": min(one["ece"] for one in covered),
        "least_gap": min(one["gap"] for one in covered),
        "least_nll": min(one["nll"] for one in covered),
        "least_brier": min(one["brier"] for one in covered),
        "least_pairs": min(one["pairs"] for one in covered),
        "least_uneven": {name: min(one[name] for one in uneven) for name in ("ece", "gap", "nll", "brier")},
        "most_marked": max(one["marked"] for one in families),
        "most_uncorrected": max(one["uncorrected"] for one in families),
        "least_found": min(one["found"] for one in families),
        "most_found": max(one["found"] for one in families),
        "families": len(families),
        "shrunk": max(one["shrunk"] for one in of_fits),
        "each": max(one["each"] for one in of_fits),
        "shared": max(one["shared"] for one in of_fits),
    }
    run.finish(options.out, markdown, summary=summary, coverage=covered, uneven=uneven, families=families, fits=of_fits)


if __name__ == "__main__":
    main()
