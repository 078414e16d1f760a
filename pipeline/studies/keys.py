"""What tells one run from another: its settings, the code that it uses, and the files of its data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipeline import stages
from pipeline.config import Params
from pipeline.training.plan import fingerprint
from pipeline.training.provenance import code_hashes

FETCHING = "pipeline.data.sources"
"""The module whose imports are the code of the rows."""
LENGTH = 16


def key_of(params: Params) -> str:
    """Of the logits: equal where settings, the code of the net, its training and the data, and own files are.

    What the evaluation settings say changes no logits, but for `evaluation.shift`, of which a study knows nothing.

    Raises:
        ConfigError, DataError: settings that no run can have.
    """
    tree = {
        "data": params.data.model_dump(mode="json"),
        "plan": stages.planned(params),
        "rows": code_hashes([FETCHING]),
        "files": _files(Path(params.data.path)),
    }
    return fingerprint(tree)[:LENGTH]


def _files(path: Path) -> list[Any]:
    """Names, sizes and times of one's own data; DVC looks into them when the run begins."""
    found = sorted(path.rglob("*")) if path.is_dir() else [path] if path.is_file() else []
    stats = [(file, file.stat()) for file in found if file.is_file()]
    return [[file.as_posix(), stat.st_size, stat.st_mtime_ns] for file, stat in stats]
