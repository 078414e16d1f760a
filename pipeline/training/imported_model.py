"""An ONNX file in place of training: the plan has its hash, and it scores the rows of the data set."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.config import Training
from pipeline.data.raw import Kind
from pipeline.training.files import EPOCH_ROWS, EPOCHS, IMPORTED, SETTINGS, empty_network
from pipeline.training.plan import fingerprint
from pipeline.training.provenance import code_hashes
from trueodds import logits
from trueodds.errors import ConfigError, unknown
from trueodds.files import write_bytes, write_json, write_npz, write_text
from trueodds.importing import importer, onnx_file
from trueodds.importing.errors import no_file
from trueodds.importing.import_options import ImportOptions, Preprocessing
from trueodds.importing.labelled_rows import ImportRows
from trueodds.texts import quotes

if TYPE_CHECKING:
    from pipeline.data.dataset import DataSet

log = logging.getLogger("pipeline.training")

OPTIONS = ("preprocess", "output")
BESIDE = ("model", "model_options")
"""The only settings of training that are allowed besides a model."""
COLUMNS = ("epoch", "val_nll")
"""Columns of an epochs.csv without epochs: those that the plot in dvc.yaml needs."""


def plan_of(training: Training, data_path: str, kind: Kind) -> dict[str, Any]:
    """Return the content of plan.json: the file's hash, its options, and the code that imports it.

    Raises:
        ConfigError: The file does not exist, an option is unknown, or another setting of training is set.
        ModelFileError: The preprocessing is invalid.
    """
    path = _check_settings(training, kind)
    if not path.resolve().is_relative_to(Path(data_path).resolve()):
        log.warning("DVC does not watch %s; after a change of it, run: dvc repro --force plan", path)
    return {
        "model": {"sha256": onnx_file.digest(path), "options": training.model_options},
        "code": code_hashes(["pipeline.training.imported_model"]),
    }


def score(training: Training, data: DataSet, folder: Path, logits_file: Path) -> None:
    """Write the imported model's files: the servable model, its settings, its logits, and empty files of epochs.

    Args:
        training: The section `training` of params.yaml.
        data: The data set.
        folder: Folder of the model and its settings.
        logits_file: File of the logits of validation and test rows.

    Raises:
        ConfigError: As `plan_of`.
        ModelFileError: The model cannot be imported.
        LabelledRowsError: The model does not fit these rows.
    """
    kind: Kind = data.card["input"]["kind"]
    path, names = _check_settings(training, kind), np.array(data.card["classes"])
    features = tuple(data.card["input"].get("features", ()))
    rows = {
        split: ImportRows(
            f"the {split} rows",
            data.arrays[split][0],
            names[data.arrays[split][1]],
            tuple(names),
            features,
            data.tags.get(split),
        )
        for split in ("val", "test")
    }
    scored = importer.score(path, rows["val"], rows["test"], _options(training, kind))
    if scored.classes != tuple(names):
        problem = f"{path} names its classes {quotes(scored.classes)}, and the data set {quotes(names.tolist())}"
        raise ConfigError(f"{problem}; use one order for both, such as by the names of the data set's folders")
    taken = scored.model.kind.model_dump().get("features", [])
    if tuple(taken) != features:
        problem = f"{path} takes the features {quotes(taken)}, and the data set has them as {quotes(features)}"
        raise ConfigError(f"{problem}; use one order for both")
    for note in scored.notes:
        log.warning(note)
    empty_network(folder)
    write_bytes(folder / IMPORTED, scored.model.data)
    code = fingerprint(code_hashes(["pipeline.training.imported_model"]))
    notes = [*data.card["notes"], *scored.notes]
    origin = {"method": {"name": importer.METHOD}, "model": dict(scored.model.origin), "notes": notes}
    write_json(folder / SETTINGS, {**origin, "data_sha256": data.card["sha256"], "code_sha256": code})
    write_text(folder / EPOCHS, ",".join(COLUMNS) + "\n")
    write_npz(folder / EPOCH_ROWS, {"epochs": np.empty(0, np.int64)})
    logits.write(logits_file, scored.splits, notes)


def score_file(training: Training, data: Path, folder: Path, logits_file: Path) -> None:
    """Run `score` on the data set in the file `data`; raise as `score` and `pipeline.data.read` do."""
    from pipeline.data import read

    score(training, read(data), folder, logits_file)


def _check_settings(training: Training, kind: Kind) -> Path:
    """Return the file that `training.model` names, after a check of all settings."""
    assert training.model is not None
    path, standard = Path(training.model), Training()
    if not path.is_file():
        raise ConfigError(f"training.model is {training.model!r}, which {no_file(path)}")
    for name in Training.model_fields:
        if name not in BESIDE and getattr(training, name) != getattr(standard, name):
            problem = (
                f"training.{name} = {getattr(training, name)!r} is set besides training.model = {training.model!r}"
            )
            raise ConfigError(f"{problem}, and nothing is trained; set {name} to its default, or model to null")
    for name in training.model_options:
        if name not in OPTIONS:
            raise unknown("option of training.model", name, OPTIONS)
    _options(training, kind)
    return path


def _options(training: Training, kind: Kind) -> ImportOptions:
    """Return the options of the import."""
    if kind not in ("image", "vector"):
        raise ConfigError(
            f"training.model is {training.model!r}, and the data set holds {kind}s; import a model for texts with"
            " `trueodds import` instead"
        )
    how, output = (training.model_options.get(name) for name in OPTIONS)
    return ImportOptions(kind, output, None if how is None else Preprocessing.parse(how), allow_unseen=True)
