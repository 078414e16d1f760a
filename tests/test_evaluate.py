"""metrics.json, logits.npz and the reliability diagram."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from pipeline import calibrators, logits, metrics, report
from pipeline.config import Evaluation
from pipeline.evaluate import evaluate, sums_before_and_after
from pipeline.files import read_json, write_json, write_npz
from pipeline.logits import Logits, LogitsError
from pipeline.metrics import CalibrationSums


def rows(n: int = 4000, temperature: float = 2.0) -> tuple[np.ndarray, np.ndarray]:
    """Logits whose labels were drawn from softmax(z / T): temperature scaling is exactly right."""
    generator = np.random.default_rng(5)
    z = generator.normal(0, 3, (n, 4))
    p = metrics.softmax(z / temperature)
    y = (p.cumsum(1) < generator.random((n, 1))).sum(1)
    return z.astype(np.float32), y


def test_every_number_before_and_after() -> None:
    z, y = rows()
    calibrator = calibrators.fit("temperature", z, y)
    table = evaluate(sums_before_and_after(calibrator, z, y), calibrator, Evaluation())
    assert table["calibrator"]["temperature"] == pytest.approx(2.0, rel=0.05)
    before, after = metrics.softmax(z.astype(float)), calibrator(z)
    for when, p in (("before", before), ("after", after)):
        assert table[when]["ece"] == metrics.ece(p, y)
        assert table[when]["nll"] == metrics.nll(p, y)
        assert table[when]["ece_lower"] <= table[when]["ece_estimate"] <= table[when]["ece_upper"]
        assert table[when]["accuracy"] + table[when]["error"] == pytest.approx(1)
    assert table["before"]["ece"] > 0.08 > 0.03 > table["after"]["ece"]
    assert table["notes"] == []


def test_a_difference_below_the_floor_is_called_that() -> None:
    z, y = rows(300, temperature=1.0)
    identity = calibrators.Identity()
    table = evaluate(sums_before_and_after(identity, z, y), identity, Evaluation())
    assert len(table["notes"]) == 1 and "they cannot be told apart" in table["notes"][0]


def test_a_hit_bound_is_written_down() -> None:
    z, y = np.eye(3)[[0, 1, 2]] * 5, np.array([0, 1, 2])
    calibrator = calibrators.fit("temperature", z, y)
    table = evaluate(sums_before_and_after(calibrator, z, y), calibrator, Evaluation())
    assert table["calibrator"]["bound"] == "lower"
    assert "stopped at its lower bound 0.05" in table["notes"][0]


def test_the_diagram_is_deterministic_and_a_picture(tmp_path: Path) -> None:
    z, y = rows(500)
    calibrator = calibrators.fit("temperature", z, y)
    sums = sums_before_and_after(calibrator, z, y)
    table = evaluate(sums, calibrator, Evaluation(bins=10))
    for name in "ab":
        report.reliability_diagram(sums, table, tmp_path / name, "a title")
    for suffix in (".svg", ".png"):
        assert (tmp_path / f"a{suffix}").read_bytes() == (tmp_path / f"b{suffix}").read_bytes()
    assert ElementTree.parse(tmp_path / "a.svg").getroot().tag.endswith("svg")
    with Image.open(tmp_path / "a.png") as image:
        assert image.width > 1000 and len(image.convert("L").getcolors() or []) > 20


def test_the_diagram_of_a_single_row(tmp_path: Path) -> None:
    sums = {"after": CalibrationSums.from_probabilities([[1.0, 0.0]], [0])}
    table = evaluate({"before": sums["after"], **sums}, calibrators.Identity(), Evaluation())
    report.reliability_diagram(sums, table, tmp_path / "one", "one row")


def test_logits_round_trip(tmp_path: Path) -> None:
    z, y = rows(50)
    logits.write(tmp_path / "l.npz", {"val": Logits(z, y), "test": Logits(z[:10], y[:10])})
    back = logits.read(tmp_path / "l.npz", "test")
    assert np.array_equal(back.logits_NC, z[:10]) and np.array_equal(back.labels_N, y[:10])


def test_logits_that_cannot_be_used(tmp_path: Path) -> None:
    path = tmp_path / "l.npz"
    with pytest.raises(LogitsError, match="does not exist; run the train stage first"):
        logits.read(path, "val")
    write_npz(path, {"val_logits": np.zeros((2, 3))})
    with pytest.raises(LogitsError, match="no array val_labels; it holds val_logits"):
        logits.read(path, "val")
    write_npz(path, {"val_logits": np.array([[0.0, np.nan]]), "val_labels": np.array([0])})
    with pytest.raises(LogitsError, match=r"val_logits\[0, 1\] is nan"):
        logits.read(path, "val")
    write_npz(path, {"val_logits": np.zeros((2, 3)), "val_labels": np.array([0, 3])})
    with pytest.raises(LogitsError, match=r"val_labels holds 3; allowed are the class indices 0\.\.2"):
        logits.read(path, "val")


def test_json_files_are_whole_and_hold_no_nan(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    write_json(path, {"b": 1, "a": [0.1]})
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(path, {"a": float("nan")})
    assert read_json(path) == {"b": 1, "a": [0.1]}
