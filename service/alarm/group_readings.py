"""Evidence about tags and predicted classes in numbers and in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from service.alarm.groups import KINDS, GroupMark, GroupState
from service.http.parameters import moment_of
from trueodds.reports.schemas import NO_TAG
from trueodds.reports.schemas.alarm import Acknowledgement, Rearming
from trueodds.reports.schemas.group_alarms import GroupAlarms, GroupEvidence, GroupKind
from trueodds.texts import plural

MOST_NAMES = 5
"""Largest number of groups that a sentence names."""
Standing = Literal["quiet", "marked", "fired", "acknowledged"]


def group_alarms(state: GroupState, classes: Sequence[str], *, has_corrections: bool = False) -> GroupAlarms:
    """Return the report's part about alarms by group.

    Args:
        state: Evidence about the groups.
        classes: Names of the classes.
        has_corrections: Whether labels of the version were replaced after they had counted.
    """
    groups = [one for kind in KINDS for one in _evidence(state, kind, classes)]
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
    part = GroupAlarms(
        state=_standing(state, groups),
        reading="",
        tolerance=state.tolerance,
        alpha=state.alpha,
        labels=state.labels,
        groups=groups,
        left_out=state.tags.left_out + state.classes.left_out,
        rearmings=rearmings,
    )
    return part.model_copy(update={"reading": _reading(part, has_corrections)})


def name_of(mark: GroupMark, classes: Sequence[str]) -> str:
    """Return the name of a marked tag or class as the report shows it."""
    return _name(mark.about, mark.name, classes)


def _name(about: GroupKind, name: str, classes: Sequence[str]) -> str:
    return (name or NO_TAG) if about == "tag" else classes[int(name)]


def _evidence(state: GroupState, kind: GroupKind, classes: Sequence[str]) -> list[GroupEvidence]:
    alarm, marks = state.alarm(kind), {mark.name: mark for mark in state.marks if mark.about == kind}
    marked, found = {*alarm.marks()}, []
    columns = zip(alarm.names, alarm.labels_G.tolist(), alarm.log_e_G.tolist(), alarm.threshold_G.tolist(), strict=True)
    for name, labels, log_e, threshold in columns:
        mark = marks.get(name)
        known = mark.acknowledged if mark else None
        found.append(
            GroupEvidence(
                about=kind,
                name=_name(kind, name, classes),
                labels=labels,
                log_e=log_e,
                is_marked=name in marked,
                threshold=threshold,
                ever_marked_at=moment_of(mark.fired.at_ms) if mark else None,
                ever_marked_after=mark.fired.after if mark else None,
                acknowledged=known and Acknowledgement(who=known.who, why=known.why, at=moment_of(known.at_ms)),
            )
        )
    return found


def _standing(state: GroupState, groups: Sequence[GroupEvidence]) -> Standing:
    if any(mark.acknowledged is None for mark in state.marks):
        return "fired"
    if state.marks:
        return "acknowledged"
    return "marked" if any(one.is_marked for one in groups) else "quiet"


def _reading(part: GroupAlarms, has_corrections: bool) -> str:
    words = [_marked_words(part), *_ever_words(part), _left_out_words(part), _rearmed_words(part)]
    if has_corrections and part.labels:
        words.append("Some labels were corrected later. This part uses labels as they first arrived.")
    return " ".join(filter(None, words))


def _marked_words(part: GroupAlarms) -> str:
    if not part.labels:
        return "No label has been evaluated yet, so no tag and no class is marked."
    counts = {kind: [one for one in part.groups if one.about == kind] for kind in KINDS}
    classes = plural(len(counts["class"]), "predicted class", "predicted classes")
    watched = f"{plural(len(counts['tag']), 'tag')} and {classes}"
    marked = [one for one in part.groups if one.is_marked]
    if not marked:
        return (
            f"Of {watched}, none is marked: there is not enough evidence that the calibration error (ECE) of any of"
            f" them was above {part.tolerance:g}."
        )
    return (
        f"Of {watched}, {len(marked)} {'is' if len(marked) == 1 else 'are'} marked now: {_names(marked)}. There the"
        f" calibration error (ECE) of the answers that get labels was above {part.tolerance:g} at some time. You may"
        f" look as often as you like: at each look, at most {100 * part.alpha:.3g}% of the marked ones are within that"
        " on average. A mark may go again."
    )


def _ever_words(part: GroupAlarms) -> list[str]:
    ever = [one for one in part.groups if one.ever_marked_at is not None]
    if not ever:
        return []
    words = [
        f"Marked for good: {_names(ever)}. If all tags and classes had been within {part.tolerance:g} at every label,"
        f" any would ever be marked for good with a probability of at most {50 * part.alpha:.3g}%."
    ]
    open_ = [one for one in ever if one.acknowledged is None]
    if open_:
        words.append(f"Nobody has acknowledged {_names(open_)}.")
    return words


def _names(groups: Sequence[GroupEvidence]) -> str:
    named = [f"{one.about} {one.name}" for one in groups[:MOST_NAMES]]
    more = len(groups) - len(named)
    return ", ".join(named) + (f" and {more:,} more" if more else "")


def _left_out_words(part: GroupAlarms) -> str:
    if not part.left_out:
        return ""
    return (
        f"{plural(part.left_out, 'label')} had a tag or class that came after the first 100. These have no alarm until"
        " the alarms by group are re-armed; then all begin anew."
    )


def _rearmed_words(part: GroupAlarms) -> str:
    if not part.rearmings:
        return ""
    last = part.rearmings[-1]
    return (
        f"{last.who} re-armed the alarms by group on {last.at:%Y-%m-%d %H:%M} UTC: {last.why.rstrip('.')}. They use the"
        " labels since then."
    )
