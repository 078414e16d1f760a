"""Percentages are neither probabilities nor logits: each door that reads either says so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import trueodds
from trueodds import calibrators, cli, metrics
from trueodds.sums.inputs import are_percentages

RNG = np.random.default_rng(11)
P = metrics.softmax(RNG.normal(0, 2, (60, 3)))
Y = (P.cumsum(axis=1)[:, :-1] < RNG.random((60, 1))).sum(axis=1)
HOLDS = "logits holds percentages: every row lies in"


@pytest.mark.parametrize("decimals", [0, 1, 12])
def test_the_library(decimals: int) -> None:
    percent = (100 * P).round(decimals)
    for given in (percent, percent.astype(np.float32), percent.tolist()):
        with pytest.raises(ValueError, match=HOLDS):
            trueodds.fit(given, Y, "temperature")
        with pytest.raises(ValueError, match=HOLDS):
            calibrators.Temperature(2.0)(given)
        with pytest.raises(ValueError, match=r"allowed is \[0, 1\]. Every row sums to 100: divide by 100"):
            trueodds.report(given, Y)
    if not decimals:
        with pytest.raises(ValueError, match=HOLDS):
            trueodds.fit(percent.astype(np.int64), Y, "temperature")
    calibrator = trueodds.fit(trueodds.logits_of(percent / 100, resolution=10.0 ** -(2 + decimals)), Y, "temperature")
    assert isinstance(calibrator, calibrators.Calibrator)


def test_logits_are_no_percentages() -> None:
    logits = RNG.normal(30, 5, (60, 3))
    assert not are_percentages(logits) and trueodds.fit(logits, Y, "temperature").classes == 3
    assert not are_percentages(100.0 * np.eye(3)[Y])  # as sure logits as percentages
    assert not are_percentages(np.full((60, 1), 100.0)) and not are_percentages(-100 * P)
    assert trueodds.fit(100 * P - 1, Y, "temperature").classes == 3  # as the message advises


@pytest.mark.parametrize("suffix", ["csv", "npz"])
def test_the_commands(suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / f"percent.{suffix}"
    percent = (100 * P).round(1)
    if suffix == "csv":
        rows = [f"{a},{b},{c},{y}" for (a, b, c), y in zip(percent.tolist(), np.array(["x", "y", "z"])[Y], strict=True)]
        table.write_text("\n".join(["x,y,z,label", *rows]))
    else:
        np.savez(table, logits=percent, labels=Y)
    out = ["--out", str(tmp_path / "out")]
    assert cli.main("trueodds", cli.COMMANDS, ["calibrate", str(table), *out]) == 1
    assert "holds percentages: divide them by 100, and give --probabilities" in capsys.readouterr().err
    assert cli.main("trueodds", cli.COMMANDS, ["report", str(table), "--logits"]) == 1
    assert "sums to 100; divide them by 100, and leave out --logits" in capsys.readouterr().err
    if suffix == "csv":
        assert cli.main("trueodds", cli.COMMANDS, ["report", str(table)]) == 1
        assert "The columns 'x', 'y', 'z' sum to 100 in every row: divide them by 100" in capsys.readouterr().err
