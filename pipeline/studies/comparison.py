"""Each setting against the baseline, on the same rows and seeds: the differences, and those that chance explains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.studies import chance
from pipeline.studies.chance import LEVEL, Difference
from pipeline.studies.format import Study
from pipeline.studies.running import LOGITS, Place
from trueodds import calibrators, logits, metrics
from trueodds.calibrators import FitError
from trueodds.evaluation.entries import name_and_options
from trueodds.sums.losses import nll_of

SEED = "seed"
MEASURES = ("error_rate", "nll", "ece")
WORDS = {"error_rate": "error", "nll": "NLL", "ece": "ECE"}
SCALES = {"error_rate": (100, " points", 2), "nll": (1, "", 4), "ece": (100, " points", 2)}
"""Of each measure: its factor, unit and decimals in sentences."""
Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Compared:
    """A setting and a calibrator beside the baseline with the same: the difference of a measure.

    The p-value is adjusted; None where no test of the measure is valid. detectable: the difference that would have been
    seen with a power of 80%, at the level of Holm's first step.
    """

    setting: str
    calibrator: str
    measure: str
    difference: Difference
    adjusted_p: float | None = None
    detectable: float | None = None

    def sentence(self) -> str:
        """The difference, and whether chance explains it where a test says so."""
        d = self.difference
        scale, unit, digits = SCALES[self.measure]
        size = f"{scale * d.mean:+.{digits}f}"
        seeds = f"{d.seeds} seeds" if d.seeds > 1 else "one seed, which says nothing of others"
        about = f"{self.setting}, {self.calibrator}: {WORDS[self.measure]} {size}{unit}"
        if self.adjusted_p is None or d.lower is None or d.upper is None:
            return f"{about}, a difference of plug-in estimates without a test ({seeds})."
        low, high = (f"{scale * value:+.{digits}f}" for value in (d.lower, d.upper))
        verdict = f"{'lower' if d.mean < 0 else 'higher'} than the baseline's"
        if self.adjusted_p >= LEVEL:
            verdict = "not told from the baseline's: chance explains it"
            if self.detectable is not None:
                seen = f"{scale * self.detectable:.{digits}f}{unit}"
                verdict += f"; a difference of {seen} would have been seen in 80% of repetitions"
        return f"{about} [{low}, {high}], {verdict} (p {self.adjusted_p:.2g} after Holm's correction; {seeds})."


@dataclass(frozen=True)
class _Scores:
    """Of one run with one calibrator, a number for each test row."""

    error_N: Array
    nll_N: Array
    confidence_N: Array

    def ece(self) -> float:
        """Plug-in ECE of the top label, in 15 bins of equal width."""
        return metrics.ece(metrics.CalibrationSums.from_top(self.confidence_N, self.error_N == 0))


def compare(study: Study, places: Sequence[Place]) -> list[Compared]:
    """Every setting that shares seeds with the baseline, in the order of the runs; nothing without a baseline.

    Error and NLL are means over rows, whose differences are tested. The ECE's are numbers: see `chance.is_plug_in`.
    The correction is for all differences of one measure; one that a calibrator does not change, such as the error under
    temperature scaling, counts once.
    """
    if not study.baseline:
        return []
    done = [place for place in places if place.is_done]
    settings: dict[str, dict[Any, Place]] = {}
    for place in done:
        settings.setdefault(_setting(place.run.varied), {})[place.run.overrides.get(SEED)] = place
    found: list[Compared] = []
    for name, of_seeds in settings.items():
        baseline = _baseline(study, done, of_seeds)
        if shared := sorted(set(of_seeds) & set(baseline), key=str):
            for entry in study.calibrators:
                ours, theirs = ([_scores(of[seed], entry) for seed in shared] for of in (of_seeds, baseline))
                if None not in (*ours, *theirs):
                    found += _differences(name, entry, ours, theirs)  # type: ignore[arg-type]
    once: dict[Any, Compared] = {}
    for one in found:
        once.setdefault((one.setting, one.measure, one.difference), one)
    return [one for measure in MEASURES for one in _corrected([c for c in once.values() if c.measure == measure])]


def summary(compared: Sequence[Compared]) -> str:
    """How many of the tested differences chance does not explain; "" where nothing was tested."""
    tested = [one.adjusted_p for one in compared if one.adjusted_p is not None]
    if not tested:
        return ""
    of = "tested differences (error, NLL) to the baseline"
    real = sum(p < LEVEL for p in tested)
    if not real:
        return f"Chance explains all {len(tested)} {of}. {_seen(compared)}".strip()
    return f"Chance does not explain {real} of {len(tested)} {of}. {_seen(compared)}".strip()


def _seen(compared: Sequence[Compared]) -> str:
    """Which differences would have been seen, from the most to the least precise comparison."""
    ranges = []
    for measure in MEASURES:
        found = [one.detectable for one in compared if one.measure == measure and one.detectable is not None]
        if found:
            scale, unit, digits = SCALES[measure]
            low, high = (f"{scale * value:.{digits}f}" for value in (min(found), max(found)))
            between = low if low == high else f"between {low} and {high}"
            ranges.append(f"{between}{unit or ' nats'} of {WORDS[measure]}")
    return f"A difference of {' or '.join(ranges)} would have been seen in 80% of repetitions." if ranges else ""


def _setting(varied: Mapping[str, Any]) -> str:
    return " ".join(f"{leaf}={value}" for leaf, value in varied.items() if leaf != SEED and value is not None)


def _baseline(study: Study, done: Sequence[Place], of_seeds: Mapping[Any, Place]) -> dict[Any, Place]:
    """By seeds, the runs that have the baseline's leaves and agree with a setting in all others; none for its own."""
    varied = next(iter(of_seeds.values())).run.varied
    rest = {leaf: value for leaf, value in varied.items() if leaf not in (SEED, *study.baseline)}
    if all(varied.get(leaf) == value for leaf, value in study.baseline.items()):
        return {}
    return {p.run.overrides.get(SEED): p for p in done if p.run.matches({**rest, **study.baseline})}


