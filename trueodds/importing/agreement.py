"""Checks that a model's logits agree with the labels of its rows, and with its maker's own probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.optimize import linear_sum_assignment

from trueodds.errors import UserError
from trueodds.files import read_npz
from trueodds.importing.errors import LabelledRowsError
from trueodds.importing.forms import EXPECTED, PRESETS
from trueodds.importing.import_options import Preprocessing
from trueodds.importing.inference import ServableModel
from trueodds.importing.labelled_rows import ImportRows
from trueodds.importing.rewriting import rewrite
from trueodds.importing.understanding import SAMPLE, understand
from trueodds.inputs import columns
from trueodds.logits import Logits
from trueodds.metrics import softmax
from trueodds.sums.inputs import both_classes, check_probabilities
from trueodds.texts import quotes

LIKELY = 0.5
"""Share of rows that an order of the classes must explain to be considered right."""
ROUNDED = 0.01
"""Tolerance of the maker's probabilities, which may be rounded to two decimals."""
USUAL = ("{mean: 0.5, std: 0.5}", "{mean: 127.5, std: 127.5, scale: 1}")
"""Preprocessing to try, besides the presets, if a model does not give its maker's probabilities."""

Array = npt.NDArray[np.floating]


def check_order(split: Logits, rows: ImportRows, names: Sequence[str]) -> None:
    """Check that the logits do not fit the labels far better with the classes in another order.

    Raises:
        LabelledRowsError: Another order fits far better.
    """
    counts_CC = np.zeros((len(names), len(names)), np.int64)
    np.add.at(counts_CC, (split.logits_NC.argmax(axis=1), split.labels_N), 1)
    outputs, labels = linear_sum_assignment(counts_CC, maximize=True)
    right, most = counts_CC.trace(), counts_CC[outputs, labels].sum()
    accuracy, best = right / len(split.labels_N), most / len(split.labels_N)
    if best >= LIKELY and accuracy < best / 2:
        order = quotes([names[int(k)] for k in labels])
        problem = f"{rows.source}: the model is right about {accuracy:.1%} of the rows, and about {best:.1%} if its"
        cure = "give the order of its outputs, whichever it is: --classes a,b,c, or a file with one name per line"
        raise LabelledRowsError(f"{problem} classes are in the order {order}; {cure}")


def read_maker_probabilities(path: Path, names: Sequence[str]) -> Array:
    """Read the maker's own probabilities, N x C in the order of `names`.

    With two classes, one column is that of the second.

    Raises:
        LabelledRowsError: The file has another form or other columns, or its numbers are not probabilities.
        FileError: The file cannot be read.
    """
    if path.suffix in columns.SUFFIXES and path.is_file():
        header = columns.names(path)
        if missing := [name for name in names if name not in header]:
            cure = "give a column with the name of each class"
            raise LabelledRowsError(f"{path} has no column {quotes(missing)}; it has {quotes(header)}; {cure}")
        table = columns.read(path, names, [])
        values: npt.NDArray[np.generic] = np.stack([table.numbers[name] for name in names], axis=1)
    elif path.suffix == ".npz" and path.is_file():
        arrays = read_npz(path)
        if "p" not in arrays and len(arrays) != 1:
            raise LabelledRowsError(f"{path} has no array p; it holds {quotes([*arrays])}; name the probabilities p")
        values = arrays["p"] if "p" in arrays else next(iter(arrays.values()))
    elif path.suffix == ".npy" and path.is_file():
        values = columns.read_npy(path)
    else:
        problem = "does not exist" if not path.exists() else f"ends in {path.suffix or 'nothing'}"
        raise LabelledRowsError(f"{path} {problem}; --expected takes {EXPECTED}")
    cure = "give the probabilities that the model's maker computes for these rows: softmax of its logits"
    try:
        p_NC = check_probabilities(both_classes(values) if len(names) == 2 else values, "p").astype(np.float64)
    except ValueError as error:
        raise LabelledRowsError(f"{path}: {error}: not probabilities; {cure}") from None
    if p_NC.shape[1] != len(names):
        raise LabelledRowsError(f"{path} has {p_NC.shape[1]} columns, and the model {len(names)} classes")
    return p_NC


