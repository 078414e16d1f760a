"""What an import refuses: each message says what stands there and the cure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.importing.models import Linear, float_tensor, graph_of, images, labels_of, vectors
from trueodds.errors import UserError
from trueodds.importing import importer, labelled_rows
from trueodds.importing.errors import ModelFileError
from trueodds.importing.import_options import ImportOptions, Preprocessing
from trueodds.importing.importer import convert
from trueodds.importing.labelled_rows import ImportRows
from trueodds.importing.rewriting import session
from trueodds.importing.scoring import ScoredModel, class_numbers
from trueodds.texts import quotes


def preprocessed(how: str) -> ImportOptions:
    return ImportOptions(preprocessing=Preprocessing.parse(how))


UNIT = preprocessed("unit")
NAMES = {"x": float_tensor("x", ["N", 5]), "y": float_tensor("y", ["N", 3])}


def relu(taken: str = "x", given: str = "y", domain: str = "", operator: str = "Relu") -> onnx.NodeProto:
    return helper.make_node(operator, [taken], [given], domain=domain)


def external(path: Path) -> None:
    Linear().write(path)
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    path.with_name("weights.bin").unlink()


def save(data: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(data)


def expanding(path: Path) -> None:
    """A graph that holds its batch of 1 inside: a token of its own is put before those of each row."""
    nodes = [
        helper.make_node("Expand", ["token", "shape"], ["tokens"]),
        helper.make_node("Concat", ["tokens", "x"], ["y"], axis=1),
    ]
    constants = [
        numpy_helper.from_array(np.array([1, 5], np.int64), "shape"),
        numpy_helper.from_array(np.zeros((1, 5), np.float32), "token"),
    ]
    save(graph_of(nodes, [float_tensor("x", [1, 5])], [float_tensor("y", [1, 10])], constants))(path)


def mixing(path: Path) -> None:
    """Each row minus the mean of the batch, as a normalisation in training mode has it."""
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["mean"], axes=[0]),
        helper.make_node("Sub", ["x", "mean"], ["y"]),
    ]
    save(graph_of(nodes, [NAMES["x"]], [float_tensor("y", ["N", 5])]))(path)


def two_inputs(path: Path) -> None:
    node = helper.make_node("Add", ["x", "z"], ["y"])
    save(graph_of([node], [NAMES["x"], float_tensor("z", ["N", 5])], [float_tensor("y", ["N", 5])]))(path)


def texts(path: Path) -> None:
    node = helper.make_node("LabelEncoder", ["x"], ["y"], domain="ai.onnx.ml", keys_strings=["a"], values_floats=[1.0])
    taken = helper.make_tensor_value_info("x", TensorProto.STRING, ["N", 1])
    save(graph_of([node], [taken], [float_tensor("y", ["N", 1])], opsets={"": 17, "ai.onnx.ml": 2}))(path)


def sigmoids(path: Path) -> None:
    node = helper.make_node("Sigmoid", ["x"], ["y"])
    save(graph_of([node], [NAMES["x"]], [float_tensor("y", ["N", 5])]))(path)


def labels_alone(path: Path) -> None:
    node = helper.make_node("ArgMax", ["x"], ["y"], axis=1, keepdims=0)
    given = helper.make_tensor_value_info("y", TensorProto.INT64, ["N"])
    save(graph_of([node], [NAMES["x"]], [given]))(path)


X, PIXELS = vectors(40), images(40, 3)
FILES = [
    (save(b""), X, ImportOptions(), "m.onnx is empty; export the model to ONNX first"),
    (save(b"hello"), X, ImportOptions(), "is not an ONNX model: export the model to ONNX first"),
    (save(b"PK\x03\x04 archive"), X, ImportOptions(), "a zip archive, as torch.save and Keras write; export the"),
    (save(b'{"learner":{"attributes"'), X, ImportOptions(), "a model of XGBoost; convert it with onnxmltools"),
    (save(b"{L\x00\x00learner"), X, ImportOptions(), "a model of XGBoost; convert it with onnxmltools"),
    (save(b"tree\nversion=v4\n"), X, ImportOptions(), "a model of LightGBM; convert it with onnxmltools"),
    (save(b"CBM10\x9f"), X, ImportOptions(), 'a model of CatBoost; write it with save_model("model.onnx"'),
    (save(b'{"nodes": []}'), X, ImportOptions(), "JSON; write the model with its library's export to ONNX"),
    (save(b"\x80\x04 pickle"), X, ImportOptions(), "a Python pickle; convert the model, scikit-learn's with skl2onnx"),
    (external, X, ImportOptions(),
     "stores weights in weights.bin, which is not in the same folder; copy weights.bin into"),
    (save(graph_of([relu(domain="acme")], [NAMES["x"]], [NAMES["y"]], opsets={"": 17, "acme": 1})), X, ImportOptions(),
     "has custom operators that onnxruntime does not support: acme.Relu; export the model with ONNX's own"),
    (save(graph_of([relu(domain="ai.onnx.contrib", operator="StringUpper")], [NAMES["x"]], [NAMES["y"]],
                   opsets={"": 17, "ai.onnx.contrib": 1})), X, ImportOptions(),
     "has operators of the package onnxruntime-extensions, which no service loads: ai.onnx.contrib.StringUpper;"),
    (save(graph_of([relu(operator="Foo")], [NAMES["x"]], [NAMES["y"]])), X, ImportOptions(), "Foo"),
    (Linear(opset=99).write, X, ImportOptions(), "has opset 99; the installed onnxruntime"),
    (Linear(ir=99).write, X, ImportOptions(), "has IR version 99; the installed onnxruntime"),
    (two_inputs, X, ImportOptions(),
     "takes 2 inputs: 'x' float32 [?, 5]; 'z' float32 [?, 5]; a served model takes one input"),
    (texts, X, ImportOptions(), "takes 'x' string [?, 1]; allowed are numbers"),
    (Linear().write, X, ImportOptions(input="image"),
     "image is expected (by --input, or as the kind of the rows), but"),
    (Linear(more_outputs={"raw": ["N", 3]}).write, X, ImportOptions(),
     "has 2 outputs that may be logits or probabilities: 'z' float32 [32, 3]; 'raw' float32 [32, 3]; choose one: --ou"),
    (Linear(more_outputs={"raw": ["N", 3]}).write, X, ImportOptions(output="row"),
     "no output 'row'; it has 'z' float32"),
    (labels_alone, X, ImportOptions(), "has no output of float numbers, but 'y' int64 [?]; export its"),
    (sigmoids, X, ImportOptions(), "each value of 'y' lies in [0, 1], and rows sum to"),
    (expanding, X, ImportOptions(), "its batch of 1 is also fixed inside the graph: export it with a dynamic batch"),
    (mixing, X, ImportOptions(), "the logits of a row depend on the other rows of its batch"),
    (Linear("NCHW", 3).write, PIXELS, ImportOptions(), "give the preprocessing: --preprocess imagenet, unit"),
    (Linear("NCHW", 3).write, PIXELS[:, :3], UNIT, "takes rows of shape (4, 4, 3)"),
    (Linear("NCHW", 3).write, PIXELS / 255, UNIT, "allowed are whole numbers 0..255. Send pixels as they"),
    (Linear("NCHW", 3).write, X, UNIT, "expected images, N x height x width x channels (1 or 3), pixels"),
    (Linear("NCHW", 3).write, PIXELS, preprocessed("{size: 8}"), "size is 8, but"),
    (Linear("NCHW", 3).write, PIXELS, preprocessed("{mean: [0, 0]}"), "mean has 2 numbers"),
    (Linear("NHWC", 3, type="uint8").write, PIXELS, preprocessed("imagenet"),
     "uint8 [?, 4, 4, 3], whole numbers, and --preprocess makes fractions, which would be cut off: remove --pre"),
    (Linear("NHWC", 3, type="uint8").write, PIXELS, preprocessed("{crop: 0.9}"),
     "if it has only a size or a crop, add {scale: 1}"),
    (Linear(type="int64").write, np.rint(X), preprocessed("{mean: 0.5}"), "and --preprocess makes fractions, which"),
    (Linear(type="int64").write, X, ImportOptions(), "whole numbers, and rows holds"),
    (Linear(type="int64").write, np.rint(X) + np.float32(2**25), ImportOptions(), "beyond the 16,777,216 up to which"),
    (Linear().write, vectors(40, 4), ImportOptions(), "has 4 features in each row, and"),
    (Linear().write, PIXELS, ImportOptions(), "takes vectors, 'x' float32 [?, 5]; rows holds an array of shape"),
]  # fmt: skip


@pytest.mark.parametrize(("write", "x", "options", "message"), FILES, ids=range(len(FILES)))
def test_a_file_that_cannot_be_imported(
    write: Callable[[Path], object], x: npt.NDArray[np.generic], options: ImportOptions, message: str, tmp_path: Path
) -> None:
    write(path := tmp_path / "m.onnx")
    with pytest.raises(UserError) as refusal:
        convert(path, ImportRows("rows", x, np.zeros(len(x), np.int64)), options)
    assert message in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "imagenett",
            "allowed are imagenet, unit, raw, a mapping such as {mean: 0.5, std: 0.5}, or a YAML",
        ),
        (
            "{meen: 1}",
            "no key 'meen'; allowed: mean, std, scale, size, crop, interpolation, layout. Did you",
        ),
        ("{std: 0}", "std and scale must not be 0"),
        ("{layout: CHW}", "preprocess: layout = 'CHW'"),
        ("{mean: [1", "not a mapping"),
    ],
)
def test_preprocessing_that_cannot_be_meant(text: str, message: str) -> None:
    with pytest.raises(UserError) as refusal:
        Preprocessing.parse(text)
    assert message in str(refusal.value)


COLUMNS = "a,b,label\n"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "t.csv",
            "a,b,lable\n1,2,3\n",
            "has no column 'label'; it has 'a', 'b', 'lable'; name the column of the labels",
        ),
        ("t.csv", COLUMNS + "1,2\n", "row 2 has 2 cells, the header 3"),
        (
            "t.csv",
            COLUMNS + "1,x,0\n",
            "row 2, column 'b' holds 'x'; allowed are numbers, and an empty cell for a missing one; make numbers of",
        ),
        ("t.csv", COLUMNS + "1,2,0\n1,2,\n", "row 3 has no label; take out rows without one"),
        ("t.csv", "a,a,label\n1,2,0\n", "has the column 'a' twice"),
        ("t.csv", "label\n1\n", "has no column but 'label'"),
        ("t.csv", COLUMNS, "holds no rows"),
        ("t.txt", "", "ends in .txt; allowed are an .npz with x and y, a folder of class folders, a .csv"),
        ("t.npz", "zip", "is not a complete .npz file"),
    ],
)
def test_tables_that_hold_no_rows(name: str, text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError) as refusal:
        labelled_rows.read(tmp_path / name)
    assert message in str(refusal.value)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": X}, "no array y; it holds x. Needed are x, the rows, and y, their labels"),
        ({"x": X, "y": np.zeros(3)}, "one label for each row"),
        ({"x": X, "y": np.zeros(40)}, "y is float64; allowed are whole numbers and names"),
        (
            {"x": X, "y": np.zeros(40, int), "feature_names": ["a"]},
            "feature_names has 1 names; x has the shape (40, 5)",
        ),
    ],
)
def test_arrays_that_hold_no_rows(arrays: dict[str, npt.ArrayLike], message: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "rows.npz", **arrays)  # type: ignore[arg-type]
    with pytest.raises(UserError) as refusal:
        labelled_rows.read(tmp_path / "rows.npz")
    assert message in str(refusal.value)


def test_a_folder_without_images(tmp_path: Path) -> None:
    (tmp_path / "cat").mkdir()
    with pytest.raises(UserError, match="holds no images in class folders"):
        labelled_rows.read(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"does not exist; --labelled takes an \.npz"):
        labelled_rows.read(tmp_path / "nothing.npz")


def test_columns_that_the_model_does_not_name_are_named(tmp_path: Path) -> None:
    """A graph of one input takes a table's columns in the table's order, and says so; one of several takes names."""
    names, x, y = ("b", "a", "c"), np.rint(vectors(40, 3)), np.zeros(40, np.int64)
    rows_of = ImportRows("t.csv", x, y, features=names)
    whole = convert(Linear(features=3, type="int64").write(tmp_path / "m.onnx"), rows_of, ImportOptions())
    order = "The model does not name its features; the columns of t.csv are used in their order: 'b', 'a', 'c'."
    assert (
        order in whole.notes
        and "The model takes whole numbers for all features: the service refuses other values there." in whole.notes
    )
    named = Linear(columns=("a", "b", "c"), features=3).write(tmp_path / "named.onnx")
    assert not any("does not name" in note for note in convert(named, rows_of, ImportOptions()).notes)


def test_a_row_of_a_sample_has_the_number_of_its_table() -> None:
    """A model is first tried on some of the rows. A table's header is row 1; an array's first row has the index 0."""
    rows_of = ImportRows("t.csv", vectors(100, 2), np.zeros(100, np.int64))
    assert rows_of.take([7, 40]).take([1]).place(0) == "row 42"
    assert replace(rows_of, source="t.npz").take([7, 40]).place(1) == "row 40, counted from 0"


def test_pixels_that_preprocessing_leaves_alone(tmp_path: Path) -> None:
    model = Linear("NHWC", 3, type="uint8").write(tmp_path / "m.onnx")
    rows_of = ImportRows("rows", PIXELS, np.zeros(40, np.int64))
    plain, raw = (
        convert(model, rows_of, options) for options in (ImportOptions(), preprocessed("{scale: 1, crop: 0.9}"))
    )
    logits = [session(one.data, model).run(None, {"images": PIXELS})[0] for one in (plain, raw)]
    assert np.array_equal(*logits)


def labelled(count: int = 200, **names: Any) -> ImportRows:
    x = vectors(count)
    return ImportRows("rows", x, labels_of(Linear().logits(x)), **names)


def of(y: npt.NDArray[np.generic], **names: Any) -> ImportRows:
    return ImportRows("rows", vectors(len(y)), y, **names)


ABC = ("a", "b", "c")


@pytest.mark.parametrize(
    ("given", "classes", "message"),
    [
        (of(np.array([0, 1, 2, 3] * 20)), (), "has the label '3', which is not a class; the classes are '0', '1', '2'"),
        (of(np.array([0, 1, 2, 3] * 20)), ABC, "has the label 3, but the model has 3 classes; allowed are 0..2"),
        (of(np.array([0, 1, 2] * 20)), ("10", "20", "30"), "has the label '0', which is not a class"),
        (of(np.array([-1, 0, 1] * 20)), ABC, "has the label -1, but the model has 3 classes"),
        (of(np.array([*"abcd"] * 20)), ABC, "has the label 'd', which is not a class; the classes are 'a', 'b', 'c'"),
        (of(np.array([*"xyz"] * 20)), ABC, "has the label 'x', which is not a class"),
        (of(np.array([*"abc"] * 20)), (), "labels its rows 'a', 'b', 'c', and nothing says which output of"),
        (of(np.array([0, 1] * 20)), (), "has no row of 1 of 3 classes: '2'; add rows of them, or use --allow-unseen"),
        (labelled(classes=("a", "b")), (), "rows names 2 classes ('a', 'b'), and"),
        (labelled(), ("a", "b"), "--classes names 2 classes ('a', 'b'), and"),
        (labelled(30), (), "holds 30 rows; at least 40 are needed, 20 in each split"),
        (
            of((labels_of(Linear().logits(vectors(200)), 0.1) + 1) % 3),
            (),
            "if its classes are in the order '1', '2', '0'",
        ),
    ],
)
def test_labels_that_are_not_the_models(
    given: ImportRows, classes: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError) as refusal:
        importer.score(Linear().write(tmp_path / "m.onnx"), given, None, ImportOptions(classes=classes))
    assert message in str(refusal.value)


def test_an_order_that_was_stated_is_taken(tmp_path: Path) -> None:
    given = of((labels_of(Linear().logits(vectors(200)), 0.1) + 1) % 3)
    scored = importer.score(Linear().write(tmp_path / "m.onnx"), given, None, ImportOptions(classes=("0", "1", "2")))
    assert scored.classes == ("0", "1", "2")


@pytest.mark.parametrize(
    ("given", "expected", "note"),
    [
        ((), ("a", "b", "c"), ""),
        (("a", "b", "c"), ("a", "b", "c"), ""),
        (("A", "B ", "c"), ("A", "B ", "c"), ""),
        (
            ("one", "two", "three"),
            ("one", "two", "three"),
            "config.json names the classes 'a', 'b', 'c'; --classes names",
        ),
        (("a", "two", "c"), ("a", "two", "c"), ""),
    ],
)
def test_id2label_beside_the_file_names_the_classes_unless_the_user_does(
    given: tuple[str, ...], expected: tuple[str, ...], note: str, tmp_path: Path
) -> None:
    path = Linear().write(tmp_path / "m.onnx")
    (tmp_path / "config.json").write_text('{"id2label": {"2": "c", "0": "a", "1": "b"}}')
    index_N = labels_of(Linear().logits(vectors(200)), 0.1)
    rows_of = of(np.array(expected)[index_N])
    scored = importer.score(path, rows_of, None, ImportOptions(classes=given))
    assert scored.classes == expected
    notes = [one for one in scored.notes if "--classes" in one]
    assert [note in one for one in notes] == [True] * bool(note)


@pytest.mark.parametrize("given", [("c", "a", "b"), ("b", "x", "c"), ("C", "b", "a")])
def test_an_order_that_contradicts_the_models_own_names_both(given: tuple[str, ...], tmp_path: Path) -> None:
    path = Linear().write(tmp_path / "m.onnx")
    (tmp_path / "config.json").write_text('{"id2label": {"0": "a", "1": "b", "2": "c"}}')
    rows_of = of(np.array(given)[labels_of(Linear().logits(vectors(200)), 0.1)])
    with pytest.raises(UserError) as refusal:
        importer.score(path, rows_of, None, ImportOptions(classes=given))
    message = str(refusal.value)
    assert f"--classes names output 0 {given[0]!r}, and {tmp_path / 'config.json'} names it 'a'" in message
    assert f"--classes has the order {quotes(given)}, and" in message and "the order 'a', 'b', 'c'; remove" in message


def test_numbers_of_an_npz_count_in_its_own_class_names(tmp_path: Path) -> None:
    """The order of `class_names` may differ from that of the model's outputs, in each of the files."""
    path = Linear().write(tmp_path / "m.onnx")
    index_N = labels_of(Linear().logits(vectors(200)), 0.1)
    straight = of(index_N, classes=ABC)
    turned = of(np.array([1, 2, 0])[index_N], classes=("c", "a", "b"))
    expected = importer.score(path, straight, straight, ImportOptions())
    for val, test, options in (
        (straight, turned, ImportOptions()),
        (turned, straight, ImportOptions(classes=ABC)),
        (turned, of(np.array(ABC)[index_N]), ImportOptions(classes=ABC)),
        (of(turned.y, classes=("C", "A", "B ")), turned, ImportOptions(classes=ABC)),
    ):
        scored = importer.score(path, val, test, options)
        assert scored.classes == ABC
        for split in ("val", "test"):
            assert scored.splits[split].labels_N.tolist() == expected.splits[split].labels_N.tolist()
    renamed = of(index_N, classes=("uno", "due", "tre"))  # none is a class: the numbers are those of the outputs
    scored = importer.score(path, renamed, straight, ImportOptions(classes=ABC))
    assert scored.splits["val"].labels_N.tolist() == index_N.tolist()


