"""POST /observe/decisions: pairs of both formats come in, one model a question, and labels find them by question."""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trueodds
from service.app import create_app
from service.settings import Settings
from tests.decisions.recorded import keyed, listed
from tests.service.app_client import Client

LINES = {"content-type": "application/x-ndjson"}
ROUTE = "/observe/decisions"


def pair_of(make: Callable[[], tuple[Any, Any]], id_: str | None = None, **more: Any) -> dict[str, Any]:
    request, response = make()
    return {"request": request, "response": response, **({} if id_ is None else {"id": id_}), **more}


def observe(client: Client, body: Any, **query: Any) -> dict[str, Any]:
    """The summary of a call that must succeed."""
    summary: dict[str, Any] = client.send(ROUTE, body, **query)
    return summary


def refusal(client: Client, status: int, body: Any, **query: Any) -> str:
    """The words of a refusal."""
    return client.refusal(ROUTE, body, status, **query)


def counts(summary: dict[str, Any]) -> tuple[int, int, int, int]:
    return summary["stored"], summary["already_known"], summary["declined"], summary["failed"]


def binary(p: float, *, served: str = "jev-2", words: str = "Is it spam?", text: Any = "Buy now") -> dict[str, Any]:
    """A pair with one yes-or-no question."""
    question = {"type": "noul", "instructions": words}
    answer = {"type": "noul", "noul": p}
    return {
        "request": {"model": "jev", "state": text, "questions": {"spam": question}},
        "response": {"model": served, "answers": {"spam": answer}},
    }


def test_both_formats_become_one_model_a_question(client: Client) -> None:
    summary = observe(client, {"decisions": [pair_of(listed, "t-1"), pair_of(keyed, "t-2", tag="mail")]})
    assert summary["pairs"] == 2 and summary["questions"] == 8 and summary["shapes"] == {"decisions": 1, "systemone": 1}
    assert counts(summary) == (7, 0, 1, 0) and summary["problems"] == []
    by_name = {(a["row"], a["question"]): a for a in summary["answers"]}
    unnamed = by_name[0, next(name for _, name in by_name if name.startswith("question-"))]
    assert unnamed["model"] == unnamed["question"] and unnamed["id"] == "t-1"
    assert by_name[0, "legal"]["outcome"] == "declined"
    assert by_name[0, "queue"]["version"] != by_name[1, "queue"]["version"]
    report = client.report(model="queue", version=by_name[0, "queue"]["version"])
    assert report["answers"] == 1 and report["positive"] is None
    assert client.report(model="is_refund")["positive"]["label"] == "true"
    stored = client.get("/predictions/t-2", params={"model": "urgency"}).json()
    assert (stored["classes"], stored["tag"], stored["predicted"]) == (["1", "2", "3"], "mail", "3")
    assert stored["probabilities"] == pytest.approx([0.2, 0.3, 0.5]) and "input" not in stored
    again = observe(client, {"decisions": [pair_of(listed, "t-1"), pair_of(keyed, "t-2", tag="mail")]})
    assert counts(again) == (0, 8, 0, 0)


@pytest.mark.parametrize("labels", [["low", "medium", "high"], None])
def test_a_score_question_has_the_figures_of_ordered_classes(client: Client, labels: list[str] | None) -> None:
    """In both formats. Without labels the levels are numbered."""
    rng = np.random.default_rng(2)
    p_NC = rng.dirichlet(np.ones(3), 300)
    level_N = np.array([rng.choice(3, p=p_C) for p_C in p_NC])
    question: dict[str, Any] = {"type": "score", "instructions": "How urgent is it?"}
    pairs = []
    for n, p_C in enumerate(p_NC.tolist()):
        if labels is None:
            asked: Any = {"urgency": {**question, "criteria": ["can wait", "today", "now"]}}
            answers: Any = {
                "urgency": {"type": "score", "score": 1, "probabilities": dict(zip("012", p_C, strict=True))}
            }
        else:
            asked = [{**question, "name": "urgency", "levels": [{"label": label} for label in labels]}]
            entries = [{"value": k, "label": labels[k], "probability": p} for k, p in enumerate(p_C)]
            answers = [{"type": "score", "name": "urgency", "score": 1, "probabilities": entries}]
        pairs.append(
            {
                "id": f"u{n}",
                "request": {"model": "m", "questions": asked},
                "response": {"model": "m-1", "answers": answers},
            }
        )
    assert counts(observe(client, {"decisions": pairs})) == (300, 0, 0, 0)
    before = client.report(model="urgency")["ordered"]
    assert before["levels"] == (labels or ["0", "1", "2"]) and before["rps"] is None
    client.label([{"id": f"u{n}", "question": "urgency", "index": int(k)} for n, k in enumerate(level_N)])
    found = client.report(model="urgency")["ordered"]
    sums = trueodds.metrics.OrderedSums.from_probabilities(p_NC, level_N)
    assert found["rps"] == pytest.approx(trueodds.metrics.rps_interval(sums).value, rel=1e-5)
    assert found["level_bias"] == pytest.approx(trueodds.metrics.level_bias(sums).bias, abs=1e-5)
    assert [one["name"] for one in found["at_least"]] == (labels or ["0", "1", "2"])[1:]
    page = client.get("/calibration-report", params={"model": "urgency"}, headers={"accept": "text/html"}).text
    assert 'id="at-least-table"' in page


