"""From an ONNX file and labelled rows to a bundle: logits, calibrators compared, the card."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.optimize import linear_sum_assignment

from trueodds import calibrators, logits
from trueodds.bundle import METRICS, MODEL, Bundle, Description, Reference, RiskCoverage
from trueodds.bundle.card import NAME
from trueodds.calibrators import Calibrator
from trueodds.calibrators.selection import CANDIDATES
from trueodds.errors import ConfigError
from trueodds.evaluation.results import Results, evaluate, table_of
from trueodds.evaluation.splits import balanced
from trueodds.importing import kinds, onnx_file, scoring
from trueodds.importing.conversion import Converted, Options, convert
from trueodds.importing.errors import LabelledRowsError
from trueodds.importing.rows import LabelledRows
from trueodds.inputs import Inputs
from trueodds.logits import Logits
from trueodds.texts import listed

METHOD = "imported"
"""What a card says in place of a training method."""
LEAST = 20
"""Labelled rows on each side: a calibrator's, and those that judge it."""
LIKELY = 0.5
"""Share of rows that an order of the classes must explain to be taken for the right one."""
BUNDLE, LOGITS = "bundle", "logits.npz"


@dataclass(frozen=True)
class Judging:
    """How the test rows are judged."""

    bins: int = 15
    level: float = 0.95
    compare: Sequence[str] = CANDIDATES


@dataclass(frozen=True)
class Imported:
    """The outcome of an import."""

    bundle: Bundle
    results: Results
    calibration: int
    """Rows that the calibrator was fitted on."""


@dataclass(frozen=True)
class Scored:
    """A converted model with its answers on labelled rows."""

    converted: Converted
    classes: tuple[str, ...]
    splits: dict[str, Logits]
    """val, for the calibrator, and test."""
    golden: Inputs
    """One row."""
    data_sha256: str
    notes: tuple[str, ...]


def import_model(
    model: Path,
    labelled: LabelledRows,
    out: Path,
    *,
    name: str,
    options: Options = Options(),  # noqa: B008  # frozen
    test: LabelledRows | None = None,
    classes: Sequence[str] = (),
    allow_unseen: bool = False,
    seed: int = 0,
) -> Imported:
    """Writes `out`/bundle, and beside it logits.npz, metrics.json and calibrators.csv.

    The calibrator is the one of least cross-validated NLL on the calibration rows; it and the other candidates are
    judged on the test rows, which are half of `labelled`, class-balanced by `seed`, where `test` is None.

    Raises:
        ModelFileError: a model that cannot be imported.
        LabelledRowsError: rows that cannot be used, or not with this model.
        InputError: values of rows that the model's kind does not take.
        ConfigError: a name that cannot be a folder's.
        FileNotFoundError: no such model.
    """
    if not re.fullmatch(NAME, name):
        allowed = "letters, digits, '.', '_' and '-', a letter or digit first"
        raise ConfigError(f"the name {name!r} cannot be a model's; allowed are {allowed}: --name")
    scored = score(model, labelled, test, options, classes, allow_unseen=allow_unseen, seed=seed)
    val, held_out = scored.splits["val"], scored.splits["test"]
    selection = calibrators.select(val.logits_NC, val.labels_N)
    judged = evaluate(selection.calibrator, val, held_out, Judging())
    out.mkdir(parents=True, exist_ok=True)
    logits.write(out / LOGITS, scored.splits, scored.notes)
    judged.write(out, scored.notes)
    bundle = write_bundle(scored, selection.calibrator, judged, name, out / BUNDLE)
    return Imported(bundle, judged, len(val.labels_N))


