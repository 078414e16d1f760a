"""Scores labelled rows: names the classes, computes logits, and checks them.

Two checks say whether the logits mean what they seem to: they fit the labels in the order of the classes, and they
agree with the maker's own probabilities.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import scipy

from trueodds.errors import nearest
from trueodds.evaluation.splits import balanced_split
from trueodds.files import read_npz
from trueodds.importing.errors import LabelledRowsError, ModelFileError
from trueodds.importing.forms import EXPECTED
from trueodds.importing.import_options import ImportOptions
from trueodds.importing.labelled_rows import ImportRows, batches
from trueodds.importing.rewriting import ServableModel
from trueodds.inputs import VectorInput, columns
from trueodds.logits import Logits
from trueodds.metrics import softmax
from trueodds.processes.limited import progress, step
from trueodds.processes.progress import count_off
from trueodds.sums.inputs import both_classes, check_probabilities
from trueodds.texts import Places, is_whole_number, quotes

LEAST = 20
"""Smallest number of labelled rows for the calibrator, and for the test."""
LIKELY = 0.5
"""Share of rows that an order of the classes must explain to be considered right."""
ROUNDED = 0.01
"""Tolerance of the maker's probabilities, which may be rounded to two decimals."""

Array = npt.NDArray[np.floating]


class UnlikeMakerError(LabelledRowsError):
    """The maker's own probabilities `p_NC` differ, and neither the classes' order nor the output's form explains it."""

    def __init__(self, problem: str, p_NC: Array) -> None:
        cure = "check the preprocessing (--preprocess), the order of the features and of the rows, and the model's file"
        super().__init__(f"{problem}, and no order of the classes explains it; {cure}")
        self.problem, self.p_NC = problem, p_NC


@dataclass(frozen=True)
class ScoredModel:
    """A servable model with its logits of labelled rows."""

    model: ServableModel
    classes: tuple[str, ...]
    splits: dict[str, Logits]
    """Logits and labels of `val`, for the calibrator, and `test`."""
    data_sha256: str
    notes: tuple[str, ...]


