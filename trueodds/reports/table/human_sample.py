"""Human labels of drawn answers, joined by id to the table of all answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from trueodds.files import FileError
from trueodds.inputs import columns
from trueodds.inputs.columns import Texts
from trueodds.processes.choices import LABEL
from trueodds.reports.table.matching import ID, ids_of
from trueodds.texts import column_quotes, short

COLUMNS = ("correct", "propensity")
"""Columns that the file of human labels may have beside the label."""


def human_labels_of(answers: Path, sample: Path, label: str = LABEL) -> dict[str, Texts]:
    """Read the labels and propensities of drawn answers, as columns of the table of all answers.

    Args:
        answers: Table of all answers, with a column `id`.
        sample: Table of the drawn answers with their labels, as `trueodds sample` wrote it.
        label: Column of the labels.

    Returns:
        The columns of the sample among `label`, `correct` and `propensity`, with a cell for each answer; empty for
        answers that were not drawn.

    Raises:
        FileError: A file has no column `id`, an id is empty, occurs twice, or is not in the table of all answers, the
            sample has no labels, or the table of all answers has some of these columns.
    """
    for path in (answers, sample):
        if path.suffix not in columns.SUFFIXES:
            raise FileError(f"{path} has no ids; allowed are {' and '.join(columns.SUFFIXES)} with a column {ID}")
    header = columns.names(sample)
    names = [name for name in (label, *COLUMNS) if name in header]
    if not {label, "correct"} & {*names}:
        raise FileError(f"{sample} has no column {label!r}; it has {column_quotes(header)}; name it with --label")
    if doubled := [name for name in names if name in columns.names(answers)]:
        raise FileError(f"{answers} has the column {doubled[0]!r} itself; remove it there, or leave out {sample}")
    ids, of_sample = ids_of(answers), ids_of(sample)
    for path, known in ((answers, ids), (sample, of_sample)):
        if known is None:
            raise FileError(f"{path} has no column {ID}, by which human labels are joined to the answers")
    assert ids is not None and of_sample is not None
    place = {name: row for row, name in enumerate(ids)}
    if strange := [name for name in of_sample if name not in place]:
        raise FileError(
            f"{sample} has the id {short(strange[0])}, which {answers} does not have; give both the same ids"
        )
    texts = columns.read(sample, [], names).texts
    joined = {}
    for name in names:
        cells = [""] * len(ids)
        for row, cell in zip(of_sample, texts[name].as_list(), strict=True):
            cells[place[row]] = cell
        joined[name] = Texts.of_array(np.array(cells, object))
    return joined
