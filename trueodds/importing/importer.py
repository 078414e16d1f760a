"""Makes a bundle of an ONNX file and labelled rows."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trueodds import calibrators, logits
from trueodds.bundle import METRICS, MODEL, Bundle, BundleError, CardSets, Description, Reference, RiskCoverage, trial
from trueodds.bundle.stored_bundle import StoredBundle
from trueodds.calibrators import conformal
from trueodds.calibrators.conformal import ConformalSets, SetSettings
from trueodds.calibrators.selection import Selection, default_candidates
from trueodds.errors import ConfigError, UserError
from trueodds.evaluation.results import Results, evaluate
from trueodds.files import write_bytes
from trueodds.importing import onnx_file, signature
from trueodds.importing.errors import LabelledRowsError, ModelFileError
from trueodds.importing.forms import PRESETS
from trueodds.importing.import_options import ImportOptions, Preprocessing
from trueodds.importing.labelled_rows import ImportRows
from trueodds.importing.rewriting import ServableModel, rewrite, session
from trueodds.importing.scoring import Array, ScoredModel, UnlikeMakerError, agree, score_rows
from trueodds.importing.understanding import SAMPLE, understand
from trueodds.inputs import Inputs
from trueodds.metrics import softmax
from trueodds.processes.limited import step
from trueodds.sums.ordered import check_level_names
from trueodds.sums.positive import PositiveClass
from trueodds.texts import NAME

METHOD = "imported"
"""Name on the card instead of a training method."""
BUNDLE, LOGITS = "bundle", "logits.npz"
USUAL = ("{mean: 0.5, std: 0.5}", "{mean: 127.5, std: 127.5, scale: 1}")
"""Preprocessing to try, besides the presets, if a model does not give its maker's probabilities."""


@dataclass(frozen=True)
class Judging:
    """Settings of the measurement on the test rows."""

    compare: Sequence[str]
    bins: int = 15
    level: float = 0.95


@dataclass(frozen=True)
class Outcome:
    """Bundle of an import, with its measurements."""

    bundle: Bundle
    results: Results
    calibration: int
    """Number of rows that the calibrator was fitted on."""
    selection: Selection
    """Comparison that the calibrator was chosen by."""


def import_model(
    model: Path,
    labelled: ImportRows,
    out: Path,
    *,
    name: str,
    options: ImportOptions = ImportOptions(),  # noqa: B008  # frozen
    test: ImportRows | None = None,
    positive: str | None = None,
    ordered: bool = False,
    sets: SetSettings | None = None,
    seed: int = 0,
) -> Outcome:
    """Import a model: write `out`/bundle, and beside it logits.npz, metrics.json and calibrators.csv.

    The calibrator with the smallest cross-validated NLL on the calibration rows is chosen. It and the other candidates
    are measured on the test rows. If the rows have groups, a temperature for each group is a candidate.

    Args:
        model: The ONNX file.
        labelled: Labelled rows.
        out: Folder for the files.
        name: Name of the model.
        options: The caller's options for the model.
        test: Test rows. Default: half of `labelled`, class-balanced, chosen by `seed`.
        positive: Positive class of two.
        ordered: The classes are levels, the lowest first.
        sets: Settings of conformal sets. A share of the calibration rows then gives their thresholds, and does not fit
            the calibrator. None: no sets.
        seed: Seed of the split.

    Raises:
        ModelFileError: The model cannot be imported, or the service would refuse its bundle.
        LabelledRowsError: The rows cannot be used, or not with this model.
        InputError: The model's kind of input does not allow the values of the rows.
        ConfigError: The name cannot be a folder's name, the positive class is not one of two, or ordered
            classes are numbers that do not ascend.
        FileNotFoundError: There is no such model.
    """
    if not re.fullmatch(NAME, name):
        allowed = "letters, digits, '.', '_' and '-', a letter or digit first"
        raise ConfigError(f"the name {name!r} is not allowed; allowed are {allowed} (--name)")
    outcome = score(model, labelled, test, options, seed=seed)
    step("")
    positive_class = None if positive is None else PositiveClass.of(positive, outcome.classes)
    if ordered:
        check_level_names(outcome.classes)
    val, held_out = outcome.splits["val"], outcome.splits["test"]
    apart = None
    if sets is not None:
        conformal.check_settings(sets, len(outcome.classes))
        val, apart = conformal.rows_apart(val, sets)
    selection = calibrators.select(val.logits_NC, val.labels_N, groups=val.groups_N, ordered=ordered)
    has_groups = val.groups_N is not None
    names = default_candidates(len(outcome.classes), len(val.labels_N), ordered=ordered, has_groups=has_groups)
    judging = Judging(names)
    results = evaluate(selection.calibrator, val, held_out, judging, positive_class)
    out.mkdir(parents=True, exist_ok=True)
    step(f"trying the bundle of {model} as the service will use it")
    fitted = None
    if sets is not None and apart is not None:
        fitted = sets, conformal.fit_sets(selection.calibrator, apart.logits_NC, apart.labels_N, sets, apart.groups_N)
    bundle = _write_bundle(outcome, results, name, out / BUNDLE, positive_class, ordered=ordered, sets=fitted)
    step("")
    logits.write(out / LOGITS, outcome.splits, outcome.notes)
    results.write(out, outcome.notes)
    return Outcome(bundle, results, len(val.labels_N), selection)


