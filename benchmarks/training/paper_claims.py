"""Claims of the papers that the studies of over-confident nets can repeat, with their published numbers, and verdicts.

A claim says that one method is better calibrated than another. Its published numbers are read from the paper's study in
pipeline/studies/papers/. Its verdict is the paired test of the squared calibration error, which has no noise floor,
corrected for the number of claims that were tested (Holm). The NLL is tested beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from pipeline.studies import format as study_format
from pipeline.studies.format import CALIBRATOR
from pipeline.studies.measuring import SEED, Row, fit_calibrator
from pipeline.studies.runs import Place
from trueodds.evaluation import paired_differences
from trueodds.evaluation.paired_differences import NLL, SCALES, SQUARED, RowScores, TestedDifference

CIFAR100 = {"dataset": "cifar100", "net": "resnet50"}
IDENTITY = "identity"


@dataclass(frozen=True)
class Claim:
    """Claim that `method` is better calibrated than `than`, as trained.

    Attributes:
        paper: Name of the paper's study with the published numbers.
        method: The method that is said to be better.
        than: The method that it is compared with.
        where: Parameters that select the published rows.
        column: The published calibration error.
    """

    paper: str
    method: str
    than: str
    where: Mapping[str, str] = field(default_factory=lambda: {"dataset": "cifar100"})
    column: str = "ece"

    def published(self) -> tuple[float, float]:
        """Return the published calibration errors of both methods, in percent.

        Raises:
            LookupError: The paper's study has not exactly one such row for each.
        """
        study = study_format.read(self.paper)
        rows = study.published.rows if study.published else []

        def number(method: str) -> float:
            wanted = {**self.where, "method": method, CALIBRATOR: IDENTITY}
            found = [row for row in rows if all(row.get(key) == value for key, value in wanted.items())]
            if len(found) != 1:
                raise LookupError(f"{self.paper}: {len(found)} rows have {wanted}; needed is one")
            return float(found[0][self.column])

        return number(self.method), number(self.than)


CLAIMS = (
    *(Claim("gamma-net/table1", method, "ce") for method in ("fl1", "flsd53", "ls05", "ce_meta_sece")),
    Claim("gamma-net/table1", "flg_sece", "fl1"),
    Claim("focal/table1", "mmce", "ce", CIFAR100),
    *(Claim("bsce-gra/table1", "bsce_gra", than, CIFAR100) for than in ("ce", "flsd53", "dfl")),
    Claim("bsce-gra/table1", "dfl", "flsd53", CIFAR100),
    *(Claim("soft-calibration/table2", method, "ce", column="adaptive_ece_l2") for method in ("sb_ece", "s_avuc")),
)
PAPERS = {
    "gamma-net": "γ-Net",
    "focal": "focal calibration",
    "bsce-gra": "BSCE-GRA",
    "soft-calibration": "soft calibration objectives",
}
"""Folder of each paper's studies, and its name in words."""
EPOCHS = ("train_error", "test_ece")
"""Columns by epoch of the picture of the beginning of over-confidence."""
SHOWN = ("ce", "flsd53", "bsce_gra")
"""Methods that the pictures by epoch show."""
VAL_NLL = "val_nll"
"""Column of the picture of the log loss by epoch, which has all of SHOWN."""
FOCAL, PLAIN = "flsd53", "ce"
"""Methods of the survey's claim."""
REDUCTION = (0.3, 0.5)
"""Claim of the survey: focal loss reduces the ECE of cross entropy by this share, from the least to the most."""
Runs = Mapping[str, Mapping[int, Place]]
"""Finished runs by method, then by seed."""


def methods_of_paper(paper: str) -> list[str]:
    """Return the methods of a paper's claims, cross entropy first."""
    named = [name for claim in CLAIMS if claim.paper.startswith(f"{paper}/") for name in (claim.than, claim.method)]
    return list(dict.fromkeys([PLAIN, *named]))


