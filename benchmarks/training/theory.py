"""Numerical tests of the papers' claims.

python -m benchmarks.training.theory
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from benchmarks.record import RESULTS, conclude
from pipeline.studies import theory

RESULT = RESULTS / "theory.json"


def markdown(record: dict[str, Any]) -> str:
    """Return the table for docs/explanation/results.md."""
    return theory.lines([theory.ClaimCheck(**one) for one in record["findings"]])


def main() -> None:
    found = [asdict(one) for one in theory.findings()]
    conclude(RESULT, markdown, packages=(), findings=found)


if __name__ == "__main__":
    main()
