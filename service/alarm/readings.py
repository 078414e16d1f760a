"""Evidence of the alarm in words, for people who do not know e-values."""

from __future__ import annotations

from typing import Literal, NamedTuple

from service.alarm.evidence import PAGING, Evidence
from service.alarm.state import AlarmState
from service.http.parameters import moment_of
from service.settings import Settings
from trueodds.bundle.contents import is_shadow
from trueodds.metrics import OrderedEProcess
from trueodds.reports.labelling import choice_of
from trueodds.reports.schemas.alarm import (
    Acknowledgement,
    Alarm,
    AlarmOf,
    EvidencePoint,
    Rearming,
    Watched,
    WeightedEvidence,
)
from trueodds.sums.answers import AnswerSums
from trueodds.texts import plural

AS_FIRST = (
    "Some labels were corrected later. This evidence uses labels as they first arrived, because evidence that was once"
    " reported must not change. The other numbers use the current labels."
)


class _Subject(NamedTuple):
    """Subject of the sentences."""

    whose: str
    """ " of the more probable class" if that must be said, else ""."""
    positive: str | None
    levels: tuple[str, ...] | None


Standing = Literal["quiet", "notice", "fired", "acknowledged"]

DIFFERS = (
    "The answers that get labels differ in confidence from all answers. So the alarm is about the labelled traffic, not"
    " about all traffic."
)


def alarm_of(
    state: AlarmState,
    settings: Settings,
    *,
    model: str,
    sums: AnswerSums,
    has_corrections: bool = False,
    positive: str | None = None,
    levels: tuple[str, ...] | None = None,
) -> Alarm:
    """Return the report's part about the alarm. A shadow (by its `model`) pages nobody: its alarm is a notice.

    Args:
        state: State of the alarm.
        settings: Settings of the service.
        model: Name of the model; NAME~shadow for a shadow.
        sums: Sums of all answers of the version. They show whether the answers that get labels are like all answers.
        corrected: Whether any label was corrected after it arrived.
        positive: Positive class of the version. Its probability has evidence of its own, so the sentences name the
            class.
        levels: Levels of the version that the alarm can watch, the lowest first; see `Version.watched_levels`.
    """
    shadow = is_shadow(model)
    state = state.watching(positive is not None, None if levels is None else len(levels))
    whose = " of the more probable class" if positive is not None or "levels" in state.nulls else ""
    subject = _Subject(whose, positive, levels)
    nulls = [_null(state, null, subject, pages=null in PAGING and not shadow) for null in state.watched_nulls]
    weighted = _weighted_evidence(state, whose)
    choice = choice_of(sums)
    notice = DIFFERS if state.labels and choice and choice.warning else None
    parts = (
        _reading(state, nulls, shadow, sums.labelled.n, positive),
        notice,
        weighted.reading if weighted else None,
        _deliveries(state, settings),
        _rearming_sentence(state),
        _settings(state, settings, levels),
        _no_levels(settings, subject),
        AS_FIRST if has_corrections else None,
    )
    reading = " ".join(filter(None, parts))
    rearmings = [
        Rearming(
            who=ended.who,
            why=ended.why,
            at=moment_of(ended.at_ms),
            labels=ended.labels,
            fired_at=None if ended.fired_ms is None else moment_of(ended.fired_ms),
        )
        for ended in state.rearmings
    ]
    return Alarm(
        state=standing(state, model),
        reading=reading,
        nulls=nulls,
        weighted=weighted,
        notice=notice,
        rearmings=rearmings,
    )


def standing(state: AlarmState, model: str) -> Standing:
    """Return the alarm's state in one word: that of the nulls that page, else whether there is a notice."""
    of_null = {null: _standing(state.nulls[null]) for null in state.watched_nulls}
    paging = [of_null[null] for null in PAGING if of_null.get(null, "quiet") != "quiet"]
    if paging and not is_shadow(model):
        return "fired" if "fired" in paging else "acknowledged"
    if "fired" in of_null.values() or (state.weighted and state.weighted.fired):
        return "notice"
    return "acknowledged" if "acknowledged" in of_null.values() else "quiet"


def _standing(evidence: Evidence) -> Literal["quiet", "fired", "acknowledged"]:
    if evidence.fired is None:
        return "quiet"
    return "acknowledged" if evidence.acknowledged else "fired"


def _null(state: AlarmState, null: Watched, subject: _Subject, *, pages: bool) -> AlarmOf:
    evidence, log_e = state.nulls[null], state.log_e(null)
    acknowledged = evidence.acknowledged
    return AlarmOf(
        null=null,
        statement=_statement(null, state, subject),
        pages=pages,
        tolerance=state.tolerance,
        ratio_tolerance=state.ratio_tolerance if null == "positive" else None,
        threshold=1 / state.alpha_of_each,
        state=_standing(evidence),
        labels=state.labels - (state.levels_after if null == "levels" else 0),
        log_e=log_e,
        p_value=evidence.process.p_value,
        level=_worst_level(evidence, subject.levels),
        fired_at=moment_of(evidence.fired.at_ms) if evidence.fired else None,
        fired_after=evidence.fired.after if evidence.fired else None,
        acknowledged=acknowledged
        and Acknowledgement(who=acknowledged.who, why=acknowledged.why, at=moment_of(acknowledged.at_ms)),
        history=_history(state, evidence, log_e),
    )


