"""The label queue over HTTP: draw, lease, label or skip, the page, the report, and what is refused."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from service.labels.human_labelling import LabelDrawBody, sample
from service.store.queue_rows import Drawable
from tests.service.app_client import Client

QUEUE = "/label-queue"
CLASSES = ["ham", "spam", "other"]


def observed(client: Client, count: int = 400, seed: int = 1, **more: Any) -> dict[str, str]:
    """Observe answers with own ids; the true class by id, over-confidently predicted."""
    rng = np.random.default_rng(seed)
    p_NC = rng.dirichlet([0.3, 0.3, 0.3], count)
    true_N = [int(rng.choice(3, p=p)) for p in 0.8 * p_NC + 0.2 / 3]
    rows = [
        {"id": f"m{seed}-{k}", "probabilities": p_NC[k].tolist(), "tag": "day" if k % 10 else "night", **more}
        for k in range(count)
    ]
    sent = client.post("/observe?model=mail&version=7", json={"observations": rows, "classes": CLASSES})
    assert sent.status_code == 200, sent.text
    return {f"m{seed}-{k}": CLASSES[true_N[k]] for k in range(count)}


def post(client: Client, path: str, **tree: Any) -> Any:
    answer = client.post(f"{QUEUE}{path}", json={"model": "mail", "who": "Ada", **tree})
    assert answer.status_code == 200, answer.text
    return answer.json()


def refused(client: Client, status: int, path: str, **tree: Any) -> str:
    answer = client.post(f"{QUEUE}{path}", json={"model": "mail", "who": "Ada", **tree})
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    return f"{error['code']}: {error['message']}"


def test_the_whole_way_to_the_report(client: Client) -> None:
    truth = observed(client)
    drawn = post(client, "", budget=150)
    assert drawn["answers"] == 400 and 100 < drawn["sample_size"] < 200
    assert 0.1 < drawn["smallest_propensity"] < drawn["largest_propensity"] <= 1
    queue = post(client, "/lease", count=1000)
    ids = [one["id"] for one in queue["answers"]]
    assert queue["classes"] == CLASSES and len(set(ids)) == drawn["sample_size"] and ids != sorted(ids)
    first = queue["answers"][0]
    assert first["predicted"] is None and first["probabilities"] is None and len(first["input_digest"]) == 32
    skipped, labelled = ids[:5], ids[5:]
    answers = [*({"id": id_, "label": truth[id_]} for id_ in labelled), *({"id": id_, "skip": True} for id_ in skipped)]
    stored = post(client, "/answers", answers=answers)
    assert stored["stored"] == len(labelled) and stored["skips"] == 5 and stored["import_id"]
    again = post(client, "/answers", answers=answers)
    assert (again["stored"], again["already_known"]) == (0, len(labelled))
    assert post(client, "/lease")["answers"] == []
    report = client.get("/calibration-report?model=mail").json()
    labelling = report["labelling"]
    assert labelling["queue"]["skips"] == 5 and labelling["queue"]["labelled"] == len(labelled)
    weighted, queue_figures = labelling["weighted"][-1], labelling["queue"]
    assert weighted["how"] == "propensity"
    weight_of = {one["id"]: 1 / one["propensity"] for one in queue["answers"]}
    of_skips = sum(weight_of[id_] for id_ in skipped) / sum(weight_of.values())
    assert queue_figures["lowest_accuracy"] == pytest.approx(weighted["accuracy"] * (1 - of_skips))
    assert queue_figures["highest_accuracy"] == pytest.approx(queue_figures["lowest_accuracy"] + of_skips)
    assert "Valid for all answers that could be drawn" in weighted["reading"]
    assert "Weighted figures hold only if skipping" in report["reading"]
    assert "Answers drawn for labelling" in client.get("/calibration-report?model=mail&format=html").text
    one = client.get(f"/predictions/{labelled[0]}").json()
    shown = {one["id"]: one["propensity"] for one in queue["answers"]}
    assert one["propensity"] == pytest.approx(shown[labelled[0]])


def test_weighted_figures_are_about_all_answers(client: Client) -> None:
    """A tag whose answers are all wrong is drawn more often: the plain accuracy is too low, the weighted one is not."""
    truth = observed(client, 3_000, seed=2)
    post(client, "", budget=900, goal="group", tag="night")
    queue = post(client, "/lease", count=1000, show="prediction")
    for one in queue["answers"]:
        if one["tag"] == "night":
            truth[one["id"]] = CLASSES[CLASSES.index(one["predicted"]) - 1]
    plain = np.mean([one["predicted"] == truth[one["id"]] for one in queue["answers"]])
    answers = [{"id": one["id"], "label": truth[one["id"]]} for one in queue["answers"]]
    post(client, "/answers", answers=answers)
    report = client.get("/calibration-report?model=mail").json()
    weighted = report["labelling"]["weighted"][-1]["accuracy"]
    assert report["accuracy"] == pytest.approx(plain)
    rows = csv.DictReader(io.StringIO(client.get("/predictions?model=mail&format=csv").text))
    right = np.mean([row["predicted"] == truth[row["id"]] and row["tag"] == "day" for row in rows])
    assert abs(weighted - right) < 0.08 < right - plain


def test_the_queue_goes_to_the_tag_that_earlier_labels_suspect(client: Client) -> None:
    """The second draw prefers the tag whose answers were wrong. The store keeps the propensities that were used."""
    observed(client, 600, seed=5)
    first = post(client, "", budget=300, goal="group")
    assert "suspects" not in first  # no label yet: every tag equally
    answers = []
    for one in post(client, "/lease", count=1000, show="prediction")["answers"]:
        wrong = CLASSES[CLASSES.index(one["predicted"]) - 1]
        answers.append({"id": one["id"], "label": wrong if one["tag"] == "night" else one["predicted"]})
    post(client, "/answers", answers=answers)
    observed(client, 1_000, seed=6)
    drawn = post(client, "", budget=60, goal="group")
    assert [one["tag"] for one in drawn["suspects"]] == ["night", "day"]
    night, day = drawn["suspects"]
    assert night["chance"] > 0.9 and night["signed_gap"] < -0.5 and day["labels"] > night["labels"] > 20
    assert night["chance"] + day["chance"] == pytest.approx(1)
    leased = post(client, "/lease", count=1000)["answers"]
    assert np.mean([one["tag"] == "night" for one in leased]) > 0.35  # of a tenth of the answers
    assert drawn["smallest_propensity"] >= 0.5 * 60 / drawn["answers"]
    for one in leased[:5]:
        assert client.read(f"/predictions/{one['id']}")["propensity"] == one["propensity"]


def test_a_label_of_an_answer_that_can_be_drawn_does_not_steer_the_draw(client: Client) -> None:
    """A propensity must not depend on the answer's own label, also not on one that was voided meanwhile."""
    observed(client, 80, seed=7)
    sent = client.send("/feedback", {"labels": [{"id": f"m7-{k}", "label": "ham"} for k in range(40)]})
    rows = client.run(client.app.state.runtime.store.read_drawable("mail", "7", 0, 2**47, 1_000))
    evidence = client.run(client.app.state.runtime.store.read_labels("mail", "7"))
    assert len(rows) == 40 and len(evidence) == 40
    body = LabelDrawBody(budget=10, goal="group", who="Ada")
    assert sample(rows, body, evidence)[2][0].labels > 0
    own = [Drawable(id_, 0.9, "day") for id_ in evidence.ids]
    assert sample([*rows, *own], body, evidence)[2] == []
    assert client.send("/admin/labels/void", {"import_id": sent["import_id"], "who": "Ada", "why": "test"})
    assert "suspects" not in post(client, "", budget=10, goal="group")