def test_test_rows_in_another_order_and_without_names_are_noticed(tmp_path: Path) -> None:
    path, index_N = Linear().write(tmp_path / "m.onnx"), labels_of(Linear().logits(vectors(200)), 0.1)
    given = of(index_N, classes=ABC)
    test = replace(of((index_N + 1) % 3), source="later.npz")
    with pytest.raises(UserError, match=r"later.npz: the model is right about .* if its classes are in the order"):
        importer.score(path, given, test, ImportOptions())
    four = of(np.append(index_N[:-1], 3), classes=ABC)
    with pytest.raises(UserError, match="rows has the label 3, and names 3 classes: 'a', 'b', 'c'; allowed"):
        importer.score(path, four, None, ImportOptions(classes=("c", "b", "a")))


def with_metadata(path: Path, **entries: str) -> Path:
    model = onnx.load(Linear(features=3).write(path))
    helper.set_model_props(model, entries)
    onnx.save(model, path)
    return path


@pytest.mark.parametrize("key", ["feature_names", "feature_names_in_", "features", "input_features"])
@pytest.mark.parametrize("text", ['["age", "income", "debt"]', "['age', 'income', 'debt']", "age, income,debt"])
def test_features_that_the_metadata_name_are_matched_by_name(key: str, text: str, tmp_path: Path) -> None:
    path, x = with_metadata(tmp_path / "m.onnx", **{key: text}), vectors(90, 3)
    y = labels_of(Linear(features=3).logits(x))

    def scored(columns: list[int], *names: str) -> ScoredModel:
        return importer.score(path, ImportRows("table", x[:, columns], y, features=names), None, ImportOptions())

    straight, swapped = scored([0, 1, 2], "age", "income", "debt"), scored([2, 0, 1], "Debt", "age", "income")
    assert np.array_equal(straight.splits["val"].logits_NC, swapped.splits["val"].logits_NC)
    assert swapped.model.kind.model_dump()["features"] == ["age", "income", "debt"]
    assert not any("does not name its features" in note for note in straight.notes)
    assert "The column 'Debt' of table is the input 'debt'." in swapped.notes
    unnamed = scored([0, 1, 2])
    order = (
        "table does not name its columns; they are used in the order of the model's features: 'age', 'income', 'debt'."
    )
    assert order in unnamed.notes and np.array_equal(unnamed.splits["val"].logits_NC, straight.splits["val"].logits_NC)
    with pytest.raises(UserError, match=r"no column 'income', which the model takes; .* Did you mean 'incom'"):
        scored([0, 1, 2], "age", "incom", "debt")
    with pytest.raises(UserError, match="table has the column 'id', which the model does not take; remove it"):
        scored([0, 1, 2, 0], "age", "income", "debt", "id")
    with pytest.raises(UserError, match="table has 2 features in each row"):
        scored([0, 1])