def score(
    model: Path,
    labelled: LabelledRows,
    test: LabelledRows | None,
    options: Options,
    classes: Sequence[str] = (),
    *,
    allow_unseen: bool = False,
    seed: int = 0,
) -> Scored:
    """The converted model and its logits on both splits; arguments and errors as `import_model`."""
    converted = convert(model, labelled, options)
    names = _class_names(classes, converted, labelled, model)
    labels_N = labelled.numbers(names)
    _check_seen(labels_N, names, labelled, allow_unseen)
    parts = {"val": kinds.inputs_of(converted.kind, labelled)}
    labels = {"val": labels_N}
    if test is not None:
        parts["test"], labels["test"] = kinds.inputs_of(converted.kind, test), test.numbers(names)
    for split, part in parts.items():
        least = LEAST if test is not None else 2 * LEAST
        if len(part) < least:
            purpose = {"val": "calibration", "test": "test"}[split] if test is not None else "calibration and test"
            raise LabelledRowsError(f"{part.source} holds {len(part)} rows for {purpose}; at least {least} are needed")
    session = onnx_file.session(converted.data, model, spinning=not isinstance(labelled.x, tuple))
    scored = {
        split: scoring.score(session, converted.kind, part, f"score {part.source}") for split, part in parts.items()
    }
    splits = {split: Logits(scored[split], labels[split]) for split in parts}
    if not classes:
        _check_order(splits["val"], labelled, names)
    if test is None:
        drawn, rest = balanced(labels_N, len(labels_N) // 2, seed)
        splits = {
            "val": Logits(scored["val"][rest], labels_N[rest]),
            "test": Logits(scored["val"][drawn], labels_N[drawn]),
        }
    golden = next(scoring.batches(converted.kind, parts["val"].take([0])))[0]
    sha256 = labelled.sha256() if test is None else f"{labelled.sha256()} {test.sha256()}"
    return Scored(converted, names, splits, golden, sha256, converted.notes)


def write_bundle(scored: Scored, calibrator: Calibrator, judged: Results, name: str, out: Path) -> Bundle:
    """The bundle of a scored model with a calibrator."""
    table = table_of(judged.before, judged.after, judged.others, calibrator, judged.settings)
    converted, val = scored.converted, scored.splits["val"]
    description = Description(
        name=name,
        classes=list(scored.classes),
        input=converted.kind,
        method=METHOD,
        training=dict(converted.origin),
        metrics={key: table[key] for key in METRICS},
        risk_coverage=RiskCoverage.of(judged.after.sums, "test"),
        notes=[*scored.notes, *table["notes"]],
        data_sha256=scored.data_sha256,
        code_sha256="",
    )
    with tempfile.TemporaryDirectory(prefix="trueodds-import-") as folder:
        model = Path(folder) / MODEL
        model.write_bytes(converted.data)
        session = onnx_file.session(converted.data, model)
        return Bundle.write(
            out,
            model,
            calibrator,
            description,
            golden_input=scored.golden,
            golden_logits=session.run(None, {converted.kind.tensor: scored.golden[None]})[0][0],
            reference=Reference.of(calibrator(val.logits_NC).max(axis=1)),
        )


def _class_names(stated: Sequence[str], converted: Converted, rows: LabelledRows, model: Path) -> tuple[str, ...]:
    """The classes in the order of the logits: as stated, as the graph's own names, as the rows', as their numbers.

    Names that stand only in the labels have no order: which logit is whose would be a guess.
    """
    count, own = converted.classes, converted.labels
    sources = [(tuple(stated), "--classes names"), (() if _numbers(own) else own, f"{model} names")]
    sources += [(rows.classes, f"{rows.source} names"), (own, f"{model} names")]
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


def _check_order(split: Logits, rows: LabelledRows, names: Sequence[str]) -> None:
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


def _check_seen(labels_N: npt.NDArray[np.int64], names: Sequence[str], rows: LabelledRows, allowed: bool) -> None:
    unseen = np.flatnonzero(np.bincount(labels_N, minlength=len(names)) == 0)
    if len(unseen) and not allowed:
        shown = listed([names[int(k)] for k in unseen])
        problem = f"{rows.source} has no row of {len(unseen):,} of {len(names):,} classes: {shown}"
        cure = "add rows of them, or say --allow-unseen: nothing is then learned or measured about these classes"
        raise LabelledRowsError(f"{problem}; {cure}")
