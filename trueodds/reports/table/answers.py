"""What a table says of each answer: its confidence, its class, whether that was right, and what it belongs to."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from trueodds.files import FileError
from trueodds.inputs.columns import Texts
from trueodds.sums.inputs import Array, check_probabilities, check_top
from trueodds.texts import listed, short

NO_LABEL = ("", "-1", "nan", "none", "null")
"""Cells of a label, in small letters, of an answer that has none."""


@dataclass(frozen=True, eq=False)
class Groups:
    """What answers belong to, one entry or array for all of them; None: the table does not say."""

    tags: Texts | None = None
    versions: Texts | None = None
    time_ms_N: npt.NDArray[np.int64] | None = None


@dataclass(frozen=True, eq=False)
class Answers:
    """N answers of a table, in its order."""

    source: str
    """The name of its file."""
    confidence_N: Array
    predicted: Texts | None
    """The class of each answer; None where nothing names it."""
    labelled_N: npt.NDArray[np.bool_]
    correct_N: npt.NDArray[np.bool_]
    """False, too, where there is no label."""
    probabilities_NC: npt.NDArray[np.floating] | None = None
    label_N: npt.NDArray[np.intp] | None = None
    """With the probabilities: the column of the true class, -1 where there is no label."""
    groups: Groups = field(default_factory=Groups)

    def __len__(self) -> int:
        return len(self.confidence_N)


def of_probabilities(
    source: str,
    probabilities_NC: npt.NDArray[np.floating],
    labels: Texts,
    classes: tuple[str, ...],
    *,
    named: bool,
    predicted: Texts | None = None,
    groups: Groups | None = None,
) -> Answers:
    """Answers by all their probabilities: each names the class of the highest one, the first of equal ones.

    Labels are names of `classes`, or where none is a name their numbers; always numbers unless `named`.

    Raises:
        ValueError: probabilities outside [0, 1] or rows that do not sum to 1; other lengths.
        FileError: a label that is no class; a predicted class that is not the one of the highest probability.
    """
    p_NC = check_probabilities(probabilities_NC)
    if len(classes) != p_NC.shape[1]:
        raise FileError(f"{source}: {len(classes)} names of classes for {p_NC.shape[1]} columns; give one for each")
    label_N = class_indices(source, "label", labels, classes, named=named)
    _check_length(source, "labels", len(label_N), len(p_NC))
    top_N = p_NC.argmax(axis=1)
    if predicted is not None:
        _check_length(source, "predicted", len(predicted), len(p_NC))
        own_N = class_indices(source, "predicted class", predicted, classes, named=named)
        if (own_N != top_N).any():
            row = int((own_N != top_N).argmax())
            problem = f"{source}: answer {row + 1} predicts {predicted.as_list()[row]!r}, and its highest probability"
            cure = "leave out predicted, or give confidence, predicted and label in place of the probabilities"
            raise FileError(f"{problem} is that of {classes[top_N[row]]!r}; {cure}")
    return Answers(
        source=source,
        confidence_N=np.minimum(np.take_along_axis(p_NC, top_N[:, None], 1)[:, 0], 1).astype(np.float64),
        predicted=Texts(classes, top_N),
        labelled_N=label_N >= 0,
        correct_N=label_N == top_N,
        probabilities_NC=p_NC,
        label_N=label_N,
        groups=groups or Groups(),
    )


def of_confidence(
    source: str,
    confidence: npt.NDArray[np.generic],
    labelled_N: npt.NDArray[np.bool_],
    correct_N: npt.NDArray[np.bool_],
    predicted: Texts | None,
    groups: Groups | None = None,
) -> Answers:
    """Answers by the probability of what they name alone.

    Raises:
        ValueError: a confidence outside [0, 1]; other lengths.
    """
    confidence_N, right_N = check_top(confidence, correct_N)
    _check_length(source, "labels", len(labelled_N), len(confidence_N))
    return Answers(source, confidence_N, predicted, labelled_N, right_N & labelled_N, groups=groups or Groups())


def correctness(source: str, correct: Texts) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Which answers have a label, and which of them were right, of a column of 0 and 1, or true and false.

    Raises:
        FileError: another cell than these, and than an empty one.
    """
    states = {"1": 1, "true": 1, "0": 0, "false": 0} | dict.fromkeys(NO_LABEL, -1)
    for value in correct.values:
        if value.lower() not in states:
            allowed = "0, 1, true, false, and nothing for an answer without a label"
            raise FileError(f"{source}: correct holds {short(value)}; allowed are {allowed}")
    state_N = np.array([states[value.lower()] for value in correct.values], np.intp)[correct.code_N]
    return state_N >= 0, state_N == 1


def agreement(source: str, predicted: Texts, labels: Texts) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Which answers have a label, and which of these are the class that was predicted.

    Raises:
        FileError: an answer without a predicted class; other lengths.
    """
    _check_length(source, "predicted", len(predicted), len(labels))
    if not predicted.is_known_N.all():
        row = int(predicted.is_known_N.argmin()) + 1
        raise FileError(f"{source}: answer {row} has no predicted class; every answer names one")
    place = {value: k for k, value in enumerate(predicted.values)}
    code_V = np.array([_NONE if _is_none(value) else place.get(value, -1) for value in labels.values], np.intp)
    code_N = code_V[labels.code_N]
    return code_N != _NONE, code_N == predicted.code_N


_NONE = -2


def class_indices(
    source: str, what: str, texts: Texts, classes: tuple[str, ...], *, named: bool = True
) -> npt.NDArray[np.intp]:
    """The column of the class that each text names; -1 where it is empty. By number where none is a name.

    Raises:
        FileError: a text that is no class.
    """
    place = {name: k for k, name in enumerate(classes)}
    cells = [value for value in texts.values if value in place or not _is_none(value)]
    if not (named and any(value in place for value in cells)):
        place = {str(k): k for k in range(len(classes))}
        place |= {f"{k}.0": k for k in range(len(classes))}
        place |= {"False": 0, "false": 0, "True": 1, "true": 1} if len(classes) == 2 else {}
    for value in cells:
        if value not in place:
            numbers = f"0..{len(classes) - 1}"
            allowed = f"{listed(classes)}, or all as numbers {numbers}" if named else numbers
            none = "nothing or -1 for an answer without one"
            raise FileError(f"{source} has the {what} {short(value)}; allowed are {allowed}, and {none}")
    code_V = np.array([place.get(value, -1) for value in texts.values], np.intp)
    return code_V[texts.code_N] if len(texts) else np.zeros(0, np.intp)


def _is_none(value: str) -> bool:
    return value.lower() in NO_LABEL


def _check_length(source: str, name: str, given: int, rows: int) -> None:
    if given != rows:
        raise FileError(f"{source}: {name} has {given:,} rows for {rows:,} answers; give one for each")