@pytest.mark.parametrize(
    "text", ['["age", "age", "debt"]', '["age", 3, "debt"]', "age,,debt", "[" * 100_000, '{"a": 1}']
)
def test_metadata_that_name_no_features_are_left_alone(text: str, tmp_path: Path) -> None:
    path = with_metadata(tmp_path / "m.onnx", feature_names=text)
    rows_of = ImportRows("t.csv", vectors(40, 3), np.zeros(40, np.int64), features=("b", "a", "c"))
    model = convert(path, rows_of, ImportOptions())
    assert model.kind.model_dump()["features"] == ["b", "a", "c"]
    assert any("does not name its features" in note for note in model.notes)


def test_metadata_with_another_number_of_features_are_ignored_with_a_note(tmp_path: Path) -> None:
    path = with_metadata(tmp_path / "m.onnx", feature_names='["age", "income"]')
    rows_of = ImportRows("t.csv", vectors(40, 3), np.zeros(40, np.int64), features=("b", "a", "c"))
    notes = convert(path, rows_of, ImportOptions()).notes
    assert f"The metadata of {path} name 2 features, and the model takes 3: the names are ignored." in notes


def test_classes_without_rows_are_allowed_where_it_is_said(tmp_path: Path) -> None:
    given = of(np.array([0, 1] * 40))
    scored = importer.score(
        Linear().write(tmp_path / "m.onnx"), given, None, ImportOptions(classes=("a", "b", "c"), allow_unseen=True)
    )
    assert scored.splits["val"].logits_NC.shape == (40, 3)


