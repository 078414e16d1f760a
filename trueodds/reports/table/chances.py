"""Labels that were drawn with unlike chances, made one random sample: what a bound from a table's labels assumes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from trueodds.files import FileError
from trueodds.inputs.columns import Texts
from trueodds.reports.table.answers import Answers
from trueodds.texts import plural, short

SEED = 0
"""Seed of the draw: the same table gives the same sample."""


def evenly_labelled(answers: Answers) -> tuple[Answers, str]:
    """Leave labels out until each answer has the same chance of one, by the columns propensity and audit.

    The service's own tables have them. Labels of acting answers that the audit had not asked for go. Of the others each
    stays with the probability least / p, where p is its answer's propensity, and `least` the smallest of all answers:
    then every answer has a label with the chance `least`. Answers without a propensity lose their labels, unless none
    has one. Whether a label stays does not depend on what it says.

    Returns:
        the answers with the labels that stay, and a sentence on it; "" where all do.

    Raises:
        FileError: a propensity outside (0, 1].
    """
    labelled_N, words = answers.labelled_N.copy(), []
    if answers.groups.audits is not None:
        unasked_N = labelled_N & np.isin(np.char.lower(np.array(answers.groups.audits.as_list(), str)), "false")
        if unasked_N.any():
            labelled_N &= ~unasked_N
            many = plural(int(unasked_N.sum()), "label is", "labels are")
            words.append(f"{many} left out that the audit had not asked for: they are no random sample.")
    propensity_N = _propensities(answers.source, answers.groups.propensities, len(answers))
    known_N = np.isfinite(propensity_N)
    if (labelled_N & known_N).any():
        least, most = float(propensity_N[known_N].min()), float(propensity_N[known_N].max())
        drawn_N = np.random.default_rng(SEED).random(len(answers)) * propensity_N < least  # false for NaN
        before, labelled_N = int(labelled_N.sum()), labelled_N & drawn_N
        after = int(labelled_N.sum())
        if after < before:
            words.append(
                f"Answers had unlike chances of a label (column propensity: {least:.3g} to {most:.3g}, or none). So"
                f" {after:,} of {before:,} labels count here, drawn so that each answer has the same chance of one."
            )
    if not words:
        return answers, ""
    return replace(answers, labelled_N=labelled_N, correct_N=answers.correct_N & labelled_N), " ".join(words)


def _propensities(source: str, cells: Texts | None, count: int) -> npt.NDArray[np.float64]:
    """The numbers of the column, NaN for an empty cell or where there is no column."""
    if cells is None:
        return np.full(count, np.nan)
    read = []
    for value in cells.values:
        try:
            number = float(value) if value else np.nan
        except ValueError:
            number = -1.0
        if number <= 0 or number > 1:
            raise FileError(
                f"{source}: propensity holds {short(value)}; allowed is a chance of a label in (0, 1], or an empty"
                " cell. If the column means something else, rename it"
            )
        read.append(number)
    return np.array(read, np.float64)[cells.code_N]
