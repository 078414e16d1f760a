"""Every signature that a file may have becomes the one that the service takes, with the file's own numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.importing.models import Linear, float_tensor, graph_of, images, vectors
from trueodds.importing.errors import LabelledRowsError
from trueodds.importing.import_options import ImportOptions, Preprocessing
from trueodds.importing.importer import convert
from trueodds.importing.labelled_rows import ImportRows
from trueodds.importing.rewriting import ServableModel
from trueodds.inputs import Input, InputError, Limits

ROWS = 40


def rows(x: npt.NDArray[np.generic], **names: Any) -> ImportRows:
    return ImportRows("rows", x, np.zeros(len(x), np.int64), **names)


def scored(converted: ServableModel, x: npt.NDArray[np.generic]) -> npt.NDArray[np.float32]:
    """The logits of the converted model, whose signature is the kind's to the letter."""
    session = onnxruntime.InferenceSession(converted.data)
    converted.kind.check_signature(session.get_inputs(), "model")
    assert [(output.name, output.type) for output in session.get_outputs()] == [("logits", "tensor(float)")]
    logits_NC: npt.NDArray[np.float32] = session.run(None, {converted.kind.tensor: x})[0]
    return logits_NC


def softmax(z_NC: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    odds_NC: npt.NDArray[np.float64] = np.exp(z_NC - z_NC.max(axis=1, keepdims=True))
    p_NC: npt.NDArray[np.float64] = odds_NC / odds_NC.sum(axis=1, keepdims=True)
    return p_NC


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("layout", "type", "batch"), [
    ("NCHW", "float32", "batch"), ("NCHW", "float32", 1), ("NCHW", "float32", 8), ("NHWC", "float32", "batch"),
    ("NCHW", "float16", "batch"), ("NCHW", "float64", 1), ("NHWC", "float32", 1),
])  # fmt: skip
def test_pixels_are_normalised_and_ordered_in_the_graph(
    layout: str, type: str, batch: int | str, channels: int, tmp_path: Path
) -> None:
    model, x = Linear(layout, channels, type=type, batch=batch), images(ROWS, channels)
    mean, std = np.array([0.4, 0.5, 0.6][:channels]), np.array([0.2, 0.3, 0.4][:channels])
    options = ImportOptions(preprocessing=Preprocessing.of({"mean": mean.tolist(), "std": std.tolist()}))
    converted = convert(model.write(tmp_path / "m.onnx"), rows(x), options)
    taken = (x / 255 - mean) / std
    expected = model.logits(taken.transpose(0, 3, 1, 2) if layout == "NCHW" else taken)
    assert np.allclose(scored(converted, x), expected, atol=2e-2 if type == "float16" else 1e-4)
    assert converted.kind.shape == (4, 4, channels) and converted.notes == ()


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_a_graph_of_uint8_pixels_needs_no_preprocessing(layout: str, tmp_path: Path) -> None:
    model, x = Linear(layout, 3, type="uint8"), images(ROWS, 3)
    converted = convert(model.write(tmp_path / "m.onnx"), rows(x), ImportOptions())
    assert np.allclose(
        scored(converted, x), model.logits(x.transpose(0, 3, 1, 2) if layout == "NCHW" else x), rtol=1e-4
    )


def test_the_rows_may_have_their_channels_first(tmp_path: Path) -> None:
    model, x = Linear("NCHW", 3, type="uint8"), images(ROWS, 3)
    converted = convert(model.write(tmp_path / "m.onnx"), rows(x.transpose(0, 3, 1, 2)), ImportOptions())
    assert converted.kind.shape == (4, 4, 3)


@pytest.mark.parametrize("type", ["float32", "float64", "int64"])
@pytest.mark.parametrize("head", ["logits", "probabilities", "logit", "probability"])
def test_probabilities_become_logarithms_and_one_column_two(head: str, type: str, tmp_path: Path) -> None:
    model, x = Linear(type=type, head=head), np.round(vectors(ROWS))
    converted = convert(model.write(tmp_path / "m.onnx"), rows(x), ImportOptions())
    z_NC = model.logits(x)
    # Of a float32 sigmoid near 1 the digits are gone: probabilities are compared, not their logarithms.
    assert np.allclose(softmax(scored(converted, x).astype(np.float64)), softmax(z_NC), atol=1e-6)
    if head == "logits":
        assert np.allclose(scored(converted, x), z_NC, atol=1e-4)
    assert converted.classes == z_NC.shape[1]
    said = " ".join(converted.notes)
    assert ("holds probabilities" in said) == (head in ("probabilities", "probability"))
    assert ("is one logit, of the second class" in said) == (head == "logit")


def test_the_logarithm_of_nothing_is_finite_and_said(tmp_path: Path) -> None:
    """float32's sigmoid is exactly 1 from 17 on."""
    model, x = Linear(head="probability"), vectors(ROWS) * 100
    converted = convert(model.write(tmp_path / "m.onnx"), rows(x), ImportOptions())
    assert np.isfinite(scored(converted, x)).all()
    assert "are exactly 0 or 1" in converted.notes[1]


