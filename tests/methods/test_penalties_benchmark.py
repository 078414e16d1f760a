"""benchmarks/training/methods.py runs, and its record makes a table."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks.training import methods as training
from pipeline import methods


def test_one_small_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "training.json"
    words = "--net resnet8 --batch 4 --classes 5 --rounds 1 --device cpu --only ce mmce dca mixup"
    monkeypatch.setattr(sys, "argv", ["training", *words.split(), "--out", str(out)])
    training.main()
    record = json.loads(out.read_text(encoding="utf-8"))
    assert [row["method"] for row in record["methods"]] == ["ce", "dca", "mixup", "mmce"]
    assert [row["spec"] for row in record["methods"]] == ["ce", "ce+dca", "mixup", "mmce"]
    for row in record["methods"]:
        assert row["step"] > 0 and row["loss_ms"] > 0 and 0.9 < row["memory"] < 1.5
    text = training.markdown(record)
    assert all(f"| {row['method']} | " in text for row in record["methods"]) and text.startswith("resnet8, batch 4")


def test_every_part_and_preset_is_measured() -> None:
    specs = training.specs()
    assert set(methods.PRESETS) <= set(specs)
    measured = "+".join(methods.PRESETS[spec].parts if spec in methods.PRESETS else spec for spec in specs.values())
    assert set(measured.split("+")) == set(methods.PARTS)
    for spec in specs.values():
        methods.build(spec)


def test_an_unknown_name_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["training", "--only", "mcme"])
    with pytest.raises(SystemExit):
        training.main()
    assert "allowed are rounds >= 1" in capsys.readouterr().err
