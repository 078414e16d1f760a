"""`trueodds import --multi-label`: models with a sigmoid for each label, and rows with partial truths."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from scipy.special import expit, logit

import trueodds
from pipeline.__main__ import main
from tests.importing.models import float_tensor, graph_of
from tests.importing.test_command import command
from trueodds.bundle import Bundle, BundleError, LabelBundle, load_bundle, open_models
from trueodds.calibrators import MultilabelPlatt
from trueodds.importing.errors import ModelFileError
from trueodds.importing.import_options import ImportOptions
from trueodds.importing.importer import convert
from trueodds.importing.labelled_rows import ImportRows

NAMES = ("rain", "snow", "fog")
WEIGHTS = np.array([[1.5, -1.0, 0.5], [0.5, 2.0, -1.5]], np.float32)


def tagger(path: Path, *, sigmoid: bool = False, labels: int = 3, log: bool = False) -> Path:
    """Write x (N, 2) -> x W, with sigmoids or without, or with their logarithm."""
    nodes, output = [helper.make_node("MatMul", ["x", "W"], ["z"])], "z"
    for kind, end in (("Sigmoid", "p"), ("Log", "ln"))[: 2 if log else int(sigmoid)]:
        nodes.append(helper.make_node(kind, [output], [end]))
        output = end
    weights = [numpy_helper.from_array(WEIGHTS[:, :labels].copy(), "W")]
    outputs = [float_tensor(output, ["N", labels])]
    path.write_bytes(graph_of(nodes, [float_tensor("x", ["N", 2])], outputs, weights))
    return path


def rows_of(count: int, labels: int = 3) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Draw inputs, and truths of sigma(.5 z - .5): the model is too sure. A third of the truths is unknown."""
    rng = np.random.default_rng(11)
    x = rng.normal(0, 1.5, (count, 2)).astype(np.float32)
    z_NL = x @ WEIGHTS[:, :labels]
    truth_NL = (rng.random(z_NL.shape) < expit(0.5 * z_NL - 0.5)).astype(float)
    truth_NL[rng.random(z_NL.shape) < 1 / 3] = np.nan
    return x, truth_NL


def table(path: Path, x: npt.NDArray[Any], truth_NL: npt.NDArray[Any], names: tuple[str, ...] = NAMES) -> Path:
    lines = [",".join(["heat", "damp", *(f"y_{name}" for name in names)])]
    for row, truths in zip(x.tolist(), truth_NL.tolist(), strict=True):
        lines.append(",".join([*map(str, row), *("" if np.isnan(t) else f"{t:g}" for t in truths)]))
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def imported(tmp_path: Path) -> LabelBundle:
    model = tagger(tmp_path / "tagger.onnx")
    rows = table(tmp_path / "rows.csv", *rows_of(1500))
    words = [model, "--multi-label", "--labelled", rows, "--classes", "rain,snow,fog", "--out", tmp_path / "out"]
    assert command(*words) == 0
    return LabelBundle.load(tmp_path / "out" / "tagger" / "bundle")


def test_a_bundle_has_the_curves_of_its_calibration_rows(imported: LabelBundle) -> None:
    """The same fit by hand, on the half that the seed chooses."""
    x, truth_NL = rows_of(1500)
    half_N = np.sort(np.array_split(np.random.default_rng(0).permutation(1500), 2)[0])
    twin = MultilabelPlatt.fit(x[half_N] @ WEIGHTS, truth_NL[half_N], classes=NAMES)
    assert imported.card.classes == [*NAMES] and imported.card.multilabel
    assert np.allclose(imported.calibrator.slope_L, twin.slope_L, rtol=1e-4)
    assert np.allclose(imported.calibrator.offset_L, twin.offset_L, atol=1e-4)
    assert np.allclose(imported.calibrator.slope_L, 0.5, atol=0.12)
    session = onnxruntime.InferenceSession(imported.model_path)
    z_NL = session.run(None, imported.card.input.feed(x[:50], [one.name for one in session.get_inputs()]))[0]
    assert np.allclose(imported.probabilities_of(z_NL), twin(x[:50] @ WEIGHTS), atol=1e-4)


