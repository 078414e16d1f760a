"""The served calibrator, corrected for the class shares of answers without labels (prior shift)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from pipeline.recalibrate.calibrator_choice import RECALIBRATION, without_promise, without_sets
from pipeline.recalibrate.request import NoClassSharesError, Recalibration
from trueodds.bundle import Bundle
from trueodds.calibrators import Calibrator, PriorCorrected
from trueodds.reports.before_labels.class_shares import CONDITION
from trueodds.reports.schemas import ClassShare, ClassShares, Report
from trueodds.reports.words import level, percent

SHOWN = 3
"""Largest number of classes that the card's note names."""
UNCHANGED = ("bins", "level")
"""Parts of the card's metrics that hold for another calibrator."""


def read_shares(request: Recalibration, name: str, version: str, is_in_card: bool) -> tuple[Report, ClassShares]:
    """Read the live report of a version, with the class shares of its answers.

    Args:
        request: What to recalibrate. `since` is the first time of the answers.
        name: Name of the model.
        version: Its version.
        is_in_card: Whether the version's card has reference rows by class. Otherwise the labelled answers before
            `since` are the reference.

    Raises:
        NoClassSharesError: The class shares are not known, refused, or withdrawn by labels.
        CallError: The service does not answer, or refuses.
    """
    if request.since is None and not is_in_card:
        raise NoClassSharesError(
            f"{name}/{version} has no card with reference rows by class, as models with a positive class have. Give the"
            " time of the change (--since): the labelled answers from before it are then the reference"
        )
    report = request.client.report(model=name, version=version, since=request.since)
    shares = report.class_shares
    if shares is None:
        raise NoClassSharesError(
            f"{name}/{version} has no answer without a label in this time, so there is nothing to estimate; give an"
            " earlier time (--since), or recalibrate on the labels"
        )
    if shares.refused is not None or shares.withdrawn is not None:
        raise NoClassSharesError(
            f"{name}/{version}: {shares.reading} Recalibrate on labels instead: trueodds recalibrate --model {name}"
        )
    return report, shares


def correction(classes: Sequence[str], calibrator: Calibrator, shares: ClassShares) -> PriorCorrected:
    """Return a served calibrator, corrected for class shares.

    The calibrator of the EM is the report's. A share of 0 counts as 1 / (answers + classes): a class that was not seen
    may still come.

    Args:
        classes: Names of the classes, in the calibrator's order.
        calibrator: The served calibrator.
        shares: Class shares that the report gives.
    """
    assert shares.slope is not None
    share_of = {one.name: one for one in shares.classes}
    found = [share_of[name] for name in classes]
    smallest = 1 / (shares.answers + len(found))
    ratio_C = np.log([max(one.em.value or 0.0, smallest) / one.reference for one in found])
    return PriorCorrected(shares.slope, np.array([one.bias for one in found]), ratio_C, calibrator)


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
    told = [one for one in shares.classes if one.name == served.card.positive] or _largest_changes(shares)
    listed = "; ".join(
        f"{percent(one.em.value)} are {one.name} ({level(report.level)} interval {percent(one.em.lower)} to"
        f" {percent(one.em.upper)}), where {percent(one.reference)} of the reference rows were"
        for one in told
    )
    note = (
        f"Corrected from version {served.version} for the class shares of {shares.answers:,} answers until"
        f" {until:%Y-%m-%d %H:%M} UTC, without their labels: {listed}. There are {shares.reference_rows:,} reference"
        f" rows. {CONDITION} No label has measured this version, so it has no metrics."
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
        correction(served.card.classes, served.calibrator, shares),
        served.card.model_copy(update=changes),
        golden_input=served.golden_input()[0],
        golden_logits=served.card.golden.logits,
    )


def _largest_changes(shares: ClassShares) -> list[ClassShare]:
    """Return the classes whose shares have changed most, at most three."""
    return sorted(shares.classes, key=lambda one: -abs((one.em.value or 0.0) - one.reference))[:SHOWN]
