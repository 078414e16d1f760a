"""The advice whether to recalibrate, in words, with the command that does it."""

from __future__ import annotations

import math
import shlex

from service.alarm.state import AlarmState
from service.store.rows import LabelBlock
from trueodds.bundle.contents import is_shadow
from trueodds.metrics import Prequential
from trueodds.metrics.alarms.sequential import BLOCK
from trueodds.reports.schemas.alarm import Advice
from trueodds.texts import plural

HELPS = math.log(20)
"""Nats of evidence that the mean gain so far is above 0, from which recalibrating is said to help."""
ENOUGH = 500
"""Labels before which it is not said that recalibrating does not help."""

NEEDS = "Other confidences would fit the labels better: a recalibration needs the probabilities of all classes."
"""The advice for a version that is observed by its confidence alone."""


def advice_of(
    state: AlarmState,
    corrected: LabelBlock | None = None,
    /,
    *,
    model: str,
    version: str,
    address: str,
    positive: str | None = None,
    has_logits: bool = True,
) -> Advice:
    """The report's part about recalibrating; `address` is that of the service, for the command.

    `corrected`: the last labels as they are now, where some were corrected: it is then of those. `positive`: the
    version's positive class, whose errors may cancel in the confidences that are scored here. `has_logits`: whether
    the probabilities of all classes are known, which a recalibration needs.
    """
    seen = state.prequential
    if corrected is not None:
        first = len(corrected) % BLOCK
        seen = Prequential.start().advance_each(corrected.confidence_L[first:], corrected.correct_L[first:])
    n = seen.labels
    numbers = {
        "labels": n,
        "served_log_loss": seen.served_log_loss,
        "recalibrated_log_loss": seen.recalibrated_log_loss,
        "log_e": seen.evidence,
    }
    if not n:
        labels = "labels that come after the re-arming" if state.rearmings else "labels to tell"
        reading = f"Nobody knows yet whether recalibrating would help: it takes {labels}, at least some dozens."
        return Advice(helps="not_known", reading=reading, **numbers)
    basis = (
        f"Of each of {plural(n, 'label')} a recalibration on the ones before it would have been surprised by"
        f" {seen.recalibrated_log_loss:.3f} nats on average, the served confidences were by"
        f" {seen.served_log_loss:.3f} (log loss: less is better). {_evidence(seen)}"
    )
    if corrected is not None:
        basis = (
            f"{basis} Some labels were corrected; these are the last {n:,}, as they are now: one look at them, while"
            " what is said without corrections holds however often one looks."
        )
    if seen.evidence >= HELPS:
        where = f"--service {shlex.quote(address)} --model {shlex.quote(model)} --version {shlex.quote(version)}"
        command = None if is_shadow(model) or not has_logits else f"trueodds recalibrate {where}"
        reading = "Recalibrating would help." if has_logits else NEEDS
        return Advice(helps="yes", reading=reading, basis=basis, command=command, **numbers)
    if seen.log_e <= 0 and n >= ENOUGH:
        reading = "So far recalibrating would not have helped."
        if positive is not None:
            reading = (
                "So far recalibrating the confidence of the more probable class would not have helped. Errors of"
                f" p({positive}) that cancel in it do not show there."
            )
        return Advice(helps="no", reading=reading, basis=basis, **numbers)
    reading = "It cannot be told yet whether recalibrating would help."
    return Advice(helps="not_known", reading=reading, basis=basis, **numbers)


def _evidence(seen: Prequential) -> str:
    assert seen.gain_lower is not None
    return (
        f"Recalibrating has gained {seen.gain_lower:.4f} nats a label on average at the least (in 95% of versions,"
        " however often one looks); above 0 it counts as shown."
    )
