"""The README's tables, from the committed results and from the code.

    python -m benchmarks.readme

rewrites what stands between `<!-- <name> -->` and `<!-- end -->`; tests/test_readme.py holds that nothing would change.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import (
    calibrators,
    checkpoints,
    fetching,
    headline,
    interval_coverage,
    labelling,
    losses,
    metrics,
    pipeline_run,
    report,
    score_coverage,
    selection,
    sequential,
    serving_report,
    significance,
    training,
    weighted_evidence,
)
from benchmarks.faults import report as faults_report
from pipeline.cli.tables import methods_table

README = Path(__file__).resolve().parent.parent / "README.md"
RESULTS = Path(__file__).resolve().parent / "results"
TABLES: dict[str, Callable[[dict[str, Any]], str]] = {
    "cifar100-resnet8-cpu": pipeline_run.markdown,
    "flow-overhead-digits": pipeline_run.overhead,
    "losses-cifar100-subset": losses.markdown,
    "metrics": metrics.markdown,
    "calibrators": calibrators.markdown,
    "selection": selection.markdown,
    "interval_coverage": interval_coverage.markdown,
    "score_coverage": score_coverage.markdown,
    "significance": significance.markdown,
    "labelling": labelling.markdown,
    "sequential": sequential.markdown,
    "headline": headline.markdown,
    "weighted_evidence": weighted_evidence.markdown,
    "training": training.markdown,
    "fetching": fetching.markdown,
    "checkpoints": checkpoints.markdown,
    "serving": serving_report.markdown,
    "faults": faults_report.markdown,
    "report": report.markdown,
}


def methods() -> str:
    """What can be named as `method`."""
    lines = ["| name | options, or parts and their settings | source |", "|---|---|---|"]
    lines += [
        f"| `{name}` | {f'`{options}`' if options != '-' else ''} | {source} |"
        for name, options, source in methods_table()
    ]
    return "\n".join(lines)


LISTS: dict[str, Callable[[], str]] = {"methods": methods}
"""Those that need no result."""
BLOCK = re.compile(r"<!-- ([\w-]+) -->\n.*?<!-- end -->", re.DOTALL)


def refreshed(text: str) -> str:
    """The text with every marked block made anew.

    Raises:
        KeyError: a block whose name is not that of a table.
    """

    def block(found: re.Match[str]) -> str:
        name = found[1]
        if name in LISTS:
            content = LISTS[name]()
        else:
            content = TABLES[name](json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8")))
        return f"<!-- {name} -->\n\n{content}\n\n<!-- end -->"

    return BLOCK.sub(block, text)


if __name__ == "__main__":
    README.write_text(refreshed(README.read_text(encoding="utf-8")), encoding="utf-8")
