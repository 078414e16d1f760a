"""The answers of a table that people should label next, as a CSV file with their propensities."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trueodds.files import FileError
from trueodds.inputs import columns, table
from trueodds.metrics import WorstChance, draw_labels, label_propensities, worst_chances
from trueodds.processes.choices import LABEL, LABEL_FLOOR, LabelGoal, SamplingMethod
from trueodds.reports.table.table_content import Answers
from trueodds.sums.inputs import Array
from trueodds.texts import plural

PROPENSITY = "propensity"
"""Column of the propensities."""


@dataclass(frozen=True, eq=False)
class LabelSample:
    """Answers of a table that were drawn for labelling."""

    answers: int
    """Number of answers without a label, from which the sample was drawn."""
    row_I: npt.NDArray[np.intp]
    """Indices of the drawn answers, in ascending order."""
    propensity_I: Array
    """Propensity of each drawn answer."""
    suspects: list[WorstChance]
    """For the goal "group" without a tag, if some answers have a label: the tags, the most likely worst one first."""


def sample_of(
    answers: Answers,
    budget: int,
    *,
    goal: LabelGoal = "ece",
    threshold: float | None = None,
    tag: str | None = None,
    floor: float = LABEL_FLOOR,
    method: SamplingMethod = "systematic",
    seed: int | None = None,
) -> LabelSample:
    """Draw a sample of the answers without a label (see `metrics.label_propensities` and `metrics.draw_labels`).

    A systematic sample is spread over the confidence, within each tag for the goal "group". For this goal without a
    tag, the answers that have a label decide which tags to prefer (`metrics.worst_chances`).

    Args:
        answers: Answers of a table.
        budget: Expected number of labels.
        goal: Figure that the sample makes precise.
        threshold: For the goal "threshold": the confidence from which on answers act alone.
        tag: For the goal "group": the only tag to label, beside the floor. None: the tags that may be the worst.
        floor: Smallest propensity as a share of that in a plain sample.
        method: "systematic" or "poisson".
        seed: Seed of the draw.

    Raises:
        FileError: No answer lacks a label, the table has a column `propensity` already, or the goal needs its tags.
        ValueError: `metrics.label_propensities` refuses the arguments.
    """
    if answers.groups.propensities is not None:
        raise FileError(
            f"{answers.source} has a column {PROPENSITY}, so its answers were drawn before. A second draw would change"
            " their propensities: give answers of which none was drawn, or remove the column"
        )
    open_I = np.flatnonzero(~answers.labelled_N)
    if not len(open_I):
        raise FileError(f"{answers.source} has a label for each of its {plural(len(answers), 'answer')}; none is left")
    groups: list[str] | None = None
    suspects, chances = list[WorstChance](), None
    if goal == "group":
        if answers.groups.tags is None:
            raise FileError(f"{answers.source} has no column tag, which the goal 'group' needs")
        names = answers.groups.tags.as_list()
        groups = [names[row] for row in open_I.tolist()]
        known_I = np.flatnonzero(answers.labelled_N)
        if tag is None and len(known_I):
            suspects = worst_chances(
                answers.confidence_N[known_I],
                answers.correct_N[known_I],
                [names[row] for row in known_I.tolist()],
                groups,
            )
            chances = {one.group: one.chance for one in suspects}
    confidence = answers.confidence_N[open_I]
    propensity = label_propensities(
        confidence,
        budget,
        goal=goal,
        threshold=threshold,
        groups_N=groups,
        group=tag,
        chances=chances,
        floor=floor,
    )
    of_tag: Any = [] if groups is None else np.unique(groups, return_inverse=True)[1]
    order = np.lexsort((confidence, of_tag)[: 1 + bool(groups)])
    drawn = np.sort(order[draw_labels(propensity[order], method=method, seed=seed)])
    return LabelSample(len(open_I), open_I[drawn], propensity[drawn], suspects)


def write_sample(path: Path, source: Path, answers: Answers, sample: LabelSample, label: str = LABEL) -> None:
    """Write the drawn answers as CSV: the columns of their table, an empty column for the label, and the propensity.

    Of an .npz or .npy, the file has the columns row (the position in the array, from 0), confidence, and where they are
    known predicted and tag. `trueodds report` reads the file once the labels are filled in.

    Args:
        path: File to write.
        source: File of the answers.
        answers: The answers of this file.
        sample: The drawn ones.
        label: Column of the labels.
    """
    rows = sample.row_I.tolist()
    if source.suffix in columns.SUFFIXES:
        names = columns.names(source)
        cells = columns.read(source, (), names).texts
        by_name = {name: [cells[name].values[code] for code in cells[name].code_N[rows].tolist()] for name in names}
    else:
        by_name = {"row": rows, "confidence": answers.confidence_N[rows].tolist()}
        for name, column in (("predicted", answers.predicted), ("tag", answers.groups.tags)):
            if column is not None:
                by_name[name] = [column.values[code] for code in column.code_N[rows].tolist()]
    if "correct" not in by_name:
        by_name.setdefault(label if answers.predicted is not None else "correct", [""] * len(rows))
    by_name[PROPENSITY] = sample.propensity_I.tolist()
    lines = (dict(zip(by_name, row, strict=True)) for row in zip(*by_name.values(), strict=True))
    table.write(path, [*by_name], lines)
