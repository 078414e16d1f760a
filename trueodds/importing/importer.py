"""From an ONNX file and labelled rows to a bundle: logits, calibrators compared, the card."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from trueodds import calibrators, logits
from trueodds.bundle import METRICS, MODEL, Bundle, BundleError, Description, Reference, RiskCoverage
from trueodds.bundle.contents import NAME
from trueodds.calibrators import Calibrator
from trueodds.calibrators.selection import Selection, default_candidates
from trueodds.errors import ConfigError, UserError
from trueodds.evaluation.results import Results, evaluate, table_of
from trueodds.evaluation.splits import balanced
from trueodds.files import write_bytes
from trueodds.importing import kinds, onnx_file, scoring
from trueodds.importing.classes import agree, check_expected, check_order, check_seen, class_names, read_expected
from trueodds.importing.conversion import SAMPLE, Converted, Options, convert
from trueodds.importing.errors import LabelledRowsError, ModelFileError
from trueodds.importing.preprocessing import PRESETS, Preprocessing
from trueodds.importing.rows import LabelledRows
from trueodds.inputs import Inputs, VectorInput
from trueodds.logits import Logits
from trueodds.metrics import softmax
from trueodds.processes.limited import step
from trueodds.sums.positive import PositiveClass

METHOD = "imported"
"""What a card says in place of a training method."""
LEAST = 20
"""Labelled rows on each side: a calibrator's, and those that judge it."""
USUAL = ("{mean: 0.5, std: 0.5}", "{mean: 127.5, std: 127.5, scale: 1}")
"""Preprocessing that is tried, beside the presets, where a model does not give its maker's probabilities."""
BUNDLE, LOGITS = "bundle", "logits.npz"


@dataclass(frozen=True)
class Judging:
    """How the test rows are judged."""

    compare: Sequence[str]
    bins: int = 15
    level: float = 0.95


@dataclass(frozen=True)
class Imported:
    """The outcome of an import."""

    bundle: Bundle
    results: Results
    calibration: int
    """Rows that the calibrator was fitted on."""
    selection: Selection
    """What the calibrator was chosen by."""


@dataclass(frozen=True)
class Scored:
    """A converted model with its answers on labelled rows."""

    converted: Converted
    classes: tuple[str, ...]
    splits: dict[str, Logits]
    """val, for the calibrator, and test."""
    golden: Inputs
    """One row."""
    golden_logits: npt.NDArray[np.float32]
    """What the model answers for it, (classes,)."""
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
    positive: str | None = None,
    expected: Path | None = None,
    allow_unseen: bool = False,
    seed: int = 0,
) -> Imported:
    """Writes `out`/bundle, and beside it logits.npz, metrics.json and calibrators.csv.

    The calibrator is the one of least cross-validated NLL on the calibration rows; it and the other candidates are
    judged on the test rows, which are half of `labelled`, class-balanced by `seed`, where `test` is None. `expected`:
    a file of the maker's own probabilities for the rows of `labelled`, which the model must give.

    Raises:
        ModelFileError: a model that cannot be imported, or whose bundle the service would refuse.
        LabelledRowsError: rows that cannot be used, or not with this model.
        InputError: values of rows that the model's kind does not take.
        ConfigError: a name that cannot be a folder's, or a positive class that is none of two.
        FileNotFoundError: no such model.
    """
    if not re.fullmatch(NAME, name):
        allowed = "letters, digits, '.', '_' and '-', a letter or digit first"
        raise ConfigError(f"the name {name!r} cannot be a model's; allowed are {allowed}: --name")
    scored = score(model, labelled, test, options, classes, expected=expected, allow_unseen=allow_unseen, seed=seed)
    step("")
    positive_class = None if positive is None else PositiveClass.of(positive, scored.classes)
    val, held_out = scored.splits["val"], scored.splits["test"]
    selection = calibrators.select(val.logits_NC, val.labels_N)
    judging = Judging(default_candidates(len(scored.classes), len(val.labels_N)))
    judged = evaluate(selection.calibrator, val, held_out, judging, positive_class)
    out.mkdir(parents=True, exist_ok=True)
    step(f"trying the bundle of {model} as the service will use it")
    bundle = write_bundle(scored, selection.calibrator, judged, name, out / BUNDLE, positive_class)
    step("")
    logits.write(out / LOGITS, scored.splits, scored.notes)
    judged.write(out, scored.notes)
    return Imported(bundle, judged, len(val.labels_N), selection)