def test_a_column_that_only_looked_like_probabilities_is_no_number_later(tmp_path: Path) -> None:
    """A logit that lies in [0, 1] on the sample of rows: beyond, it must not pass for a sure answer."""
    node = helper.make_node("Identity", ["x"], ["y"])
    (tmp_path / "m.onnx").write_bytes(graph_of([node], [float_tensor("x", ["N", 1])], [float_tensor("y", ["N", 1])]))
    converted = convert(tmp_path / "m.onnx", rows(np.linspace(0, 1, ROWS, dtype=np.float32)[:, None]), ImportOptions())
    logits_NC = scored(converted, np.array([[0.25], [1.5], [-0.5]], np.float32))
    assert np.allclose(logits_NC[0], np.log([0.75, 0.25])) and np.isnan(logits_NC[1:]).any(axis=1).all()


def test_columns_that_are_inputs_are_the_features_by_name(tmp_path: Path) -> None:
    model = Linear(columns=("age", "income", "debt"), features=3)
    x = vectors(ROWS, 3)
    swapped = rows(x[:, [2, 0, 1]], features=("debt", "age", "income"))
    converted = convert(model.write(tmp_path / "m.onnx"), swapped, ImportOptions())
    kind: Input = converted.kind
    assert kind.kind == "vector" and kind.features == ["age", "income", "debt"]
    assert np.allclose(scored(converted, x), model.logits(x), atol=1e-4)


def test_features_can_be_normalised(tmp_path: Path) -> None:
    model, x = Linear(), vectors(ROWS)
    options = ImportOptions(preprocessing=Preprocessing.parse("{mean: [1, 2, 3, 4, 5], std: 2}"))
    converted = convert(model.write(tmp_path / "m.onnx"), rows(x), options)
    assert np.allclose(scored(converted, x), model.logits((x - [1, 2, 3, 4, 5]) / 2), atol=1e-4)
    assert converted.kind.kind == "vector" and converted.kind.features == ["x0", "x1", "x2", "x3", "x4"]


def test_an_output_is_chosen_among_several(tmp_path: Path) -> None:
    model, x = Linear(head="probabilities", more_outputs={"scores": ["N", 3]}), vectors(ROWS)
    converted = convert(model.write(tmp_path / "m.onnx"), rows(x), ImportOptions(output="scores"))
    assert np.allclose(scored(converted, x), model.logits(x), atol=1e-4) and not converted.notes
    assert "'scores' float32" in str(converted.origin["output"])


def test_equal_files_make_equal_models(tmp_path: Path) -> None:
    model, x = Linear("NCHW", 1).write(tmp_path / "m.onnx"), images(ROWS)
    options = ImportOptions(preprocessing=Preprocessing.parse("unit"))
    assert convert(model, rows(x), options).data == convert(model, rows(x), options).data


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("rest", [[-1, 5], [5]])
@pytest.mark.parametrize("as_node", [False, True])
def test_shapes_that_hold_the_batch_follow_the_rows(batch: int, rest: list[int], as_node: bool, tmp_path: Path) -> None:
    """As torch's exporter writes them: in a constant, or in a node of its own."""
    shape = numpy_helper.from_array(np.array([batch, *rest], np.int64), "shape")
    nodes = [helper.make_node("Constant", [], ["shape"], value=shape)] if as_node else []
    nodes += [helper.make_node("Reshape", ["x", "shape"], ["first"]), helper.make_node("Flatten", ["first"], ["y"])]
    taken, given = float_tensor("x", [batch, 5]), float_tensor("y", [batch, 5])
    (tmp_path / "m.onnx").write_bytes(graph_of(nodes, [taken], [given], [] if as_node else [shape]))
    x = vectors(ROWS)
    assert np.array_equal(scored(convert(tmp_path / "m.onnx", rows(x), ImportOptions()), x), x)


def sklearns(path: Path, *, double: bool = False, end: str = "classifier") -> None:
    """Write a graph as skl2onnx does: one-hot categories, classes 1, 2 and 3, and an output of labels.

    `end`: the classifier itself names its classes, or a constant from which the largest score picks.
    """
    kind = TensorProto.DOUBLE if double else TensorProto.FLOAT
    ml, names = "ai.onnx.ml", [1, 2, 3]
    nodes = [
        helper.make_node("OneHotEncoder", ["x"], ["hot"], domain=ml, cats_int64s=[7, 8]),
        helper.make_node("ReduceSum", ["hot", "axis"], ["scores"], keepdims=0),
        helper.make_node("MatMul", ["scores", "w"], ["z"]),
    ]
    constants = {"axis": np.array([2]), "w": np.eye(3, dtype=np.float32), "names": np.array(names)}
    if end == "classifier":
        nodes.append(
            helper.make_node(
                "LinearClassifier",
                ["z"],
                ["label", "p32"],
                domain=ml,
                coefficients=np.eye(3).ravel().tolist(),
                intercepts=[0.0, 1.0, 2.0],
                multi_class=1,
                post_transform="SOFTMAX",
                classlabels_ints=names,
            )
        )
    else:
        nodes += [
            helper.make_node("Softmax", ["z"], ["p32"], axis=1),
            helper.make_node("ArgMax", ["p32"], ["best"], axis=1),
            helper.make_node("ArrayFeatureExtractor", ["names", "best"], ["picked"], domain=ml),
            helper.make_node("Cast", ["picked"], ["label"], to=TensorProto.INT64),
        ]
    nodes.append(helper.make_node("Cast", ["p32"], ["p"], to=kind))
    nodes.append(helper.make_node("ZipMap", ["p"], ["mapped"], domain=ml, classlabels_int64s=names))
    mapped = onnx.ValueInfoProto(name="mapped")
    mapped.type.sequence_type.elem_type.map_type.key_type = TensorProto.INT64
    mapped.type.sequence_type.elem_type.map_type.value_type.tensor_type.elem_type = kind
    outputs = [helper.make_tensor_value_info("label", TensorProto.INT64, ["N"]), mapped]
    kept = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    data = graph_of(nodes, [float_tensor("x", ["N", 3])], outputs, kept, opsets={"": 17, ml: 1})
    path.write_bytes(data)


