"""The served calibrator, corrected for the class shares of answers without labels (prior shift)."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from pipeline.recalibrate.calibrator_choice import RECALIBRATION, without_promise, without_sets
from pipeline.recalibrate.request import DisagreementError, NoClassSharesError, Recalibration
from trueodds.bundle import POSITIVE_EDGES, Bundle
from trueodds.calibrators import PriorCorrected
from trueodds.reports.before_labels.class_shares import CONDITION, reference_calibrator_of_cells
from trueodds.reports.schemas import ClassShares, Report
from trueodds.reports.words import level, percent

UNCHANGED = ("bins", "level")
"""Parts of the card's metrics that hold for another calibrator."""


def read_shares(request: Recalibration, name: str, served: Bundle) -> tuple[Report, ClassShares]:
    """Read the live report of the served version, with the class shares of its answers.

    Raises:
        NoClassSharesError: The class shares are not known, refused, or withdrawn by labels.
        DisagreementError: The service has other reference rows than the version's card.
        CallError: The service does not answer, or refuses.
    """
    version, card = f"{name}/{served.version}", served.card
    if card.positive_class() is None:
        raise NoClassSharesError(
            f"{version} has no positive class, and only with one the service counts answers by their scores; compare a"
            " table of its answers with the reference rows: trueodds report TABLE --reference ROWS"
        )
    if card.reference is None or card.reference.rows_by_class is None:
        raise NoClassSharesError(
            f"the card of {version} has no reference rows by class. Calibrators fitted by this release have them, but"
            " not those that were corrected for class shares, or fitted to selected labels; serve one that has them"
        )
    report = request.client.report(model=name, version=served.version, since=request.since)
    shares = report.class_shares
    if shares is None:
        raise NoClassSharesError(
            f"{version} has no answer without a label in this time, so there is nothing to estimate; give an earlier"
            " time (--since), or recalibrate on the labels"
        )
    if shares.refused is not None or shares.withdrawn is not None:
        raise NoClassSharesError(f"{version}: {shares.reading} Recalibrate on labels instead: trueodds recalibrate")
    if shares.reference_rows != card.reference.rows:
        raise DisagreementError(
            f"the service's reference of {version} has {shares.reference_rows:,} rows, but its card in"
            f" {served.directory} has {card.reference.rows:,}; give the service's own model directory: --models"
        )
    return report, shares


def correction(served: Bundle, shares: ClassShares) -> PriorCorrected:
    """Return the served calibrator, corrected for class shares.

    The calibrator of the EM is fitted to the reference rows of the card, as the service fits it. A share of 0 counts as
    1 / (answers + 2): a class that was not seen may still come.
    """
    positive, reference = served.card.positive_class(), served.card.reference
    assert positive is not None and reference is not None and reference.rows_by_class is not None
    fitted = reference_calibrator_of_cells(reference.rows_by_class, POSITIVE_EDGES)
    by_class = [1, 0] if positive.index == 0 else [0, 1]
    share_of = {one.name: one for one in shares.classes}
    found = [share_of[name] for name in served.card.classes]
    smallest = 1 / (shares.answers + len(found))
    ratio_C = np.log([max(one.em.value or 0.0, smallest) / one.reference for one in found])
    return PriorCorrected(fitted.slope, np.array(fitted.bias)[by_class], ratio_C, served.calibrator)


def write_correction(served: Bundle, report: Report, shares: ClassShares, out: Path, now_ms: int) -> Bundle:
    """Write the served bundle with the corrected calibrator, and a card that says so, to `out`.

    The card has no metrics, because no label has measured these probabilities.
    """
    until = datetime.fromtimestamp(now_ms / 1000, UTC)
    since = report.window.since
    estimate = {
        "answers": shares.answers,
        "since": None if since is None else since.isoformat(timespec="seconds"),
        "until": until.isoformat(timespec="seconds"),
        "reference_rows": shares.reference_rows,
        "level": report.level,
        "p_value": shares.p_value,
        "classes": {
            one.name: {
                "reference": one.reference,
                "share": one.em.value,
                "lower": one.em.lower,
                "upper": one.em.upper,
            }
            for one in shares.classes
        },
    }
    positive = next(one for one in shares.classes if one.name == served.card.positive)
    interval = f"{level(report.level)} interval {percent(positive.em.lower)} to {percent(positive.em.upper)}"
    note = (
        f"Corrected from version {served.version} for the class shares of {shares.answers:,} answers until"
        f" {until:%Y-%m-%d %H:%M} UTC, without their labels: {percent(positive.em.value)} are {positive.name}"
        f" ({interval}), where {percent(positive.reference)} of {shares.reference_rows:,} reference rows were."
        f" {CONDITION} No label has measured this version, so it has no metrics."
    )
    changes = {
        "training": served.card.training
        | {RECALIBRATION: {"from": served.version, "labels": 0, "prior_shift": estimate}},
        "metrics": {key: served.card.metrics[key] for key in UNCHANGED if key in served.card.metrics},
        "risk_coverage": None,
        "act_alone": None,
        "sets": None,
        "notes": [note, *without_promise(served), *without_sets(served, "whose probabilities differ")],
    }
    return Bundle.write(
        out,
        served.model_path,
        correction(served, shares),
        served.card.model_copy(update=changes),
        golden_input=served.golden_input()[0],
        golden_logits=served.card.golden.logits,
    )
