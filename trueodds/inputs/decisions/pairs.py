"""Reads a request to a decision model and its response: one answer for each question."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from trueodds.inputs.decisions.names import version_name
from trueodds.inputs.decisions.option_probabilities import AnswerError, reading_of
from trueodds.inputs.decisions.questions import Question, QuestionError, question_of
from trueodds.texts import plural, quotes, short

Shape = Literal["decisions", "systemone"]
"""Format on the wire, named like the last part of its path: /v1/decisions or /v1/systemone."""
INPUTS: dict[Shape, str] = {"decisions": "input", "systemone": "state"}
"""Key of a request that holds the text that the questions are about."""
MAX_QUESTIONS = 1000
"""Largest number of questions in one request."""
_WIRE = "send request and response as they went over the wire"
_BELONGS = "does the response belong to this request?"


class PairError(ValueError):
    """Nothing of a pair can be read. The message gives what was sent, what is allowed, and what to do."""


@dataclass(frozen=True)
class Answer:
    """Answer to one question."""

    question: Question
    version: str
    """Version of the question: the served model and the hash of the wording."""
    classes: tuple[str, ...]
    probabilities: tuple[float, ...] | None
    """Probabilities of the classes; None if the host declined the question."""
    mass: float | None = None
    """Share of the next-token probability that fell on the offered options, if the server gives it."""


class Problem(NamedTuple):
    """Question whose answer cannot be read."""

    question: str
    """Name of the question; `number 4` if the fourth question has none."""
    message: str

    def __str__(self) -> str:
        return f"question {short(self.question)}: {self.message}"


@dataclass(frozen=True)
class Pair:
    """Request and response of a decision model."""

    shape: Shape
    served: str
    """Model that the response names as the one that was served."""
    input: Any
    """Text or JSON that the questions are about; None if the request has none."""
    answers: tuple[Answer, ...]
    problems: tuple[Problem, ...]


def read_pair(request: Any, response: Any) -> Pair:
    """Read a request to a decision model and its response, in either format.

    A question that cannot be read does not keep the others from being read: it is one of the `problems`.

    Args:
        request: The request, as JSON values. The list or object `questions` tells the format.
        response: The response, as JSON values.

    Returns:
        The answers, in the order of the questions.

    Raises:
        PairError: Nothing can be read, or the response does not belong to the request.

    Examples:
        >>> question = {"type": "noul", "instructions": "Is it spam?"}
        >>> request = {"model": "jev", "state": "Buy now", "questions": {"spam": question}}
        >>> response = {"model": "jev-2", "answers": {"spam": {"type": "noul", "noul": 0.9}}}
        >>> pair = read_pair(request, response)
        >>> pair.shape, pair.answers[0].question.name, pair.answers[0].version, pair.answers[0].probabilities[1]
        ('systemone', 'spam', 'jev-2-c3fb821b', 0.9)
    """
    if not isinstance(request, dict) or not isinstance(response, dict):
        name, value = ("request", request) if not isinstance(request, dict) else ("response", response)
        raise PairError(f"the {name} is {short(value)}; expected an object: {_WIRE}")
    questions, answers, served = request.get("questions"), response.get("answers"), response.get("model")
    if not isinstance(questions, list | dict) or not questions:
        raise PairError(f"the request's questions are {short(questions)}; expected a list or an object: {_WIRE}")
    if len(questions) > MAX_QUESTIONS:
        raise PairError(f"the request has {len(questions):,} questions; allowed are {MAX_QUESTIONS:,}: send fewer")
    shape: Shape = "decisions" if isinstance(questions, list) else "systemone"
    expected = "a list" if shape == "decisions" else "an object"
    if not isinstance(answers, type(questions)):
        hint = "" if "choices" not in response else ". This looks like an answer of a chat model"
        raise PairError(
            f"the request's questions are {expected}, but the response's answers are {short(answers)}; {_BELONGS}{hint}"
        )
    if not isinstance(served, str) or not served:
        raise PairError(f"the response's model is {short(served)}; expected the name of the served model: {_WIRE}")
    asked = _of_list(questions, answers) if isinstance(questions, list) else _of_object(questions, answers)
    read, problems = list[Answer](), list[Problem]()
    for number, (name, question, answer) in enumerate(asked, 1):
        shown = name if isinstance(name, str) else f"number {number}"
        try:
            if isinstance(answer, str):
                raise AnswerError(answer)
            read.append(_answer(shape, served, question_of(shape, name, question), answer, response))
        except (QuestionError, AnswerError) as error:
            problems.append(Problem(shown, str(error)))
    once, twice = _once(read)
    return Pair(shape, served, request.get(INPUTS[shape]), once, (*problems, *twice))


def _answer(shape: Shape, model: str, question: Question, answer: Any, response: dict[str, Any]) -> Answer:
    version, reading = version_name(model, question.wording), reading_of(shape, question, answer, response)
    if reading is None:
        return Answer(question, version, question.classes, None)
    return Answer(question, version, reading.classes, reading.probabilities, reading.mass)


def _of_list(questions: list[Any], answers: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Yield the name, the question and the answer of each question of a list. A text says why there is no answer."""
    if len(questions) != len(answers):
        counts = f"{plural(len(questions), 'question')} and {plural(len(answers), 'answer')}"
        raise PairError(f"there are {counts}, but expected one for each; {_BELONGS}")
    names = [question.get("name") if isinstance(question, dict) else None for question in questions]
    given = [answer.get("name") if isinstance(answer, dict) else None for answer in answers]
    other = [(name or None) != (own or None) for name, own in zip(names, given, strict=True)]
    if all(other):
        raise PairError(f"the answers are named {_names(given)}, the questions {_names(names)}; {_BELONGS}")
    for question, answer, name, own, is_other in zip(questions, answers, names, given, other, strict=True):
        yield name or None, question, f"its answer is named {short(own)}; {_BELONGS}" if is_other else _not_text(answer)


def _of_object(questions: dict[str, Any], answers: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Yield the name, the question and the answer of each question of an object; then the answers without a question.

    A text says why there is no answer.
    """
    if not questions.keys() & answers.keys():
        raise PairError(f"the answers are named {_names(answers)}, the questions {_names(questions)}; {_BELONGS}")
    for name, question in questions.items():
        answer = _not_text(answers[name]) if name in answers else f"the response has no answer to it; {_BELONGS}"
        yield name or None, question, answer
    for name in list(answers.keys() - questions.keys())[:MAX_QUESTIONS]:
        yield name, None, f"the request does not ask it; {_BELONGS}"


def _not_text(answer: Any) -> Any:
    """Return an answer; None for a text, which would be taken for a reason."""
    return None if isinstance(answer, str) else answer


def _once(answers: list[Answer]) -> tuple[tuple[Answer, ...], list[Problem]]:
    """Return the first answer to each question, and a problem for each question that is asked twice."""
    first = dict[str, Answer]()
    twice = list[Problem]()
    for answer in answers:
        if first.setdefault(answer.question.model, answer) is not answer:
            cure = "give each question of a request a name of its own"
            twice.append(Problem(answer.question.name, f"the request asks it twice; {cure}"))
    return tuple(first.values()), twice


def _names(names: Any) -> str:
    return quotes([str(name) for name in names], 3)
