"""observe_decision: requests and responses of clients as they have them, from a local decision model to the service."""

from __future__ import annotations

import asyncio
import json
import math
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np
import pytest

from tests.decisions.recorded import KEYED_REQUEST, LISTED_REQUEST, keyed, listed
from tests.decisions.stub import DecisionStub
from trueodds.client import AsyncClient, CallError, Client, DecisionSummary
from trueodds.client import decisions as wire
from trueodds.errors import ConfigError


class Model:
    """An object as openai-python's and pydantic's are: attributes, and a method that returns plain values."""

    def __init__(self, tree: dict[str, Any]) -> None:
        self._tree = tree


class OpenAIModel(Model):
    def to_dict(self) -> dict[str, Any]:
        return self._tree


class PydanticModel(Model):
    def model_dump(self, *, mode: str) -> dict[str, Any]:
        assert mode == "json", "dates and enums become texts"
        return self._tree


@dataclass
class Question:
    type: str
    instructions: str
    criteria: None = None


def test_a_response_is_sent_as_the_client_has_it(client: Client) -> None:
    with DecisionStub(served="wire-1") as model, httpx.Client(base_url=model.url) as http:
        response = http.post("/v1/systemone", json=KEYED_REQUEST)
        first = client.observe_decision(KEYED_REQUEST, response, tag="tickets")
        assert first == DecisionSummary(stored=3) and {answer.id for answer in first.answers} == {"dec_1"}
        assert [a.question for a in first.answers] == ["is_refund", "queue", "urgency"]
        again = client.observe_decision(response.request, response.text, tag="tickets")
        assert again == DecisionSummary(already_known=3)
        body = http.post("/v1/decisions", json=LISTED_REQUEST).json()
        second = client.observe_decision(OpenAIModel(LISTED_REQUEST), PydanticModel(body), id="mine")
        assert second == DecisionSummary(stored=4, declined=1) and second.answers[0].id == "mine"
        assert [a.outcome for a in second.answers].count("declined") == 1
        nested = {"model": "x", "state": "text", "questions": {"is_refund": Question("noul", "Does it work?")}}
        told = {"model": "wire-1", "answers": {"is_refund": {"type": "noul", "noul": 0.7}}}
        assert client.observe_decision(nested, json.dumps(told), id="dataclass").stored == 1
    labels = client.feedback(["dec_1", "dataclass"], [True, np.bool_(False)], question="is_refund")
    assert labels.stored == 2
    assert client.feedback("mine", "shipping", question="queue").stored == 1
    report = client.report(model="is_refund", version=first.answers[0].version)
    assert report.labelled == 1 and report.positive is not None and report.positive.prevalence == 1
    assert f"\nECE of top class    {report.ece:.4f}, " in str(report)  # as wide as the other names


def test_many_pairs_are_sent_in_few_requests(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "PAIR_BYTES", 10_000)
    request, response = keyed()
    pairs: list[Any] = [
        {"request": request, "response": {**response, "model": "many-1"}, "id": f"m-{n}"} for n in range(40)
    ]
    pairs[7] = {"request": request, "response": {**response, "answers": {}}, "id": "m-7"}
    pairs[30] = listed()
    assert 3 <= len(list(wire.chunks(pairs))) <= 10
    with pytest.raises(
        CallError, match=r"1 of 120 questions refused, the others taken; pair 7, counted from 0: the answers are"
    ) as caught:
        client.observe_decisions(pairs, tag="bulk")
    outcomes = caught.value.details["outcomes"]
    assert outcomes == DecisionSummary(stored=38 * 3 + 4, declined=1)
    assert caught.value.details["problems"][0]["row"] == 7
    pairs[7] = (request, {**response, "model": "many-1", "id": "m-7"})
    assert client.observe_decisions(iter(pairs), tag="bulk") == DecisionSummary(stored=3, already_known=119)
    assert client.observe_decisions([]) == DecisionSummary()


def test_a_promise_comes_back_as_what_the_answers_may_do(client: Client) -> None:
    request, response = keyed()
    promise = "is_refund:threshold=.9,risk=.05,confidence=.95"
    summary = client.observe_decision(request, {**response, "model": "acting-1"}, id="act-1", act_alone=promise)
    assert [answer.acts for answer in summary.answers] == [True, None, None]
    assert not any(answer.audit for answer in summary.answers)


@pytest.mark.parametrize(
    ("pair", "words"),
    [
        (3, r"pair 0 is 3; expected \(request, response\)"),
        ((None, {}), "pair 0 has no request"),
        ({"request": {}, "answer": {}}, "unknown key of pair 0 'answer'"),
        ((3, {}), "the request of pair 0 is 3; expected a mapping, JSON text"),
        (("{", {}), "the request of pair 0 is not JSON"),
        (({"x": math.nan}, {}), "pair 0 is not JSON"),
        (({"x": {1, 2}}, {}), "a value of pair 0 is {1, 2}"),
        ((Model({}), {}), "the request of pair 0 is <"),
        ((OpenAIModel, {}), "the request of pair 0 is <class"),
    ],
)
def test_what_is_no_pair_is_refused_before_it_is_sent(client: Client, pair: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        client.observe_decisions([pair])


def test_the_other_client_awaits(url: str) -> None:
    async def main() -> DecisionSummary:
        async with AsyncClient(url) as client:
            request, response = keyed()
            response["model"] = "awaited-1"
            return await client.observe_decision(request, response, id="awaited", time=1_790_000_000)

    assert asyncio.run(main()).stored == 3