def test_logits_that_are_not_finite_name_the_row(tmp_path: Path) -> None:
    given = labelled()
    assert not isinstance(given.x, tuple)
    given.x[57, 2] = np.nan
    with pytest.raises(
        UserError, match="logits of 1 of 200 rows are not finite, beginning with row 57, counted from 0; check"
    ):
        importer.score(Linear().write(tmp_path / "m.onnx"), given, None, ImportOptions(classes=ABC))


def test_names_in_another_order_are_put_in_the_models(tmp_path: Path) -> None:
    """Tables are read by name; a name that is missing, or one too many, is refused."""
    model = Linear(columns=("age", "income", "debt"), features=3)
    path, x = model.write(tmp_path / "m.onnx"), vectors(90, 3)
    y = labels_of(model.logits(x))

    def scored(columns: list[int], *names: str) -> ScoredModel:
        given = ImportRows("table", x[:, columns], y, features=names)
        return importer.score(path, given, None, ImportOptions(classes=ABC))

    straight, swapped = scored([0, 1, 2], "age", "income", "debt"), scored([2, 0, 1], "debt", "age", "income")
    assert np.array_equal(straight.splits["val"].logits_NC, swapped.splits["val"].logits_NC)
    with pytest.raises(
        UserError, match=r"table has no column 'income', which the model takes; .* Did you mean 'incom'"
    ):
        scored([0, 1, 2], "age", "incom", "debt")
    with pytest.raises(UserError, match="table has the column 'id', which the model does not take; remove it"):
        scored([0, 1, 2, 0], "age", "income", "debt", "id")
    with pytest.raises(UserError, match="table has no column 'debt'"):
        scored([0, 1], "age", "income")


