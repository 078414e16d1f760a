"""`trueodds import --expected`: the maker's own probabilities tell a class swap, a wrong preprocessing and logits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from tests.importing.models import Linear, float_tensor, graph_of, images, labels_of, vectors
from tests.importing.test_command import command
from tests.importing.test_conversion import softmax

NAMES = "a,b,c"


def written(folder: Path, model: Linear, x: np.ndarray[tuple[int, ...], np.dtype[np.generic]], taken: object) -> None:
    """The model, its rows, and the maker's probabilities of them."""
    logits_NC = model.logits(np.asarray(taken))
    np.savez(folder / "rows.npz", x=x, y=labels_of(logits_NC, 1.0))
    np.save(folder / "p.npy", softmax(logits_NC).round(2))
    model.write(folder / "m.onnx")


def imported(folder: Path, *words: str) -> int:
    own = ["--labelled", folder / "rows.npz", "--out", folder / "out", "--expected", folder / "p.npy"]
    return command(folder / "m.onnx", *own, "--classes", NAMES, *words)


def test_a_class_swap_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(tmp_path, Linear(), vectors(80), vectors(80))
    assert imported(tmp_path) == 0, capsys.readouterr().err
    p_NC = np.load(tmp_path / "p.npy")
    np.save(tmp_path / "p.npy", p_NC[:, [2, 0, 1]])  # the maker's columns: of its classes a, b, c
    assert imported(tmp_path) == 1
    error = capsys.readouterr().err
    assert "its columns are those of the outputs in another order. If they are 'a', 'b', 'c', use --cl" in error
    assert "--classes b,c,a, the order of the model's outputs, and give --expected as a table whose header" in error
    (tmp_path / "p.csv").write_text("\n".join(["a,c,b", *(f"{a},{c},{b}" for b, c, a in p_NC)]) + "\n")
    table = ["--expected", str(tmp_path / "p.csv")]
    assert imported(tmp_path, *table) == 1
    assert "use --classes b,c,a, the order of the model's outputs\n" in capsys.readouterr().err
    assert imported(tmp_path, *table, "--classes", "b,c,a") == 0, capsys.readouterr().err
    np.savez(tmp_path / "p.npz", p=p_NC[:-1])
    assert imported(tmp_path, "--expected", str(tmp_path / "p.npz")) == 1
    assert "p.npz has 79 rows, and " in capsys.readouterr().err
    np.savez(tmp_path / "p.npz", p=np.log(p_NC + 1e-3))
    assert imported(tmp_path, "--expected", str(tmp_path / "p.npz")) == 1
    assert (
        "not probabilities; give the probabilities that the model's maker computes for these" in capsys.readouterr().err
    )


def test_another_preprocessing_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = images(80, 3)
    written(tmp_path, Linear("NCHW", 3), x, ((x / 255 - 0.5) / 0.5).transpose(0, 3, 1, 2))
    assert imported(tmp_path, "--preprocess", "unit") == 1
    assert "the preprocessing differs. Use --preprocess '{mean: 0.5, std: 0.5}'" in capsys.readouterr().err
    assert imported(tmp_path, "--preprocess", "{mean: 0.5, std: 0.5}") == 0, capsys.readouterr().err
    np.save(tmp_path / "p.npy", np.load(tmp_path / "p.npy")[::-1])
    assert imported(tmp_path, "--preprocess", "unit") == 1
    assert "no order of the classes explains it; check the preprocessing" in capsys.readouterr().err


def test_logits_that_look_like_probabilities(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rows of logits that lie in [0, 1] and sum to 1."""
    nodes = [helper.make_node("Identity", ["x"], ["y"])]
    (tmp_path / "m.onnx").write_bytes(graph_of(nodes, [float_tensor("x", ["N", 3])], [float_tensor("y", ["N", 3])]))
    x = softmax(vectors(80, 3).astype(float)).astype(np.float32)
    np.savez(tmp_path / "rows.npz", x=x, y=np.arange(80) % 3)
    np.save(tmp_path / "p.npy", softmax(x.astype(float)))
    assert imported(tmp_path) == 1
    assert "logits were read as probabilities: append a soft" in capsys.readouterr().err
