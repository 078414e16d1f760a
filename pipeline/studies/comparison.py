"""Each setting against the baseline, on the same rows and seeds: the differences, and those that chance explains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.studies.format import Study
from pipeline.studies.running import LOGITS, Place
from trueodds import calibrators, logits
from trueodds.calibrators import FitError
from trueodds.evaluation import differences
from trueodds.evaluation.differences import MEASURES, Scores, Tested
from trueodds.evaluation.entries import name_and_options
from trueodds.metrics import Difference

SEED = "seed"


@dataclass(frozen=True)
class Compared:
    """A setting and a calibrator beside the baseline with the same: the tested difference of a measure."""

    setting: str
    calibrator: str
    tested: Tested

    def sentence(self) -> str:
        """The difference, and whether chance explains it."""
        return self.tested.sentence(f"{self.setting}, {self.calibrator}", "the baseline's")


def compare(study: Study, places: Sequence[Place]) -> list[Compared]:
    """Every setting that shares seeds with the baseline, in the order of the runs; nothing without a baseline.

    Each measure of `trueodds.evaluation.differences` is tested; plug-in calibration errors are not, see
    `chance.is_plug_in`. The correction is for all differences of one measure; one that a calibrator does not change,
    such as the error under temperature scaling, counts once.
    """
    if not study.baseline:
        return []
    done = [place for place in places if place.is_done]
    settings: dict[str, dict[Any, Place]] = {}
    for place in done:
        settings.setdefault(_setting(place.run.varied), {})[place.run.overrides.get(SEED)] = place
    found: dict[tuple[str, str, Difference], str] = {}
    for name, of_seeds in settings.items():
        baseline = _baseline(study, done, of_seeds)
        if shared := sorted(set(of_seeds) & set(baseline), key=str):
            for entry in study.calibrators:
                nets = [[_scores(of[seed], entry) for seed in shared] for of in (of_seeds, baseline)]
                ours, theirs = ([one for one in scores if one is not None] for scores in nets)
                if len(ours) == len(theirs) == len(shared):
                    for measure, difference in differences.differences(ours, theirs, bins=_bins(done)).items():
                        found.setdefault((name, measure, difference), entry)
    tested = differences.tested([(measure, difference) for _, measure, difference in found])
    compared = [Compared(name, entry, one) for ((name, *_), entry), one in zip(found.items(), tested, strict=True)]
    return sorted(compared, key=lambda one: MEASURES.index(one.tested.measure))


def summary(compared: Sequence[Compared]) -> str:
    """How many of the tested differences chance does not explain; "" where nothing was tested."""
    return differences.summary(one.tested for one in compared)


def _bins(done: Sequence[Place]) -> int:
    return done[0].run.params.evaluation.bins


def _setting(varied: Mapping[str, Any]) -> str:
    return " ".join(f"{leaf}={value}" for leaf, value in varied.items() if leaf != SEED and value is not None)


def _baseline(study: Study, done: Sequence[Place], of_seeds: Mapping[Any, Place]) -> dict[Any, Place]:
    """By seeds, the runs that have the baseline's leaves and agree with a setting in all others; none for its own."""
    varied = next(iter(of_seeds.values())).run.varied
    rest = {leaf: value for leaf, value in varied.items() if leaf not in (SEED, *study.baseline)}
    if all(varied.get(leaf) == value for leaf, value in study.baseline.items()):
        return {}
    return {p.run.overrides.get(SEED): p for p in done if p.run.matches({**rest, **study.baseline})}


def _scores(place: Place, entry: str) -> Scores | None:
    """None where the validation rows do not determine the calibrator."""
    val, test = (logits.read(place.folder / LOGITS, split) for split in ("val", "test"))
    name, options = name_and_options(entry)
    try:
        p_NC = calibrators.fit(val.logits_NC, val.labels_N, name, **options)(test.logits_NC)
    except FitError:
        return None
    return Scores.of_probabilities(p_NC, test.labels_N)
