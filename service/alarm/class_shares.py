"""Class shares of a version's answers under prior shift, withdrawn once labels contradict them."""

from __future__ import annotations

from service.store.rows import Version
from trueodds.bundle import POSITIVE_EDGES
from trueodds.reports import ReportOptions
from trueodds.reports.prior_shift import shares_of_cells
from trueodds.reports.schemas import ClassShares
from trueodds.sums.bins import CELLS
from trueodds.sums.positive import PositiveSums


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