@pytest.mark.parametrize("by_time", [False, True])
def test_bounds_for_skipped_answers_do_not_depend_on_the_window(client: Client, by_time: bool) -> None:
    """The queue's counts are of all answers, and an estimate of the wrong ones alone is none of them."""
    truth = observed(client, 200, seed=3, time="2026-01-05T10:00:00Z") | observed(client, 200, seed=4)
    post(client, "", budget=400, goal="plain")
    drawn = post(client, "/lease", count=1000, show="prediction")["answers"]
    predicted = {one["id"]: one["predicted"] for one in drawn}
    wrong = [id_ for id_ in truth if id_.startswith("m4-")]
    truth |= {id_: CLASSES[CLASSES.index(predicted[id_]) - 1] for id_ in wrong}
    ids = [id_ for id_ in truth if id_ not in wrong] + wrong
    answers = [{"id": id_, **({"skip": True} if k % 5 == 0 else {"label": truth[id_]})} for k, id_ in enumerate(ids)]
    for part in (answers[:200], answers[200:]):
        post(client, "/answers", answers=part)
    whole = client.report(model="mail")
    queue, weighted = whole["labelling"]["queue"], whole["labelling"]["weighted"][-1]
    assert queue["lowest_accuracy"] == pytest.approx(0.8 * weighted["accuracy"]) and weighted["accuracy"] > 0.3
    part = client.report(model="mail", **({"since": "2026-02-01"} if by_time else {"last": 100}))["labelling"]
    assert part["weighted"][-1]["accuracy"] == 0
    for field in ("lowest_accuracy", "highest_accuracy"):
        assert part["queue"][field] == pytest.approx(queue[field], abs=0.01)