def test_bad_input_is_refused_by_row_and_the_rest_is_stored(client: Client) -> None:
    """Every line has one fault and, where the fault is that of one question, others that are stored."""

    def changed(change: Callable[[Any, Any], object]) -> dict[str, Any]:
        pair = pair_of(keyed)
        change(pair["request"], pair["response"])
        return pair

    probabilities = {"billing": 0.3, "shipping": 0.1, "other": 0.1}
    unknown = {"billing": 0.3, "shipping": 0.2, "sales": 0.5}
    questions = {f"q{k}": {"type": "noul", "instructions": "Is it?"} for k in range(2000)}
    deep = json.dumps(pair_of(keyed)).replace('"jev-latest"', "[" * 5000 + "]" * 5000, 1).encode()
    nan = json.dumps(changed(lambda q, a: a["answers"]["is_refund"].update(noul=float("nan")))).encode()
    faults: list[tuple[bytes | dict[str, Any], int, str]] = [
        (
            changed(lambda q, a: a["answers"]["queue"].update(probabilities=probabilities)),
            2,
            "sum to 0.5; they must sum",
        ),
        (changed(lambda q, a: a["answers"]["queue"].update(probabilities=unknown)), 2, "'sales' is not an option"),
        (changed(lambda q, a: q["questions"]["urgency"].pop("criteria")), 2, "a score needs levels"),
        (changed(lambda q, a: a.update(answers={"x": {"type": "noul", "noul": 0.5}})), 0, "belong to this request?"),
        (changed(lambda q, a: q.update(questions=questions)), 0, "has 2,000 questions; allowed are 1,000: send fewer"),
        (deep, 0, "not JSON: depth limit exceeded"),
        (nan, 0, "NaN and Infinity are not JSON"),
        (b'{"id" "a"}', 0, " at character 7 of the line; NaN and"),  # not "line 1", which is not the line of the body
    ]
    body = b"".join((f if isinstance(f, bytes) else json.dumps(f | {"id": f"f{n}"}).encode()) + b"\n"
                    for n, (f, _, _) in enumerate(faults))  # fmt: skip
    answer = client.post(ROUTE, content=body + json.dumps(pair_of(keyed, "sound")).encode(), headers=LINES)
    summary = answer.json()
    assert answer.status_code == 200 and summary["pairs"] == len(faults) + 1
    assert summary["stored"] == sum(stored for _, stored, _ in faults) + 3 and summary["failed"] == len(faults)
    for (_, _, words), problem in zip(faults, summary["problems"], strict=True):
        assert words in problem["message"], problem
    assert client.get("/questions").json()["total"] == 3


