"""Real, tiny bundles: an ONNX graph that is one matrix product, with card, calibrator and golden prediction."""

from __future__ import annotations

import json
import pickle
import shutil
import tempfile
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper
from pydantic import TypeAdapter
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from trueodds import files
from trueodds.bundle import CARD, MODEL, ActAlone, Bundle, CardSets, Description
from trueodds.calibrators import Calibrator, Temperature
from trueodds.calibrators.conformal import ConformalSets, SetSettings, fit_sets
from trueodds.inputs import Input, TextInput

SHAPE = (4, 4, 1)
CLASSES = ("cat", "dog", "3", "hare")
INPUTS: TypeAdapter[Input] = TypeAdapter(Input)
OFFLINE = {"before": {"ece": 0.2}, "after": {"ece": 0.021, "accuracy": 0.9, "nll": 0.3}, "n": 600}


def write_model(
    path: Path, shape: tuple[int, int, int], classes: int, seed: int = 0, batch: Any = "N", relative: bool = False
) -> None:
    """uint8 N x H x W x C -> (x / 255) W -> logits N x K, with weights large enough for varied confidences.

    `relative`: x / (its brightest pixel) in place of x / 255, so that the logits of a black image are NaN.
    """
    size = int(np.prod(shape))
    weights = np.random.default_rng(seed).normal(0, 6 / np.sqrt(size), (size, classes)).astype(np.float32)
    nodes = [
        helper.make_node("Cast", ["images"], ["float"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMax", ["float"], ["brightest"], axes=[1, 2, 3]),
        helper.make_node("Div", ["float", "brightest" if relative else "top"], ["scaled"]),
        helper.make_node("Flatten", ["scaled"], ["flat"]),
        helper.make_node("MatMul", ["flat", "weights"], ["logits"]),
    ]
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info("images", TensorProto.UINT8, [batch, *shape])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [batch, classes])],
        [numpy_helper.from_array(np.array(255, np.float32), "top"), numpy_helper.from_array(weights, "weights")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


def write_linear(path: Path, features: int, classes: int, seed: int = 0) -> None:
    """float32 N x F -> x W -> logits N x K, where NaN counts as 0."""
    weights = np.random.default_rng(seed).normal(0, 3 / np.sqrt(features), (features, classes)).astype(np.float32)
    nodes = [
        helper.make_node("IsNaN", ["features"], ["absent"]),
        helper.make_node("Where", ["absent", "zero", "features"], ["known"]),
        helper.make_node("MatMul", ["known", "weights"], ["logits"]),
    ]
    graph = helper.make_graph(
        nodes,
        "linear",
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, ["N", features])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", classes])],
        [numpy_helper.from_array(np.array(0, np.float32), "zero"), numpy_helper.from_array(weights, "weights")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


PAD, UNKNOWN = "[PAD]", "[UNK]"


def tokenizer_json(words: Sequence[str]) -> bytes:
    """Lower case, cut at white space: PAD, UNKNOWN, the words."""
    tokenizer = Tokenizer(
        models.WordLevel({word: k for k, word in enumerate((PAD, UNKNOWN, *words))}, unk_token=UNKNOWN)
    )
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.WhitespaceSplit()
    text: str = tokenizer.to_str()
    return text.encode()


def word_weights(words: int, classes: int, seed: int = 0) -> npt.NDArray[np.float32]:
    """What each id adds to the logits: padding would, too, were it not masked."""
    return np.random.default_rng(seed).normal(0, 1, (words + 2, classes)).astype(np.float32)


def write_bag(path: Path, words: int, classes: int, seed: int = 0) -> None:
    """int64 ids and mask N x L -> the sum of the words' weights -> logits N x K."""
    nodes = [
        helper.make_node("Gather", ["weights", "input_ids"], ["every"]),
        helper.make_node("Cast", ["attention_mask"], ["float"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["float", "two"], ["mask"]),
        helper.make_node("Mul", ["every", "mask"], ["read"]),
        helper.make_node("ReduceSum", ["read", "one"], ["logits"], keepdims=0),
    ]
    graph = helper.make_graph(
        nodes,
        "bag",
        [helper.make_tensor_value_info(f"{n}", TensorProto.INT64, ["N", "L"]) for n in ("input_ids", "attention_mask")],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", classes])],
        [
            numpy_helper.from_array(word_weights(words, classes, seed), "weights"),
            *(numpy_helper.from_array(np.array([axis]), name) for axis, name in ((1, "one"), (2, "two"))),
        ],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


P = ParamSpec("P")
WRITTEN: dict[bytes, dict[str, bytes]] = {}
"""The files of each bundle that this process has written, by its pickled options."""


def written_once(write: Callable[Concatenate[Path, P], Path]) -> Callable[Concatenate[Path, P], Path]:
    """Equal options give equal bytes (`Bundle.write`): they are made once in a process, and then copied."""

    @wraps(write)
    def copied(folder: Path, /, *values: P.args, **options: P.kwargs) -> Path:
        key = pickle.dumps((values, options))
        if key not in WRITTEN:
            write(folder, *values, **options)
            WRITTEN[key] = {file.name: file.read_bytes() for file in folder.iterdir()}
            return folder
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name, content in WRITTEN[key].items():
            (folder / name).write_bytes(content)
        return folder

    return copied


@written_once
def write_bundle(
    folder: Path,
    *,
    shape: tuple[int, int, int] = SHAPE,
    features: Sequence[str] = (),
    missing: bool = False,
    words: Sequence[str] = (),
    max_tokens: int = 8,
    classes: tuple[str, ...] = CLASSES,
    positive: str | None = None,
    calibrator: Calibrator | None = None,
    name: str = "tiny",
    resized: bool = False,
    metrics: dict[str, Any] = OFFLINE,
    seed: int = 0,
    relative: bool = False,
    act_alone: ActAlone | None = None,
    sets: SetSettings | None = None,
) -> Path:
    """A whole, valid bundle in `folder`: of vectors with `features`, of texts with `words`, or of images."""
    calibrator = calibrator or Temperature(1.7)
    fitted = None if sets is None else sets_of(calibrator, len(classes), sets)
    height, width, channels = shape
    image = {"kind": "image", "height": height, "width": width, "channels": channels, "resized": resized}
    vector = {"kind": "vector", "features": list(features), "missing": missing}
    kind: Input = INPUTS.validate_python(vector if features else image)
    if words:
        text = TextInput(max_tokens=max_tokens, vocabulary_size=len(words) + 2, mask="attention_mask")
        kind = text.with_tokenizer(tokenizer_json(words))
    description = Description(
        name=name,
        classes=list(classes),
        positive=positive,
        input=kind,
        method="ce",
        training={},
        metrics=metrics,
        act_alone=act_alone,
        sets=None if sets is None or fitted is None else CardSets.of(fitted, sets, calibrator, None),
        data_sha256="0" * 64,
        code_sha256="0" * 64,
    )
    draw = np.random.default_rng(seed + 1)
    golden = draw.integers(0, 256, (1, *shape), np.uint8)
    if features:
        golden = draw.normal(size=(1, len(features))).astype(np.float32)
    elif isinstance(kind, TextInput):
        golden = kind.of_texts([" ".join(words[:3])])
    with tempfile.TemporaryDirectory() as aside:
        model = Path(aside) / MODEL
        if words:
            write_bag(model, len(words), len(classes), seed)
        elif features:
            write_linear(model, len(features), len(classes), seed)
        else:
            write_model(model, shape, len(classes), seed, relative=relative)
        logits_NC = ort.InferenceSession(str(model)).run(None, kind.feed(golden, [kind.tensor]))[0]
        Bundle.write(
            folder,
            model,
            calibrator,
            description,
            golden_input=golden[0],
            golden_logits=logits_NC[0],
            conformal=fitted,
        )
    return folder


def sets_of(calibrator: Calibrator, classes: int, settings: SetSettings, rows: int = 400) -> ConformalSets:
    """Conformal sets of rows whose labels follow the calibrator's probabilities."""
    rng = np.random.default_rng(3)
    logits_NC = rng.normal(0, 2, (rows, classes))
    labels_N = (calibrator(logits_NC).cumsum(axis=1) > rng.random((rows, 1))).argmax(axis=1)
    return fit_sets(calibrator, logits_NC, labels_N, settings)


def change_card(folder: Path, **fields: Any) -> None:
    """Overwrite fields of a bundle's card."""
    card = json.loads((folder / CARD).read_text())
    files.write_json(folder / CARD, card | fields)


def pictures(count: int, shape: tuple[int, int, int] = SHAPE, seed: int = 5) -> Any:
    """Nested lists of random pixels."""
    return np.random.default_rng(seed).integers(0, 256, (count, *shape)).tolist()
