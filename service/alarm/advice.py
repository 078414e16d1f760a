"""Advice whether to recalibrate, in words and with the command for it."""

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
"""Evidence, in nats, that the mean gain is above 0. From here on the advice is that recalibrating helps."""
ENOUGH = 500
"""Number of labels before which the advice never says that recalibrating does not help."""

NEEDS = "Other confidences would fit the labels better, but recalibration needs the probabilities of all classes."
"""Advice for a version that is observed with the confidence of the predicted class only."""


def advice_of(
    state: AlarmState,
    current_labels: LabelBlock | None = None,
    /,
    *,
    model: str,
    version: str,
    address: str,
    positive: str | None = None,
    has_logits: bool = True,
) -> Advice:
    """Return the report's part about recalibration.

    Args:
        state: State of the alarm.
        corrected: The last labels with their current values, if some were corrected. The advice is then about these.
        model: Name of the model.
        version: Its version.
        address: Address of the service, for the command.
        positive: Positive class of the version. Its errors may cancel out in the confidences that are scored here.
        has_logits: Whether the probabilities of all classes are known, which recalibration needs.
    """
    seen = state.prequential
    if current_labels is not None:
        first = len(current_labels) % BLOCK
        seen = Prequential.start().advance_each(current_labels.confidence_L[first:], current_labels.correct_L[first:])
    n = seen.labels
    numbers = {
        "labels": n,
        "served_log_loss": seen.served_log_loss,
        "recalibrated_log_loss": seen.recalibrated_log_loss,
        "log_e": seen.evidence,
    }
    if not n:
        since = " that arrive after the re-arming" if state.rearmings else ""
        reading = (
            f"It is not known yet whether recalibrating would help. This needs at least a few dozen labels{since}."
        )
        return Advice(helps="not_known", reading=reading, **numbers)
    basis = (
        f"Over {plural(n, 'label')}, the log loss of the served confidences is {seen.served_log_loss:.3f} nats. If each"
        f" answer had been recalibrated on the labels before it, it would be {seen.recalibrated_log_loss:.3f} (less is"
        f" better). {_evidence(seen)}"
    )
    if current_labels is not None:
        basis = (
            f"{basis} Some labels were corrected, so these numbers use the last {n:,} labels with their current values."
            " They hold for a single look; without corrections they hold however often you look."
        )
    if seen.evidence >= HELPS:
        where = f"--url {shlex.quote(address)} --model {shlex.quote(model)} --version {shlex.quote(version)}"
        command = None if is_shadow(model) or not has_logits else f"trueodds recalibrate {where}"
        reading = "Recalibrating would help." if has_logits else NEEDS
        return Advice(helps="yes", reading=reading, basis=basis, command=command, **numbers)
    if seen.log_e <= 0 and n >= ENOUGH:
        reading = "So far recalibrating would not have helped."
        if positive is not None:
            reading = (
                "So far recalibrating the confidence of the more probable class would not have helped. This does not"
                f" show errors of p({positive}) that cancel out in that confidence."
            )
        return Advice(helps="no", reading=reading, basis=basis, **numbers)
    reading = "It is not clear yet whether recalibrating would help."
    return Advice(helps="not_known", reading=reading, basis=basis, **numbers)


def _evidence(prequential: Prequential) -> str:
    assert prequential.gain_lower is not None
    return (
        f"Recalibrating has gained at least {prequential.gain_lower:.4f} nats per label on average (a bound that holds"
        " in 95% of versions, however often you look). Above 0 the gain counts as shown."
    )
