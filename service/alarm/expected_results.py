"""Expected precision and recall of a version's answers without a label, withdrawn once labels contradict them."""

from __future__ import annotations

from service.store.rows import Version
from trueodds.reports import ReportOptions
from trueodds.reports.expected_results import LabelEvidence, expected_of_acting, expected_of_positive
from trueodds.reports.schemas import ExpectedDecisions
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
