"""Loads ONNX files completely, and checks them."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import onnx
from google.protobuf.message import DecodeError
from onnx import checker, external_data_helper, version_converter

from trueodds.bundle import trial
from trueodds.importing.errors import ModelFileError

Model = onnx.ModelProto
STANDARD = ("", "ai.onnx")
"""Names of the domain of ONNX's own operators."""
DOMAINS = (*STANDARD, "ai.onnx.ml", "com.microsoft", "ai.onnx.preview")
"""Domains of the operators that onnxruntime supports."""
OLDEST = 9
"""Opset to which older ones are converted. Before it, operators broadcast differently."""
CURRENT = 13
"""Opset of a graph that is combined with a model without one."""
LIFTED = 8
"""IR version to which older ones are raised. Before 4, every weight had to be a graph input; functions need 8."""
FEATURE_KEYS = ("feature_names", "feature_names_in_", "features", "input_features")
"""Keys of a file's metadata that may hold the names of its features."""
LONGEST_METADATA = 2**24
"""Largest number of characters of such an entry."""
LIMIT = 2**31 - 1
"""Largest size in bytes of a protobuf message, and so of a graph with its weights in one file."""
LOOKS = {
    b"PK\x03\x04": "a zip archive, as torch.save and Keras write; export the model with torch.onnx.export or tf2onnx",
    b"\x80": "a Python pickle; convert the model, scikit-learn's with skl2onnx.to_onnx",
    b"\x89HDF": "an HDF5 file, as Keras writes; convert the model with tf2onnx",
    b'{"learner"': "a model of XGBoost; convert it with onnxmltools.convert_xgboost",
    b"{L\x00": "a model of XGBoost; convert it with onnxmltools.convert_xgboost",
    b"tree\nversion=": "a model of LightGBM; convert it with onnxmltools.convert_lightgbm",
    b"CBM1": 'a model of CatBoost; write it with save_model("model.onnx", format="onnx")',
    b"{": "JSON; write the model with its library's export to ONNX",
    b"version https://git-lfs": "a pointer of Git LFS; fetch the file itself with git lfs pull",
}


class LoadedModel(NamedTuple):
    """A model without metadata, and what its metadata stated."""

    model: Model
    origin: dict[str, Any]
    """Hash, opset and producer of the file, for the card."""
    features: tuple[str, ...]
    """Names of the features; empty if the metadata has none."""


def load(path: Path) -> LoadedModel:
    """Load the model of a file, with its weights from other files and without metadata.

    Raises:
        ModelFileError: The file is not ONNX, weights are missing, or onnxruntime does not support operators or opset.
        FileNotFoundError: There is no such file.
    """
    if (size := path.stat().st_size) > LIMIT:
        problem = f"{path} has {size:,} bytes; an ONNX file has at most {LIMIT:,}"
        raise ModelFileError(f"{problem}. Give an ONNX file, or store its weights in a separate file")
    data = path.read_bytes()
    model = Model()
    try:
        model.ParseFromString(data)
    except DecodeError:
        raise _no_onnx(path, data) from None
    if not model.graph.node or not model.graph.output:
        raise _no_onnx(path, data)
    _load_weights(model, path)
    _check_operators(model, path)
    features = feature_names({entry.key: entry.value for entry in model.metadata_props})
    model = without_metadata(_modern(raise_ir_version(model), path))
    producer = " ".join(filter(None, (model.producer_name, model.producer_version)))
    return LoadedModel(model, {"sha256": digest(path), "opset": opset(model), "producer": producer}, features)


