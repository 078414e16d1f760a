"""The client of the service: outcomes row by row, refused bodies, and a service that is away."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.client.relay import Lose, Refuse, Relay
from trueodds.client import CallError
from trueodds.client.keys import Keys
from trueodds.client.streams import sender as sender_module
from trueodds.client.streams.messages import ANSWERS, DOORS, LABELS, Door, Item, Message, item_of
from trueodds.client.streams.offsets import Offsets
from trueodds.client.streams.sender import Sender, StoppedError

QUERIES = {ANSWERS.path: {"model": "sent", "version": "1", "classes": "ham,spam"}}


def items(values: list[Any], door: Door = ANSWERS) -> list[Item]:
    data = [value if isinstance(value, bytes) else json.dumps(value).encode() for value in values]
    return [item_of(Message("t", 0, n, value), door, Offsets()) for n, value in enumerate(data)]


def sender(url: str, said: list[str], stops: int = 10**9) -> Sender:
    asked = iter(range(10**9))
    return Sender(url, Keys(), QUERIES, said.append, lambda: next(asked) >= stops, pause=0.01)


def test_each_message_gets_the_outcomes_of_its_rows(url: str) -> None:
    said = list[str]()
    sound = {"id": "s-1", "probabilities": [0.9, 0.1]}
    two = b"\n".join(json.dumps({**sound, "id": f"s-{n}"}).encode() for n in (2, 3))
    body = {"observations": [{**sound, "id": "s-4"}], "model": "sent", "version": "2", "classes": ["a", "b"]}
    bad = [b"not json", {"id": "s-5", "probabilities": [2, 3]}, {"observations": [{**sound, "id": "s-6"}, {}]}]
    sent = items([sound, two, body, *bad, sound, b'{"id": "x", "id": "y"}'])
    sender(url, said).send(sent)
    assert [dict(item.outcomes) for item in sent[:3]] == [{"stored": 1}, {"stored": 2}, {"stored": 1}]
    assert [item.problems[0].code for item in sent[3:6]] == ["invalid_row"] * 3
    assert dict(sent[6].outcomes) == {"already_known": 1}
    assert "twice" in sent[7].problems[0].message
    assert not any(item.outcomes for item in sent[3:6])
    assert said == []


def test_a_body_that_is_refused_as_a_whole_keeps_no_other_message_back(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender_module, "BODY_BYTES", 10**9)  # one request
    long = {"id": "long", "probabilities": [0.5, 0.5], "tag": "x" * 3_000_000}
    sound = [{"id": f"l-{n}", "probabilities": [0.9, 0.1]} for n in range(5)]
    sent = items([*sound[:2], long, *sound[2:]])
    sender(url, []).send(sent)
    assert [item.problems[0].code if item.problems else "" for item in sent] == ["", "", "line_too_long", "", "", ""]
    assert all(item.outcomes for item in sent if not item.problems)


def test_labels_follow_their_answers_and_unknown_ones_may_wait(url: str) -> None:
    label = items([{"id": "f-1", "label": "ham"}, {"id": "nobody", "label": "ham"}], LABELS)
    answer = items([{"id": "f-1", "probabilities": [0.9, 0.1]}])
    sender(url, []).send([*label, *answer])
    assert dict(label[0].outcomes) == {"stored": 1}
    assert (label[1].problems[0].code, label[1].waits) == ("unknown_id", True)
    assert not label[0].waits


def test_a_service_that_is_away_is_waited_for(url: str) -> None:
    said = list[str]()
    proxy = Refuse(500, body=b"<html>"), Refuse(200, body=b"<html>")
    with Relay(url) as relay:
        relay.plan = [Refuse(429, "0"), Refuse(503, "0"), Lose(), *proxy]
        sent = items([{"id": "w-1", "probabilities": [0.9, 0.1]}])
        sender(relay.url, said).send(sent)
        assert len(relay.requests) == 6
    assert dict(sent[0].outcomes) == {"already_known": 1}  # the lost answer had stored it
    assert len(said) == 2
    assert "Waiting for it; no offset is committed" in said[0]
    assert "answers again" in said[1]


def test_a_stop_ends_the_waiting(url: str) -> None:
    with pytest.raises(StoppedError):
        sender("http://127.0.0.1:9", [], stops=2).send(items([{"id": "w-2", "probabilities": [1, 0]}]))


def test_keys_and_parameters_are_checked_at_the_start(url: str) -> None:
    sender(url, []).check(DOORS)
    for query, code in (({"classes": "ham"}, "invalid_parameter"), ({"klasses": "a,b"}, "invalid_parameter")):
        with pytest.raises(CallError) as refused:
            Sender(url, Keys(), {ANSWERS.path: query}, print, lambda: False).check([ANSWERS])
        assert refused.value.code == code
    with Relay(url) as relay:
        relay.plan = [Refuse(401, body=b'{"error": {"code": "key_needed", "message": "no key"}}')]
        with pytest.raises(CallError, match="no key"):
            sender(relay.url, []).send(items([{"id": "w-3", "probabilities": [1, 0]}]))
