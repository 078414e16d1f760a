"""A terminal in a copy of the repository whose DVC cache is that of the run already done."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import IDENTITY, copy_of_repository, run
from tests.docs.terminal import Terminal


@pytest.fixture(scope="session")
def committed(reproduced: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh clone, as it is after somebody has committed what `dvc repro` made. Each walk has a copy of its own."""
    folder = copy_of_repository(tmp_path_factory.mktemp("committed") / "trueodds")
    shutil.copytree(reproduced / ".dvc" / "cache", folder / ".dvc" / "cache")
    shutil.copy(reproduced / "dvc.lock", folder / "dvc.lock")
    for table in ("data/checks.json", "evaluation/metrics.json", "evaluation/calibrators.csv", "model/epochs.csv"):
        shutil.copy(reproduced / "artifacts" / table, folder / "artifacts" / table)
    run(["git", *IDENTITY, "commit", "-qam", "run", "--allow-empty"], folder)
    return folder


@pytest.fixture
def terminal(committed: Path, tmp_path: Path) -> Iterator[Terminal]:
    session = Terminal(Path(shutil.copytree(committed, tmp_path / "trueodds", symlinks=True)))
    yield session
    session.close()
