"""Results of a version before labels come: expected precision and recall, and class shares under prior shift.

Labels that contradict them withdraw them.
"""

from __future__ import annotations

from service.store.rows import Version
from trueodds.bundle import POSITIVE_EDGES
from trueodds.reports import ReportOptions
from trueodds.reports.before_labels.class_shares import shares_of_cells
from trueodds.reports.before_labels.expected_results import LabelEvidence, expected_of_acting, expected_of_positive
from trueodds.reports.schemas import ClassShares, ExpectedDecisions
from trueodds.sums.answers import AnswerSums
from trueodds.sums.bins import CELLS
from trueodds.sums.positive import PositiveSums


def expected_of(
    version: Version,
    options: ReportOptions,
    refuted_null: str | None,
    sums: AnswerSums,
    positive: PositiveSums | None,
    all_sums: AnswerSums,
    all_positive: AnswerSums | None,
) -> list[ExpectedDecisions]:
    """Return the expected results of alerts and of acting answers that have no label; not for one class or tag.

    Args:
        version: The version.
        options: Window, confidence level and thresholds.
        refuted_null: Null hypothesis that the alarm has refuted, in words; None if there is none.
        sums: Sums of the window.
        positive: Sums of the window by p(positive), for a version with a positive class.
        all_sums: Sums of all answers so far. Their labels are the evidence.
        all_positive: The same by p(positive).
    """
    if options.cells < CELLS or options.window.is_group or options.window.last is not None:
        return []
    found, reference, promise = [], version.reference, version.act_alone
    if positive is not None and all_positive is not None:
        evidence = LabelEvidence(all_positive.labelled, refuted_null)
        calibration = None if reference is None else reference.calibration_rows(positive=True)
        found.append(expected_of_positive(positive, options, evidence, calibration))
    if promise is not None and promise.threshold is not None and not promise.tags:
        evidence = LabelEvidence(all_sums.labelled, refuted_null)
        calibration = None if reference is None else reference.calibration_rows(positive=False)
        found.append(expected_of_acting(sums, promise.threshold, options, evidence, calibration))
    return [one for one in found if one is not None]


def class_shares_of(version: Version, options: ReportOptions, positive: PositiveSums | None) -> ClassShares | None:
    """Return the class shares of a version with a positive class, by the calibration rows of its card.

    Only labels of the same answers test them, because earlier ones are from before the shift.

    Args:
        version: The version.
        options: Window and confidence level.
        positive: Sums of the window by p(positive).

    Returns:
        The shares; None if the card has no rows by class, if every answer has a label, or for one class or tag.
    """
    reference, of_class = version.reference, version.positive_class
    if options.cells < CELLS or options.window.is_group or options.window.last is not None:
        return None
    if positive is None or of_class is None or reference is None or reference.rows_by_class is None:
        return None
    sums = positive.sums
    if sums.answers <= sums.labelled.n:
        return None
    return shares_of_cells(
        version.classes,
        of_class.index,
        sums.answers_C,
        sums.labelled,
        reference.rows_by_class,
        POSITIVE_EDGES,
        confidence=options.level,
    )