def test_two_people_get_different_answers_until_a_lease_ends(client: Client) -> None:
    observed(client, 60)
    post(client, "", budget=60, goal="plain")
    ada = {one["id"] for one in post(client, "/lease", count=20)["answers"]}
    bo = {one["id"] for one in post(client, "/lease", count=20, who="Bo")["answers"]}
    assert len(ada) == len(bo) == 20 and not ada & bo
    assert {one["id"] for one in post(client, "/lease", count=20)["answers"]} == ada
    read = client.get(QUEUE, params={"model": "mail", "who": "Bo"}).json()
    assert {one["id"] for one in read["answers"]} == bo
    assert client.get(QUEUE, params={"model": "mail"}).json()["answers"] == []
    one = min(ada)
    post(client, "/answers", answers=[{"id": one, "label": "ham"}])
    said = refused(client, 409, "/answers", who="Bo", answers=[{"id": one, "label": "spam"}])
    assert said.startswith("conflicting_label")


def test_show_and_csv(client: Client) -> None:
    observed(client, 30)
    post(client, "", budget=30, goal="group", tag="night", floor=0.5)
    leased = post(client, "/lease", count=50, show="probabilities", minutes=120)["answers"]
    assert all(sum(one["probabilities"]) == pytest.approx(1) for one in leased)
    assert all(one["confidence"] == pytest.approx(max(one["probabilities"])) for one in leased)
    text = client.get(QUEUE, params={"model": "mail", "who": "Ada", "format": "csv", "show": "prediction"}).text
    rows = list(csv.DictReader(io.StringIO(text)))
    assert {row["id"] for row in rows} == {one["id"] for one in leased}
    assert all(row["label"] == row["skip"] == row["confidence"] == "" and row["predicted"] in CLASSES for row in rows)


def test_the_next_draw_begins_where_the_last_one_ended(client: Client) -> None:
    observed(client, 50)
    first = post(client, "", budget=10)
    assert refused(client, 409, "", budget=5).startswith("nothing_to_draw: mail/7 has no answer without a label")
    observed(client, 40, seed=3)
    said = refused(client, 409, "", budget=5, since="2026-01-01")
    assert said.startswith("overlapping_draw: answers before ") and "Draw with since=" in said
    second = post(client, "", budget=10)
    assert second["answers"] == 40 and second["draw"] > first["draw"] and second["since"] == first["until"]


