"""Makes a bundle of an ONNX file and labelled rows: read, understood, rewritten, scored, judged, written."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trueodds import calibrators, logits
from trueodds.bundle import METRICS, MODEL, Bundle, BundleError, Description, Reference, RiskCoverage
from trueodds.bundle.contents import NAME
from trueodds.calibrators.selection import Selection, default_candidates
from trueodds.errors import ConfigError
from trueodds.evaluation.results import Results, evaluate, table_of
from trueodds.files import write_bytes
from trueodds.importing.errors import ModelFileError
from trueodds.importing.options import Options
from trueodds.importing.rows import LabelledRows
from trueodds.importing.scoring import METHOD, ScoredModel, score, try_bundle
from trueodds.processes.limited import step
from trueodds.sums.positive import PositiveClass

BUNDLE, LOGITS = "bundle", "logits.npz"


@dataclass(frozen=True)
class Judging:
    """Settings of the measurement on the test rows."""

    compare: Sequence[str]
    bins: int = 15
    level: float = 0.95


@dataclass(frozen=True)
class Outcome:
    """The bundle of an import, and the measurements behind it."""

    bundle: Bundle
    results: Results
    calibration: int
    """Rows that the calibrator was fitted on."""
    selection: Selection
    """The comparison that the calibrator was chosen by."""


def import_model(
    model: Path,
    labelled: LabelledRows,
    out: Path,
    *,
    name: str,
    options: Options = Options(),  # noqa: B008  # frozen
    test: LabelledRows | None = None,
    positive: str | None = None,
    seed: int = 0,
) -> Outcome:
    """Writes `out`/bundle, and beside it logits.npz, metrics.json and calibrators.csv.

    The calibrator is the one of least cross-validated NLL on the calibration rows. It and the other candidates are
    judged on the test rows: half of `labelled`, class-balanced by `seed`, where `test` is None.

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
    scored = score(model, labelled, test, options, seed=seed)
    step("")
    positive_class = None if positive is None else PositiveClass.of(positive, scored.classes)
    val, held_out = scored.splits["val"], scored.splits["test"]
    selection = calibrators.select(val.logits_NC, val.labels_N)
    judging = Judging(default_candidates(len(scored.classes), len(val.labels_N)))
    results = evaluate(selection.calibrator, val, held_out, judging, positive_class)
    out.mkdir(parents=True, exist_ok=True)
    step(f"trying the bundle of {model} as the service will use it")
    bundle = _write_bundle(scored, results, name, out / BUNDLE, positive_class)
    step("")
    logits.write(out / LOGITS, scored.splits, scored.notes)
    results.write(out, scored.notes)
    return Outcome(bundle, results, len(val.labels_N), selection)


def _write_bundle(
    scored: ScoredModel, results: Results, name: str, out: Path, positive: PositiveClass | None
) -> Bundle:
    """Writes the bundle of a scored model with its calibrator, and tries it as a service will use it.

    Raises:
        ModelFileError: the service would refuse it; `out` is as before.
    """
    calibrator, model, val = results.calibrator, scored.model, scored.splits["val"]
    table = table_of(results.before, results.after, results.others, calibrator, results.settings)
    description = Description(
        name=name,
        classes=list(scored.classes),
        positive=positive and positive.name,
        input=model.kind,
        method=METHOD,
        training=dict(model.origin),
        metrics={key: table[key] for key in METRICS},
        risk_coverage=RiskCoverage.of(results.after.sums, "test"),
        notes=[*scored.notes, *table["notes"]],
        data_sha256=scored.data_sha256,
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
                golden_input=scored.golden,
                golden_logits=scored.golden_logits,
                reference=Reference.of(calibrator(val.logits_NC).max(axis=1)),
                trial=try_bundle,
            )
        except BundleError as error:  # its words name a folder that is gone
            problem = re.sub(r"\S*/" + re.escape(MODEL), "the model", str(error))
            raise ModelFileError(f"the service would refuse the bundle of {name}: {problem}") from None
