"""What tells one run from another: its settings, the code that it uses, and the files of its data."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pipeline import stages
from pipeline.config import Params
from pipeline.data.sources import FORMS
from pipeline.training.plan import fingerprint
from pipeline.training.provenance import code_hashes
from trueodds.files import read_json, sha256, write_json

FETCHING = "pipeline.data.sources"
"""The module whose imports are the code of the rows."""
LENGTH = 16
HASHES = Path(".run") / "studies" / "hashes.json"
"""Of own data that were hashed: a photo's bytes are read again only where some name, size or time has changed."""


def key_of(params: Params) -> str:
    """Key of a run's logits. Depends on its settings, the code that can change their numbers and its own data files;
    identical on every machine.

    A comment, a docstring or a progress bar leaves it (`pipeline.training.provenance`), and so does a data setting that
    is new and null.
    What the evaluation settings say changes no logits, but for `evaluation.shift`, of which a study knows nothing.

    Raises:
        ConfigError, DataError: settings that no run can have.
    """
    with quiet():
        plan = stages.planned(params)
    tree = {
        "data": params.data.model_dump(mode="json", exclude={"path"}, exclude_none=True),
        "plan": plan,
        "rows": code_hashes([FETCHING]),
        "files": [[path.name, _digest(path)] for path in _own(params)],
    }
    return fingerprint(tree)[:LENGTH]


def _own(params: Params) -> list[Path]:
    """Files and folders of the run's data that lie here; of what is downloaded the checksums are in the code."""
    data = params.data
    folders = [Path(data.path), *([Path(os.environ["TRUEODDS_DATA"])] if os.environ.get("TRUEODDS_DATA") else [])]
    named = [folder / f"{data.dataset}{form}" for folder in folders for form in FORMS]
    named += [Path(file) for file in (data.label_counts, data.embeddings, params.training.start) if file is not None]
    named += [folder / data.embeddings for folder in folders if data.embeddings is not None]
    return [path for path in dict.fromkeys(named) if path.exists()]


def _digest(path: Path) -> str:
    """SHA-256 of a file, of a folder that of its files' names and contents."""
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    stats = [(file, file.stat()) for file in files]
    seen = fingerprint([[file.as_posix(), stat.st_size, stat.st_mtime_ns] for file, stat in stats])
    known: dict[str, Any] = read_json(HASHES) if HASHES.is_file() else {}
    place = str(path.resolve())
    if known.get(place, [None])[0] != seen:
        whole = hashlib.sha256()
        for file in files:
            whole.update(f"{file.relative_to(path).as_posix()} {sha256(file)}\n".encode())
        HASHES.parent.mkdir(parents=True, exist_ok=True)
        known[place] = [seen, whole.hexdigest()]
        write_json(HASHES, known)
    return str(known[place][1])


@contextmanager
def quiet() -> Iterator[None]:
    """Leaves out the remarks on a plan, which the run itself makes when it begins: a study plans hundreds."""
    log = logging.getLogger("pipeline")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)
