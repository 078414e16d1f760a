"""Rounded probabilities of other servers: decided once per version, kept, and read rightly in every live figure."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

import trueodds
from pipeline.recalibrate.calibrator_choice import choose
from tests.service.app_client import Client
from trueodds.calibrators import Identity, Rounded, select
from trueodds.client import Labelled
from trueodds.sums.losses import rounded_losses
from trueodds.sums.rounding import Resolution

WHOSE = {"model": "mail", "version": "7"}
CLASSES = tuple(f"c{k}" for k in range(12))


def rounded(count: int, seed: int = 0, step: float = 0.01) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities of twelve classes in steps, many of them 0, and labels drawn from the exact ones."""
    rng = np.random.default_rng(seed)
    p_NC = trueodds.metrics.softmax(rng.normal(0, 2.5, (count, len(CLASSES))))
    labels_N = (p_NC.cumsum(axis=1) > rng.random((count, 1))).argmax(axis=1)
    return np.rint(p_NC / step) * step, labels_N


def rows_of(p_NC: np.ndarray, start: int = 0) -> list[dict[str, Any]]:
    return [{"id": f"r{n}", "probabilities": row} for n, row in enumerate(p_NC.round(6).tolist(), start)]


def observe(client: Client, rows: list[dict[str, Any]], status: int = 200, **beside: Any) -> dict[str, Any]:
    body = {"observations": rows, **WHOSE, "classes": CLASSES, **beside}
    summary: dict[str, Any] = client.send("/observe", body, status)
    return summary


def label(client: Client, labels_N: np.ndarray, start: int = 0) -> None:
    client.label([{"id": f"r{n}", "label": CLASSES[k], "model": "mail"} for n, k in enumerate(labels_N, start)])


def agrees(client: Client, p_NC: np.ndarray, labels_N: np.ndarray, step: float = 0.01) -> dict[str, Any]:
    """The live report has the figures of the rows at hand, and none that is finite without a reason."""
    report = client.report(**WHOSE)
    losses = rounded_losses(p_NC, labels_N, step)
    assert report["nll"] == pytest.approx(losses.nll_N.mean(), rel=1e-5)
    assert report["brier"] == pytest.approx(losses.brier_N.mean(), rel=1e-4)
    rounding, zeros = report["rounding"], int((p_NC[np.arange(len(labels_N)), labels_N] < step / 2).sum())
    assert rounding["step"] == step and rounding["zeros"] == zeros and zeros
    assert rounding["nll_at_least"] == pytest.approx(losses.least_N.mean(), rel=1e-5)
    assert report["nll_upper"] is None and report["nll_lower"] < rounding["nll_at_least"]
    offline = trueodds.report(p_NC.round(6), labels_N, resolution=step)
    assert report["nll_lower"] == pytest.approx(offline.nll_lower, rel=0.02)  # by other cells
    assert report["ece"] == pytest.approx(offline.ece, abs=1e-6)
    result: dict[str, Any] = rounding
    return result


@pytest.mark.parametrize("given", [{"resolution": 0.01}, {"resolution": "0.01"}, {}])
def test_the_report_is_that_of_the_same_rows_at_hand(client: Client, given: dict[str, Any]) -> None:
    p_NC, labels_N = rounded(400)
    summary = observe(client, rows_of(p_NC), **given)
    assert "steps of 0.01" in summary["read_as"][0]
    label(client, labels_N)
    rounding = agrees(client, p_NC, labels_N)
    assert rounding["source"] == ("given" if given else "inferred") and "no upper limit" in rounding["reading"]


