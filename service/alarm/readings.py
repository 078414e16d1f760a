"""The evidence of the alarm in words, for people who have never heard of e-values."""

from __future__ import annotations

from typing import Literal

from service.alarm.evidence import PAGING, Evidence
from service.alarm.state import AlarmState
from service.http.parameters import moment_of
from service.settings import Settings
from trueodds.bundle.contents import is_shadow
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
    "Some labels were corrected later: the other numbers are of labels as they are now, this evidence is of labels as"
    " they first came, for what was once shown cannot be taken back."
)

Standing = Literal["quiet", "notice", "fired", "acknowledged"]

DIFFERS = (
    "The answers that get labels are not as confident as all answers are: what is said here is about the labelled"
    " traffic, not about all traffic."
)


def alarm_of(
    state: AlarmState,
    settings: Settings,
    *,
    model: str,
    sums: AnswerSums,
    corrected: bool = False,
    positive: str | None = None,
) -> Alarm:
    """The report's part about the alarm. A shadow (by its `model`) pages nobody: what fires there is a notice.

    `sums`: of all answers of the version, to say whether those that get labels are like them. `corrected`: whether
    any label was corrected after it came. `positive`: the version's positive class, whose probability has evidence of
    its own: the sentences say which is about what.
    """
    shadow, state = is_shadow(model), state.watching(positive is not None)
    whose = "" if positive is None else " of the more probable class"
    nulls = [_null(state, null, whose, positive, pages=null in PAGING and not shadow) for null in state.watched]
    weighted = _weighted(state, whose)
    choice = choice_of(sums)
    notice = DIFFERS if state.labels and choice and choice.warning else None
    parts = (
        _reading(state, nulls, shadow, sums.labelled.n, positive),
        notice,
        weighted.reading if weighted else None,
        _deliveries(state, settings),
        _rearmed(state),
        _settings(state, settings),
        AS_FIRST if corrected else None,
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
    """The alarm's state in a word: that of the null that pages, else whether there is something to notice."""
    of_null = {null: _standing(state.nulls[null]) for null in state.watched}
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


def _null(state: AlarmState, null: Watched, whose: str, positive: str | None, *, pages: bool) -> AlarmOf:
    evidence, log_e = state.nulls[null], state.log_e(null)
    acknowledged = evidence.acknowledged
    return AlarmOf(
        null=null,
        statement=_statement(null, state, whose, positive),
        pages=pages,
        tolerance=state.tolerance,
        ratio_tolerance=state.ratio_tolerance if null == "positive" else None,
        threshold=1 / state.alpha_of_each,
        state=_standing(evidence),
        labels=state.labels,
        log_e=log_e,
        p_value=evidence.process.p_value,
        fired_at=moment_of(evidence.fired.at_ms) if evidence.fired else None,
        fired_after=evidence.fired.after if evidence.fired else None,
        acknowledged=acknowledged
        and Acknowledgement(who=acknowledged.who, why=acknowledged.why, at=moment_of(acknowledged.at_ms)),
        history=_history(state, evidence, log_e),
    )


def _weighted(state: AlarmState, whose: str) -> WeightedEvidence | None:
    if state.weighted is None:
        return None
    process, fired = state.weighted.process, state.weighted.fired
    statement = (
        f"The calibration error (ECE){whose and f'{whose},'} of all answers so far, those of a propensity of"
        f" {process.floor:g} or more, was above {process.tolerance:g} at some time."
    )
    left_out = ""
    if process.left_out:
        less = plural(process.left_out, "label is", "labels are")
        left_out = f" {less} left out: their propensities are below {process.floor:g}, the --alarm-propensity-floor."
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


def _statement(null: Watched, state: AlarmState, whose: str, positive: str | None) -> str:
    """`whose`: " of the more probable class" where that has to be said."""
    tolerance = state.tolerance
    if null == "positive":
        return (
            f"In the answers that get labels p({positive}) was wrong on the whole at some time: expected / observed"
            f" {positive} was not between {1 / state.ratio_tolerance:.2g} and {state.ratio_tolerance:g}, or the mean of"
            f" p({positive}) more than {tolerance:g} off their share."
        )
    if null == "ece":
        error = f"The calibration error (ECE){whose and f'{whose},'} of the answers that get labels"
        return f"{error}{whose and ','} was above {tolerance:g} at some time."
    right = "the more probable class was" if whose else "this version was"
    return f"In some range and at some time, {right} right more or less often than it says, by more than {tolerance:g}."


def _reading(state: AlarmState, nulls: list[AlarmOf], shadow: bool, labelled: int, positive: str | None) -> str:
    fired = next((null for null in nulls if state.nulls[null.null] is state.paging), None)
    point, title = nulls[-1], "ALARM: "
    if fired is None and point.state == "quiet":
        if not state.labels:
            return f"No alarm: {_none_taken(state, labelled)}."
        others = ""
        if positive is not None:
            ratio = f"{1 / state.ratio_tolerance:.2g} and {state.ratio_tolerance:g}"
            others = f" Nor has it shown that expected / observed {positive} is not between {ratio}."
        return (
            f"No alarm after {plural(state.labels, 'label')}: in the answers that get labels no calibration error above"
            f" {state.tolerance:g} has shown.{others} That does not prove a smaller one, least of all while labels are"
            f" few. You may look as often as you like: {_promise(state)}"
        )
    if fired is None:
        fired, title = point, "Notice: "
    parts = [("Notice: " if shadow else title) + fired.statement[0].lower() + fired.statement[1:]]
    evidence = state.nulls[fired.null]
    if evidence.process.alarmed(state.alpha_of_each):
        rare = _one_in(1 / state.alpha_of_each)
        within = {"ece": "its ECE", "positive": "it", "point": "every range"}[fired.null]
        parts.append(
            f"Had {within} been within that at every label, given what came before, at most {rare} versions would ever"
            " show as much, however long one looks."
        )
    else:
        parts.append(f"The quicker rule found it, which accepts one false alarm in {state.run_length:,} labels.")
    parts.append(f"It fired on {fired.fired_at:%Y-%m-%d %H:%M} UTC, after {plural(fired.fired_after or 0, 'label')}.")
    if known := fired.acknowledged:
        parts.append(f"{known.who} acknowledged it on {known.at:%Y-%m-%d %H:%M} UTC: {known.why.rstrip('.')}.")
    if fired is point:
        parts.append(
            "Nobody is called: the test that would, of the calibration error (ECE) of all these answers together, has"
            " not shown as much."
        )
    elif shadow:
        parts.append("This version is a shadow and answers nobody, so nobody is called.")
    elif not known:
        parts.append("It stays until somebody acknowledges it.")
    if fired.null == "ece":
        parts.append("The ECE of all answers, or over the whole time, may be smaller.")
    return " ".join(parts)


def _none_taken(state: AlarmState, labelled: int) -> str:
    """Why the evidence is of no label, though perhaps `labelled` answers have one."""
    if state.rearmings:
        return "no label has been weighed since it was re-armed"
    if labelled:
        return f"the {plural(labelled, 'label')} that came last will be weighed within seconds"
    return "no labels have arrived yet"


def _rearmed(state: AlarmState) -> str:
    """A sentence on the watches before, and the price of them together."""
    if not state.rearmings:
        return ""
    last, watches = state.rearmings[-1], len(state.rearmings) + 1
    share = min(1.0, state.alpha + sum(ended.alpha for ended in state.rearmings))
    return (
        f"{last.who} re-armed it on {moment_of(last.at_ms):%Y-%m-%d %H:%M} UTC: {last.why.rstrip('.')}. The evidence is"
        f" of the labels since. Each watch has its own chance of a false alarm: over {watches} of them, at most"
        f" {100 * share:.3g}% of sound versions alarm falsely."
    )


def _promise(state: AlarmState) -> str:
    promise = f"at most {_one_in(1 / state.alpha)} sound versions ever alarm falsely"
    if state.run_length is None:
        return f"{promise}."
    return f"{promise}, and by the quicker rule that is set beside, one in {state.run_length:,} labels."


def _deliveries(state: AlarmState, settings: Settings) -> str:
    """A sentence on webhooks that do not take the news; the log, which not everybody sees, names them."""
    if state.paging is None:
        return ""
    keys = {hook.key for hook in settings.alarm_webhook}
    failed = [d for key, d in state.deliveries.items() if key in keys and d.attempts and d.delivered_ms is None]
    if not failed:
        return ""
    count = "A webhook has" if len(failed) == 1 else f"{len(failed)} webhooks have"
    tries = plural(max(d.attempts for d in failed), "try", "tries")
    return f"{count} not taken the news yet, in {tries}; the log says why."


def _settings(state: AlarmState, settings: Settings) -> str:
    """A sentence on settings that this version keeps while they have changed since."""
    settings_of = {
        "tolerance": (state.tolerance, settings.alarm_tolerance),
        "alpha": (state.alpha, settings.alarm_alpha),
        "ratio tolerance": (state.ratio_tolerance, settings.alarm_ratio_tolerance),
        "run length": (state.run_length, settings.alarm_run_length),
        "propensity floor": (state.propensity_floor, settings.alarm_propensity_floor),
    }
    changed = [(name, kept, new) for name, (kept, new) in settings_of.items() if kept != new]
    if not changed:
        return ""
    kept = ", ".join(f"{name} {old if old is not None else 'none'}" for name, old, _ in changed)
    new = ", ".join(f"{name} {new if new is not None else 'none'}" for name, _, new in changed)
    return (
        f"The settings have changed since ({new}); this version keeps {kept}, for a test that is changed after its data"
        " are seen promises nothing. The next version has the new ones."
    )


def _one_in(number: float) -> str:
    return f"1 of {number:.4g}"