def score(
    model: Path,
    labelled: LabelledRows,
    test: LabelledRows | None,
    options: Options,
    classes: Sequence[str] = (),
    *,
    expected: Path | None = None,
    allow_unseen: bool = False,
    seed: int = 0,
) -> Scored:
    """The converted model and its logits on both splits; arguments and errors as `import_model`."""
    converted = convert(model, labelled, options)
    names = class_names(classes, converted, labelled, model)
    labels_N = labelled.numbers(names)
    if not allow_unseen:
        check_seen(labels_N, names, labelled)
    parts = {"val": kinds.inputs_of(converted.kind, labelled)}
    labels = {"val": labels_N}
    if test is not None:
        parts["test"], labels["test"] = kinds.inputs_of(converted.kind, test), test.numbers(names)
    least = LEAST if test is not None else 2 * LEAST
    if few := next((part for part in parts.values() if len(part) < least), None):
        raise LabelledRowsError(f"{few.source} holds {len(few)} rows; at least {least} are needed: {LEAST} a split")
    step(f"scoring the rows by {model}")
    session = onnx_file.session(converted.data, model, spinning=not isinstance(labelled.x, tuple))
    scored = {
        split: scoring.score(session, converted.kind, part, f"score {part.source}") for split, part in parts.items()
    }
    splits = {split: Logits(scored[split], labels[split]) for split in parts}
    if expected is not None:
        check_expected(
            expected,
            scored["val"],
            names,
            str(converted.origin["form"]),
            labelled.source,
            lambda: _preprocessing_of(model, labelled, options, read_expected(expected, names)),
        )
    if not classes:
        check_order(splits["val"], labelled, names)
    if test is None:
        drawn, rest = balanced(labels_N, len(labels_N) // 2, seed)
        splits = {
            "val": Logits(scored["val"][rest], labels_N[rest]),
            "test": Logits(scored["val"][drawn], labels_N[drawn]),
        }
    golden = next(scoring.batches(converted.kind, parts["val"].take([0])))
    answer_1C = session.run(None, converted.kind.feed(golden, [converted.kind.tensor]))[0]
    sha256 = labelled.sha256() if test is None else f"{labelled.sha256()} {test.sha256()}"
    features = converted.kind.features if isinstance(converted.kind, VectorInput) else ()
    renamed = (note for rows in (labelled, test) if rows and features for note in rows.notes(features))
    return Scored(converted, names, splits, golden[0], answer_1C[0], sha256, (*converted.notes, *renamed))


def _preprocessing_of(model: Path, rows: LabelledRows, options: Options, p_NC: npt.NDArray[np.floating]) -> str:
    """The preprocessing, in the words of the command line, by which a model gives the probabilities of rows."""
    some = np.unique(np.linspace(0, len(rows) - 1, SAMPLE).astype(np.intp))
    sample = rows.take(some)
    for words in (*PRESETS, *USUAL):
        try:
            other = convert(model, sample, replace(options, preprocessing=Preprocessing.parse(words)))
            inputs = np.concatenate(list(scoring.batches(other.kind, kinds.inputs_of(other.kind, sample))))
            session = onnx_file.session(other.data, model)
            q_NC = softmax(session.run(None, other.kind.feed(inputs, [other.kind.tensor]))[0])
        except UserError:  # not for this model
            continue
        if agree(p_NC[some], q_NC):
            return f"--preprocess {words}" if words in PRESETS else f"--preprocess '{words}'"
    return ""


def write_bundle(
    scored: Scored,
    calibrator: Calibrator,
    judged: Results,
    name: str,
    out: Path,
    positive: PositiveClass | None = None,
) -> Bundle:
    """The bundle of a scored model with a calibrator, which has been tried as a service will use it.

    Raises:
        ModelFileError: the service would refuse it; `out` is as before.
    """
    table = table_of(judged.before, judged.after, judged.others, calibrator, judged.settings)
    converted, val = scored.converted, scored.splits["val"]
    description = Description(
        name=name,
        classes=list(scored.classes),
        positive=positive and positive.name,
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
        write_bytes(model, converted.data)
        try:
            return Bundle.write(
                out,
                model,
                calibrator,
                description,
                golden_input=scored.golden,
                golden_logits=scored.golden_logits,
                reference=Reference.of(calibrator(val.logits_NC).max(axis=1)),
                trial=scoring.try_bundle,
            )
        except BundleError as error:  # its words name a folder that is gone
            problem = re.sub(r"\S*/" + re.escape(MODEL), "the model", str(error))
            raise ModelFileError(f"the service would refuse the bundle of {name}: {problem}") from None
