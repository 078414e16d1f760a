"""ONNX files of old IR versions and opsets, and what must stay the same when they are lifted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.version_converter
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.importing.models import Linear, float_tensor, graph_of, vectors
from tests.importing.test_conversion import rows, scored, softmax
from trueodds.bundle.stored_bundle import same_answers
from trueodds.calibrators import Temperature
from trueodds.importing import folding
from trueodds.importing.errors import ModelFileError
from trueodds.importing.import_options import ImportOptions
from trueodds.importing.importer import convert
from trueodds.importing.rewriting import session

X = vectors(40)


def old(path: Path, ir: int, opset: int, *, head: str = "probabilities", batch: Any = "batch") -> Linear:
    """A linear model whose weights are graph inputs, as every file of IR version 3 has them."""
    model = Linear(head=head, opset=opset, batch=batch)
    made = onnx.load(model.write(path))
    made.ir_version = ir
    made.graph.input.append(helper.make_tensor_value_info("W", TensorProto.FLOAT, [5, 3]))
    onnx.save(made, path)
    return model


def boosted(path: Path, names: tuple[str, ...] = ("b", "c", "a")) -> None:
    """A classifier of ai.onnx.ml with a zip-map and no opset of ONNX's own, IR version 3, as CatBoost writes it."""
    scores = helper.make_node(
        "LinearClassifier", ["x"], ["label", "p"], domain="ai.onnx.ml", coefficients=np.arange(15.0).tolist(),
        intercepts=[0.0, 1.0, 2.0], multi_class=1, post_transform="SOFTMAX", classlabels_strings=names,
    )  # fmt: skip
    zipped = helper.make_node("ZipMap", ["p"], ["probabilities"], domain="ai.onnx.ml", classlabels_strings=names)
    given = helper.make_tensor_value_info("label", TensorProto.STRING, ["N"])
    dictionary = onnx.ValueInfoProto(name="probabilities")
    dictionary.type.sequence_type.elem_type.map_type.key_type = TensorProto.STRING
    dictionary.type.sequence_type.elem_type.map_type.value_type.tensor_type.elem_type = TensorProto.FLOAT
    data = graph_of([scores, zipped], [float_tensor("x", ["N", 5])], [given, dictionary], opsets={"ai.onnx.ml": 1})
    model = onnx.ModelProto.FromString(data)
    model.ir_version = 3
    onnx.save(model, path)


@pytest.mark.parametrize("batch", ["batch", 1, 3])
@pytest.mark.parametrize(("ir", "opset"), [(3, 7), (3, 8), (4, 9), (6, 11), (7, 13)])
def test_an_old_file_answers_as_before(ir: int, opset: int, batch: Any, tmp_path: Path) -> None:
    model = old(tmp_path / "m.onnx", ir, opset, batch=batch)
    converted = convert(tmp_path / "m.onnx", rows(X), ImportOptions())
    assert np.allclose(softmax(scored(converted, X).astype(float)), softmax(model.logits(X)), atol=1e-5)
    assert onnx.ModelProto.FromString(converted.data).ir_version >= 8
    assert not any("compared" in note for note in converted.notes)


def test_a_zip_map_is_compared_by_its_labels(tmp_path: Path) -> None:
    boosted(tmp_path / "m.onnx")
    converted = convert(tmp_path / "m.onnx", rows(X), ImportOptions())
    assert converted.labels == ("b", "c", "a") and not any("compared" in note for note in converted.notes)


def test_what_conversion_changes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old(tmp_path / "m.onnx", 3, 8)

    def wrong(model: onnx.ModelProto, to: int) -> onnx.ModelProto:
        model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.ones((5, 3), np.float32), "W"))
        model.opset_import[0].version = to
        return model

    monkeypatch.setattr(onnx.version_converter, "convert_version", wrong)
    with pytest.raises(ModelFileError, match=r"after conversion to a current format its answers differ by 0\.\d+; exp"):
        convert(tmp_path / "m.onnx", rows(X), ImportOptions())


def test_an_old_file_takes_a_calibrator(tmp_path: Path) -> None:
    """`trueodds calibrate --onnx` reads foreign files too."""
    model = old(tmp_path / "m.onnx", 3, 8, head="logits")
    folding.fold(tmp_path / "m.onnx", Temperature(2.0), tmp_path / "out.onnx", model.logits(X))
    graph = session(str(tmp_path / "out.onnx"), tmp_path)
    assert [one.name for one in graph.get_inputs()] == ["x"]
    assert np.allclose(graph.run(None, {"x": X})[0], softmax(model.logits(X) / 2), atol=1e-5)


def noisy(path: Path, by: float) -> None:
    """Probabilities of which a small one moves by `by` with the batch's size, as float32 sums of trees do."""
    constants: dict[str, Any] = {"one": np.array([0], np.int64), "by": np.array(by, np.float32)}
    constants |= {"swap": np.array([1, -1, 0], np.float32)}
    nodes = [
        helper.make_node("Softmax", ["x"], ["p"], axis=1),
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "one"], ["count"]),
        helper.make_node("Cast", ["count"], ["number"], to=TensorProto.FLOAT),
        helper.make_node("Div", ["by", "number"], ["small"]),
        helper.make_node("Mul", ["small", "swap"], ["step"]),
        helper.make_node("Add", ["p", "step"], ["y"]),
    ]
    kept = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    path.write_bytes(graph_of(nodes, [float_tensor("x", ["N", 3])], [float_tensor("y", ["N", 3])], kept))


def test_rows_are_compared_in_probabilities(tmp_path: Path) -> None:
    """The logarithm of 1e-6 moves by 0.1 with the last digit of a sum: the row's answer is the same."""
    x = np.tile(np.array([[0, 12, 12]], np.float32), (40, 1)) + vectors(40, 3) / 10
    noisy(tmp_path / "m.onnx", 1e-6)
    converted = convert(tmp_path / "m.onnx", rows(x), ImportOptions())
    alone_NC, together_NC = scored(converted, x[:1]), scored(converted, x)[:1]
    assert np.abs(alone_NC - together_NC).max() > 0.05 and same_answers(alone_NC, together_NC)
    noisy(tmp_path / "m.onnx", 0.05)
    with pytest.raises(
        ModelFileError, match=r"the probabilities of a row depend on the other rows of its batch \(by 0.03"
    ):
        convert(tmp_path / "m.onnx", rows(x), ImportOptions())


def test_logits_stay_compared_as_such() -> None:
    assert not same_answers([[40.0, 0.0]], [[30.0, 0.0]]) and not same_answers([[1.0, 2.0]], [[2.0, 3.0]])
    assert same_answers(np.log([[1e-6, 1 - 1e-6]]), np.log([[1.1e-6, 1 - 1.1e-6]]))