def test_rows_and_labels_before_the_step_was_known_are_read_again(client: Client) -> None:
    p_NC, labels_N = rounded(300)
    exact_sum_N = np.abs(p_NC.sum(axis=1) - 1) < 1e-9
    order = np.argsort(~exact_sum_N, kind="stable")
    p_NC, labels_N, early = p_NC[order], labels_N[order], int(exact_sum_N.sum())
    assert early > 20 and "read_as" not in observe(client, rows_of(p_NC[:early]))
    label(client, labels_N[:early])
    assert client.report(**WHOSE).get("rounding") is None or client.report(**WHOSE)["rounding"]["step"] is None
    observe(client, rows_of(p_NC[early:], early))
    label(client, labels_N[early:], early)
    agrees(client, p_NC, labels_N)


def test_corrections_and_voided_labels_leave_no_trace(client: Client) -> None:
    p_NC, labels_N = rounded(200)
    observe(client, rows_of(p_NC), resolution=0.01)
    wrong_N = (labels_N + 1) % len(CLASSES)
    rows = [{"id": f"r{n}", "label": CLASSES[k], "model": "mail"} for n, k in enumerate(wrong_N)]
    client.label(rows)
    label_rows = [{**row, "label": CLASSES[k], "correct": True} for row, k in zip(rows, labels_N, strict=True)]
    client.label(label_rows)
    agrees(client, p_NC, labels_N)


def test_recalibration_reads_the_logits_of_the_rounded_answers(client: Client) -> None:
    p_NC, labels_N = rounded(150)
    observe(client, rows_of(p_NC), resolution=0.01)
    label(client, labels_N)
    answer = client.get("/admin/labelled.npz", params=WHOSE)
    assert answer.status_code == 200, answer.text
    arrays = np.load(io.BytesIO(answer.content))
    expected_NC = trueodds.logits_of(p_NC.round(6), resolution=0.01)
    expected_NC -= expected_NC.max(axis=1, keepdims=True)
    np.testing.assert_allclose(arrays["val_logits"], expected_NC, atol=1e-4)
    np.testing.assert_array_equal(arrays["val_labels"], labels_N)
    rows = Labelled.read(io.BytesIO(answer.content), answer.headers, None, shadow=False)
    assert rows.resolution.step == arrays["val_resolution"].item() == 0.01
    asked = None, None, False, rows.resolution
    choice = choose(Identity(), rows.logits_NC, rows.labels_N, ["temperature"], *asked)
    assert isinstance(choice.calibrator, Rounded) and choice.calibrator.step == 0.01
    expected = select(expected_NC, labels_N, candidates=["identity", "temperature"], resolution=0.01)
    np.testing.assert_allclose(choice.calibrator(rows.logits_NC), expected.calibrator(expected_NC), atol=1e-4)


def test_a_version_keeps_its_resolution_and_says_so(client: Client) -> None:
    p_NC, _ = rounded(20)
    observe(client, rows_of(p_NC), resolution=0.01)
    assert observe(client, rows_of(p_NC), resolution=0.01)["already_known"] == 20
    again = observe(client, rows_of(p_NC), 422, resolution="exact")["error"]["message"]
    assert "has probabilities in steps of 0.01, but the call gives the resolution exact" in again
    finer = [0.005, 0.995, *[0.0] * 10]
    refused = observe(client, [{"id": "fine", "probabilities": finer}], 422)["error"]["message"]
    assert "0.005, not a multiple of 0.01" in refused and "under another version" in refused
    votes = observe(client, [{"id": "v", "votes": {"c1": 3}}, {"id": "l", "logprobs": {"c1": -0.1}}])
    assert votes["stored"] == 2, "votes and logprobs have readings of their own"


def test_exact_means_that_a_zero_is_a_zero(client: Client) -> None:
    p_NC, labels_N = rounded(200)
    p_NC /= p_NC.sum(axis=1, keepdims=True)
    observe(client, rows_of(p_NC), resolution="exact")
    label(client, labels_N)
    report = client.report(**WHOSE)
    zeros = int((p_NC[np.arange(200), labels_N] <= 0).sum())
    assert report["rounding"]["ruled_out"] == zeros > 0 and "ruled out what happened" in report["rounding"]["reading"]


