"""Every example runs: scripts as they are, notebooks in a kernel of this environment."""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.conftest import ROOT, environment, run

EXAMPLES = ROOT / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))
TRAINING = ("own_loss", "train")
"""Scripts that train a net: some ten seconds of a processor each."""
MOST_BYTES = 200_000

each_notebook = pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)


@pytest.mark.parametrize(
    "script",
    [pytest.param(path, marks=[pytest.mark.full] * (path.stem in TRAINING), id=path.stem) for path in SCRIPTS],
)
def test_a_script_runs(script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    done = run([sys.executable, str(script)], tmp_path)
    assert "ECE" in done.stdout


def test_the_script_that_trains_is_short() -> None:
    lines = (EXAMPLES / "train.py").read_text(encoding="utf-8").splitlines()
    assert len([line for line in lines if line.strip()]) <= 42


@pytest.mark.full
@each_notebook
def test_a_notebook_runs(notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its outputs may differ a little from those that are stored; an error in a cell fails."""
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    content = nbformat.read(notebook, as_version=4)
    NotebookClient(content, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()


@each_notebook
def test_a_notebook_holds_its_outputs_and_no_path_of_a_machine(notebook: Path) -> None:
    content = nbformat.read(notebook, as_version=4)
    outputs = [output for cell in content.cells for output in cell.get("outputs", [])]
    assert outputs and not [output for output in outputs if output.output_type == "error"]
    text = notebook.read_text(encoding="utf-8")
    assert len(text) < MOST_BYTES and "/home/" not in text and "/tmp/" not in text
    assert "image/png" in text or "<svg" in text, "a picture"
