"""Which logit is whose: the classes by name, in the order of a model's outputs, and doubts about it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.optimize import linear_sum_assignment

from trueodds.importing.conversion import Converted
from trueodds.importing.errors import LabelledRowsError
from trueodds.importing.rows import LabelledRows
from trueodds.logits import Logits
from trueodds.texts import listed

LIKELY = 0.5
"""Share of rows that an order of the classes must explain to be taken for the right one."""


def class_names(stated: Sequence[str], converted: Converted, rows: LabelledRows, model: Path) -> tuple[str, ...]:
    """The classes in the order of the logits: as stated, as the graph's own names, as the rows', as their numbers.

    Names that stand only in the labels have no order: which logit is whose would be a guess.

    Raises:
        LabelledRowsError: such a guess, or another number of classes than the model has.
    """
    count, own = converted.classes, converted.labels
    sources = [(tuple(stated), "--classes names"), (() if _numbers(own) else own, f"{converted.labels_source} names")]
    sources += [(rows.classes, f"{rows.source} names"), (own, f"{converted.labels_source} names")]
    names, source = next(((names, source) for names, source in sources if names), ((), ""))
    cure = "name all classes in the order of the model's outputs: --classes a,b,c, or a file with one a line"
    if names and len(names) != count:
        problem = f"{source} {len(names)} classes ({listed(names)}), and {model} answers with {count} numbers a row"
        raise LabelledRowsError(f"{problem}; {cure}")
    names = names or tuple(map(str, range(count)))
    labels = tuple(sorted(set(map(str, rows.y.tolist()))))
    if _numbers(names) and not _numbers(labels):
        problem = f"{rows.source} labels its rows {listed(labels)}, and nothing says which output of {model} is whose"
        raise LabelledRowsError(f"{problem}; {cure}")
    return names


def _numbers(names: Sequence[str]) -> bool:
    return all(name.lstrip("-").isdigit() for name in names)


def check_order(split: Logits, rows: LabelledRows, names: Sequence[str]) -> None:
    """Raises LabelledRowsError where the logits fit the labels far better with the classes in another order."""
    counts_CC = np.zeros((len(names), len(names)), np.int64)
    np.add.at(counts_CC, (split.logits_NC.argmax(axis=1), split.labels_N), 1)
    outputs, labels = linear_sum_assignment(counts_CC, maximize=True)
    right, most = counts_CC.trace(), counts_CC[outputs, labels].sum()
    accuracy, best = right / len(split.labels_N), most / len(split.labels_N)
    if best >= LIKELY and accuracy < best / 2:
        order = listed([names[int(k)] for k in labels])
        problem = f"{rows.source}: the model is right about {accuracy:.1%} of the rows, and about {best:.1%} if its"
        cure = "state the order of its outputs, whichever it is: --classes a,b,c, or a file with one a line"
        raise LabelledRowsError(f"{problem} classes are in the order {order}; {cure}")


def check_seen(labels_N: npt.NDArray[np.int64], names: Sequence[str], rows: LabelledRows) -> None:
    """Raises LabelledRowsError where a class has no row."""
    unseen = np.flatnonzero(np.bincount(labels_N, minlength=len(names)) == 0)
    if len(unseen):
        shown = listed([names[int(k)] for k in unseen])
        problem = f"{rows.source} has no row of {len(unseen):,} of {len(names):,} classes: {shown}"
        cure = "add rows of them, or say --allow-unseen: nothing is then learned or measured about these classes"
        raise LabelledRowsError(f"{problem}; {cure}")
