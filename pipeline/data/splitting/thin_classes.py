"""What the splits leave to each class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from trueodds.evaluation.splits import Index

NAMED = 10  # classes in a sentence; of the others the number
FEW = 10
"""Validation rows of a class; fewer say next to nothing of its calibration."""
_WITHOUT = {
    "train": "No training row is left of {}: the net does not learn to answer so.",
    "val": "No validation row is left of {}: calibrators are fitted, and epochs compared, without any. Add rows, or"
    " raise data.validation_size.",
    "test": "No test row is left of {}: the metrics on test rows leave it out.",
}


def thin_classes(classes: Sequence[str], labels: Mapping[str, npt.NDArray[np.int64]]) -> list[str]:
    """A sentence for each thing that classes lack, naming them: a second row, any row of train, val or test, or FEW
    validation rows.

    labels: the class of each row, per split; those three and any others.
    """
    counts = {split: np.bincount(labels_N, minlength=len(classes)) for split, labels_N in labels.items()}
    notes = []
    if len(single := np.flatnonzero(sum(counts.values()) == 1)):
        notes.append(f"A single row is all there is of {_named(classes, single)}: one split alone has it.")
    for split, words in _WITHOUT.items():
        if len(without := np.flatnonzero(counts[split] == 0)):
            notes.append(words.format(_named(classes, without)))
    if len(few := np.flatnonzero((counts["val"] > 0) & (counts["val"] < FEW))):
        said = f"Fewer than {FEW} validation rows are left of {_named(classes, few)}"
        notes.append(f"{said}: on these, calibrators and class-wise metrics follow chance. Raise data.validation_size.")
    return notes


def _named(classes: Sequence[str], which: Index) -> str:
    names = ", ".join(classes[k] for k in which[:NAMED])
    more = f" and {len(which) - NAMED:,} more" if len(which) > NAMED else ""
    return f"{'class' if len(which) == 1 else 'classes'} {names}{more}"