def test_answers_with_a_propensity_or_a_label_are_left_out(client: Client) -> None:
    truth = observed(client, 20)
    observed(client, 20, seed=4, propensity=0.5)
    for id_ in sorted(truth)[:5]:
        client.post("/feedback", json={"id": id_, "label": truth[id_], "model": "mail"})
    assert post(client, "", budget=10)["answers"] == 15


@pytest.mark.parametrize(
    ("path", "tree", "status", "said"),
    [
        ("", {}, 422, "invalid_body: budget: Field required; expected budget and who"),
        ("", {"budget": 0}, 422, "invalid_body: budget: Input should be greater than or equal to 1"),
        ("", {"budget": 99}, 422, "budget is 99; allowed is a whole number from 1 to the number of answers, 9"),
        ("", {"budget": 5, "goal": "threshold"}, 422, "needs a threshold, such as 0.93"),
        ("", {"budget": 5, "goal": "group", "tag": "nigt"}, 422, "unknown group 'nigt'; allowed: day, night"),
        ("", {"budget": 5, "floor": 0}, 422, "floor is 0.0; allowed is (0, 1]"),
        ("", {"budget": 5, "until": "2999-01-01"}, 422, "in the future; leave it out"),
        ("", {"budget": 5, "until": "9999-12-31T23:59:59-12:00"}, 422, "allowed are the years 1 to 9998"),
        ("", {"budget": 5, "since": "9999-12-31T23:59:59-12:00"}, 422, "allowed are the years 1 to 9998"),
        ("", {"budget": 5, "until": "9998-12-31T23:59:59"}, 422, "in the future; leave it out"),
        ("", {"budget": 5, "since": "9998-12-31T23:59:59"}, 422, "which is not before now; give an earlier time"),
        ("", {"budget": 99, "since": "1969-01-01"}, 422, "budget is 99; allowed is a whole number from 1 to"),
        ("", {"budget": 5, "since": "2026-01-02", "until": "2026-01-01"}, 422, "not before until, 2026-01-01"),
        ("", {"budget": 5, "bugdet": 5}, 422, "bugdet"),
        ("", {"budget": 5, "model": "mial"}, 404, "unknown_model: there is no mial/*; known are"),
        ("/lease", {"count": 1001}, 422, "count: Input should be less than or equal to 1000"),
        ("/lease", {"who": " "}, 422, "who: String should have at least 1 character"),
        ("/lease", {"show": "all"}, 422, "show: Input should be 'input', 'prediction' or 'probabilities'"),
        ("/answers", {"answers": []}, 422, "answers: List should have at least 1 item"),
        (
            "/answers",
            {"answers": [{"id": "m1-0", "label": "ham"}]},
            404,
            "is not in the label queue; send its label to",
        ),
        ("/answers", {"answers": [{"id": "m1-0"}]}, 422, "0 values of label, index and skip for 'm1-0'"),
        ("/answers", {"answers": [{"id": "m1-0", "label": "ham", "skip": True}]}, 422, "2 values of label, index and"),
    ],
)
def test_bad_requests(client: Client, path: str, tree: dict[str, Any], status: int, said: str) -> None:
    observed(client, 9)
    assert said in refused(client, status, path, **tree)


def test_bad_answers_store_nothing(client: Client) -> None:
    observed(client, 9)
    post(client, "", budget=9, goal="plain")
    answers = [{"id": "m1-0", "label": "ham"}, {"id": "m1-1", "skip": True}, {"id": "m1-2", "label": "eggs"}]
    sent = client.post(f"{QUEUE}/answers", json={"model": "mail", "who": "Ada", "answers": answers})
    problems = sent.json()["error"]["problems"]
    assert sent.status_code == 422 and [(one["row"], one["code"]) for one in problems] == [(2, "unknown_class")]
    state = client.get(QUEUE, params={"model": "mail"}).json()["state"]
    assert state == {"sample_size": 9, "labelled": 0, "skips": 0, "waiting": 9, "maturing": 0}


