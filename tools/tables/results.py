"""The committed results of the benchmarks, and access to single figures."""

from __future__ import annotations

import functools
import importlib
import json
from collections.abc import Sequence
from typing import Any

from tools import ROOT

FOLDER = ROOT / "benchmarks" / "results"
Result = dict[str, Any]
Key = Sequence[str | dict[str, object]]
"""Path to a figure: names, and for a list the values that select one of its rows."""

COMMANDS = {
    "cifar100-resnet8-cpu": "python -m benchmarks.training.pipeline_run cifar100-resnet8-cpu cifar100",
    "flow-overhead-digits": "python -m benchmarks.training.pipeline_run flow-overhead-digits digits --plain",
    "meta-learning-cifar100-subset": "python -m benchmarks.training.meta_learning --data FOLDER/cifar100.npz",
    "theory": "python -m benchmarks.training.theory",
    "lookahead": "python -m benchmarks.training.lookahead",
    "metrics": "python -m benchmarks.library.metrics",
    "calibrators": "python -m benchmarks.library.calibrators --limit 60",
    "structured_time": "python -m benchmarks.library.structured_time --base FOLDER --records FOLDER --peer FILE",
    "selection": "python -m benchmarks.library.selection",
    "group_temperature": "python -m benchmarks.library.group_temperature",
    "interval_coverage": "python -m benchmarks.intervals.ece --runs 400",
    "classwise_coverage": "python -m benchmarks.intervals.classwise --runs 150",
    "score_coverage": "python -m benchmarks.intervals.scores --runs 1000",
    "ordered": "python -m benchmarks.intervals.ordered --runs 200",
    "multilabel": "python -m benchmarks.intervals.multilabel --runs 100",
    "expected_decisions": "python -m benchmarks.intervals.expected_decisions",
    "class_shares": "python -m benchmarks.intervals.class_shares",
    "prior_shift": "python -m benchmarks.intervals.prior_shift",
    "quantification_oracle": "python -m benchmarks.library.quantification_oracle",
    "human_labels": "python -m benchmarks.intervals.human_labels",
    "decisions": "python -m benchmarks.intervals.decisions --runs 250",
    "threshold": "python -m benchmarks.intervals.threshold --records FOLDER",
    "rare_positives": "python -m benchmarks.alarms.rare_positives",
    "rounding": "python -m benchmarks.evidence.rounding --runs 250 --streams 60 --splits 3 --records FOLDER",
    "significance": "python -m benchmarks.evidence.significance",
    "calibration_differences": "python -m benchmarks.evidence.calibration_differences",
    "rare_differences": "python -m benchmarks.evidence.rare_differences",
    "slices": "python -m benchmarks.evidence.slices",
    "audit": "python -m benchmarks.evidence.audit",
    "decision_models": "python -m benchmarks.evidence.decision_models --data FOLDER",
    "forecasts": "python -m benchmarks.evidence.forecasts",
    "forecast_replay": "python -m benchmarks.evidence.forecast_replay",
    "records": "python -m benchmarks.evidence.records",
    "tabular": "python -m benchmarks.evidence.tabular --archive FILE",
    "regime": "python -m benchmarks.training.regime",
    "studies": "python -m benchmarks.training.studies --table --only overfit",
    "gradient_norms": "python -m benchmarks.training.gradient_norms --runs FOLDER",
    "noisy_digits_regime": "python -m benchmarks.training.regime --of noisy-digits",
    "noisy_digits": "python -m benchmarks.training.studies --table --only noisy-digits",
    "labelling": "python -m benchmarks.evidence.labelling",
    "label_samples": "python -m benchmarks.evidence.label_samples",
    "judged": "python -m benchmarks.evidence.judged --runs 500",
    "judge_rates": "python -m benchmarks.evidence.judge_rates --runs 100",
    "label_queue": "python -m benchmarks.evidence.label_queue --runs 100",
    "sequential": "python -m benchmarks.alarms.sequential",
    "headline": "python -m benchmarks.evidence.headline --streams 60",
    "weighted_evidence": "python -m benchmarks.alarms.weighted_evidence",
    "judge_labels": "python -m benchmarks.evidence.judge_labels",
    "judge": "python -m benchmarks.evidence.judge --records FOLDER",
    "promise": "python -m benchmarks.alarms.promise",
    "conformal": "python -m benchmarks.alarms.conformal",
    "conformal_weighted": "python -m benchmarks.alarms.conformal_weighted --runs 200",
    "conformal_records": "python -m benchmarks.alarms.conformal_records --records FOLDER",
    "levels": "python -m benchmarks.alarms.levels --runs 10",
    "groups": "python -m benchmarks.alarms.groups --streams 60",
    "daily_alarm": "python -m benchmarks.alarms.daily",
    "late_positives": "python -m benchmarks.alarms.late_positives",
    "training": "python -m benchmarks.training.methods --rounds 14",
    "loop": "python -m benchmarks.training.loop",
    "photos": "python -m benchmarks.training.photos --before 7f39044",
    "finetuning": "python -m benchmarks.training.finetuning",
    "checkpoints": "python -m benchmarks.training.checkpoints",
    "importing": "python -m benchmarks.library.importing --write",
    "serving": "python -m benchmarks.serving.comparison --peers .peers/bin/python",
    "serving_layers": "python -m benchmarks.serving.layers --peers .peers/bin/python",
    "vector_serving": "python -m benchmarks.serving.vectors --peers .peers/bin/python",
    "observe": "python -m benchmarks.serving.observe --write",
    "faults": "python -m benchmarks.faults --kills 200",
    "report": "python -m benchmarks.scaling.live_report --write",
    "scaling": "python -m benchmarks.scaling.growth",
    "partitions": "python -m benchmarks.scaling.partitions --write",
    "warehouse_sums": (
        "python -m benchmarks.scaling.warehouse_sums --rows 1000000 10000000 100000000"
        " --confidences 1000000 100000000 1000000000"
    ),
    "warehouse_growth": "python -m benchmarks.scaling.warehouse_growth --peers .peers/bin/python",
    "warehouse_parts": "python -m benchmarks.scaling.warehouse_parts --rows 10000000",
    "database_sums": "python -m benchmarks.scaling.database_sums --rows 1000000",
    "postgres_size": "python -m benchmarks.scaling.postgres_size",
    "table_report": "python -m benchmarks.library.table_report --write",
}
"""Commands that reproduce the results. The module's `markdown` formats the result as a table."""
OVERHEAD = "flow-overhead-digits"
"""Result that compares a deployment with a plain run, which has a table of its own."""


@functools.cache
def read(name: str) -> Result:
    """Return the result in benchmarks/results/`name`.json."""
    result: Result = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return result


def module_of(name: str) -> str:
    """Return the module that the command of a result runs; for a package, its `__main__`."""
    module = COMMANDS[name].split()[2]
    return f"{module}.__main__" if (ROOT / module.replace(".", "/")).is_dir() else module


def result_table(name: str) -> str:
    """Return a result as Markdown, formatted by its benchmark."""
    module = importlib.import_module(module_of(name))
    table: str = (module.overhead if name == OVERHEAD else module.markdown)(read(name))
    return table


def figure(name: str, key: Key) -> float:
    """Return the number at `key` in the result `name`.

    Raises:
        KeyError: There is no such name, not exactly one such row, or no number.
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
        raise KeyError(f"{name}.json: {key} is not a number but {place!r}")
    return place
