"""A terminal in a copy of the repository whose DVC cache is that of the run already done."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import copy_of_repository, run
from tests.docs.terminal import Terminal


@pytest.fixture
def terminal(reproduced: Path, tmp_path: Path) -> Iterator[Terminal]:
    """A fresh clone, as it is after somebody has committed what `dvc repro` made."""
    folder = copy_of_repository(tmp_path / "trueodds")
    shutil.copytree(reproduced / ".dvc" / "cache", folder / ".dvc" / "cache")
    shutil.copy(reproduced / "dvc.lock", folder / "dvc.lock")
    for table in ("data/checks.json", "evaluation/metrics.json", "evaluation/calibrators.csv", "model/epochs.csv"):
        shutil.copy(reproduced / "artifacts" / table, folder / "artifacts" / table)
    run(
        ["git", "-c", "user.name=test", "-c", "user.email=test@example.org", "commit", "-qam", "run", "--allow-empty"],
        folder,
    )
    session = Terminal(folder)
    yield session
    session.close()