def test_a_coarse_step_has_no_nll(client: Client) -> None:
    p_NC, labels_N = rounded(100, step=0.1)
    p_NC[:, 0] += 1 - p_NC.sum(axis=1)
    p_NC = p_NC.clip(0)
    p_NC = p_NC[np.abs(p_NC.sum(axis=1) - 1) < 1e-9]
    labels_N = labels_N[: len(p_NC)]
    observe(client, rows_of(p_NC), resolution=0.1)
    label(client, labels_N)
    report = client.report(**WHOSE)
    assert report["nll"] is None and report["ece"] is not None and "too coarse" in report["rounding"]["reading"]


@pytest.mark.parametrize("given", [0, -0.1, 0.7, "x", True, [0.01]])
def test_what_is_no_resolution_is_refused(client: Client, given: Any) -> None:
    message = observe(client, rows_of(rounded(2)[0]), 422, resolution=given)["error"]["message"]
    assert "allowed are a step above 0" in message


def test_a_question_of_a_decision_model_has_a_resolution(client: Client) -> None:
    question = {"type": "choice", "instructions": "Which?", "criteria": dict.fromkeys(CLASSES)}
    p_NC, labels_N = rounded(60)
    pairs = [
        {
            "id": f"d{n}",
            "request": {"model": "jev", "state": f"text {n}", "questions": {"queue": question}},
            "response": {
                "model": "jev-2",
                "answers": {
                    "queue": {
                        "type": "choice",
                        "choice": CLASSES[int(row.argmax())],
                        "probabilities": dict(zip(CLASSES, row.round(6).tolist(), strict=True)),
                    }
                },
            },
        }
        for n, row in enumerate(p_NC)
    ]
    answer = client.post("/observe/decisions", json={"decisions": pairs, "resolution": 0.01})
    assert answer.status_code == 200 and answer.json()["stored"] == 60, answer.text
    client.label([{"id": f"d{n}", "question": "queue", "label": CLASSES[k]} for n, k in enumerate(labels_N)])
    report = client.report(model="queue")
    assert report["nll"] == pytest.approx(rounded_losses(p_NC, labels_N, 0.01).nll_N.mean(), rel=1e-5)
    again = client.post("/observe/decisions", json={**pairs[0], "id": "new"}, params={"resolution": "exact"})
    assert again.status_code == 422 and "a version keeps its first one" in again.json()["error"]["message"]
    stored = client.get("/predictions/d0", params={"model": "queue"}).json()
    assert stored["confidence_source"] == "native"


def test_a_rounded_certainty_is_not_certain(client: Client) -> None:
    sure = [{"id": f"r{n}", "probabilities": [1.0, *[0.0] * 11]} for n in range(5)]
    observe(client, sure, resolution=0.01)
    stored = client.get("/predictions/r0", params={"model": "mail"}).json()
    assert stored["confidence"] == Resolution(0.01).confidence(np.array([1.0]))[0] == 0.9975


def test_a_certainty_before_the_step_was_known_is_lowered_with_all_its_sums(client: Client) -> None:
    sure = [{"id": f"r{n}", "probabilities": [1.0, *[0.0] * 11]} for n in range(40)]
    observe(client, [*sure, {"id": "l", "logits": [50.0, *[0.0] * 11]}], positive=None)
    label(client, np.array([0] * 39 + [5]))
    observe(client, [{"id": "shows", "probabilities": [0.33, 0.33, 0.33, *[0.0] * 9]}])
    p_NC, labels_N = np.array([row["probabilities"] for row in sure]), np.array([0] * 39 + [5])
    agrees(client, p_NC, labels_N)
    row = client.get("/predictions/r0", params={"model": "mail"}).json()
    assert row["confidence"] == 0.9975
    assert client.get("/predictions/l", params={"model": "mail"}).json()["confidence"] > 0.9999
