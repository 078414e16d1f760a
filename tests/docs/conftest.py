"""A terminal in a copy of the repository whose DVC cache is that of the run already done."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import IDENTITY, ROOT, copy_of_repository, copy_tree, made_once, run
from tests.docs.terminal import ONE_FILE, Terminal

TESTS = ROOT / "tests"
UNTYPED = (
    "benchmarks",
    *(f"tests/{path.name}" for path in TESTS.iterdir() if path.is_dir() and path != (ROOT / ONE_FILE).parent),
)
"""Folders that no line of a page reads. DVC hashes every file of a workspace for each experiment."""
TABLES = ("data/checks.json", "evaluation/metrics.json", "evaluation/calibrators.csv", "model/epochs.csv")


@pytest.fixture(scope="session")
def committed(reproduced: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh clone, as it is after somebody has committed what `dvc repro` made. Each walk has a copy of its own."""
    with made_once(tmp_path_factory, "committed") as (folder, is_empty):
        if is_empty:
            copy_of_repository(folder, UNTYPED)
            copy_tree(reproduced / ".dvc" / "cache", folder / ".dvc" / "cache")
            shutil.copy(reproduced / "dvc.lock", folder / "dvc.lock")
            for table in TABLES:
                shutil.copy(reproduced / "artifacts" / table, folder / "artifacts" / table)
            run(["git", *IDENTITY, "commit", "-qam", "run", "--allow-empty"], folder)
    return folder


@pytest.fixture
def terminal(committed: Path, tmp_path: Path) -> Iterator[Terminal]:
    session = Terminal(copy_tree(committed, tmp_path / "trueodds"))
    yield session
    session.close()
