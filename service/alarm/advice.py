"""The advice whether to recalibrate, in words, with the command that does it."""

from __future__ import annotations

import math
import shlex

from service.alarm.state import AlarmState
from service.store.rows import LabelBlock
from trueodds.bundle.shadows import is_shadow
from trueodds.metrics import Prequential
from trueodds.metrics.alarms.sequential import BLOCK
from trueodds.reports.alarm import Advice
from trueodds.texts import plural

HELPS = math.log(20)
"""Nats from which recalibrating is said to help."""
ENOUGH = 500
"""Labels before which it is not said that recalibrating does not help."""


def advice_of(
    state: AlarmState, corrected: LabelBlock | None = None, /, *, model: str, version: str, address: str
) -> Advice:
    """The report's part about recalibrating; `address` is that of the service, for the command.

    `corrected`: the last labels as they are now, where some were corrected: it is then of those.
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
        "log_e": seen.log_e,
    }
    if not n:
        reading = "Nobody knows yet whether recalibrating would help: it takes labels to tell, at least some dozens."
        return Advice(helps="not_known", reading=reading, **numbers)
    basis = (
        f"Of each of {plural(n, 'label')} a recalibration on the ones before it would have been surprised by"
        f" {seen.recalibrated_log_loss:.3f} nats on average, the served confidences were by"
        f" {seen.served_log_loss:.3f} (log loss: less is better). {_evidence(seen.log_e)}"
    )
    if corrected is not None:
        basis = (
            f"{basis} Some labels were corrected; these are the last {n:,}, as they are now: one look at them, while"
            " what is said without corrections holds however often one looks."
        )
    if seen.log_e >= HELPS:
        where = f"--service {shlex.quote(address)} --model {shlex.quote(model)} --version {shlex.quote(version)}"
        command = None if is_shadow(model) else f"trueodds recalibrate {where}"
        return Advice(helps="yes", reading="Recalibrating would help.", basis=basis, command=command, **numbers)
    if seen.log_e <= 0 and n >= ENOUGH:
        return Advice(helps="no", reading="So far recalibrating would not have helped.", basis=basis, **numbers)
    reading = "It cannot be told yet whether recalibrating would help."
    return Advice(helps="not_known", reading=reading, basis=basis, **numbers)


def _evidence(log_e: float) -> str:
    times = "over a million" if log_e > math.log(1e6) else f"{math.exp(log_e):,.{2 if log_e < math.log(10) else 0}f}"
    return f"All of them together are {times} times as likely after recalibration; from 20 times on it counts as shown."
