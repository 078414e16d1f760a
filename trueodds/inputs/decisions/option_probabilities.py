"""Reads one answer of a response, in both formats: the probabilities of the question's options.

`confidence` is not read. It is derived from the shape of the distribution, and is no probability.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from trueodds.inputs.decisions.questions import Question
from trueodds.sums.inputs import BELOW_ZERO, MUST_SUM, ROW_SUM_TOLERANCE, sums_to_one
from trueodds.texts import quotes, short

REFUSAL = "refusal"
"""Type of an answer that the host declined to give."""
MASSES = ("option_mass", "label_mass")
_BELONGS = "does the response belong to this request?"
Numbers = tuple[tuple[str, ...], list[float]]
"""Names of the classes, and their probabilities."""
Pairs = list[tuple[Any, Any]]
"""Options of an answer with their probabilities, as it gives them."""


class AnswerError(ValueError):
    """An answer cannot be read. The message gives what was sent, what is allowed, and what to do."""


class Reading(NamedTuple):
    """Numbers of an answer."""

    classes: tuple[str, ...]
    """Class names of the probabilities."""
    probabilities: tuple[float, ...]
    mass: float | None
    """Share of the next-token probability that fell on the offered options, if the server gives it."""


def reading_of(shape: str, question: Question, answer: Any, response: dict[str, Any]) -> Reading | None:
    """Read an answer. Return None if the host declined the question.

    Raises:
        AnswerError: The answer cannot be read, or does not belong to the question.
    """
    if not isinstance(answer, dict):
        raise AnswerError(f"the answer is {short(answer)}; expected an object with type and probabilities")
    type_ = answer.get("type")
    if type_ == REFUSAL:
        return None
    if type_ != question.type:
        raise AnswerError(f"the answer has the type {short(type_)}, the question {question.type}; {_BELONGS}")
    classes, numbers = _NUMBERS[shape, question.kind](question, answer)
    _check(numbers)
    return Reading(classes, tuple(max(number, 0.0) for number in numbers), _mass(answer, response))


def _binary(key: str) -> Callable[[Question, dict[str, Any]], Numbers]:
    def read(question: Question, answer: dict[str, Any]) -> Numbers:
        p = _number(key, answer.get(key))
        return question.classes, [round(1 - p, 15), p]  # 0.1, not 0.09999999999999998: rounded numbers stay rounded

    return read


def _choice(question: Question, answer: dict[str, Any], pairs: Pairs) -> Numbers:
    places = {_key(option): k for k, option in enumerate(question.options)}
    numbers = _by_place(pairs, places, question)
    if (chosen := answer.get("choice")) is not None and _key(chosen) not in places:
        raise AnswerError(f"the choice is {short(chosen)}, which was not offered; {_BELONGS}")
    return question.classes, _complete(numbers, question)


def _score(question: Question, pairs: Pairs) -> Numbers:
    """Read the probabilities of levels that are given by number."""
    levels = [level for level, _ in pairs]
    numbers = _by_place(pairs, _levels(levels, question), question)
    names = tuple(str(min(levels) + k) for k in range(len(question.options)))
    return names, _complete(numbers, question)


def _listed_choice(question: Question, answer: dict[str, Any]) -> Numbers:
    return _choice(question, answer, [(entry.get("value"), entry.get("probability")) for entry in _entries(answer)])


def _keyed_choice(question: Question, answer: dict[str, Any]) -> Numbers:
    return _choice(question, answer, [*_by_option(answer).items()])


def _listed_score(question: Question, answer: dict[str, Any]) -> Numbers:
    entries = _entries(answer)
    labels = [entry.get("label") for entry in entries]
    if len(set(question.options)) == len(question.options) and None not in labels:
        places = {_key(option): k for k, option in enumerate(question.options)}
        pairs = [(entry["label"], entry.get("probability")) for entry in entries]
        return question.classes, _complete(_by_place(pairs, places, question), question)
    return _score(question, [(entry.get("value"), entry.get("probability")) for entry in entries])


def _keyed_score(question: Question, answer: dict[str, Any]) -> Numbers:
    def level_of(key: str) -> int | str:
        return int(key) if key.isascii() and key.isdecimal() and len(key) < 9 else key

    return _score(question, [(level_of(key), p) for key, p in _by_option(answer).items()])


_NUMBERS: dict[tuple[str, str], Callable[[Question, dict[str, Any]], Numbers]] = {
    ("decisions", "binary"): _binary("probability"),
    ("decisions", "choice"): _listed_choice,
    ("decisions", "score"): _listed_score,
    ("systemone", "binary"): _binary("noul"),
    ("systemone", "choice"): _keyed_choice,
    ("systemone", "score"): _keyed_score,
}


def _key(option: Any) -> tuple[str, Any]:
    """Return a key that tells a boolean from a text and a number. A value that is none of them gets no place."""
    return (type(option).__name__, option if isinstance(option, str | int | float) else None)


def _entries(answer: dict[str, Any]) -> list[dict[str, Any]]:
    entries = answer.get("probabilities")
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise AnswerError(f"probabilities is {short(entries)}; expected a list of objects with value and probability")
    return entries


def _by_option(answer: dict[str, Any]) -> dict[str, Any]:
    probabilities = answer.get("probabilities")
    if not isinstance(probabilities, dict):
        raise AnswerError(f"probabilities is {short(probabilities)}; expected an object with a number per option")
    return probabilities


def _levels(numbers: list[Any], question: Question) -> dict[tuple[str, Any], int]:
    """Return the places of levels that are given by number: from 0 on, or from 1 on."""
    count, whole = len(question.options), [n for n in numbers if type(n) is int]
    first = min(whole, default=0)
    if len(whole) < len(numbers) or first not in (0, 1):
        raise AnswerError(
            f"the levels are {quotes([str(n) for n in numbers], 5)}; expected whole numbers, from 0 or 1 on, for the"
            f" {count} levels of the question. {_BELONGS.capitalize()}"
        )
    return {_key(first + k): k for k in range(count)}


def _by_place(pairs: Pairs, places: dict[tuple[str, Any], int], question: Question) -> dict[int, float]:
    """Return the probability at each place among the question's options."""
    numbers = dict[int, float]()
    for option, p in pairs:
        if (place := places.get(_key(option))) is None:
            offered = quotes([str(o) for o in question.options], 5)
            raise AnswerError(f"{short(option)} is not an option that was offered ({offered}); {_BELONGS}")
        if place in numbers:
            raise AnswerError(f"{short(option)} has two probabilities; expected one per option")
        numbers[place] = _number(f"the probability of {short(option)}", p)
    return numbers


def _complete(numbers: dict[int, float], question: Question) -> list[float]:
    if missing := [k for k in range(len(question.classes)) if k not in numbers]:
        names = quotes([question.classes[k] for k in missing], 3)
        raise AnswerError(f"there is no probability for {names}; send the whole answer, with one for every option")
    return [numbers[k] for k in range(len(question.classes))]


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise AnswerError(f"{name} is {short(value)}; expected a number in [0, 1]")
    if not -BELOW_ZERO <= value <= 1 + ROW_SUM_TOLERANCE:
        raise AnswerError(f"{name} is {value:.6g}; expected a number in [0, 1], not a logit or a percentage")
    return float(value)


def _check(numbers: list[float]) -> None:
    total = math.fsum(numbers)
    if abs(total - 1) > ROW_SUM_TOLERANCE and not sums_to_one(np.array([numbers])).all():
        raise AnswerError(
            f"the probabilities sum to {total:.6g}; they {MUST_SUM}. Send the answer as the server gave it, with every"
            " option"
        )


def _mass(answer: dict[str, Any], response: dict[str, Any]) -> float | None:
    for source in (answer, response):
        for name in MASSES:
            if (value := source.get(name)) is not None:
                return min(max(_number(name, value), 0.0), 1.0)
    return None