def test_the_binary_calibrators_are_the_curves(imported: LabelBundle) -> None:
    z_NL = np.random.default_rng(5).normal(0, 20, (200, 3))
    p_NL = imported.probabilities_of(z_NL)
    for label, platt in enumerate(imported.binary_calibrators()):
        two_N2 = platt(np.column_stack([np.zeros(200), z_NL[:, label]]))
        assert np.allclose(two_N2[:, 1], p_NL[:, label], rtol=1e-12, atol=1e-15)
        assert np.allclose(two_N2.sum(axis=1), 1)


def test_the_card_has_the_reports_of_the_test_rows(imported: LabelBundle) -> None:
    x, truth_NL = rows_of(1500)
    half_N = np.sort(np.array_split(np.random.default_rng(0).permutation(1500), 2)[1])
    p_NL = imported.probabilities_of(x[half_N] @ WEIGHTS)
    report = trueodds.report(p_NL, truth_NL[half_N], multilabel=True, classes=NAMES)
    after = imported.card.metrics["after"]
    assert after["whole"]["nll"] == pytest.approx(report.whole.nll, abs=1e-6)
    assert [one["labelled"] for one in after["by_label"]] == [one.labelled for one in report.by_label]
    assert after["whole"]["nll"] < imported.card.metrics["before"]["whole"]["nll"]
    page = (imported.directory / "MODEL_CARD.md").read_text()
    assert "each of 3 labels: `rain`, `snow`, `fog`" in page and "need not add up to 1" in page


def test_sigmoids_become_logits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x, truth_NL = rows_of(400)
    np.savez(tmp_path / "rows.npz", x=x, y=truth_NL, class_names=NAMES, feature_names=("heat", "damp"))
    model = tagger(tmp_path / "tagger.onnx", sigmoid=True)
    assert command(model, "--multi-label", "--labelled", tmp_path / "rows.npz", "--out", tmp_path) == 0
    assert "holds probabilities (one for each label), not logits" in capsys.readouterr().out
    bundle = LabelBundle.load(tmp_path / "tagger" / "bundle")
    assert bundle.card.training["form"] == "label probabilities"
    session = onnxruntime.InferenceSession(bundle.model_path)
    extreme = np.array([[0.3, -0.2], [40, 40], [-40, 40]], np.float32)
    z_NL = session.run(None, bundle.card.input.feed(extreme, [one.name for one in session.get_inputs()]))[0]
    assert np.allclose(z_NL[0], extreme[0] @ WEIGHTS, atol=1e-4)
    assert np.isfinite(z_NL).all() and np.abs(z_NL).max() == pytest.approx(logit(1 - 2.0**-25), rel=1e-3)


def test_one_label(tmp_path: Path) -> None:
    """One column stays one label; it does not become two classes."""
    x, truth_NL = rows_of(300, 1)
    np.savez(tmp_path / "rows.npz", x=x, y=truth_NL)
    words = ["--multi-label", "--labelled", tmp_path / "rows.npz", "--classes", "rain", "--out", tmp_path]
    assert command(tagger(tmp_path / "one.onnx", labels=1), *words) == 0
    assert len(LabelBundle.load(tmp_path / "one" / "bundle").card.golden.probabilities) == 1


def test_test_rows_are_those_of_a_file(tmp_path: Path) -> None:
    x, truth_NL = rows_of(600)
    rows, later = table(tmp_path / "a.csv", x[:400], truth_NL[:400]), table(tmp_path / "b.csv", x[400:], truth_NL[400:])
    words = ["--multi-label", "--labelled", rows, "--test", later, "--classes", "rain,snow,fog", "--out", tmp_path]
    assert command(tagger(tmp_path / "tagger.onnx"), *words) == 0
    card = json.loads((tmp_path / "tagger" / "bundle" / "card.json").read_text())
    assert card["metrics"]["n"] == int((~np.isnan(truth_NL[400:])).any(axis=1).sum())


def test_test_rows_may_name_the_labels_in_another_order(tmp_path: Path) -> None:
    """Both files name their labels: the truths of the test rows come in the order of the calibration rows."""
    x, truth_NL = rows_of(600)
    model, metrics = tagger(tmp_path / "tagger.onnx"), []
    np.savez(tmp_path / "a.npz", x=x[:400], y=truth_NL[:400], class_names=NAMES)
    for order in ([0, 1, 2], [2, 0, 1]):
        names = [NAMES[k] for k in order]
        np.savez(tmp_path / "b.npz", x=x[400:], y=truth_NL[400:][:, order], class_names=names)
        words = ["--multi-label", "--labelled", tmp_path / "a.npz", "--test", tmp_path / "b.npz", "--out", tmp_path]
        assert command(model, *words) == 0
        metrics.append(LabelBundle.load(tmp_path / "tagger" / "bundle").card.metrics)
    assert metrics[0] == metrics[1]


