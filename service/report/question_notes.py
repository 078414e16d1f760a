"""Notes of the report on a question of a decision model: option mass, declined and repeated requests, notices."""

from __future__ import annotations

from collections.abc import Sequence

from service.alarm.notices import reading_of
from service.store.decision_rows import LOW_MASS, Notice, QuestionCounts
from service.store.rows import Version
from service.store.work.labelling.label_masses import LabelMasses
from trueodds.texts import plural

LEAST_MASS = 0.9
"""Mean option mass from which on the options fit the prompt."""


def mass_caution(question: QuestionCounts) -> str:
    """Return a caution if the options do not fit the prompt; "" if they do, or if that is unknown."""
    mass = question.mean_mass
    if mass is None or mass >= LEAST_MASS:
        return ""
    return (
        f"On average only {mass:.0%} of the next-token probability fell on the offered options, in"
        f" {plural(question.low_masses, 'answer')} of {question.masses:,} less than {LOW_MASS:.0%}. The prompt does not"
        " fit the options: the probabilities are those of options that the model would hardly choose."
    )


def label_mass_note(masses: LabelMasses | None) -> str:
    """Return a caution if answers that came as log-probabilities hardly name the classes; "" if they do."""
    if masses is None or not masses.low:
        return ""
    return (
        f"{plural(masses.low, 'answer')} of {masses.answers:,} that came as log-probabilities so far had less than"
        f" {LOW_MASS:.0%} of the next-token probability on the classes (on average {masses.sum / masses.answers:.0%}"
        " over all of these). Where the mass is low, the prompt does not fit the classes: the probabilities are those"
        " of classes that the model would hardly choose."
    )


def question_notes(questions: Sequence[QuestionCounts], notices: Sequence[Notice], version: Version) -> list[str]:
    """Return the notes of a question's report: declined and repeated requests, option mass, notices."""
    of_version = [question for question in questions if question.of.key == version.key]
    if not of_version:
        return []
    (question,) = of_version
    notes = [mass_caution(question)]
    asked = question.answered + question.declined
    if question.declined:
        notes.append(
            f"The host declined this question in {question.declined / asked:.1%} of {plural(asked, 'request')}. These"
            " requests have no probability and are in no other number here."
        )
    if question.repeated:
        notes.append(
            f"{plural(question.repeated, 'answer')} of {question.answered:,} had an input that was asked before."
            " Intervals and tests take answers for independent, which repeated inputs are not."
        )
    notes += [reading_of(notice, question.of.name) for notice in notices if notice.key[:2] == version.key]
    return [note for note in notes if note]