def test_labels_come_by_id_and_question(client: Client) -> None:
    observe(client, pair_of(listed, "t-1"))
    unnamed = next(m for m in client.get("/models").json()["observed"] if m["model"].startswith("question-"))["model"]
    rows: list[dict[str, Any]] = [
        {"id": "t-1", "question": "is_refund", "label": True},
        {"id": "t-1", "question": "queue", "label": "shipping"},
        {"id": "t-1", "question": "urgency", "index": 2},
        {"id": "t-1", "question": unnamed, "label": "false"},
    ]
    assert client.label(rows)["stored"] == 4
    assert client.report(model="is_refund")["positive"]["prevalence"] == 1
    assert client.report(model="queue")["accuracy"] == 0 and client.report(model="urgency")["accuracy"] == 1
    of_levels = client.report(model="urgency")["ordered"]
    assert of_levels["rps"] > 0 and len(of_levels["at_least"]) == len(of_levels["levels"]) - 1
    assert client.report(model="queue")["ordered"] is None
    late = client.label([{"id": "t-9", "question": "is_refund", "label": False}])
    assert late["held"] == 1
    observe(client, pair_of(listed, "t-9"))
    assert client.report(model="is_refund")["labelled"] == 2
    lines = b'{"id": "t-9", "question": "queue", "label": "billing"}\n'
    assert client.post("/feedback", content=lines, headers=LINES).json()["stored"] == 1
    table = b"id,question,label\nt-9,urgency,high\n"
    assert client.post("/feedback", content=table, headers={"content-type": "text/csv"}).json()["stored"] == 1
    shared = client.post("/feedback", json={"question": "is_refund", "labels": [{"id": "t-9", "label": False}]})
    assert shared.json()["already_known"] == 1


@pytest.mark.parametrize(
    ("row", "code", "words"),
    [
        ({"id": "t-1", "label": "true"}, "ambiguous_id", 'add "model", or "question" if they are questions'),
        ({"id": "t-1", "question": "queue", "model": "queue", "label": "other"}, "invalid_row", "give one of them"),
        ({"id": "t-1", "question": 3, "label": "other"}, "invalid_row", "expected the name of a question"),
        ({"id": "t-1", "question": "queue", "label": "sales"}, "unknown_class", "allowed are 'billing', 'shipping'"),
        ({"id": "t-1", "question": "nobody asks", "label": "x"}, "unknown_model", "unknown model 'nobody-asks-"),
        ({"id": "t-1", "label": True}, "invalid_row", 'Send a boolean as the name of its class, such as "True"'),
    ],
)
def test_labels_that_fit_no_question_are_refused(client: Client, row: Any, code: str, words: str) -> None:
    observe(client, pair_of(listed, "t-1"))
    error = client.post("/feedback", json={"labels": [row]}).json()["error"]
    assert error["code"] == code and words in error["message"]


def test_the_report_is_that_of_the_same_rows_at_hand(client: Client) -> None:
    rng = np.random.default_rng(0)
    p_N, label_N = rng.random(400).round(2), rng.random(400) < 0.5
    pairs = [{**binary(float(p)), "id": f"b{n}"} for n, p in enumerate(p_N)]
    body = gzip.compress(b"".join(json.dumps(pair).encode() + b"\n" for pair in pairs))
    answer = client.post(ROUTE, content=body, headers={**LINES, "content-encoding": "gzip"})
    assert counts(answer.json()) == (400, 0, 0, 0) and answer.json()["pairs"] == 400
    client.label([{"id": f"b{n}", "question": "spam", "label": bool(y)} for n, y in enumerate(label_N)])
    report, expected = (
        client.report(model="spam"),
        trueodds.report(p_N, label_N.astype(int)),
    )
    assert expected.positive is not None
    for name in ("ece", "mean_probability", "prevalence", "auc"):
        if name in report["positive"]:
            assert report["positive"][name] == pytest.approx(getattr(expected.positive, name), abs=1e-9), name
    assert report["ece"] == pytest.approx(expected.ece, abs=1e-9)


def test_a_line_for_each_question(client: Client) -> None:
    body = b"\n".join(
        [
            json.dumps(pair_of(keyed, "t-1")).encode(),
            b"{",
            json.dumps({**pair_of(listed), "x": 1}).encode(),
            json.dumps(pair_of(listed, "t-2"))
            .replace('"predicate", "name": "is_refund"', '"rank", "name": "is_refund"', 1)
            .encode(),
        ]
    )
    answer = client.post(ROUTE, content=body, headers={**LINES, "accept": "application/x-ndjson"})
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert [line["row"] for line in lines] == [1, 1, 1, 2, 3, 4, 4, 4, 4, 4]
    assert [line["outcome"] for line in lines] == [
        *["stored"] * 3,
        "failed",
        "failed",
        "failed",
        *["stored"] * 3,
        "declined",
    ]
    assert (
        lines[0]["question"] == "is_refund"
        and lines[0]["shape"] == "systemone"
        and lines[0]["version"].startswith("jev-2-")
    )
    assert "unknown key 'x'" in lines[4]["message"] and "known types are predicate" in lines[5]["message"]