@pytest.mark.parametrize("end", ["classifier", "constant"])
@pytest.mark.parametrize("double", [False, True])
def test_the_classes_are_those_of_the_output_and_not_categories(tmp_path: Path, end: str, double: bool) -> None:
    """onnxruntime refuses a zip-map of float64, which the import removes anyway."""
    sklearns(tmp_path / "m.onnx", end=end, double=double)
    converted = convert(tmp_path / "m.onnx", rows(np.full((40, 3), 7.0, np.float32)), ImportOptions())
    assert converted.labels == ("1", "2", "3")
    assert any("cannot run the original" in note for note in converted.notes) == double


def test_whole_numbers_may_not_be_missing_beside_gaps_in_others(tmp_path: Path) -> None:
    """skl2onnx makes an int64 input of each column of whole numbers in a data frame."""
    nodes = [
        helper.make_node("Cast", ["rooms"], ["many"], to=TensorProto.FLOAT),
        helper.make_node("IsNaN", ["a"], ["gap"]),
        helper.make_node("Where", ["gap", "zero", "a"], ["filled"]),
        helper.make_node("Concat", ["filled", "many"], ["z"], axis=1),
    ]
    inputs = [float_tensor("a", ["N", 1]), helper.make_tensor_value_info("rooms", TensorProto.INT64, ["N", 1])]
    zero = numpy_helper.from_array(np.zeros(1, np.float32), "zero")
    (tmp_path / "m.onnx").write_bytes(graph_of(nodes, inputs, [float_tensor("z", ["N", 2])], [zero]))
    x = np.arange(2.0 * ROWS, dtype=np.float32).reshape(ROWS, 2)
    x[3, 0] = np.nan
    converted = convert(tmp_path / "m.onnx", rows(x), ImportOptions())
    assert converted.kind.model_dump()["whole_numbers"] == ["rooms"]
    assert "The model takes whole numbers for 'rooms': the service refuses other values there." in converted.notes


@pytest.mark.parametrize(
    ("element", "value", "words"),
    [
        (TensorProto.BOOL, 2, "'b' is 2; the model takes 0 or 1 there: send 1 for true and 0 for false"),
        (TensorProto.UINT8, 256, "'b' is 256; the model takes whole numbers from 0 to 255 there"),
        (TensorProto.INT16, 0.5, "'b' is 0.5; the model takes whole numbers there, and would cut the fraction off"),
    ],
)
def test_inputs_of_narrow_types_take_their_own_values_only(
    tmp_path: Path, element: int, value: float, words: str
) -> None:
    """A cast wraps 256 around to 0, and makes 1 of every other boolean."""
    nodes = [
        helper.make_node("Cast", ["b"], ["many"], to=TensorProto.FLOAT),
        helper.make_node("Concat", ["a", "many"], ["z"], axis=1),
    ]
    inputs = [float_tensor("a", ["N", 1]), helper.make_tensor_value_info("b", element, ["N", 1])]
    (tmp_path / "m.onnx").write_bytes(graph_of(nodes, inputs, [float_tensor("z", ["N", 2])]))
    x = np.arange(2.0 * ROWS, dtype=np.float32).reshape(ROWS, 2) / ROWS
    x[:, 1] = np.arange(ROWS) % 2
    kind = convert(tmp_path / "m.onnx", rows(x), ImportOptions()).kind
    assert kind.from_json([[0.5, 1], {"a": 2, "b": 0}], Limits()).tolist() == [[0.5, 1], [2, 0]]
    with pytest.raises(InputError) as refused:
        kind.from_json([[0.5, 1], {"a": 2, "b": value}], Limits())
    assert words in str(refused.value).replace("instances[1]['b']", "'b'")
    x[3, 1] = value
    with pytest.raises(LabelledRowsError, match=r"whole numbers.* in row 3, counted from 0, column 'b'"):
        convert(tmp_path / "m.onnx", rows(x), ImportOptions())