def _scores(place: Place, entry: str) -> _Scores | None:
    """None where the validation rows do not determine the calibrator."""
    val, test = (logits.read(place.folder / LOGITS, split) for split in ("val", "test"))
    name, options = name_and_options(entry)
    try:
        p_NC = calibrators.fit(val.logits_NC, val.labels_N, name, **options)(test.logits_NC)
    except FitError:
        return None
    rows_N = np.arange(len(p_NC))
    error_N = (p_NC.argmax(axis=1) != test.labels_N).astype(np.float64)
    return _Scores(error_N, nll_of(p_NC[rows_N, test.labels_N]), p_NC.max(axis=1))


def _differences(name: str, entry: str, ours: Sequence[_Scores], theirs: Sequence[_Scores]) -> list[Compared]:
    def stacked(scores: Sequence[_Scores], what: str) -> Array:
        return np.stack([getattr(one, what) for one in scores])

    def of_rows(what: str) -> Difference:
        return chance.of_rows(stacked(ours, what) - stacked(theirs, what))

    gap = float(np.mean([one.ece() - other.ece() for one, other in zip(ours, theirs, strict=True)]))
    ece = Difference(gap, len(ours))
    by_measure = {"error_rate": of_rows("error_N"), "nll": of_rows("nll_N"), "ece": ece}
    return [Compared(name, entry, measure, by_measure[measure]) for measure in MEASURES]


def _corrected(compared: Sequence[Compared]) -> list[Compared]:
    p_values = [one.difference.p_value for one in compared if one.difference.p_value is not None]
    if len(p_values) < len(compared):
        return list(compared)
    return [
        replace(one, adjusted_p=p, detectable=one.difference.detectable(LEVEL / len(compared)))
        for one, p in zip(compared, chance.holm(p_values), strict=True)
    ]
