"""A replay of independent labels against a real service: rows, single truths, and what is said."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.importing.test_multilabel import NAMES, WEIGHTS
from tests.service.label_bundle import write_labels
from tests.service.test_process import server
from trueodds import cli
from trueodds.bundle import open_models
from trueodds.client import Client
from trueodds.inputs import VectorInput
from trueodds.replay import ReplayError
from trueodds.replay.source import ModelSignature, read

TAKES = ModelSignature(VectorInput(features=["heat", "damp"]), NAMES, multilabel=True)


def typed(words: list[str]) -> int:
    return cli.main("trueodds", cli.COMMANDS, words)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rng = np.random.default_rng(1)
    x_N2 = rng.normal(0, 2, (400, 2)).astype(np.float32)
    truth_NL = (rng.random((400, 3)) < 1 / (1 + np.exp(-0.2 * (x_N2 @ WEIGHTS)))).astype(float)
    truth_NL[:, 1][rng.random(400) < 0.5] = np.nan
    file = tmp_path / "data.npz"
    np.savez(file, x_test=x_N2, y_test=truth_NL[:, ::-1], class_names=NAMES[::-1])
    return file


@pytest.mark.full
def test_rows_and_truths_arrive(tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    open_models(tmp_path / "models").publish(write_labels(tmp_path / "bundle").directory)
    with server(tmp_path) as (service, _):
        given = ["replay", "--data", str(data), "--url", str(service.base_url), "--speed", "max"]
        assert typed([*given, "--seconds", "40", "--rate", "10", "--delay", "1s", "--labelled", "0.8", "--drain"]) == 0
        text = capsys.readouterr().out
        assert "/multi-label-report?model=tagger&version=" in text and "labels are off by more than chance" in text
        version = text.rpartition("version=")[2].strip()
        with Client(str(service.base_url)) as client:
            rows = client.label_truths("tagger", version)
        known_L = (~np.isnan(rows.truth_NL)).mean(axis=0)
        assert known_L == pytest.approx([0.8, 0.4, 0.8], abs=0.1)
        # The truths are those of the rows: each label is right as often as the drawn truths say
        says_NL = 1 / (1 + np.exp(-0.2 * rows.logits_NL))
        gap_L = np.nanmean(np.where(np.isnan(rows.truth_NL), np.nan, rows.truth_NL - says_NL), axis=0)
        assert np.abs(gap_L).max() < 0.1
        assert typed([*given, "--seconds", "10", "--until-alarm"]) == 1
        assert "each independent label has its own" in capsys.readouterr().err
        assert typed([*given, "--seconds", "5", "--drift", "labels:1@0s"]) == 0


def test_rows_are_those_of_the_model(tmp_path: Path, data: Path) -> None:
    source = read(data, TAKES)
    assert source.truth_NL is not None and np.isnan(source.truth_NL).any(axis=0).tolist() == [False, True, False]
    assert read(data, TAKES, "test").labels_N.tolist() == list(range(400))
    x = np.zeros((3, 2), np.float32)
    for arrays, words in (
        ({"x_test": x, "y_test": np.zeros(3)}, "expected are truths"),
        ({"x": x, "y": np.full((3, 3), 2.0)}, "expected are truths"),
        ({"x": x[:, :1], "y": np.zeros((3, 3))}, "the model takes float32, N x 2"),
        ({"x": x, "y": np.zeros((3, 3)), "class_names": ["a", "b", "c"]}, "class_names are 'a', 'b', 'c'; the model"),
        ({"x": x, "y": np.zeros((3, 3)), "feature_names": ["damp", "heat"]}, "put the columns in this order"),
    ):
        np.savez(tmp_path / "other.npz", **arrays)
        with pytest.raises(ReplayError, match=words):
            read(tmp_path / "other.npz", TAKES)
    (tmp_path / "rows.csv").write_text("heat,damp\n1,2\n")
    with pytest.raises(ReplayError, match=r"is no \.npz, and the model has independent labels"):
        read(tmp_path / "rows.csv", TAKES)