def test_ids_are_the_callers_or_the_responses_or_made_of_the_pair(client: Client) -> None:
    mine = observe(client, {**binary(0.9), "id": "mine"})["answers"][0]["id"]
    theirs = {**binary(0.9)}
    theirs["response"]["id"] = "dec_123"
    assert (mine, observe(client, theirs)["answers"][0]["id"]) == ("mine", "dec_123")
    made = observe(client, binary(0.9))["answers"][0]["id"]
    assert made.startswith("pair-") and counts(observe(client, binary(0.9))) == (0, 1, 0, 0)
    others = [
        observe(client, binary(0.9, text="Another"))["answers"][0]["id"],
        observe(client, binary(0.8))["answers"][0]["id"],
    ]
    later = observe(client, {**binary(0.9), "time": "2026-10-01T00:00:00Z"})["answers"][0]["id"]
    assert len({made, later, *others}) == 4
    assert "id is ''" in refusal(client, 422, {**binary(0.9), "id": ""})
    assert "was used for another answer" in refusal(client, 409, {**binary(0.3), "id": "mine"})


def test_repeated_inputs_are_counted_and_no_input_is_stored(client: Client, settings: Settings) -> None:
    secret = "the-secret-text-of-a-customer"
    for n in range(3):
        observe(client, {**binary(0.9 - n / 10, text={"mail": secret}), "id": f"r{n}"})
    observe(client, {**binary(0.5, text={"mail": "another"}), "id": "r9"})
    (question,) = client.run(client.app.state.runtime.store.read_questions())
    assert (question.answered, question.repeated, question.declined) == (4, 2, 0)
    files = [path for path in Path(settings.store).parent.glob("store.sqlite*") if path.is_file()]
    assert files and all(secret.encode() not in path.read_bytes() for path in files)


def test_inputs_are_kept_when_asked_for_and_go_with_the_answer(settings: Settings) -> None:
    chosen = settings.model_copy(update={"keep_inputs": True, "input_key": "k" * 32})
    with Client(create_app(chosen)) as client:
        observe(client, {**binary(0.9, text={"mail": "a text", "n": 1}), "id": "r1"})
        stored = client.get("/predictions/r1").json()
        assert stored["input"] == {"mail": "a text", "n": 1}
        assert client.run(client.http.delete("/predictions/r1")).status_code == 200
        assert client.run(client.app.state.runtime.store.read_input("spam", "r1")) is None


def test_a_refusal_is_counted_once_and_is_no_answer(client: Client) -> None:
    declined = binary(0.9)
    declined["response"]["answers"]["spam"] = {"type": "refusal"}
    assert counts(observe(client, {**declined, "id": "d1"})) == (0, 0, 1, 0)
    assert counts(observe(client, {**declined, "id": "d1"})) == (0, 1, 0, 0)
    assert counts(observe(client, {"decisions": [{**declined, "id": "d2"}] * 2})) == (0, 1, 1, 0)
    observe(client, {**binary(0.9), "id": "a1"})
    (question,) = client.run(client.app.state.runtime.store.read_questions())
    assert (question.answered, question.declined) == (1, 2)
    assert client.report(model="spam")["answers"] == 1
    assert "was declined before under the id 'd1'" in refusal(client, 409, {**binary(0.9), "id": "d1"})
    assert "was answered before under the id 'a1'" in refusal(client, 409, {**declined, "id": "a1"})


def test_option_mass_is_kept(client: Client) -> None:
    for n, mass in enumerate((0.9, 0.4)):
        pair = binary(0.5)
        pair["response"]["answers"]["spam"]["label_mass"] = mass
        observe(client, {**pair, "id": f"m{n}"})
    (question,) = client.run(client.app.state.runtime.store.read_questions())
    assert question.mean_mass == pytest.approx(0.65) and question.low_masses == 1


