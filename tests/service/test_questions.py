"""GET /questions, the notes of a question's report, notices in metrics and at webhooks: each once."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from service.app import create_app
from service.report.questions import MOST_ROWS
from service.settings import Settings, read_webhooks
from tests.service.app_client import Client
from tests.service.hooks import Hook, until
from tests.service.test_decisions import LINES, ROUTE, binary

REFUSED = {"type": "refusal"}


def lines(pairs: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(pair).encode() + b"\n" for pair in pairs)


def send(client: Client, pairs: list[dict[str, Any]], **query: Any) -> None:
    answer = client.post(ROUTE, content=lines(pairs), headers=LINES, params=query)
    assert answer.status_code == 200 and not answer.json()["failed"], answer.text


def named(name: str, p: float | None, id_: str, **more: Any) -> dict[str, Any]:
    """A pair with one question of another name; None for a declined one."""
    pair = binary(0.5 if p is None else p, **more)
    pair["request"]["questions"] = {name: pair["request"]["questions"]["spam"]}
    pair["response"]["answers"] = {name: REFUSED if p is None else pair["response"]["answers"]["spam"]}
    return {**pair, "id": id_}


def stream(name: str, count: int, seed: int, shift: float = 0.0, **more: Any) -> tuple[list[dict[str, Any]], bytes]:
    """Pairs with their labels, over-confident by `shift`."""
    rng = np.random.default_rng(seed)
    p_N = rng.random(count).round(2)
    y_N = rng.random(count) < p_N + np.where(p_N > 0.5, -shift, shift)
    ids = [f"{name}-{seed}-{n}" for n in range(count)]
    pairs = [named(name, float(p), id_, text=id_, **more) for p, id_ in zip(p_N, ids, strict=True)]
    labels = [{"id": id_, "question": name, "label": bool(y)} for id_, y in zip(ids, y_N, strict=True)]
    return pairs, lines(labels)


def overview(client: Client, **query: Any) -> dict[str, Any]:
    found: dict[str, Any] = client.read("/questions", **query)
    return found


def test_one_row_a_question_with_its_state(client: Client) -> None:
    for name, shift, act_alone in (("is good?", 0.0, None), ("off", 0.25, "threshold=.9,risk=.05,confidence=.95")):
        pairs, labels = stream(name, 600, 0, shift)
        send(client, pairs, **({} if act_alone is None else {"act_alone": act_alone}))
        assert client.post("/feedback", content=labels, headers=LINES).json()["stored"] == 600
    send(client, [named("never", None, f"n{k}") for k in range(3)])
    never, off, good = overview(client)["questions"]
    assert (never["state"], never["verdict"], never["declined"], never["declined_share"]) == (
        "waiting",
        "no_answers",
        3,
        1,
    )
    assert (off["answers"], off["labelled"], off["versions"], off["served"]) == (600, 600, 1, "jev-2")
    until(lambda: overview(client)["questions"][1]["alarm"] == "fired")
    off = overview(client)["questions"][1]
    assert off["state"] == "alarm" and 0.05 < off["acts_share"] < 0.4 and off["promise_broken"] is not None
    assert good["question"] == "is good?" and good["model"].startswith("is-good-") and good["acts_share"] is None
    assert good["alarm"] == "quiet" and good["option_mass"] is None
    for row in (off, good):
        report = client.get(row["report_url"]).json()
        assert (report["model"], report["verdict"], report["labelled"]) == (
            row["model"],
            row["verdict"],
            row["labelled"],
        )
    page = client.get("/questions", headers={"accept": "text/html"})
    assert page.headers["content-security-policy"] and page.text.count("<tr>") == 4
    assert f'<a href="{good["report_url"].replace("&", "&amp;")}">is good?</a>' in page.text
    assert "/questions" in client.get(good["report_url"], headers={"accept": "text/html"}).text


def test_the_cached_row_follows_new_labels(client: Client) -> None:
    pairs, labels = stream("spam", 50, 0)
    send(client, pairs)
    assert overview(client)["questions"][0]["verdict"] == "no_labels"
    client.post("/feedback", content=labels, headers=LINES)
    row = overview(client)["questions"][0]
    assert row["labelled"] == 50 and row["verdict"] != "no_labels"
    assert overview(client)["questions"][0] == row


def test_an_overview_without_questions_and_one_of_many(serve: Callable[..., Client]) -> None:
    client = serve()
    assert overview(client) == {"questions": [], "total": 0, "notices": []}
    assert "No question has been answered yet" in client.get("/questions?format=html").text
    send(client, [named(f"q{n:03}", None, f"i{n}") for n in range(MOST_ROWS + 5)])
    assert len(overview(client)["questions"]) == MOST_ROWS and overview(client)["total"] == MOST_ROWS + 5
    assert len(overview(client, first=MOST_ROWS)["questions"]) == 5
    assert f"first={MOST_ROWS}" in client.get("/questions?format=html").text
    assert "There are no more questions" in client.get("/questions?format=html&first=100").text
    assert client.get("/questions?firts=1").status_code == 422


def test_changes_are_noticed_once_on_the_page_in_metrics_and_at_the_webhook(settings: Settings, hook: Hook) -> None:
    chosen = settings.model_copy(update={"alarm_webhook": read_webhooks(hook.url)})
    with Client(create_app(chosen)) as client:
        send(client, [named("spam", 0.9, "a1")])
        send(client, [named("spam", 0.9, "a2", served="jev-3"), named("spam", 0.9, "a3", served="jev-3")])
        send(client, [named("spam", 0.9, "a4", served="jev-3", words="Is this spam?")])
        send(client, [named("spam", 0.9, "a5", served="jev-2"), named("other", 0.9, "a6")])
        until(lambda: len(hook.calls) == 2)
        told = {call.body["notice"]: call.body for call in hook.calls}
        assert set(told) == {"served_model_changed", "wording_changed"}
        served = told["served_model_changed"]
        assert (served["type"], served["question"], served["before"], served["now"]) == (
            "question-notice",
            "spam",
            "jev-2",
            "jev-3",
        )
        assert "from 'jev-2' to 'jev-3'" in served["reading"] and served["version"] in served["report_url"]
        found = overview(client)["notices"]
        assert [notice["notice"] for notice in found] == ["wording_changed", "served_model_changed"]
        page = client.get("/questions?format=html").text
        assert page.count("The served model of the question") == 1
        report = client.report(model="spam", version=served["version"])
        assert any("The served model of the question" in caution for caution in report["cautions"])
        metrics = client.get("/metrics").text
        assert metrics.count('trueodds_question_notice_timestamp_seconds{model="spam"') == 2
        assert 'trueodds_question_answered{model="spam"' in metrics
    with Client(create_app(chosen)) as client:  # another process delivers nothing again
        send(client, [named("spam", 0.9, "b1", served="jev-4")])
        until(lambda: len(hook.calls) == 3)
    assert hook.calls[2].body["now"] == "jev-4"


def test_a_webhook_that_fails_gets_the_notice_later(settings: Settings, hook: Hook) -> None:
    hook.answers = [500]
    chosen = settings.model_copy(update={"alarm_webhook": read_webhooks(hook.url)})
    with Client(create_app(chosen)) as client:
        send(client, [named("spam", 0.9, "a1")])
        send(client, [named("spam", 0.9, "a2", served="jev-3")])
        until(lambda: len(hook.calls) == 2)
        assert hook.calls[0].body == hook.calls[1].body


def test_a_rise_of_refusals_is_noticed(client: Client) -> None:
    rng = np.random.default_rng(0)
    for part, share in enumerate([0.03] * 6 + [0.25] * 4):
        declined = rng.random(200) < share
        send(client, [named("spam", None if one else 0.5, f"{part}-{n}") for n, one in enumerate(declined)])
    (notice,) = overview(client)["notices"]
    assert notice["notice"] == "refusals_rising" and "at most 5% of questions ever get this notice" in notice["reading"]
    cautions = client.report(model="spam")["cautions"]
    assert any("The host declined this question in" in caution for caution in cautions)


@pytest.mark.parametrize(("mass", "is_low"), [(0.95, False), (0.4, True)])
def test_a_low_option_mass_is_a_caution(client: Client, mass: float, is_low: bool) -> None:
    for n in range(3):
        pair = named("spam", 0.5, f"m{n}", text="the same")
        pair["response"]["answers"]["spam"]["option_mass"] = mass
        send(client, [pair])
    row = overview(client)["questions"][0]
    assert row["option_mass"] == pytest.approx(mass) and row["low_mass"] is is_low and row["repeated"] == 2
    cautions = " ".join(client.report(model="spam")["cautions"])
    assert ("The prompt does not fit the options" in cautions) is is_low
    assert "2 answers of 3 had an input that was asked before" in cautions
