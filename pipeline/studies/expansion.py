"""The runs of a study: the product of its axes, without those that are left out, and further ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from pipeline import config
from pipeline.config import Params
from pipeline.studies.format import Leaves, Study, StudyError
from pipeline.training.plan import fingerprint


@dataclass(frozen=True)
class Run:
    """One run: what it has that not all have, all that it has beside params.yaml, and its whole settings."""

    varied: Leaves
    overrides: Leaves
    params: Params
    tuned: Leaves = field(default_factory=dict)
    """Of its overrides those that tuning chose."""

    @property
    def name(self) -> str:
        """`method=ce seed=0`"""
        said = [f"{leaf}={value}" for leaf, value in {**self.varied, **self.tuned}.items() if value is not None]
        return " ".join(said) or "the one run"

    def matches(self, leaves: Leaves) -> bool:
        """Whether it has all of these."""
        return all(_has(self.overrides, leaf, value) for leaf, value in leaves.items())

    def with_leaves(self, leaves: Leaves, tuned: Leaves, params: Path) -> Run:
        """This run with other leaves; raises ConfigError for settings that params.yaml refuses."""
        overrides = {**self.overrides, **leaves}
        varied = {leaf: overrides[leaf] for leaf in self.varied}
        return replace(self, varied=varied, overrides=overrides, params=config.load(params, overrides), tuned=tuned)


def expand(study: Study, params: Path = Path("params.yaml")) -> list[Run]:
    """All runs in the order of the file.

    Raises:
        StudyError: no run is left, two have the same settings, or the baseline is none of them.
        ConfigError: settings that params.yaml refuses.
    """
    runs: list[Run] = []
    seen: dict[str, Run] = {}
    for varied in _varied(study):
        overrides = {**study.hold, **varied}
        run = Run(varied, overrides, config.load(params, overrides))
        key = fingerprint(run.params.model_dump(mode="json"))
        if key in seen:
            raise StudyError(f"the runs {seen[key].name!r} and {run.name!r} have the same settings; take one out")
        seen[key] = run
        runs.append(run)
    if not runs:
        raise StudyError("no run is left after except; leave out less")
    if study.baseline and not any(run.matches(study.baseline) for run in runs):
        raise StudyError(f"no run has the baseline's {dict(study.baseline)}; name leaves of one of the runs")
    return runs


def _varied(study: Study) -> Iterator[dict[str, Any]]:
    axes = [
        [dict(zip(axis, value if len(axis) > 1 else [value], strict=True)) for value in values]
        for axis, values in zip(study.axes, study.vary.values(), strict=True)
    ]
    for chosen in product(*axes) if axes else ():
        varied = {leaf: value for part in chosen for leaf, value in part.items()}
        if not any(_contains({**study.hold, **varied}, left_out) for left_out in study.leave_out):
            yield varied
    yield from study.runs


def _contains(leaves: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    return all(_has(leaves, leaf, value) for leaf, value in wanted.items())


def _has(leaves: Mapping[str, Any], leaf: str, value: Any) -> bool:
    return leaf in leaves and leaves[leaf] == value