def feature_names(metadata: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the features in a file's metadata: a list in JSON or Python, or names separated by commas.

    The key is `feature_names`, scikit-learn's `feature_names_in_`, or another of FEATURE_KEYS. A value that is no list
    of different names counts as none.

    Examples:
        >>> feature_names({"feature_names": '["age", "income"]'}), feature_names({"feature_names_in_": "age, income"})
        (('age', 'income'), ('age', 'income'))
        >>> feature_names({"feature_names": '["age", "age"]'})
        ()
    """
    text = next((metadata[key] for key in FEATURE_KEYS if metadata.get(key)), "")
    if len(text) > LONGEST_METADATA:
        return ()
    names: Any = None
    for parse in (json.loads, ast.literal_eval):
        with contextlib.suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            names = parse(text)
            break
    if not isinstance(names, list | tuple):
        names = text.split(",")
    if not all(isinstance(name, str) and name.strip() for name in names) or len(set(names)) < len(names):
        return ()
    return tuple(name.strip() for name in names)


def raise_ir_version(model: Model) -> Model:
    """Raise a model to IR version 8 or later, in place. Its weights become constants instead of inputs.

    An input with a weight as its default does not count as a second input, because no server gives another value.
    """
    constants = {tensor.name for tensor in model.graph.initializer}
    constants |= {tensor.values.name for tensor in model.graph.sparse_initializer}
    for value in [value for value in model.graph.input if value.name in constants]:
        model.graph.input.remove(value)
    model.ir_version = max(model.ir_version, LIFTED)
    return model


def digest(path: Path) -> str:
    """Return the SHA-256 of a model's file and of the files of its weights, in hex."""
    data, model = path.read_bytes(), Model()
    total = hashlib.sha256(data)
    try:
        model.ParseFromString(data)
    except DecodeError:
        return total.hexdigest()
    for name in sorted(_weight_files(model)):
        if (path.parent / name).is_file():
            total.update((path.parent / name).read_bytes())
    return total.hexdigest()


def without_metadata(model: Model) -> Model:
    """Remove metadata in place. Exporters store stack traces, with paths of a machine, at every node."""
    for part in (*model.graph.node, *model.graph.input, *model.graph.output, *model.graph.value_info):
        del part.metadata_props[:]
        part.doc_string = ""
    del model.graph.metadata_props[:]
    del model.metadata_props[:]
    return model


def opset(model: Model) -> int:
    """Return the version of ONNX's own operators; 0 if the model uses none."""
    return next((entry.version for entry in model.opset_import if entry.domain in STANDARD), 0)


def _no_onnx(path: Path, data: bytes) -> ModelFileError:
    """Build the error for a file that is not ONNX."""
    cure = "export the model to ONNX first"
    if not data:
        return ModelFileError(f"{path} is empty; {cure}")
    look = next((words for start, words in LOOKS.items() if data.startswith(start)), cure)
    return ModelFileError(f"{path} is not an ONNX model: {look}")


def _tensors(model: Model) -> Iterator[Any]:
    yield from model.graph.initializer
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t


def _weight_files(model: Model) -> set[str]:
    return {
        entry.value
        for tensor in _tensors(model)
        if external_data_helper.uses_external_data(tensor)
        for entry in tensor.external_data
        if entry.key == "location"
    }


def _load_weights(model: Model, path: Path) -> None:
    files = sorted(_weight_files(model))
    if missing := [name for name in files if not (path.parent / name).is_file()]:
        cure = f"copy {missing[0]} into {path.parent}, or export with all weights in one file"
        raise ModelFileError(
            f"{path} stores weights in {', '.join(missing[:3])}, which is not in the same folder; {cure}"
        )
    try:
        external_data_helper.load_external_data_for_model(model, str(path.parent))
    except (checker.ValidationError, OSError, ValueError) as error:
        cure = "export the model again"
        raise ModelFileError(f"{path}: its weights in {', '.join(files)} cannot be read ({error}); {cure}") from None


def _check_operators(model: Model, path: Path) -> None:
    known = {*DOMAINS, *(function.domain for function in model.functions)}
    custom = sorted({(node.domain, node.op_type) for node in model.graph.node if node.domain not in known})
    named = ", ".join(map(".".join, custom))
    if any(domain in trial.EXTENSIONS for domain, _ in custom):
        raise ModelFileError(trial.why_extensions(path, named))
    if custom:
        cure = "export the model with ONNX's own operators"
        raise ModelFileError(f"{path} has custom operators that onnxruntime does not support: {named}; {cure}")


def _modern(model: Model, path: Path) -> Model:
    if not 0 < opset(model) < OLDEST:
        return model
    try:
        return version_converter.convert_version(model, OLDEST)
    except Exception as error:  # the converter's exceptions have no common base
        problem = f"{path} has opset {opset(model)}, which cannot be converted to {OLDEST} ({error})"
        raise ModelFileError(f"{problem}; export it with opset {CURRENT} or later") from None