def compare_with_maker(
    model: ServableModel, path: Path, logits_NC: Array, names: Sequence[str], rows: ImportRows
) -> None:
    """Compare the model's logits of rows with its maker's own probabilities for them, in the file `path`.

    Raises:
        LabelledRowsError: They differ by more than 0.01. The message names the reason that explains all rows: another
            order of the classes, logits taken for probabilities or the reverse, or other preprocessing.
    """
    p_NC, q_NC = read_maker_probabilities(path, names), softmax(logits_NC)
    if len(p_NC) != len(q_NC):
        problem = f"{path} has {len(p_NC):,} rows, and {rows.source} {len(q_NC):,}"
        raise LabelledRowsError(f"{problem}; give one row of probabilities for each row")
    if _agree(p_NC, q_NC):
        return
    row = int(np.abs(p_NC - q_NC).max(axis=1).argmax())
    problem = f"{path} differs from the model's probabilities by up to {np.abs(p_NC - q_NC).max():.2g} (row {row})"
    distance_CC = np.abs(q_NC[:, :, None] - p_NC[:, None, :]).sum(axis=0)
    outputs, places = linear_sum_assignment(distance_CC)
    if _agree(p_NC[:, places], q_NC[:, outputs]):
        order = ",".join(names[int(k)] for k in places)
        problem += f": its columns are those of the outputs in another order. If they are {quotes(names)}, use"
        cure = f"--classes {order}, the order of the model's outputs"
        named = "" if path.suffix in columns.SUFFIXES else ", and give --expected as a table whose header names them"
        raise LabelledRowsError(f"{problem} {cure}{named}")
    with np.errstate(over="ignore"):
        twice_NC = softmax(p_NC)
        own_NC = np.exp(logits_NC.astype(np.float64))  # the output's numbers, which were read as probabilities
    if _agree(twice_NC, q_NC):
        cure = "its output holds unusual probabilities; export the model with its logits"
        raise LabelledRowsError(f"{problem}: probabilities were read as logits: {cure}")
    if model.origin["form"] == "probabilities" and np.isfinite(own_NC).all() and _agree(p_NC, softmax(own_NC)):
        cure = "append a softmax to the model, or choose its output of logits: --output NAME"
        raise LabelledRowsError(f"{problem}: logits were read as probabilities: {cure}")
    if how := _preprocessing_of(model, rows, p_NC):
        raise LabelledRowsError(f"{problem}: the preprocessing differs. Use {how}")
    cure = "check the preprocessing (--preprocess), the order of the features and of the rows, and the model's file"
    raise LabelledRowsError(f"{problem}, and no order of the classes explains it; {cure}")


def _preprocessing_of(model: ServableModel, rows: ImportRows, p_NC: Array) -> str:
    """Return the option --preprocess with which the model gives these probabilities; "" if none does."""
    some = rows.spread(SAMPLE)
    sample = rows.take(some)
    for words in (*PRESETS, *USUAL):
        try:
            options = replace(model.file.options, preprocessing=Preprocessing.parse(words))
            other = rewrite(understand(replace(model.file, options=options), sample))
            q_NC = softmax(other.run(other.sample))
        except UserError:  # this preprocessing does not fit the model
            continue
        if _agree(p_NC[some], q_NC):
            return f"--preprocess {words}" if words in PRESETS else f"--preprocess '{words}'"
    return ""


def _agree(p_NC: Array, q_NC: Array) -> bool:
    """Return whether probabilities are equal except for rounding."""
    return bool(np.abs(p_NC - q_NC).max() <= ROUNDED)
