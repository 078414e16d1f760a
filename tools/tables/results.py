"""The committed results of the benchmarks, and single figures out of them."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from typing import Any

from tools import ROOT

FOLDER = ROOT / "benchmarks" / "results"
Result = dict[str, Any]
Key = Sequence[str | dict[str, object]]
"""The way to a figure: names, and for a list the values that single out one of its rows."""

COMMANDS = {
    "cifar100-resnet8-cpu": "python -m benchmarks.pipeline_run cifar100-resnet8-cpu cifar100",
    "flow-overhead-digits": "python -m benchmarks.pipeline_run flow-overhead-digits digits --plain",
    "meta-learning-cifar100-subset": "python -m benchmarks.meta_learning --data FOLDER/cifar100.npz",
    "theory": "python -m benchmarks.theory",
    "lookahead": "python -m benchmarks.lookahead",
    "metrics": "python -m benchmarks.metrics",
    "calibrators": "python -m benchmarks.calibrators --limit 60",
    "selection": "python -m benchmarks.selection",
    "interval_coverage": "python -m benchmarks.interval_coverage --runs 400",
    "classwise_coverage": "python -m benchmarks.classwise_coverage --runs 150",
    "score_coverage": "python -m benchmarks.score_coverage --runs 1000",
    "human_labels": "python -m benchmarks.human_labels",
    "decisions": "python -m benchmarks.decisions --runs 250",
    "threshold": "python -m benchmarks.threshold --records FOLDER",
    "rare_positives": "python -m benchmarks.rare_positives",
    "significance": "python -m benchmarks.significance",
    "calibration_differences": "python -m benchmarks.calibration_differences",
    "slices": "python -m benchmarks.slices",
    "labelling": "python -m benchmarks.labelling",
    "sequential": "python -m benchmarks.sequential",
    "headline": "python -m benchmarks.headline --streams 60",
    "weighted_evidence": "python -m benchmarks.weighted_evidence",
    "judge": "python -m benchmarks.judge --records FOLDER",
    "promise": "python -m benchmarks.promise",
    "late_positives": "python -m benchmarks.late_positives",
    "training": "python -m benchmarks.training --rounds 14",
    "photos": "python -m benchmarks.photos --before 7f39044",
    "finetuning": "python -m benchmarks.finetuning",
    "checkpoints": "python -m benchmarks.checkpoints",
    "importing": "python -m benchmarks.importing --write",
    "serving": "python -m benchmarks.serving --peers .peers/bin/python",
    "vector_serving": "python -m benchmarks.vector_serving --peers .peers/bin/python",
    "observe": "python -m benchmarks.observe --write",
    "faults": "python -m benchmarks.faults --kills 200",
    "report": "python -m benchmarks.report --write",
    "scaling": "python -m benchmarks.scaling",
    "partitions": "python -m benchmarks.partitions --write",
    "table_report": "python -m benchmarks.table_report --write",
}
"""The command that makes a result anew."""


@functools.cache
def read(name: str) -> Result:
    """The result that benchmarks/results/`name`.json holds."""
    result: Result = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return result


def figure(name: str, key: Key) -> float:
    """The number at `key` in the result `name`.

    Raises:
        KeyError: no such name, not exactly one such row, or no number there.
    """
    place: Any = read(name)
    for step in key:
        if isinstance(step, str):
            place = place[step]
        else:
            rows = [row for row in place if all(row.get(column) == value for column, value in step.items())]
            if len(rows) != 1:
                raise KeyError(f"{name}.json: {len(rows)} rows with {step}; exactly one is needed")
            place = rows[0]
    if isinstance(place, bool) or not isinstance(place, int | float):
        raise KeyError(f"{name}.json: {key} is no number but {place!r}")
    return place