def test_a_promise_is_part_of_the_version_and_by_question(client: Client) -> None:
    observe(client, {**binary(0.97), "id": "p0"})
    promise = "spam:threshold=.9,risk=.05,confidence=.95;other:threshold=.5,risk=.1,confidence=.9"
    first = observe(client, {**binary(0.97), "id": "p1"}, act_alone=promise)["answers"][0]
    second = observe(
        client,
        {"decisions": [{**binary(0.8), "id": "p2"}], "act_alone": {"spam": "threshold=.9,risk=.05,confidence=.95"}},
    )
    assert first["decision"] == "act" and second["answers"][0]["decision"] == "escalate"
    assert first["version"] == second["answers"][0]["version"] and first["version"].startswith("jev-2-")
    assert len({q.of.version for q in client.run(client.app.state.runtime.store.read_questions())}) == 2
    everywhere = {"decisions": [{**binary(0.8), "id": "p3"}], "act_alone": "threshold=.7,risk=.05,confidence=.95"}
    assert observe(client, everywhere)["answers"][0]["decision"] == "act"
    assert client.report(model="spam")["acting"]["acted"] == 1
    assert "expected threshold" in refusal(client, 422, binary(0.5), act_alone="threshold=.9")


BAD: list[tuple[Any, str]] = [
    ([], "the body is []"),
    ({"decisions": []}, "at least one pair"),
    ({"decisions": [binary(0.5)], "model": "x"}, "unknown key 'model' beside decisions"),
    ({"decisions": ["x"]}, "a row is 'x'"),
    ({"request": {}}, "response is missing"),
    ({**binary(0.5), "label": "true"}, "unknown key 'label'"),
    ({**binary(0.5), "time": "tomorrow"}, "time is"),
    ({**binary(0.5), "tag": 7}, "tag"),
    ({**binary(0.5), "propensity": 2}, "propensity"),
    ({**binary(0.5), "id": "a" * 200}, "id has 200 characters"),
    (binary(1.5), "question 'spam': noul is 1.5; expected a number in [0, 1]"),
]


@pytest.mark.parametrize(("body", "words"), BAD)
def test_a_body_in_which_everything_is_bad_is_refused(client: Client, body: Any, words: str) -> None:
    assert words in refusal(client, 422, body)


def test_bad_input_costs_itself_only(client: Client) -> None:
    deep = (
        b'{"request":{"state":' + b"[" * 600 + b"]" * 600 + b',"questions":{"spam":{"type":"noul","instructions":""}}},'
    )
    deep += b'"response":{"model":"m","answers":{"spam":{"type":"noul","noul":0.5}}},"id":"deep"}'
    many = binary(0.5)
    many["request"]["questions"] = {f"q{n}": {"type": "noul"} for n in range(1_000)} | many["request"]["questions"]
    lines = [
        json.dumps({**binary(0.9), "id": "first"}).encode(),
        deep,
        json.dumps({**binary(0.9), "id": "nan"}).replace("0.9", "NaN").encode(),
        json.dumps({**many, "id": "many"}).encode(),
        b'{"request":' + b"[" * 100_000,
        json.dumps({**binary(0.8), "id": "last"}).encode(),
    ]
    summary = client.post(ROUTE, content=b"\n".join(lines), headers=LINES).json()
    assert counts(summary) == (2, 0, 0, 4)
    words = [problem["message"] for problem in summary["problems"]]
    assert (
        "nested too deeply" in words[0] and "not JSON" in words[1] and "1,001 questions; allowed are 1,000" in words[2]
    )
    assert client.report(model="spam")["answers"] == 2


def test_a_long_line_is_an_image_and_no_mistake(client: Client) -> None:
    pair = {**binary(0.5, text="data:image/png;base64," + "A" * 3_000_000), "id": "picture"}
    body = json.dumps(pair).encode() + b"\n" + json.dumps({**binary(0.6), "id": "text"}).encode()
    assert counts(client.post(ROUTE, content=body, headers=LINES).json()) == (2, 0, 0, 0)

    async def longer() -> AsyncIterator[bytes]:
        for _ in range(17):
            yield b"A" * 1_000_000

    answer = client.post(ROUTE, content=longer(), headers=LINES)
    assert answer.status_code == 413 and "a pair must be one short line" in answer.text


def test_other_media_types_and_too_many_versions_are_refused(serve: Callable[..., Client]) -> None:
    client = serve({"max_observed": 2})
    assert client.post(ROUTE, content=b"x", headers={"content-type": "text/csv"}).status_code == 415
    declined = binary(0.9)
    declined["response"]["answers"]["spam"] = {"type": "refusal"}
    for pair in (binary, lambda p, **more: {**declined, "request": binary(p, **more)["request"]}):
        for n in range(2):
            observe(client, pair(0.5, words=f"{n}?"))
        assert "the limit of 2 versions" in refusal(client, 409, pair(0.5, words="3?"))
