"""An ONNX file in place of training: planned by its hash, scored on the rows of the data set."""

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
from trueodds.importing.options import ImportOptions, Preprocessing
from trueodds.importing.rows import ImportRows
from trueodds.texts import listed

if TYPE_CHECKING:
    from pipeline.data.dataset import DataSet

log = logging.getLogger("pipeline.training")

OPTIONS = ("preprocess", "output")
BESIDE = ("model", "model_options")
"""The only settings of training that mean something beside a model."""
COLUMNS = ("epoch", "val_nll")
"""Of an epochs.csv without epochs: those of the plot in dvc.yaml."""


def plan_of(training: Training, data_path: str, kind: Kind) -> dict[str, Any]:
    """The content of plan.json: the file by its hash, what is said of it, and the code that imports it.

    Raises:
        ConfigError: no such file, an unknown option, a setting of training beside the model.
        ModelFileError: preprocessing that cannot be meant.
    """
    path = _checked(training, kind)
    if not path.resolve().is_relative_to(Path(data_path).resolve()):
        log.warning("DVC does not watch %s: after changing it, run: dvc repro --force plan", path)
    return {
        "model": {"sha256": onnx_file.digest(path), "options": training.model_options},
        "code": code_hashes(["pipeline.training.imported"]),
    }


def score(training: Training, data: DataSet, folder: Path, logits_file: Path) -> None:
    """Writes the servable model and its settings into `folder`, its logits of the validation and test rows, and files
    of epochs that hold none.

    Raises:
        ConfigError: as `plan_of`.
        ModelFileError, LabelledRowsError: a model that cannot be imported, or not for these rows.
    """
    kind: Kind = data.card["input"]["kind"]
    path, names = _checked(training, kind), np.array(data.card["classes"])
    features = tuple(data.card["input"].get("features", ()))
    rows = {
        split: ImportRows(
            f"the {split} rows", data.arrays[split][0], names[data.arrays[split][1]], tuple(names), features
        )
        for split in ("val", "test")
    }
    scored = importer.score(path, rows["val"], rows["test"], _options(training, kind))
    if scored.classes != tuple(names):
        problem = f"{path} names its classes {listed(scored.classes)}, and the data set {listed(names.tolist())}"
        raise ConfigError(f"{problem}; bring both to one order, such as by the names of the data set's folders")
    taken = scored.model.kind.model_dump().get("features", [])
    if tuple(taken) != features:
        problem = f"{path} takes the features {listed(taken)}, and the data set has them as {listed(features)}"
        raise ConfigError(f"{problem}; bring both to one order")
    for note in scored.notes:
        log.warning(note)
    empty_network(folder)
    write_bytes(folder / IMPORTED, scored.model.data)
    code = fingerprint(code_hashes(["pipeline.training.imported"]))
    notes = [*data.card["notes"], *scored.notes]
    origin = {"method": {"name": importer.METHOD}, "model": dict(scored.model.origin), "notes": notes}
    write_json(folder / SETTINGS, {**origin, "data_sha256": data.card["sha256"], "code_sha256": code})
    write_text(folder / EPOCHS, ",".join(COLUMNS) + "\n")
    write_npz(folder / EPOCH_ROWS, {"epochs": np.empty(0, np.int64)})
    logits.write(logits_file, scored.splits, notes)


def score_stored(training: Training, data: Path, folder: Path, logits_file: Path) -> None:
    """`score` with the data set of the file `data`; raises as that and `pipeline.data.read` do."""
    from pipeline.data import read

    score(training, read(data), folder, logits_file)


def _checked(training: Training, kind: Kind) -> Path:
    """The file that `training.model` names."""
    assert training.model is not None
    path, standard = Path(training.model), Training()
    if not path.is_file():
        raise ConfigError(f"training.model is {training.model!r}, which does not exist; give the path of an ONNX file")
    for name in Training.model_fields:
        if name not in BESIDE and getattr(training, name) != getattr(standard, name):
            problem = f"training.{name} = {getattr(training, name)!r} stands beside training.model = {training.model!r}"
            raise ConfigError(
                f"{problem}, and nothing is trained; set one of them back: {name} to its default, or model to null"
            )
    for name in training.model_options:
        if name not in OPTIONS:
            raise unknown("option of training.model", name, OPTIONS)
    _options(training, kind)
    return path


def _options(training: Training, kind: Kind) -> ImportOptions:
    if kind not in ("image", "vector"):
        raise ConfigError(
            f"training.model is {training.model!r}, and the data set holds {kind}s; a model of your own for texts comes"
            " by: trueodds import"
        )
    how, output = (training.model_options.get(name) for name in OPTIONS)
    return ImportOptions(kind, output, None if how is None else Preprocessing.parse(how), allow_unseen=True)