def test_the_page(client: Client) -> None:
    """Buttons and keys for each class; a form without a script works too."""
    html = {"model": "mail", "format": "html"}
    observed(client, 9)
    nothing = client.get(QUEUE, params=html).text
    assert "No answer has been drawn" in nothing and "<code>trueodds label draw</code>" in nothing
    post(client, "", budget=9, goal="plain")
    start = client.get(QUEUE, params=html)
    assert "Your name" in start.text and "Feedback key" not in start.text
    form = {"model": "mail", "version": "7", "who": "Ada", "show": "prediction"}
    asked = client.post(f"{QUEUE}/answers", data=form, follow_redirects=False)
    assert asked.status_code == 303
    page = client.get(asked.headers["location"])
    assert "script-src 'sha256-" in page.headers["content-security-policy"] and "Prediction:" in page.text
    keys = re.findall(r'name="label" value="(\w+)" data-key="(\d)"', page.text)
    assert keys == [("ham", "1"), ("spam", "2"), ("other", "3")] and 'data-key="s"' in page.text
    first = re.findall(r'name="id" value="([^"]+)"', page.text)[0]
    page = client.post(f"{QUEUE}/answers", data={**form, "id": first, "label": "spam"}, follow_redirects=True)
    second = re.findall(r'name="id" value="([^"]+)"', page.text)[0]
    assert second != first and "1 labelled" in page.text
    assert client.get(f"/predictions/{first}").json()["label"] == "spam"
    page = client.post(f"{QUEUE}/answers", data={**form, "id": second, "skip": "true"}, follow_redirects=True)
    assert "1 skipped, 7 waiting" in page.text


def test_keys(serve: Callable[..., Client]) -> None:
    from service.http.hashed_keys import make

    made = {role: make() for role in ("feedback", "read", "admin")}
    client = serve({f"{role}_key_hash": (hashed,) for role, (_, hashed) in made.items()})
    bearer = {role: {"authorization": f"Bearer {key}"} for role, (key, _) in made.items()}
    rows = [{"id": f"k{k}", "probabilities": [0.9, 0.1]} for k in range(5)]
    assert client.post("/observe?model=mail&version=7", json={"observations": rows}).status_code == 200
    draw, lease = {"model": "mail", "who": "Ada", "budget": 5, "goal": "plain"}, {"model": "mail", "who": "Ada"}
    assert client.post(QUEUE, json=draw).status_code == 401
    assert client.post(QUEUE, json=draw, headers=bearer["feedback"]).status_code == 403
    assert client.post(QUEUE, json=draw, headers=bearer["admin"]).status_code == 200
    for path in ("/lease", "/answers"):
        assert client.post(f"{QUEUE}{path}", json=lease).status_code == 401
        assert client.post(f"{QUEUE}{path}", json=lease, headers=bearer["read"]).status_code == 403
    assert client.post(f"{QUEUE}/lease", json=lease, headers=bearer["feedback"]).status_code == 200
    assert client.get(QUEUE).status_code == 401 and client.get(QUEUE, headers=bearer["read"]).status_code == 200
    form = {"model": "mail", "who": "Ada", "id": "k0", "label": "0"}
    assert client.post(f"{QUEUE}/answers", data=form).status_code == 401
    assert client.post(f"{QUEUE}/answers", data={**form, "key": "wrong"}).status_code == 401
    stranger = {"origin": "https://elsewhere.example"}
    with_key = {**form, "key": made["feedback"][0]}
    assert client.post(f"{QUEUE}/answers", data=with_key, headers=stranger).status_code == 403
    assert client.post(f"{QUEUE}/answers", data=with_key, follow_redirects=False).status_code == 303
    page = client.get(QUEUE, params={"model": "mail", "format": "html"}, headers=bearer["read"]).text
    assert "Feedback key" in page