def test_doors_of_classes_refuse_it(imported: LabelBundle, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="holds a model of independent labels; allowed here are models of exclusive"):
        Bundle.load(imported.directory)
    assert trueodds.load(imported.directory) == load_bundle(imported.directory)
    models = open_models(tmp_path / "models")
    assert models.publish(imported.directory).name == imported.version
    card, calibrator = models.summary("tagger", imported.version)
    assert card.multilabel and calibrator == imported.calibrator


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--positive", "rain"], "--positive is given beside --multi-label, whose labels are not classes"),
        (["--conformal", "lac"], "--conformal is given beside --multi-label"),
        (["--allow-unseen"], "--allow-unseen is given beside --multi-label"),
        (["--label", "y_rain"], "--label y_rain is given beside --multi-label"),
        (["--classes", "rain,snow"], "has the label 'fog', which --classes does not name"),
        (["--classes", "rain,snow,frog"], "has no label 'frog', which --classes names"),
        (["--classes", ""], "argument --classes: is empty; give a value, or leave it out"),
    ],
)
def test_refusals(words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = table(tmp_path / "rows.csv", *rows_of(60))
    given = ["--multi-label", "--labelled", rows, "--classes", "rain,snow,fog", *words, "--out", tmp_path / "out"]
    try:
        assert command(tagger(tmp_path / "tagger.onnx"), *given) != 0
    except SystemExit as ended:  # argparse
        assert ended.code == 2
    assert message in capsys.readouterr().err and not (tmp_path / "out" / "tagger").exists()


def test_a_table_does_not_tell_which_output_is_whose(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = table(tmp_path / "rows.csv", *rows_of(60))
    assert command(tagger(tmp_path / "tagger.onnx"), "--multi-label", "--labelled", rows, "--out", tmp_path) != 0
    message = "but not which output is whose; name them in the order of the model's outputs"
    assert message in capsys.readouterr().err


def test_outputs_of_classes_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A softmax sums to 1 in every row. Sigmoids without the option are refused, with the option as the cure."""
    nodes = [helper.make_node("MatMul", ["x", "W"], ["z"]), helper.make_node("Softmax", ["z"], ["p"])]
    weights = [numpy_helper.from_array(WEIGHTS, "W")]
    path = tmp_path / "softmax.onnx"
    path.write_bytes(graph_of(nodes, [float_tensor("x", ["N", 2])], [float_tensor("p", ["N", 3])], weights))
    rows = table(tmp_path / "rows.csv", *rows_of(60))
    words = ["--labelled", rows, "--classes", "rain,snow,fog", "--out", tmp_path / "out"]
    assert command(path, "--multi-label", *words) == 1
    assert "every row sums to 1, as those of exclusive classes do; leave out --multi-label" in capsys.readouterr().err
    x, _ = rows_of(60)
    np.savez(tmp_path / "classes.npz", x=x, y=np.arange(60) % 3)
    assert command(tagger(tmp_path / "tagger.onnx", sigmoid=True), "--labelled", tmp_path / "classes.npz") == 1
    assert "give --multi-label if labels can occur together" in capsys.readouterr().err


def test_publishing_by_the_command(imported: LabelBundle, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is tried, published and promoted. A promise to act alone and the role of a shadow are refused."""
    words = ["publish", "--bundle", str(imported.directory), "--models", str(tmp_path / "models")]
    refused = [
        (["--act-alone", "threshold=.9,risk=.05,confidence=.95"], "a promise is about one question"),
        (["--role", "shadow"], "which has no shadow"),
    ]
    for more, message in refused:
        assert main([*words, *more]) != 0
        assert message in capsys.readouterr().err
    assert main(words) == 0
    assert main(["promote", "tagger", imported.version, "--models", str(tmp_path / "models")]) == 0
    assert open_models(tmp_path / "models").version_of("tagger", "default") == imported.version
    capsys.readouterr()
    assert main(["versions", "--models", str(tmp_path / "models")]) == 0
    listed, nll = capsys.readouterr().out, imported.card.metrics["after"]["whole"]["nll"]
    assert f", NLL {nll:.4f}" in listed and "multilabel_platt, imported, ECE" in listed


def test_labels_in_another_order_than_the_models_own_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x, truth_NL = rows_of(400)
    model = tagger(tmp_path / "tagger.onnx")
    (tmp_path / "config.json").write_text('{"id2label": {"0": "rain", "1": "snow", "2": "fog"}}')
    np.savez(tmp_path / "a.npz", x=x, y=truth_NL[:, [2, 0, 1]], class_names=["fog", "rain", "snow"])
    words = [model, "--multi-label", "--labelled", tmp_path / "a.npz", "--out", tmp_path / "out"]
    assert command(*words) == 1
    problem = capsys.readouterr().err
    assert "has the labels in the order 'fog', 'rain', 'snow', and" in problem
    assert (
        "in the order 'rain', 'snow', 'fog'; give the order of the model's outputs: --classes rain,snow,fog" in problem
    )
    assert command(*words, "--classes", "rain,snow,fog") == 0


def test_labels_in_the_wrong_order_are_named(tmp_path: Path) -> None:
    """The logits of rain and snow are correlated with each other's labels by chance only."""
    model, rows = tagger(tmp_path / "tagger.onnx"), table(tmp_path / "rows.csv", *rows_of(1500))
    words = [model, "--multi-label", "--labelled", rows, "--out", tmp_path / "out", "--classes"]
    assert command(*words, "fog,snow,rain") == 0
    (note,) = [note for note in load_bundle(tmp_path / "out" / "tagger" / "bundle").card.notes if "do not rise" in note]
    assert "fog" in note and "Check that --classes names the labels in the order of the model's outputs" in note


def pairs(path: Path, form: str, classes: tuple[int, ...] = (2, 2, 2)) -> Path:
    """Write x (N, 2) -> the probabilities of each target's classes, in skl2onnx's forms: a list, or one array."""
    nodes, constants = [], [numpy_helper.from_array(np.array([1, -1, classes[0]], np.int64), "shape")]
    for k, count in enumerate(classes):
        own = np.concatenate([np.zeros((2, count - 1), np.float32), WEIGHTS[:, [k]]], axis=1)
        constants.append(numpy_helper.from_array(own, f"W{k}"))
        nodes.append(helper.make_node("MatMul", ["x", f"W{k}"], [f"z{k}"]))
        nodes.append(helper.make_node("Softmax", [f"z{k}"], [f"p{k}"], axis=1))
        nodes.append(helper.make_node("Reshape", [f"p{k}", "shape"], [f"p{k}_alone"]))
    if form == "list":
        nodes.append(helper.make_node("SequenceConstruct", [f"p{k}" for k in range(len(classes))], ["p"]))
        output = helper.make_tensor_sequence_value_info("p", TensorProto.FLOAT, None)
    else:
        nodes.append(helper.make_node("Concat", [f"p{k}_alone" for k in range(len(classes))], ["p"], axis=0))
        output = float_tensor("p", [len(classes), None, classes[0]])
    path.write_bytes(graph_of(nodes, [float_tensor("x", ["N", 2])], [output], constants))
    return path


@pytest.mark.parametrize("form", ["list", "array"])
def test_forests_of_several_labels(form: str, tmp_path: Path) -> None:
    """scikit-learn answers each label with the probabilities of false and true, for which no logits exist."""
    x, truth_NL = rows_of(40)
    rows = ImportRows("rows", x, truth_NL)
    converted = convert(pairs(tmp_path / "m.onnx", form), rows, ImportOptions(multilabel=True))
    assert converted.classes == 3 and converted.labels == ()
    assert np.allclose(converted.run(x), x @ WEIGHTS, atol=1e-4)
    (note,) = converted.notes
    assert "two for each label, and the second is taken" in note
    with pytest.raises(ModelFileError, match=r"2 numbers for each of 3 targets\. .* give --multi-label"):
        convert(tmp_path / "m.onnx", rows, ImportOptions())


@pytest.mark.parametrize("classes", [(3, 3, 3), (2, 3, 2), (1, 3, 2)])
def test_targets_of_several_classes_are_refused(classes: tuple[int, ...], tmp_path: Path) -> None:
    x, truth_NL = rows_of(40)
    file = pairs(tmp_path / "m.onnx", "list", classes)
    with pytest.raises(ModelFileError, match=r"fit and export a classifier for each target|do not sum to 1"):
        convert(file, ImportRows("rows", x, truth_NL), ImportOptions(multilabel=True))
