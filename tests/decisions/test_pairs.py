"""A request and its response in both formats become one answer a question; a fault costs its own question only."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.decisions.recorded import keyed, listed
from trueodds.inputs.decisions import Answer, Pair, PairError, model_name, read_pair
from trueodds.inputs.decisions.names import class_names, version_name

Change = Callable[[Any, Any], object]


def by_name(pair: Pair) -> dict[str, Answer]:
    return {answer.question.name: answer for answer in pair.answers}


def test_the_listed_format() -> None:
    pair = read_pair(*listed())
    assert (pair.shape, pair.served, pair.problems) == ("decisions", "gpt-decide-2026-09-01", ())
    assert pair.input == "I was charged twice. Please refund one of the payments."
    refund, queue, urgency, unnamed, legal = pair.answers
    assert (refund.classes, refund.probabilities, refund.question.positive) == (("false", "true"), (0.07, 0.93), "true")
    assert (queue.classes, queue.probabilities) == (("billing", "shipping", "other"), (0.8, 0.05, 0.15))
    assert queue.question.positive is None and not queue.question.is_ordered
    assert (urgency.classes, urgency.probabilities) == (("low", "medium", "high"), (0.2, 0.3, 0.5))
    assert urgency.question.is_ordered
    assert not unnamed.question.is_named and unnamed.question.name == f"question-{unnamed.question.wording}"
    assert legal.probabilities is None and legal.classes == ("true", "false")
    assert {a.version for a in pair.answers} == {f"gpt-decide-2026-09-01-{a.question.wording}" for a in pair.answers}


def test_the_keyed_format() -> None:
    pair = read_pair(*keyed())
    assert (pair.shape, pair.served, pair.problems) == ("systemone", "jev-2", ())
    assert pair.input == {"ticket": "I was charged twice.", "plan": "pro"}
    refund, queue, urgency = pair.answers
    assert (refund.classes, refund.probabilities, refund.mass) == (("false", "true"), (0.07, 0.93), 0.998)
    assert (queue.classes, queue.probabilities) == (("billing", "other", "shipping"), (0.8, 0.15, 0.05))
    assert queue.mass == 0.41, "label_mass is the same figure"
    assert (urgency.classes, urgency.probabilities) == (("1", "2", "3"), (0.2, 0.3, 0.5))


@pytest.mark.parametrize("pair_of", [listed, keyed])
def test_confidence_is_not_read(pair_of: Callable[[], tuple[Any, Any]]) -> None:
    request, response = pair_of()
    answers = response["answers"] if isinstance(response["answers"], list) else response["answers"].values()
    for answer in answers:
        answer["confidence"] = "very"
    assert read_pair(request, response) == read_pair(*pair_of())


def test_the_wording_is_type_instructions_and_options_and_nothing_else() -> None:
    def wording(change: Callable[[Any], object]) -> str:
        request, response = keyed()
        change(request)
        return by_name(read_pair(request, response))["queue"].question.wording

    first = wording(lambda request: None)
    same: list[Callable[[Any], object]] = [
        lambda r: r.update(model="another", state="another text"),
        lambda r: r["questions"].pop("urgency"),
        lambda r: r["questions"]["queue"].update(
            criteria=dict(sorted(r["questions"]["queue"]["criteria"].items())), note="x"
        ),
    ]
    other: list[Callable[[Any], object]] = [
        lambda r: r["questions"]["queue"].update(instructions="Which team should answer"),
        lambda r: r["questions"]["queue"]["criteria"].update(billing="Payments and refunds"),
        lambda r: r["questions"]["queue"]["criteria"].update(billing=None),
    ]
    assert {wording(change) for change in same} == {first}
    assert len({first, *(wording(change) for change in other)}) == 4


def test_the_served_model_is_in_the_version_and_the_asked_one_is_not() -> None:
    request, response = keyed()
    before = by_name(read_pair(request, response))
    response["model"] = "acme/jev:3 (beta)"
    after = by_name(read_pair(request, response))
    for name, answer in after.items():
        assert answer.question == before[name].question and answer.version != before[name].version
        assert answer.version == version_name("acme/jev:3 (beta)", answer.question.wording)
        assert model_name(answer.version) == answer.version, "it is a valid name"


def test_names_that_the_store_cannot_have_stay_different() -> None:
    names = [
        "is it spam?",
        "is it spam!",
        "is-it-spam",
        "é",
        "è",
        "~",
        "",
        "x" * 500,
        "x" * 501,
        "a/b",
        "a\0b",
        "\ud800",
    ]
    kept = [model_name(name) for name in names]
    assert len(set(kept)) == len(names) and all(model_name(name) == name for name in kept)
    assert kept[2] == "is-it-spam" and max(map(len, kept)) <= 128


def test_a_boolean_and_a_text_are_two_options() -> None:
    request, response = listed()
    request["questions"][1]["choices"] = [{"value": True}, {"value": "true"}, {"value": "no idea"}]
    p = [
        {"value": "true", "probability": 0.5},
        {"value": "no idea", "probability": 0.2},
        {"value": True, "probability": 0.3},
    ]
    response["answers"][1] |= {"choice": "true", "probabilities": p}
    answer = by_name(read_pair(request, response))["queue"]
    assert answer.classes == ("boolean true", "text true", "no idea") and answer.probabilities == (0.3, 0.5, 0.2)
    assert class_names(["true", "false", "unknown"]) == ("true", "false", "unknown")
    assert class_names([" a", "a", "b\n", ""]) == ('" a"', "a", '"b\\n"', '""')


def test_levels_without_different_labels_are_numbers() -> None:
    request, response = listed()
    request["questions"][2]["levels"] = [{"label": ""}, {"label": ""}, {"label": ""}]
    for k, entry in enumerate(response["answers"][2]["probabilities"]):
        entry |= {"label": "", "value": k + 1}
    answer = by_name(read_pair(request, response))["urgency"]
    assert answer.classes == ("1", "2", "3") and answer.probabilities == (0.2, 0.3, 0.5)


def test_the_order_of_the_answer_does_not_matter() -> None:
    for make in (listed, keyed):
        request, response = make()
        shuffled = random.Random(0)
        answers = response["answers"] if isinstance(response["answers"], list) else response["answers"].values()
        for answer in answers:
            if isinstance(p := answer.get("probabilities"), list):
                shuffled.shuffle(p)
            elif p:
                answer["probabilities"] = dict(shuffled.sample(list(p.items()), len(p)))
        assert read_pair(request, response) == read_pair(*make())


def test_probabilities_in_steps_may_miss_one_as_far_as_steps_explain() -> None:
    request, response = keyed()
    response["answers"]["queue"]["probabilities"] = {"billing": 0.33, "shipping": 0.33, "other": 0.33}
    assert by_name(read_pair(request, response))["queue"].probabilities == (0.33, 0.33, 0.33)


FAULTS: list[tuple[Any, Change, str, str]] = [
    (listed, lambda q, a: a["answers"][0].update(probability=1.4), "is_refund", "is 1.4; expected a number in [0, 1]"),
    (listed, lambda q, a: a["answers"][0].update(probability=float("nan")), "is_refund", "is nan; expected a number"),
    (listed, lambda q, a: a["answers"][0].update(probability=True), "is_refund", "is True; expected a number"),
    (listed, lambda q, a: a["answers"][0].pop("probability"), "is_refund", "probability is None; expected a number"),
    (listed, lambda q, a: a["answers"][0].update(name="other"), "is_refund", "named 'other'; does the response belong"),
    (
        listed,
        lambda q, a: a["answers"][0].update(type="choice"),
        "is_refund",
        "the type 'choice', the question predicate",
    ),
    (
        listed,
        lambda q, a: q["questions"][0].update(type="rank"),
        "is_refund",
        "'rank'; known types are predicate, choice",
    ),
    (listed, lambda q, a: q["questions"][2].pop("levels"), "urgency", "a score needs levels"),
    (listed, lambda q, a: q["questions"][1].pop("choices"), "queue", "a choice needs choices"),
    (listed, lambda q, a: q["questions"][1]["choices"].pop(), "queue", "'other' is not an option that was offered"),
    (
        listed,
        lambda q, a: a["answers"][1].update(choice="sales"),
        "queue",
        "the choice is 'sales', which was not offered",
    ),
    (listed, lambda q, a: a["answers"][1]["probabilities"].pop(), "queue", "there is no probability for 'other'"),
    (
        listed,
        lambda q, a: a["answers"][1]["probabilities"].append({"value": "billing", "probability": 0}),
        "queue",
        "two",
    ),
    (listed, lambda q, a: a["answers"][1].update(probabilities={"billing": 1}), "queue", "expected a list of objects"),
    (listed, lambda q, a: q["questions"][1]["choices"].append({"value": 3}), "queue", "value is a text, true or false"),
    (listed, lambda q, a: q["questions"][1]["choices"].append({"value": "other"}), "queue", "'other' twice"),
    (listed, lambda q, a: q["questions"][1].update(name=7), "number 2", "its answer is named 'queue'"),
    (listed, lambda q, a: q["questions"].__setitem__(1, 3), "number 2", "its answer is named 'queue'"),
    (
        keyed,
        lambda q, a: a["answers"]["queue"]["probabilities"].update(billing=0.3),
        "queue",
        "sum to 0.5; they must sum",
    ),
    (keyed, lambda q, a: a["answers"]["queue"]["probabilities"].update(sales=0.0), "queue", "'sales' is not an option"),
    (
        keyed,
        lambda q, a: a["answers"]["queue"].update(probabilities=[0.5]),
        "queue",
        "expected an object with a number",
    ),
    (keyed, lambda q, a: a["answers"]["queue"].update(label_mass=7), "queue", "label_mass is 7; expected a number"),
    (keyed, lambda q, a: a["answers"].pop("queue"), "queue", "the response has no answer to it"),
    (keyed, lambda q, a: a["answers"].update(queue=None), "queue", "the answer is None; expected an object"),
    (keyed, lambda q, a: a["answers"].update(mood={"type": "noul"}), "mood", "the request does not ask it"),
    (keyed, lambda q, a: q["questions"]["urgency"].update(criteria=None), "urgency", "a score needs levels"),
    (keyed, lambda q, a: q["questions"]["urgency"].update(criteria=["one"]), "urgency", "1 entries; expected 2 to"),
    (keyed, lambda q, a: q["questions"]["urgency"]["criteria"].append("x"), "urgency", "no probability for"),
    (keyed, lambda q, a: q["questions"]["urgency"].update(criteria=["a", 2]), "urgency", "expected a text per level"),
    (keyed, lambda q, a: a["answers"]["urgency"].update(probabilities={"low": 1}), "urgency", "expected whole numbers"),
    (keyed, lambda q, a: a["answers"]["urgency"].update(probabilities={"5": 1}), "urgency", "expected whole numbers"),
    (
        keyed,
        lambda q, a: q["questions"]["queue"].update(criteria=["a", "b"]),
        "queue",
        "expected an object with an entry",
    ),
    (
        keyed,
        lambda q, a: q["questions"]["is_refund"].update(criteria={"maybe": "x"}),
        "is_refund",
        "with true and false",
    ),
    (keyed, lambda q, a: q["questions"]["is_refund"].update(instructions=["x"]), "is_refund", "expected a text"),
    (keyed, lambda q, a: q["questions"].update(queue="choice"), "queue", "expected an object with type"),
]


@pytest.mark.parametrize(("pair_of", "change", "name", "words"), FAULTS)
def test_a_fault_costs_its_own_question_only(pair_of: Any, change: Change, name: str | None, words: str) -> None:
    request, response = pair_of()
    every = set(by_name(read_pair(request, response)))
    change(request, response)
    pair = read_pair(request, response)
    (problem,) = pair.problems
    assert problem.question == name and words in problem.message
    lost = {"queue" if name == "number 2" else name}
    assert set(by_name(pair)) == every - lost


def test_a_question_that_is_asked_twice_is_read_once() -> None:
    request, response = listed()
    request["questions"][4] = {**request["questions"][3]}
    response["answers"][4] = {**response["answers"][3], "probability": 0.9}
    pair = read_pair(request, response)
    assert len(pair.answers) == 4 and pair.answers[3].probabilities == (0.6, 0.4)
    assert "asks it twice" in pair.problems[0].message


WHOLE: list[tuple[Any, Change, str]] = [
    (listed, lambda q, a: q.pop("questions"), "the request's questions are None; expected a list or an object"),
    (listed, lambda q, a: q.update(questions=[]), "the request's questions are []"),
    (listed, lambda q, a: q.update(questions=q["questions"] * 1000), "has 5,000 questions; allowed are 1,000"),
    (listed, lambda q, a: a.update(answers={}), "questions are a list, but the response's answers are"),
    (listed, lambda q, a: (a.pop("answers"), a.update(choices=[])), "looks like an answer of a chat model"),
    (listed, lambda q, a: a["answers"].pop(), "5 questions and 4 answers, but expected one for each"),
    (listed, lambda q, a: a.pop("model"), "the response's model is None"),
    (listed, lambda q, a: a.update(answers=[{"name": "x"}] * 5), "the answers are named 'x', 'x', 'x' and 2 more"),
    (keyed, lambda q, a: a.update(answers={"x": {}}), "the answers are named 'x', the questions 'is_refund', 'queue'"),
    (keyed, lambda q, a: a.update(answers=[]), "questions are an object, but the response's answers are []"),
]


@pytest.mark.parametrize(("pair_of", "change", "words"), WHOLE)
def test_a_response_that_does_not_belong_to_the_request_is_refused(pair_of: Any, change: Change, words: str) -> None:
    request, response = pair_of()
    change(request, response)
    with pytest.raises(PairError, match=re.escape(words)):
        read_pair(request, response)


@pytest.mark.parametrize("value", [None, [], "text", 3, {"questions": 7}, {"questions": {"a": 1}}, {"model": "x"}])
def test_anything_else_is_refused_in_words(value: Any) -> None:
    for pair in ((value, listed()[1]), (listed()[0], value), (value, value)):
        with pytest.raises(PairError, match=r"expected|belong"):
            read_pair(*pair)


def test_deep_json_is_refused_and_not_followed() -> None:
    deep: Any = "x"
    for _ in range(100_000):
        deep = {"d": deep}
    request, response = keyed()
    request["state"] = deep
    assert len(read_pair(request, response).answers) == 3, "the input is not walked"
    request["questions"]["queue"]["criteria"] = {"billing": deep, "other": None, "shipping": None}
    pair = read_pair(request, response)
    assert len(pair.answers) == 2 and "nested too deeply" in pair.problems[0].message
    while isinstance(deep, dict):  # freed by hand: freeing it at once would follow it
        deep = deep.pop("d")


def test_the_reading_survives_json() -> None:
    for make in (listed, keyed):
        assert read_pair(*json.loads(json.dumps(make()))) == read_pair(*make())