def _weighted_evidence(state: AlarmState, whose: str) -> WeightedEvidence | None:
    if state.weighted is None:
        return None
    process, fired = state.weighted.process, state.weighted.fired
    statement = (
        f"The calibration error (ECE){whose and f'{whose},'} of all answers so far with a propensity of"
        f" {process.floor:g} or more{whose and ','} was above {process.tolerance:g} at some time."
    )
    left_out = ""
    if process.left_out:
        less = plural(process.left_out, "label is", "labels are")
        left_out = (
            f" {less} left out, because their propensities are below {process.floor:g} (--alarm-propensity-floor)."
        )
    shown = f"Weighted by the propensities of {plural(process.labels, 'label')}:"
    if fired:
        finding = f"{shown} {statement[0].lower()}{statement[1:]} This was shown after {plural(fired.after, 'label')}."
    else:
        finding = f"{shown} it has not been shown that {statement[0].lower()}{statement[1:]}"
    return WeightedEvidence(
        statement=statement,
        tolerance=process.tolerance,
        floor=process.floor,
        threshold=1 / state.alpha,
        state="fired" if fired else "quiet",
        labels=process.labels,
        left_out=process.left_out,
        log_e=process.log_e,
        p_value=process.p_value,
        fired_at=moment_of(fired.at_ms) if fired else None,
        fired_after=fired.after if fired else None,
        reading=finding + left_out,
    )


def _history(state: AlarmState, evidence: Evidence, log_e: float) -> list[EvidencePoint]:
    points = {
        labels: (at_ms, value)
        for labels, at_ms, value in zip(state.history_labels, state.history_ms, evidence.log_e, strict=True)
    }
    if fired := evidence.fired:
        points[fired.after] = fired.at_ms, fired.log_e
    if state.last_ms is not None and state.labels:
        points[state.labels] = state.last_ms, log_e
    return [EvidencePoint(labels=n, at=moment_of(at), log_e=value) for n, (at, value) in sorted(points.items())]


def _worst_level(evidence: Evidence, levels: tuple[str, ...] | None) -> str | None:
    """Return the level k with the largest evidence about "at least k"; None before the first block."""
    process = evidence.process
    if not isinstance(process, OrderedEProcess) or levels is None or not process.blocks:
        return None
    log_e_K = [threshold.log_e for threshold in process.thresholds]
    return levels[1 + log_e_K.index(max(log_e_K))]


def _statement(null: Watched, state: AlarmState, subject: _Subject) -> str:
    whose, positive, tolerance = subject.whose, subject.positive, state.tolerance
    if null == "levels":
        return (
            f"At some time and for some level k, the calibration error (ECE) of p(level is at least k) was above"
            f" {tolerance:g} in the answers that get labels."
        )
    if null == "positive":
        return (
            f"At some time p({positive}) was wrong overall in the answers that get labels: expected / observed"
            f" {positive} was not between {1 / state.ratio_tolerance:.2g} and {state.ratio_tolerance:g}, or the mean of"
            f" p({positive}) differed from their share by more than {tolerance:g}."
        )
    if null == "ece":
        error = f"The calibration error (ECE){whose and f'{whose},'} of the answers that get labels"
        return f"{error}{whose and ','} was above {tolerance:g} at some time."
    accuracy = "accuracy of the more probable class" if whose else "accuracy of this version"
    return f"In some range and at some time, the {accuracy} differed from its confidence by more than {tolerance:g}."


def _reading(state: AlarmState, nulls: list[AlarmOf], shadow: bool, labels: int, positive: str | None) -> str:
    fired = next((null for null in nulls if state.nulls[null.null] is state.paging), None)
    point, title = nulls[-1], "ALARM: "
    if fired is None and point.state == "quiet":
        if not state.labels:
            return f"No alarm: {_none_taken(state, labels)}."
        others = ""
        if positive is not None:
            ratio = f"{1 / state.ratio_tolerance:.2g} and {state.ratio_tolerance:g}"
            others = f" Nor is there evidence that expected / observed {positive} is not between {ratio}."
        if "levels" in state.nulls:
            others += " Nor is there evidence of such an error for any level."
        return (
            f"No alarm after {plural(state.labels, 'label')}: there is no evidence of a calibration error above"
            f" {state.tolerance:g} in the answers that get labels.{others} This does not prove that the error is"
            f" smaller, especially while labels are few. You may look as often as you like: {_promise(state)}"
        )
    if fired is None:
        fired, title = point, "Notice: "
    parts = [("Notice: " if shadow else title) + fired.statement[0].lower() + fired.statement[1:]]
    evidence = state.nulls[fired.null]
    if evidence.process.is_alarmed(state.alpha_of_each):
        rare = _one_in(1 / state.alpha_of_each)
        within = {"ece": "its ECE", "positive": "it", "levels": "the ECE of every level", "point": "every range"}
        parts.append(
            f"If {within[fired.null]} had been within that at every label, given the labels before it, at most {rare}"
            " versions would ever show this much evidence, however long you look."
        )
    else:
        parts.append(f"The quicker rule found it, which allows one false alarm in {state.run_length:,} labels.")
    parts.append(f"It fired on {fired.fired_at:%Y-%m-%d %H:%M} UTC, after {plural(fired.fired_after or 0, 'label')}.")
    if known := fired.acknowledged:
        parts.append(f"{known.who} acknowledged it on {known.at:%Y-%m-%d %H:%M} UTC: {known.why.rstrip('.')}.")
    if fired is point:
        parts.append(
            "Nobody is called. The test that calls people is about the calibration error (ECE) of all these answers"
            " together, and has not shown this much."
        )
    elif shadow:
        parts.append("This version is a shadow whose answers nobody gets, so nobody is called.")
    elif not known:
        parts.append("The alarm stays until somebody acknowledges it.")
    if fired.null == "levels":
        parts.append(f'The largest evidence now is about "at least {fired.level}".')
    if fired.null in ("ece", "levels"):
        parts.append("The ECE of all answers, or over the whole time, may be smaller.")
    return " ".join(parts)


