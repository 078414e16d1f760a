"""Hashes that name what made a model: code, parameters, data. No dates, no machine."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TRAINING_CODE = (
    "pipeline/config.py",
    "pipeline/data",
    "pipeline/methods",
    "pipeline/nets",
    "pipeline/progress.py",
    "pipeline/stages.py",
    "pipeline/training",
    "trueodds/errors.py",
    "trueodds/files.py",
    "trueodds/inputs/pictures.py",
    "trueodds/inputs/png.py",
    "trueodds/logits.py",
    "trueodds/metrics",
    "trueodds/sums",
)
"""What decides the weights, relative to the folder that holds the packages; dvc.yaml lists the same for the train stage
(held by a test)."""


def code_sha256(parts: tuple[str, ...] = TRAINING_CODE) -> str:
    """Of the named files and of all Python files in the named folders, with their paths."""
    digest = hashlib.sha256()
    for part in parts:
        path = ROOT / part
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            digest.update(file.relative_to(ROOT).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()


def fingerprint(tree: Any) -> str:
    """Of any JSON-like value, independent of key order."""
    return hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()
