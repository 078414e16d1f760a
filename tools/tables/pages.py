"""The pages, and the blocks of them that are generated.

A block stands between `<!-- name -->` and `<!-- end -->`. `python -m tools.tables` (`make docs`) writes every block of
every page anew, from benchmarks/results/ and from the code; tests/docs/test_generated.py fails when one is stale.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from benchmarks.alarms import late_positives, promise, rare_positives, sequential, weighted_evidence
from benchmarks.evidence import calibration_differences, headline, judge, labelling, significance, slices
from benchmarks.faults import report as faults
from benchmarks.intervals import (
    classwise,
    decisions,
    ece,
    human_labels,
    scores,
    threshold,
)
from benchmarks.library import calibrators, importing, metrics, selection, table_report
from benchmarks.scaling import live_report, tables
from benchmarks.serving import comparison_report, observe, vectors
from benchmarks.training import (
    checkpoints,
    finetuning,
    lookahead,
    meta_learning,
    methods,
    photos,
    pipeline_run,
    theory,
)
from pipeline.cli.nets import HEADER, nets_table
from pipeline.cli.tables import calibrators_table, methods_table, recipes_table
from tools import ROOT
from tools.tables import settings
from tools.tables.claims import CLAIMS
from tools.tables.markdown import table
from tools.tables.results import COMMANDS, Result, read

PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
RESULTS: dict[str, Callable[[Result], str]] = {
    "cifar100-resnet8-cpu": pipeline_run.markdown,
    "flow-overhead-digits": pipeline_run.overhead,
    "meta-learning-cifar100-subset": meta_learning.markdown,
    "lookahead": lookahead.markdown,
    "theory": theory.markdown,
    "metrics": metrics.markdown,
    "calibrators": calibrators.markdown,
    "selection": selection.markdown,
    "interval_coverage": ece.markdown,
    "classwise_coverage": classwise.markdown,
    "score_coverage": scores.markdown,
    "human_labels": human_labels.markdown,
    "decisions": decisions.markdown,
    "threshold": threshold.markdown,
    "rare_positives": rare_positives.markdown,
    "significance": significance.markdown,
    "calibration_differences": calibration_differences.markdown,
    "slices": slices.markdown,
    "labelling": labelling.markdown,
    "sequential": sequential.markdown,
    "headline": headline.markdown,
    "weighted_evidence": weighted_evidence.markdown,
    "judge": judge.markdown,
    "promise": promise.markdown,
    "late_positives": late_positives.markdown,
    "training": methods.markdown,
    "photos": photos.markdown,
    "finetuning": finetuning.markdown,
    "checkpoints": checkpoints.markdown,
    "importing": importing.markdown,
    "serving": comparison_report.markdown,
    "vector_serving": vectors.markdown,
    "observe": observe.markdown,
    "faults": faults.markdown,
    "report": live_report.markdown,
    "scaling": tables.markdown,
    "partitions": tables.partitions,
    "table_report": table_report.markdown,
}
"""Blocks made from the result file of the same name, under the command that makes it."""


def claims_table() -> str:
    """The claims of docs/claims.md."""
    rows = [
        (
            claim.claim,
            claim.text(claim.condition),
            f"[{claim.text(claim.figure)}](results.md#{claim.section})",
            f"`{claim.command}`",
            claim.text(claim.failure),
        )
        for claim in CLAIMS
    ]
    return table(("claim", "condition", "figure", "command", "where it fails"), rows)


def short_claims() -> str:
    """The claims of README.md, a line each."""
    return "\n".join(
        f"- {claim.claim}: [{claim.text(claim.figure)}](docs/results.md#{claim.section})"
        f" ({claim.text(claim.condition)})."
        for claim in CLAIMS
        if claim.short
    )


CODE: dict[str, Callable[[], str]] = {
    "methods": lambda: table(("name", "options, or parts and their settings", "source"), methods_table(), code=(0, 1)),
    "recipes": lambda: table(("recipe", "how", "for"), recipes_table(), code=(0,)),
    "nets": lambda: table(HEADER, nets_table(), code=(0,)),
    "calibrators-list": lambda: table(("name", "options", "formula"), calibrators_table(), code=(0, 1)),
    "service-settings": settings.service,
    "params": settings.params,
    "claims": claims_table,
    "measured": short_claims,
}
"""Blocks made from the code, or from several results."""
BLOCK = re.compile(r"<!-- ([\w-]+) -->\n.*?<!-- end -->", re.DOTALL)


def refreshed(text: str) -> str:
    """The text with every marked block made anew.

    Raises:
        KeyError: a block whose name is not that of a table.
    """

    def block(match: re.Match[str]) -> str:
        name = match[1]
        content = CODE[name]() if name in CODE else f"`{COMMANDS[name]}`\n\n{RESULTS[name](read(name))}"
        return f"<!-- {name} -->\n\n{content}\n\n<!-- end -->"

    return BLOCK.sub(block, text)