def score_rows(
    model: ServableModel, labelled: ImportRows, test: ImportRows | None, options: ImportOptions, *, seed: int = 0
) -> ScoredModel:
    """Compute a model's logits of the rows of both splits, and check them.

    Args:
        model: The model.
        labelled: Labelled rows.
        test: Test rows. Default: half of `labelled`, class-balanced, chosen by `seed`.
        options: The caller's options for the model and the rows.
        seed: Seed of the split.

    Raises:
        LabelledRowsError: The rows cannot be used with this model.
        UnlikeMakerError: As in `compare_with_maker`.
        InputError: The model's kind of input does not allow their values.
        ModelFileError: The model cannot be run on them, or its logits are not finite.
    """
    names, of_classes = class_names(model, labelled)
    labels_N = class_numbers(labelled, names)
    if not options.allow_unseen:
        check_seen(labels_N, names, labelled)
    rows, labels = {"val": labelled}, {"val": labels_N}
    if test is not None:
        rows["test"], labels["test"] = test, class_numbers(test, names)
    least = LEAST if test is not None else 2 * LEAST
    if few := next((each for each in rows.values() if len(each) < least), None):
        raise LabelledRowsError(
            f"{few.source} holds {len(few)} rows; at least {least} are needed, {LEAST} in each split"
        )
    step(f"scoring the rows by {model.file.path}")
    scored = logits_of(model, rows)
    splits = {split: Logits(logits_NC, labels[split], rows[split].groups_N) for split, logits_NC in scored.items()}
    val = splits["val"]
    if options.expected is not None:
        compare_with_maker(model, options.expected, val.logits_NC, names, labelled)
    if not options.classes:
        for split, each in rows.items():
            check_order(splits[split], each, names)
    if test is None:
        judging_N, fitting_N = balanced_split(labels_N, len(labels_N) // 2, seed)
        splits = {"val": val.only(fitting_N), "test": val.only(judging_N)}
    sha256 = labelled.sha256() if test is None else f"{labelled.sha256()} {test.sha256()}"
    features = model.kind.features if isinstance(model.kind, VectorInput) else ()
    renamed = (note for each in rows.values() if features for note in each.notes(features))
    return ScoredModel(model, names, splits, sha256, (*model.notes, *of_classes, *renamed))


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
    if names == ("0", "1") and set(labels) <= {"False", "True"}:
        names = ("False", "True")  # every library numbers bool classes in this order
    if _numbers(names) and not _numbers(labels):
        problem = f"{rows.source} labels its rows {quotes(labels)}, and nothing says which output"
        raise LabelledRowsError(f"{problem} of {model.file.path} is whose; {cure}")
    return names, _compare(model.file.options.classes, own, model.labels_source)


def _compare(option: Sequence[str], own: Sequence[str], source: str) -> tuple[str, ...]:
    """Compare the names of the options with those of the model's files. Return a note if no name is in both."""
    if len(option) != len(own):
        return ()
    places = Places(own)
    found = [places.get(name) for name in option]
    for k, place in enumerate(found):
        if place not in (None, k):
            problem = f"--classes names output {k} {option[k]!r}, and {source} names it {own[k]!r}"
            orders = f"--classes has the order {quotes(option)}, and {source} the order {quotes(own)}"
            cure = "remove --classes, or correct the one that is wrong"
            raise LabelledRowsError(f"{problem}. These contradict each other: {orders}; {cure}")
    if _numbers(own) or any(place is not None for place in found):
        return ()
    return (f"{source} names the classes {quotes(own)}; --classes names them {quotes(option)}, in this order.",)


def _numbers(names: Sequence[str]) -> bool:
    return all(name.lstrip("-").isdigit() for name in names)


def class_numbers(rows: ImportRows, classes: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return the index in `classes` of each row's label, by its name, as `Places` finds it.

    If no label is a name and the names are not whole numbers themselves, a label is the class's number: among the
    classes that the rows' own file names, if it names these classes, and among `classes` otherwise.

    Raises:
        LabelledRowsError: A label is neither a name nor a number of a class.
    """
    places = Places(classes)
    texts = _own_names(rows, places) or [str(label) for label in rows.y.tolist()]
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


def _own_names(rows: ImportRows, places: Places) -> list[str]:
    """Return the name of each label whose number counts in the rows' own names of classes; empty if it does not.

    Their order may differ from that of the classes. If none of them names a class, the names are another spelling.

    Raises:
        LabelledRowsError: A number is outside the rows' own names.
    """
    own = rows.classes
    if rows.y.dtype.kind not in "iu" or all(map(is_whole_number, own)) or all(places.get(name) is None for name in own):
        return []
    outside = rows.y[(rows.y < 0) | (rows.y >= len(own))]
    if len(outside):
        problem = f"{rows.source} has the label {outside[0]}, and names {len(own)} classes: {quotes(own)}"
        raise LabelledRowsError(f"{problem}; allowed are 0..{len(own) - 1}; remove rows without a label")
    return [own[k] for k in rows.y.tolist()]


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


def logits_of(model: ServableModel, rows: Mapping[str, ImportRows]) -> dict[str, npt.NDArray[np.float32]]:
    """Compute the logits of the rows of each split, N x C. Arrays are all checked before the first row is scored.

    Raises:
        LabelledRowsError: The rows have another shape, or images cannot be read. One message names all of them.
        InputError: The model's kind of input does not allow the values.
        ModelFileError: onnxruntime cannot run rows, or logits are not finite.
    """
    scored: dict[str, npt.NDArray[np.float32]] = {}
    inputs = {split: batches(model.kind, each) for split, each in rows.items()}
    for split, each in rows.items():
        parts: list[npt.NDArray[np.float32]] = []
        for batch in count_off(inputs[split], len(each), f"score {each.source}", model.kind.noun):
            try:
                parts.append(model.run(batch))
            except Exception as error:  # onnxruntime has a dozen exception types without a common base
                why = " ".join(str(error).split())
                raise ModelFileError(f"{each.source}: onnxruntime cannot run its rows: {why}") from None
            progress()
        scored[split] = np.concatenate(parts)
        if len(bad := np.flatnonzero(~np.isfinite(scored[split]).all(axis=1))):
            first = each.x[bad[0]] if isinstance(each.x, tuple) else each.place(int(bad[0]))
            problem = f"{each.source}: the logits of {len(bad):,} of {len(each):,} rows are not finite"
            cure = "check the row for missing or extreme values, and the model for an overflow (float16)"
            raise ModelFileError(f"{problem}, beginning with {first}; {cure}")
    return scored


def compare_with_maker(
    model: ServableModel, path: Path, logits_NC: Array, names: Sequence[str], rows: ImportRows
) -> None:
    """Compare the model's logits of rows with its maker's own probabilities for them, in the file `path`.

    Raises:
        LabelledRowsError: They differ by more than 0.01. The message names the reason that explains all rows: another
            order of the classes, or logits taken for probabilities or the reverse.
        UnlikeMakerError: They differ, and neither explains it.
    """
    p_NC, q_NC = read_maker_probabilities(path, names), softmax(logits_NC)
    if len(p_NC) != len(q_NC):
        problem = f"{path} has {len(p_NC):,} rows, and {rows.source} {len(q_NC):,}"
        raise LabelledRowsError(f"{problem}; give one row of probabilities for each row")
    if agree(p_NC, q_NC):
        return
    row = int(np.abs(p_NC - q_NC).max(axis=1).argmax())
    problem = (
        f"{path} differs from the model's probabilities by up to {np.abs(p_NC - q_NC).max():.2g} ({rows.place(row)})"
    )
    distance_CC = np.abs(q_NC[:, :, None] - p_NC[:, None, :]).sum(axis=0)
    outputs, places = scipy.optimize.linear_sum_assignment(distance_CC)
    if agree(p_NC[:, places], q_NC[:, outputs]):
        order = ",".join(names[int(k)] for k in places)
        problem += f": its columns are those of the outputs in another order. If they are {quotes(names)}, use"
        cure = f"--classes {order}, the order of the model's outputs"
        named = "" if path.suffix in columns.SUFFIXES else ", and give --expected as a table whose header names them"
        raise LabelledRowsError(f"{problem} {cure}{named}")
    with np.errstate(over="ignore"):
        twice_NC = softmax(p_NC)
        own_NC = np.exp(logits_NC.astype(np.float64))  # the output's numbers, which were read as probabilities
    if agree(twice_NC, q_NC):
        cure = "its output holds unusual probabilities; export the model with its logits"
        raise LabelledRowsError(f"{problem}: probabilities were read as logits: {cure}")
    if model.origin["form"] == "probabilities" and np.isfinite(own_NC).all() and agree(p_NC, softmax(own_NC)):
        cure = "append a softmax to the model, or choose its output of logits: --output NAME"
        raise LabelledRowsError(f"{problem}: logits were read as probabilities: {cure}")
    raise UnlikeMakerError(problem, p_NC)


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


def agree(p_NC: Array, q_NC: Array) -> bool:
    """Return whether probabilities are equal except for rounding."""
    return bool(np.abs(p_NC - q_NC).max() <= ROUNDED)


def check_order(split: Logits, rows: ImportRows, names: Sequence[str]) -> None:
    """Check that the logits do not fit the labels far better with the classes in another order.

    Raises:
        LabelledRowsError: Another order fits far better.
    """
    counts_CC = np.zeros((len(names), len(names)), np.int64)
    np.add.at(counts_CC, (split.logits_NC.argmax(axis=1), split.labels_N), 1)
    outputs, labels = scipy.optimize.linear_sum_assignment(counts_CC, maximize=True)
    right, most = counts_CC.trace(), counts_CC[outputs, labels].sum()
    accuracy, best = right / len(split.labels_N), most / len(split.labels_N)
    if best >= LIKELY and accuracy < best / 2:
        order = quotes([names[int(k)] for k in labels])
        problem = f"{rows.source}: the model is right about {accuracy:.1%} of the rows, and about {best:.1%} if its"
        cure = "give the order of its outputs, whichever it is: --classes a,b,c, or a file with one name per line"
        raise LabelledRowsError(f"{problem} classes are in the order {order}; {cure}")
