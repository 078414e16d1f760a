"""Names the class of each logit, and finds the class of each labelled row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from trueodds.errors import nearest
from trueodds.importing.errors import LabelledRowsError
from trueodds.importing.inference import ServableModel
from trueodds.importing.labelled_rows import ImportRows
from trueodds.texts import Places, is_whole_number, quotes


def class_names(model: ServableModel, rows: ImportRows) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the classes in the order of the logits, and notes about them.

    The names come from the options, the model's files, the rows, or are the classes' numbers. Names that occur only in
    the labels have no order, and the logit of each name would be a guess.

    Raises:
        LabelledRowsError: The names would be a guess, the model has another number of classes, or the options
            contradict the model's files.
    """
    count, own = model.classes, model.labels
    graph = f"{model.labels_source} names"
    sources = [(model.file.options.classes, "--classes names"), (() if _numbers(own) else own, graph)]
    sources += [(rows.classes, f"{rows.source} names"), (own, graph)]
    names, source = next(((names, source) for names, source in sources if names), ((), ""))
    cure = "name all classes in the order of the model's outputs: --classes a,b,c, or a file with one name per line"
    if names and len(names) != count:
        problem = f"{source} {len(names)} classes ({quotes(names)}), and {model.file.path} answers"
        raise LabelledRowsError(f"{problem} with {count} numbers a row; {cure}")
    names = names or tuple(map(str, range(count)))
    labels = tuple(sorted(set(map(str, rows.y.tolist()))))
    if _numbers(names) and not _numbers(labels):
        problem = f"{rows.source} labels its rows {quotes(labels)}, and nothing says which output"
        raise LabelledRowsError(f"{problem} of {model.file.path} is whose; {cure}")
    return names, _compare(model.file.options.classes, own, model.labels_source)


def _compare(given: Sequence[str], own: Sequence[str], source: str) -> tuple[str, ...]:
    """Compare the names of the options with those of the model's files. Return a note if no name is in both.

    Raises:
        LabelledRowsError: One name stands for different outputs in both.
    """
    if len(given) != len(own):
        return ()
    places = Places(own)
    found = [places.get(name) for name in given]
    for k, place in enumerate(found):
        if place not in (None, k):
            problem = f"--classes names output {k} {given[k]!r}, and {source} names it {own[k]!r}"
            orders = f"--classes has the order {quotes(given)}, and {source} the order {quotes(own)}"
            cure = "remove --classes, or correct the one that is wrong"
            raise LabelledRowsError(f"{problem}. These contradict each other: {orders}; {cure}")
    if _numbers(own) or any(place is not None for place in found):
        return ()
    return (f"{source} names the classes {quotes(own)}; --classes names them {quotes(given)}, in this order.",)


def _numbers(names: Sequence[str]) -> bool:
    return all(name.lstrip("-").isdigit() for name in names)


def class_numbers(rows: ImportRows, classes: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return the index in `classes` of each row's label, by its name, as `Places` finds it.

    If no label is a name and the names are not whole numbers themselves, a label is the class's number.

    Raises:
        LabelledRowsError: A label is neither a name nor a number of a class.
    """
    texts = [str(label) for label in rows.y.tolist()]
    places = Places(classes)
    place = {text: k for text in set(texts) if (k := places.get(text)) is not None}
    are_numbers = all(map(is_whole_number, classes))
    if are_numbers or place:
        unknown = [text for text in texts if text not in place]
        if unknown:
            problem = f"{rows.source} has the label {unknown[0]!r}, which is not a class"
            cure = " Remove rows without a label, or name the classes as the labels do: --classes=-1,1"
            cure = cure if are_numbers else nearest(unknown[0], classes)
            raise LabelledRowsError(f"{problem}; the classes are {quotes(classes)}.{cure}")
        return np.array([place[text] for text in texts], np.int64)
    try:
        index_N = np.array([int(text) for text in texts], np.int64)
    except ValueError:
        problem = f"{rows.source} has the label {texts[0]!r}, which is not a class"
        raise LabelledRowsError(
            f"{problem}; the classes are {quotes(classes)}. Name the classes with --classes"
        ) from None
    outside = index_N[(index_N < 0) | (index_N >= len(classes))]
    if len(outside):
        problem = f"{rows.source} has the label {outside[0]}, but the model has {len(classes)} classes"
        allowed = f"allowed are 0..{len(classes) - 1} and their names {quotes(classes)}"
        cure = "remove rows without a label"
        raise LabelledRowsError(f"{problem}; {allowed}; {cure}")
    return index_N


def check_seen(labels_N: npt.NDArray[np.int64], names: Sequence[str], rows: ImportRows) -> None:
    """Check that every class has a row.

    Raises:
        LabelledRowsError: A class has no row.
    """
    unseen = np.flatnonzero(np.bincount(labels_N, minlength=len(names)) == 0)
    if len(unseen):
        shown = quotes([names[int(k)] for k in unseen])
        problem = f"{rows.source} has no row of {len(unseen):,} of {len(names):,} classes: {shown}"
        cure = "add rows of them, or use --allow-unseen; then nothing is learned or measured about these classes"
        raise LabelledRowsError(f"{problem}; {cure}")
