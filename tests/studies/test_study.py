"""`trueodds study` in a clone: runs in DVC's graph, one that fails, and what a second call does not do again."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import NO_PART, copy_of_repository, environment
from trueodds.files import read_json

STUDY = """
title: two rates
hold: {epochs: 1, weight_decay: 1, publish_nothing: 1}
vary: {learning_rate: [0.1, 100.0]}
calibrators: [identity]
"""


def study(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pipeline", "study", "rates.yaml", *words]
    return subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=600)


@pytest.mark.full
def test_a_failing_run_stops_no_other_and_what_is_done_stays(reproduced: Path, tmp_path: Path) -> None:
    folder = copy_of_repository(tmp_path / "clone", NO_PART)
    shutil.copytree(reproduced / ".dvc" / "cache", folder / ".dvc" / "cache")
    shutil.copy(reproduced / "dvc.lock", folder / "dvc.lock")
    (folder / "rates.yaml").write_text(STUDY)
    refused = study(folder)
    assert refused.returncode == 1 and "unknown parameter 'publish_nothing'" in refused.stderr
    (folder / "rates.yaml").write_text(STUDY.replace(", publish_nothing: 1", ""))
    first = study(folder)
    assert first.returncode == 1, first.stdout + first.stderr
    assert "1 run of 2 failed" in first.stderr and "learning_rate=100.0: dvc repro ended" in first.stderr
    assert "training has diverged" in first.stderr, "the last lines of its log say why"
    assert first.stdout.count("| identity |") == 1
    (done,) = (folder / ".run" / "studies").glob("*/run.json")
    assert read_json(done)["settings"]["training"]["learning_rate"] == 0.1
    listing = [sys.executable, "-m", "dvc", "exp", "list", "--name-only"]
    listed = subprocess.run(listing, cwd=folder, capture_output=True, text=True, env=environment())
    assert listed.stdout.split() == [f"study-{done.parent.name}"]

    text = STUDY.replace(", publish_nothing: 1", "").replace("[identity]", "[identity, temperature]")
    (folder / "rates.yaml").write_text(text.replace(", 100.0", ""))
    shown = study(folder, "--dry-run").stdout
    assert "two rates: 1 run, 1 done" in shown and "done  " in shown
    again = study(folder)
    assert again.returncode == 0 and again.stdout.count("| temperature |") == 1, again.stderr
    assert "train" not in again.stderr and (folder / "studies" / "rates" / "study.csv").is_file()
