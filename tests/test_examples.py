"""Every example runs: scripts as they are, notebooks in a kernel of this environment."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import nbformat
import numpy as np
import pandas as pd
import pytest
from nbclient import NotebookClient

from tests.conftest import ROOT, environment, run
from trueodds import CalibrationSums

EXAMPLES = ROOT / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))
LONG = (
    *("own_loss", "train", "sum_with_ray", "consume_kafka", "watch_decision_model"),
    *("conformal_sets", "watch_groups", "label_queue", "multi_label"),
)
"""Scripts that train a net, start a cluster or a service: seconds of a processor each."""
NEEDS = {"sum_with_dask": "dask.dataframe", "sum_with_ray": "ray.data"}
"""Scripts for a package that the project does not install."""
MOST_BYTES = 200_000

each_notebook = pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)


@pytest.mark.parametrize(
    "script",
    [pytest.param(path, marks=[pytest.mark.full] * (path.stem in LONG), id=path.stem) for path in SCRIPTS],
)
def test_a_script_runs(script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if needed := NEEDS.get(script.stem):
        pytest.importorskip(needed.partition(".")[0], reason=f"{needed} is not installed")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    done = run([sys.executable, str(script)], tmp_path)
    assert "ECE" in done.stdout


@pytest.mark.parametrize("name", ["conformal_sets", "label_queue"])
def test_a_script_ends_if_its_service_does_not_start(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script that waits for ever names no cause."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("TRUEODDS_MAX_JSON_VALUES", "none")
    service = runpy.run_path(str(EXAMPLES / f"{name}.py"))["service"]
    with (
        pytest.raises(SystemExit, match=r"did not start. To see why, run: .* -m trueodds serve"),
        service(),
    ):
        pass


@pytest.mark.parametrize("name", [pytest.param("dask"), pytest.param("ray", marks=pytest.mark.full)])
def test_sums_of_batches_are_those_of_all_rows(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = pytest.importorskip(name, reason=f"{name} is not installed")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    script = runpy.run_path(str(EXAMPLES / f"sum_with_{name}.py"))
    script["write_answers"](tmp_path, files=3, rows=200)
    found = script["add_up"](tmp_path).cells
    if name == "ray":
        package.shutdown()
    rows = pd.concat([pd.read_parquet(path) for path in sorted(tmp_path.iterdir())])
    classes = script["CLASSES"]
    expected = CalibrationSums.from_probabilities(
        rows[classes].to_numpy(), rows["label"].to_numpy(object), classes=classes
    )
    assert (found[[0, 2]] == expected.cells[[0, 2]]).all() and found[0].sum() == 600
    np.testing.assert_allclose(found, expected.cells, rtol=1e-9)


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
