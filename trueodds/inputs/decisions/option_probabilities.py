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


def _binary(key: str) -> Callable[[Question, dict[str, Any]], tuple[tuple[str, ...], list[float]]]:
    def read(question: Question, answer: dict[str, Any]) -> tuple[tuple[str, ...], list[float]]:
        p = _number(key, answer.get(key))
        return question.classes, [round(1 - p, 15), p]  # 0.1, not 0.09999999999999998: rounded numbers stay rounded

    return read


def _listed_choice(question: Question, answer: dict[str, Any]) -> tuple[tuple[str, ...], list[float]]:
    entries = _entries(answer)
    places = {_key(option): k for k, option in enumerate(question.options)}
    found = dict[int, float]()
    for entry in entries:
        _put(found, places.get(_key(entry.get("value"))), entry.get("value"), entry, question)
    _check_offered(places, answer)
    return question.classes, _complete(found, question)


def _keyed_choice(question: Question, answer: dict[str, Any]) -> tuple[tuple[str, ...], list[float]]:
    probabilities = _keyed(answer)
    places = {_key(option): k for k, option in enumerate(question.options)}
    found = dict[int, float]()
    for option, p in probabilities.items():
        _put(found, places.get(_key(option)), option, {"probability": p}, question)
    _check_offered(places, answer)
    return question.classes, _complete(found, question)


def _listed_score(question: Question, answer: dict[str, Any]) -> tuple[tuple[str, ...], list[float]]:
    entries = _entries(answer)
    labels = [entry.get("label") for entry in entries]
    found = dict[int, float]()
    if len(set(question.options)) == len(question.options) and None not in labels:
        places = {_key(option): k for k, option in enumerate(question.options)}
        for entry in entries:
            _put(found, places.get(_key(entry["label"])), entry["label"], entry, question)
        return question.classes, _complete(found, question)
    numbers = [entry.get("value") for entry in entries]
    places = _levels(numbers, question)
    for entry in entries:
        _put(found, places.get(_key(entry.get("value"))), entry.get("value"), entry, question)
    return _level_names(numbers, question), _complete(found, question)


def _keyed_score(question: Question, answer: dict[str, Any]) -> tuple[tuple[str, ...], list[float]]:
    probabilities = _keyed(answer)
    found = dict[int, float]()
    numbers = [int(key) if key.isascii() and key.isdecimal() and len(key) < 9 else key for key in probabilities]
    places = _levels(numbers, question)
    for level, p in zip(numbers, probabilities.values(), strict=True):
        _put(found, places.get(_key(level)), level, {"probability": p}, question)
    return _level_names(numbers, question), _complete(found, question)


_NUMBERS: dict[tuple[str, str], Callable[[Question, dict[str, Any]], tuple[tuple[str, ...], list[float]]]] = {
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


def _keyed(answer: dict[str, Any]) -> dict[str, Any]:
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


def _level_names(numbers: list[Any], question: Question) -> tuple[str, ...]:
    return tuple(str(min(numbers) + k) for k in range(len(question.options)))


def _put(found: dict[int, float], place: int | None, option: Any, entry: dict[str, Any], question: Question) -> None:
    if place is None:
        offered = quotes([str(o) for o in question.options], 5)
        raise AnswerError(f"{short(option)} is not an option that was offered ({offered}); {_BELONGS}")
    if place in found:
        raise AnswerError(f"{short(option)} has two probabilities; expected one per option")
    found[place] = _number(f"the probability of {short(option)}", entry.get("probability"))


def _check_offered(places: dict[tuple[str, Any], int], answer: dict[str, Any]) -> None:
    if (chosen := answer.get("choice")) is not None and _key(chosen) not in places:
        raise AnswerError(f"the choice is {short(chosen)}, which was not offered; {_BELONGS}")


def _complete(found: dict[int, float], question: Question) -> list[float]:
    if missing := [k for k in range(len(question.classes)) if k not in found]:
        names = quotes([question.classes[k] for k in missing], 3)
        raise AnswerError(f"there is no probability for {names}; send the whole answer, with one for every option")
    return [found[k] for k in range(len(question.classes))]


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