def test_a_name_that_is_no_folders(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"the name '\.\./up' is not allowed"):
        importer.import_model(tmp_path / "m.onnx", labelled(), tmp_path / "out", name="../up")


def test_labels_with_blanks_and_underscores_are_classes_where_nothing_else_is_meant() -> None:
    given = ImportRows("t.csv", np.zeros((3, 1)), np.array(["New York", "new_york", "Rome"]))
    assert class_numbers(given, ["Rome", "New_York"]).tolist() == [1, 1, 0]
    with pytest.raises(UserError, match="the label 'new_york', which is not a class"):
        class_numbers(given, ["Rome", "New York", "New.York"])


def test_a_quantity_beside_texts_is_no_class(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("text,label\n" + "".join(f"tea,{k}.5\n" for k in range(30)))
    with pytest.raises(UserError, match="'label' holds 30 different numbers in 30 rows: a quantity"):
        labelled_rows.read(path, texts=True)


def test_names_with_blanks_and_underscores_are_one_where_nothing_else_is_meant() -> None:
    """Issue: "Sepal Length" was not the input sepal_length."""
    table = ImportRows("t.csv", np.array([[1.0, 2.0]]), np.array(["a"]), features=("Sepal Length", "age"))
    assert np.asarray(table.reorder(["age", "sepal_length"]).x).tolist() == [[2, 1]]
    assert table.notes(["age", "sepal_length"]) == ("The column 'Sepal Length' of t.csv is the input 'sepal_length'.",)
    twice = replace(table, features=("Sepal Length", "sepal.length"))
    with pytest.raises(UserError, match="has no column 'sepal_length', 'age', which the model"):
        twice.reorder(["sepal_length", "age"])


def test_bool_labels_are_the_classes_0_and_1_of_a_model(tmp_path: Path) -> None:
    """skl2onnx numbers bool classes, and a table of pandas spells them."""
    model = Linear(head="probability")
    x = vectors(200)
    y = np.array(["False", "True"])[labels_of(model.logits(x))]
    model.write(tmp_path / "m.onnx")
    scored = importer.score(tmp_path / "m.onnx", ImportRows("t.csv", x, y), None, ImportOptions())
    assert scored.classes == ("False", "True")


def test_float64_that_onnxruntime_refuses_has_a_cure(tmp_path: Path) -> None:
    """scikit-learn's data are float64, and skl2onnx takes the type from an example."""
    node = helper.make_node("Normalizer", ["x"], ["y"], domain="ai.onnx.ml", norm="L1")
    ends = [helper.make_tensor_value_info(name, TensorProto.DOUBLE, ["N", 3]) for name in "xy"]
    (tmp_path / "m.onnx").write_bytes(graph_of([node], ends[:1], ends[1:], opsets={"": 17, "ai.onnx.ml": 1}))
    with pytest.raises(ModelFileError, match=r"export it with float32 inputs, .*astype\(numpy\.float32\)"):
        convert(tmp_path / "m.onnx", ImportRows("rows", X, np.zeros(len(X), np.int64)), ImportOptions())
