"""Evidence about a promise to act alone, in numbers and in words."""

from __future__ import annotations

from service.alarm.promise import PromiseState
from service.http.parameters import moment_of
from service.settings import Settings
from trueodds.metrics import binomial_interval, risk_sequence
from trueodds.reports.schemas.alarm import ActingAlone, BrokenPromise
from trueodds.texts import plural

LEVEL = 0.95
WORSE = 2.0
"""Multiple of the promised risk that the text calls a break."""


def acting_alone(
    state: PromiseState, settings: Settings, *, answers: int, acted_count: int, has_corrections: bool = False
) -> ActingAlone:
    """Return the report's part about acting alone.

    Args:
        state: Evidence about the promise.
        settings: Settings of the service.
        answers: Number of answers of the version so far.
        acted_count: Number of those that acted alone.
        has_corrections: Whether labels of the version were replaced after they had counted.
    """
    process, promise = state.process, state.promise
    acted_count = min(acted_count, answers)
    share_lower, share_upper = binomial_interval(acted_count, answers, level=LEVEL)
    sequence = risk_sequence(process.wrong, process.labels, level=LEVEL) if process.labels else None
    part = ActingAlone(
        answers=answers,
        acted=acted_count,
        share=acted_count / answers if answers else None,
        share_lower=float(share_lower) if answers else None,
        share_upper=float(share_upper) if answers else None,
        level=LEVEL,
        threshold=promise.threshold,
        tags=promise.tags,
        promised_risk=promise.risk,
        promised_confidence=promise.confidence,
        promised_share=promise.share,
        labels=process.labels,
        wrong=process.wrong,
        risk=sequence.risk if sequence else None,
        risk_lower=sequence.lower if sequence else None,
        risk_upper=sequence.upper if sequence else None,
        escalated_labels=state.escalated,
        left_out=state.left_out,
        audit_share=settings.audit_share,
        more_labels=more_labels(state),
        alarm=BrokenPromise(
            state="fired" if state.fired else "quiet",
            statement=statement(state),
            threshold=1 / state.alpha,
            log_e=process.log_e,
            p_value=process.p_value,
            fired_at=None if state.fired is None else moment_of(state.fired.at_ms),
            fired_after=None if state.fired is None else state.fired.after,
        ),
        reading="",
    )
    return part.model_copy(update={"reading": _reading(part, state, has_corrections)})


def more_labels(state: PromiseState) -> int | None:
    """Return about how many labels of acting answers would show twice the risk; None after the alarm fired."""
    if state.fired is not None:
        return None
    return state.process.labels_to_notice(_worse(state.promise.risk), state.alpha)


def _worse(risk: float) -> float:
    return min(WORSE * risk, (1 + risk) / 2)


def statement(state: PromiseState) -> str:
    """Return the statement that holds once the alarm has fired."""
    return f"At some time, more than {_percent(state.promise.risk)} of the answers that act alone were wrong."


def _reading(part: ActingAlone, state: PromiseState, has_corrections: bool) -> str:
    as_first = (
        "Some labels were corrected later. This part uses labels as they first arrived." if has_corrections else ""
    )
    parts = _share(part), _risk(part), _alarm(part, state), _labels(part), _caveats(part, state), as_first
    return " ".join(filter(None, parts))


def _share(part: ActingAlone) -> str:
    if part.share is None:
        return "No answers yet, so nothing has acted alone."
    promised = (
        "" if part.promised_share is None else f" {_percent(part.promised_share)} did when the threshold was chosen."
    )
    return (
        f"{_percent(part.share)} of the answers act alone ({part.acted:,} of {part.answers:,}; interval"
        f" {_percent(part.share_lower or 0)} to {_percent(part.share_upper or 0)}, for a single look).{promised}"
    )


def _risk(part: ActingAlone) -> str:
    promised = f"The promise is at most {_percent(part.promised_risk)}."
    if part.risk is None:
        counts = " that counts" if part.left_out else ""
        return f"It is not known how often they are wrong, because none of them has a label{counts}. {promised}"
    return (
        f"{part.wrong:,} of {plural(part.labels, 'labelled one')} were wrong: {_percent(part.risk)}. The error rate is"
        f" between {_percent(part.risk_lower or 0)} and {_percent(part.risk_upper or 0)} at {part.level:.0%}"
        f" confidence, however often you look. {promised}"
    )


def _alarm(part: ActingAlone, state: PromiseState) -> str:
    if state.fired is None:
        return ""
    rare = f"1 of {1 / state.alpha:.4g}"
    when, labels = moment_of(state.fired.at_ms), plural(state.fired.after, "label")
    return (
        f"ALARM: the promise is broken. {part.alarm.statement} This was shown on {when:%Y-%m-%d %H:%M} UTC, after"
        f" {labels} of such answers. Of promises that are kept, at most {rare} would ever show this much. Escalate all"
        " answers, or choose a new threshold (trueodds threshold) and publish it with a new version."
    )


def _labels(part: ActingAlone) -> str:
    """Return how many labels are missing, and how to get them."""
    if not part.more_labels:
        return ""
    lacking = plural(part.more_labels, "more label") + " of acting answers"
    worse = f"to notice an error rate of {_percent(_worse(part.promised_risk))} from now on, it takes about {lacking}"
    if part.audit_share:
        answers = f"{part.more_labels / part.audit_share:,.0f}"
        return (
            f"{worse[0].upper()}{worse[1:]}. An audit of {_percent(part.audit_share)} needs about {answers} acting"
            " answers for that."
        )
    if part.labels == 0 and part.escalated_labels:
        return (
            f"Only escalated answers get labels, so a broken promise would go unnoticed: {worse}. Set --audit-share"
            " .02, and label the answers with audit: true."
        )
    return f"{worse[0].upper()}{worse[1:]}."


def _caveats(part: ActingAlone, state: PromiseState) -> str:
    words = []
    if part.left_out:
        words.append(
            f"The audit did not request {plural(part.left_out, 'label')} of acting answers, such as complaints. They"
            " are left out here, because they are not a random sample."
        )
    least, most = state.least_propensity, state.most_propensity
    if least is not None and most is not None and least < most:
        words.append(
            f"Callers gave propensities from {least:.3g} to {most:.3g} for acting answers. So the evidence is about the"
            " acting answers that get labels, not about all of them."
        )
    return " ".join(words)


def _percent(share: float) -> str:
    return f"{100 * share:.3g}%"