def score(
    path: Path, labelled: ImportRows, test: ImportRows | None, options: ImportOptions, *, seed: int = 0
) -> ScoredModel:
    """Convert a model and compute its logits on both splits. Arguments and errors are those of `import_model`."""
    model = convert(path, labelled, options)
    try:
        return score_rows(model, labelled, test, options, seed=seed)
    except UnlikeMakerError as error:
        if how := _preprocessing_of(path, labelled, options, error.p_NC):
            raise LabelledRowsError(f"{error.problem}: the preprocessing differs. Use {how}") from None
        raise


def _preprocessing_of(path: Path, rows: ImportRows, options: ImportOptions, p_NC: Array) -> str:
    """Return the option --preprocess with which the model gives these probabilities; "" if none does."""
    some = rows.spread(SAMPLE)
    for words in (*PRESETS, *USUAL):
        try:
            model = convert(path, rows.take(some), replace(options, preprocessing=Preprocessing.parse(words)))
        except UserError:  # this preprocessing does not fit the model
            continue
        if agree(p_NC[some], softmax(model.run(model.sample))):
            return f"--preprocess {words}" if words in PRESETS else f"--preprocess '{words}'"
    return ""


def convert(path: Path, rows: ImportRows, options: ImportOptions) -> ServableModel:
    """Read the model of a file, understand its input from some rows, and rewrite it.

    Raises:
        ModelFileError, LabelledRowsError, InputError, FileNotFoundError: As in these three steps.
    """
    step(f"reading {path}")
    file = signature.read(path, onnx_file.load(path), options)
    session(file.model, path)  # raises early if onnxruntime refuses what the import keeps of the file
    meaning = understand(file, rows)
    return rewrite(meaning, spinning=not isinstance(rows.x, tuple))


def _write_bundle(
    outcome: ScoredModel,
    results: Results,
    name: str,
    out: Path,
    positive: PositiveClass | None,
    *,
    ordered: bool,
    sets: tuple[SetSettings, ConformalSets] | None,
) -> Bundle:
    """Write the bundle of a scored model with its calibrator, after a trial."""
    calibrator, model, val = results.calibrator, outcome.model, outcome.splits["val"]
    table, card_sets = results.table, None
    if sets is not None:
        settings, fitted = sets
        test = outcome.splits["test"]
        card_sets = CardSets.of(fitted, settings, calibrator, (test.logits_NC, test.labels_N), test.groups_N)
    few = [] if card_sets is None else conformal.few_rows_notes(card_sets.rules, outcome.classes)
    description = Description(
        name=name,
        classes=list(outcome.classes),
        positive=positive and positive.name,
        ordered=ordered,
        input=model.kind,
        method=METHOD,
        training=dict(model.origin),
        metrics={key: table[key] for key in METRICS},
        risk_coverage=RiskCoverage.of(results.after.sums, "test"),
        sets=card_sets,
        notes=[*outcome.notes, *few, *table["notes"]],
        data_sha256=outcome.data_sha256,
        code_sha256="",
    )
    with tempfile.TemporaryDirectory(prefix="trueodds-import-") as folder:
        file = Path(folder) / MODEL
        write_bytes(file, model.data)
        try:
            return Bundle.write(
                out,
                file,
                calibrator,
                description,
                golden_input=model.sample[0],
                golden_logits=model.golden_logits,
                reference=Reference.of_probabilities(
                    calibrator(val.logits_NC, groups=val.groups_N), positive, val.labels_N
                ),
                conformal=None if sets is None else sets[1],
                trial=try_bundle,
            )
        except BundleError as error:  # the message names a temporary folder
            problem = re.sub(r"\S*/" + re.escape(MODEL), "the model", str(error))
            raise ModelFileError(f"the service would refuse the bundle of {name}: {problem}") from None


def try_bundle(bundle: StoredBundle[Any]) -> None:
    """Load a bundle's graph as the service does, and check its answers, row by row and in a full batch.

    Raises:
        ModelFileError: onnxruntime refuses the graph.
        BundleError: The service would refuse the bundle, or an answer depends on the other rows of its batch.
    """
    graph = session(str(bundle.model_path), bundle.model_path)
    names = [tensor.name for tensor in graph.get_inputs()]

    def infer(rows: Inputs) -> Any:
        return graph.run([graph.get_outputs()[0].name], bundle.card.input.feed(rows, names))[0]

    rows = trial.check(bundle, graph.get_inputs(), graph.get_outputs(), infer)
    trial.check_batch(bundle, rows, infer)
