"""What the papers prove, in numbers.

python -m benchmarks.training.theory
"""

from __future__ import annotations

import json
import platform
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pipeline.studies import theory

RESULT = Path(__file__).parents[1] / "results" / "theory.json"


def markdown(record: dict[str, Any]) -> str:
    """For docs/results.md."""
    return theory.lines([theory.Finding(**one) for one in record["findings"]])


def main() -> None:
    found = [asdict(one) for one in theory.findings()]
    record = {
        "command": "python -m benchmarks.training.theory",
        "versions": {"python": platform.python_version()},
        "findings": found,
    }
    RESULT.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(markdown(record))


if __name__ == "__main__":
    main()