def _none_taken(state: AlarmState, labels: int) -> str:
    """Return why the evidence uses no label, although `labelled` answers may have one."""
    if state.rearmings:
        return "no label has been evaluated since it was re-armed"
    if labels:
        return f"the last {plural(labels, 'label')} will be evaluated within seconds"
    return "no labels have arrived yet"


def _rearming_sentence(state: AlarmState) -> str:
    """Return a sentence on the earlier watches and their joint false alarm rate."""
    if not state.rearmings:
        return ""
    last, watches = state.rearmings[-1], len(state.rearmings) + 1
    share = min(1.0, state.alpha + sum(ended.alpha for ended in state.rearmings))
    return (
        f"{last.who} re-armed it on {moment_of(last.at_ms):%Y-%m-%d %H:%M} UTC: {last.why.rstrip('.')}. The evidence"
        f" uses the labels since then. Each watch has its own false alarm rate: over {watches} watches, at most"
        f" {100 * share:.3g}% of calibrated versions alarm falsely."
    )


def _promise(state: AlarmState) -> str:
    promise = f"at most {_one_in(1 / state.alpha)} calibrated versions ever alarm falsely"
    if state.run_length is None:
        return f"{promise}."
    return f"{promise}, and the quicker rule that is also set allows one false alarm in {state.run_length:,} labels."


def _deliveries(state: AlarmState, settings: Settings) -> str:
    """Return a sentence on webhooks that do not accept the message. The log names them; not everybody sees it."""
    if state.paging is None:
        return ""
    keys = {hook.key for hook in settings.alarm_webhook}
    failed = [d for key, d in state.deliveries.items() if key in keys and d.attempts and d.delivered_ms is None]
    if not failed:
        return ""
    count = "A webhook has" if len(failed) == 1 else f"{len(failed)} webhooks have"
    tries = plural(max(d.attempts for d in failed), "try", "tries")
    return f"{count} not accepted the message yet, after {tries}. The log has the reason."


def _no_levels(settings: Settings, subject: _Subject) -> str:
    """Return a sentence that the levels are not watched although the settings ask for it, and why."""
    if not settings.alarm_levels or subject.levels is not None:
        return ""
    why = "its classes are not ordered (`ordered: true` states that they are levels)"
    if subject.positive is not None:
        why = f"the alarm on p({subject.positive}) already covers its two classes"
    return f"--alarm-levels has no effect on this version: {why}."


def _settings(state: AlarmState, settings: Settings, levels: tuple[str, ...] | None) -> str:
    """Return a sentence on settings that have changed, but that this version keeps."""
    settings_of: dict[str, tuple[object, object]] = {
        "tolerance": (state.tolerance, settings.alarm_tolerance),
        "alpha": (state.alpha, settings.alarm_alpha),
        "ratio tolerance": (state.ratio_tolerance, settings.alarm_ratio_tolerance),
        "run length": (state.run_length, settings.alarm_run_length),
        "propensity floor": (state.propensity_floor, settings.alarm_propensity_floor),
    }
    if levels is not None:
        settings_of["levels"] = _on(state.watches_levels), _on(settings.alarm_levels)
    changed = [(name, kept, new) for name, (kept, new) in settings_of.items() if kept != new]
    if not changed:
        return ""
    kept = ", ".join(f"{name} {old if old is not None else 'none'}" for name, old, _ in changed)
    new = ", ".join(f"{name} {new if new is not None else 'none'}" for name, _, new in changed)
    return (
        f"The settings have changed since ({new}). This version keeps {kept}, because a test that is changed after its"
        " data are seen guarantees nothing. The next version will use the new settings."
    )


def _on(flag: bool) -> str:
    return "watched" if flag else "not watched"


def _one_in(number: float) -> str:
    return f"1 of {number:.4g}"
