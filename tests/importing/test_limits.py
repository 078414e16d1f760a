"""`trueodds import` in a process with limits: files that loop, fill the memory, or are garbage; nothing is left."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.importing.models import Linear, float_tensor, graph_of, labels_of, vectors
from tests.importing.test_command import command
from trueodds.bundle import open_models


def endless(path: Path) -> None:
    """x + 1 + 1 + ..., 2^62 times."""
    whole = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            helper.make_node("Add", ["sum", "one"], ["more"]),
            helper.make_node("Identity", ["go_on"], ["go_on_again"]),
        ],
        "body",
        [
            whole("turn", TensorProto.INT64, []),
            whole("go_on", TensorProto.BOOL, []),
            float_tensor("sum", ["N", 5]),
        ],
        [whole("go_on_again", TensorProto.BOOL, []), float_tensor("more", ["N", 5])],
        [numpy_helper.from_array(np.array(1, np.float32), "one")],
    )
    constants = [numpy_helper.from_array(np.array(2**62), "turns"), numpy_helper.from_array(np.array(True), "true")]
    loop = helper.make_node("Loop", ["turns", "true", "x"], ["y"], body=body)
    path.write_bytes(graph_of([loop], [float_tensor("x", ["N", 5])], [float_tensor("y", ["N", 5])], constants))


def greedy(path: Path) -> None:
    """x times the sum of 400 million numbers for each row, which are all in memory."""
    nodes: list[onnx.NodeProto] = [
        helper.make_node("ReduceSum", ["x", "axes"], ["sum"], keepdims=1),
        helper.make_node("Expand", ["sum", "sizes"], ["many"]),
        helper.make_node("ReduceSum", ["many", "axes"], ["total"], keepdims=1),
        helper.make_node("Mul", ["x", "total"], ["y"]),
    ]
    constants = [
        numpy_helper.from_array(np.array([1]), "axes"),
        numpy_helper.from_array(np.array([1, 4 * 10**8 // 32]), "sizes"),
    ]
    path.write_bytes(graph_of(nodes, [float_tensor("x", ["N", 5])], [float_tensor("y", ["N", 5])], constants))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    x = vectors(60)
    np.savez(tmp_path / "rows.npz", x=x, y=labels_of(Linear().logits(x)))
    return tmp_path


WORDS = ("m.onnx", "--labelled", "rows.npz", "--publish", "models")


def test_a_loop_that_does_not_end(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    endless(place / "m.onnx")
    assert command(*WORDS, "--seconds", 0.6, trusted=False) == 1
    refused = capfd.readouterr()
    assert (
        "running m.onnx on some of the rows made no progress in 0.6 s, which is the limit; nothing was" in refused.err
    )
    assert "allow more time: --seconds N" in refused.err and "answers now" not in refused.out
    assert sorted(path.name for path in place.iterdir()) == ["m.onnx", "rows.npz"]


@pytest.mark.full
def test_a_model_that_takes_too_much_memory(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    greedy(place / "m.onnx")
    assert command(*WORDS, "--memory", 0.7, trusted=False) == 1
    refused = capfd.readouterr()
    assert (
        "running m.onnx on some of the rows took more than 0.7 GB of memory, which is the limit; nothing was"
        in refused.err
    )
    assert sorted(path.name for path in place.iterdir()) == ["m.onnx", "rows.npz"]


@pytest.mark.full
def test_files_as_they_should_be_and_garbage(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """What is printed is the process's, too; a second import replaces the first one's files."""
    Linear().write(place / "m.onnx")
    assert command(*WORDS, trusted=False) == 0, capfd.readouterr().err
    printed = capfd.readouterr().out
    assert printed.index("m: 3 classes, vector 5") < printed.index(
        "Bundle: imported/m/bundle; in the same folder: logits.npz"
    )
    assert "answers now" in printed and len(open_models(Path("models")).versions("m")) == 1
    files = ["bundle", "calibrators.csv", "logits.npz", "metrics.json"]
    assert sorted(path.name for path in Path("imported/m").iterdir()) == files
    (place / "m.onnx").write_bytes(np.random.default_rng(0).bytes(5000))
    before = (place / "imported/m/bundle/card.json").read_bytes()
    assert command(*WORDS, trusted=False) == 1
    assert "m.onnx is not an ONNX model: export the model to ONNX first" in capfd.readouterr().err
    assert (place / "imported/m/bundle/card.json").read_bytes() == before
    assert [path.name for path in Path("imported").iterdir()] == ["m"]
