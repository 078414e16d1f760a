"""Whether the answers that get labels are like all answers: the alarm speaks of the former."""

from __future__ import annotations

from service.report.cache import remembered
from service.store.records import StoredSums
from trueodds import metrics


@remembered(128)
def differs(sums: StoredSums) -> bool:
    """Whether the confidences of the labelled answers are no fair choice of those of all answers (p < .01)."""
    if not 0 < sums.labelled.n < sums.answers:
        return False
    return metrics.choice_of_labels(sums.labelled, sums.answers_C).warning