def pictures(methods: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of the pictures that finished methods allow: papers with two of them, `epochs`, and `nll`."""
    of = {one["method"]: one["epochs"] for one in methods}
    drawn = [paper for paper in PAPERS if len(of.keys() & set(methods_of_paper(paper))) > 1]
    if PLAIN in of and set(EPOCHS) <= of[PLAIN].keys():
        drawn.append("epochs")
    if all(VAL_NLL in of.get(name, ()) for name in SHOWN):
        drawn.append("nll")
    return drawn


def by_method(places: Sequence[Place]) -> dict[str, dict[int, Place]]:
    """Group finished runs without further options by method and seed."""
    found: dict[str, dict[int, Place]] = {}
    for place in places:
        if place.is_done:
            found.setdefault(place.run.overrides["method"], {})[place.run.overrides[SEED]] = place
    return found


def judged(runs: Runs, claims: Sequence[Claim] = CLAIMS) -> list[dict[str, Any]]:
    """Return each claim with its published numbers and, if both methods have runs of the same seeds, its test."""
    measured = []
    for claim in claims:
        seeds = sorted(set(runs.get(claim.method, {})) & set(runs.get(claim.than, {})))
        nets = [[_scores(runs[method][seed]) for seed in seeds] for method in (claim.method, claim.than)]
        measured.append((claim, seeds, paired_differences.differences(*nets) if seeds else {}))
    tested = iter(
        paired_differences.adjust_p_values(
            [(measure, of[measure]) for _, _, of in measured for measure in (SQUARED, NLL) if of]
        )
    )
    found = []
    for claim, seeds, of in measured:
        ours, theirs = claim.published()
        published = {"column": claim.column, "method": ours, "than": theirs}
        row: dict[str, Any] = {"paper": claim.paper, "method": claim.method, "than": claim.than, "published": published}
        row["seeds"] = len(seeds)
        if of:
            by_measure = {SQUARED: next(tested), NLL: next(tested)}
            row |= {measure: _as_json(one) for measure, one in by_measure.items()}
            row["verdict"] = verdict_of(by_measure[SQUARED], len(seeds))
        else:
            row["verdict"] = "not run yet"
        found.append(row)
    return found


def verdict_of(tested: TestedDifference, seeds: int) -> str:
    """Return the verdict on a claim in words. One seed compares two nets, not two methods."""
    if not tested.is_real:
        return "not told from chance"
    verdict = "appears" if tested.difference.mean < 0 else "the opposite appears"
    return verdict if seeds > 1 else f"{verdict} in two nets"


def survey(rows: Sequence[Row]) -> dict[str, Any] | None:
    """Return by how much focal loss reduces the plug-in ECE and its debiased estimate; None without runs.

    Args:
        rows: The rows of `pipeline.studies.measuring.rows_of`.
    """

    def mean(method: str, column: str) -> float | None:
        values = [row[column] for row in rows if row["method"] == method and row[CALIBRATOR] == IDENTITY]
        return fmean(values) if values else None

    reductions = {}
    for column in ("ece", "ece_estimate"):
        ours, theirs = mean(FOCAL, column), mean(PLAIN, column)
        if ours is None or theirs is None or theirs <= 0:
            return None
        reductions[column] = 1 - ours / theirs
    least, most = REDUCTION
    return {"method": FOCAL, "than": PLAIN, "least": least, "most": most, "reductions": reductions}


def _scores(place: Place) -> RowScores:
    val, test = place.logits()
    return RowScores.of_probabilities(fit_calibrator(val, IDENTITY)(test.logits_NC), test.labels_N)


def _as_json(one: TestedDifference) -> dict[str, Any]:
    d, (scale, unit, _) = one.difference, SCALES[one.measure]
    ends = {"lower": d.lower, "upper": d.upper, "detectable": one.detectable}
    return {
        "unit": unit.strip() or "nats",
        "difference": scale * d.mean,
        **{name: None if end is None else scale * end for name, end in ends.items()},
        "adjusted_p": one.adjusted_p,
    }


def markdown(claims: Sequence[Mapping[str, Any]], ece: Mapping[str, tuple[float, float]]) -> list[str]:
    """Return the table of claims.

    Args:
        claims: The rows of `judged`.
        ece: Mean ECE and mean noise floor of each method, as trained, as fractions.
    """
    lines = [
        "| paper | claim: less calibration error | published, % | here: ECE (floor), % | squared calibration error |"
        " NLL | seeds | verdict |",
        "|---|---|---:|---:|---|---|---:|---|",
    ]
    for row in claims:
        paper, table = row["paper"].split("/")
        of = row["published"]
        method, than = row["method"], row["than"]
        here = " against ".join(_ece(ece.get(name)) for name in (method, than)) if row["seeds"] else "-"
        lines.append(
            f"| {PAPERS[paper]}, {table.replace('table', 'Table ')} | `{method}` than `{than}`"
            f" | {of['method']:.2f} against {of['than']:.2f}{' (l2)' if of['column'].endswith('l2') else ''} | {here}"
            f" | {_difference(row.get(SQUARED))} | {_difference(row.get(NLL))} | {row['seeds'] or '-'}"
            f" | {row['verdict']} |"
        )
    return lines


def _ece(of: tuple[float, float] | None) -> str:
    return "-" if of is None else f"{100 * of[0]:.1f} ({100 * of[1]:.1f})"


def _difference(of: Mapping[str, Any] | None) -> str:
    if of is None:
        return "-"
    digits = 3 if of["unit"] == "nats" else 1
    words = f"{of['difference']:+.{digits}f}"
    if of["lower"] is not None:
        words += f" [{of['lower']:+.{digits}f}, {of['upper']:+.{digits}f}]"
    return f"{words}, p {of['adjusted_p']:.2g}"
