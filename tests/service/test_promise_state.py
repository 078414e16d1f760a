"""The evidence about a promise: which labels it takes, what it says of them, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from service.alarm import PromiseState, acting_alone
from service.alarm.promise import restarting_promise
from service.models.acting import is_audited
from service.settings import Settings
from service.store import StoreError
from service.store.rows import LabelBlock
from tests.service.alarms import START
from trueodds.bundle import ActAlone
from trueodds.metrics import RiskEProcess

TEXT = "threshold=.8,risk=.05,confidence=.95"
HALF = ActAlone.of_text(TEXT)
BY_TAG = HALF.model_copy(update={"tags": {"easy": 0.6, "hard": None}})


def block(
    confidence_L: Any, right_L: Any, first: int = 0, propensity_L: Any = None, tags: list[str | None] | None = None
) -> LabelBlock:
    """Labels that arrive every second, of answers with ids."""
    count = len(confidence_L)
    number = first + np.arange(count, dtype=np.int64)
    at, index, none = START + 1000 * number, np.zeros(count, np.int64), np.zeros(count)
    propensity = np.full(count, np.nan) if propensity_L is None else np.array(propensity_L, float)
    right = np.array(right_L, bool)
    parts = at, at, index, index, np.array(confidence_L, float), right, right, none, none, propensity
    return LabelBlock(
        number + 1, [f"id-{n}" for n in number], *parts, tags or [None] * count, index, np.zeros((count, 0))
    )


def test_the_state_takes_only_labels_of_answers_that_acted() -> None:
    rng = np.random.default_rng(1)
    confidence_L, right_L = rng.random(400), rng.random(400) < 0.9
    tags = [("easy", "hard", None)[n % 3] for n in range(400)]
    state = PromiseState.start(BY_TAG, Settings()).take(block(confidence_L, right_L, tags=tags), 0.0)
    acts_L = [BY_TAG.decision(c, tag) == "act" for c, tag in zip(confidence_L, tags, strict=True)]
    expected, _ = RiskEProcess.start(0.05).advance(~right_L[np.array(acts_L)])
    assert state.process == expected and state.escalated == 400 - sum(acts_L) and state.left_out == 0


def test_the_state_is_the_same_however_the_log_is_cut_and_survives_json() -> None:
    rng = np.random.default_rng(2)
    confidence_L, right_L = rng.random(600), rng.random(600) < 0.8
    share_L = np.where(confidence_L >= 0.8, 0.5, 1.0)
    whole = PromiseState.start(HALF, Settings()).take(block(confidence_L, right_L, 0, share_L), 0.5)
    tree: Any = None
    for low, high in ((0, 1), (1, 250), (250, 600)):
        part = block(confidence_L[low:high], right_L[low:high], low, share_L[low:high])
        tree = json.loads(json.dumps(PromiseState.read(tree, HALF, Settings()).take(part, 0.5).tree()))
    assert PromiseState.read(tree, HALF, Settings()) == whole and whole.fired is not None


def test_labels_that_the_audit_had_not_asked_for_are_left_out() -> None:
    """Complaints come of wrong answers only: they are no random sample of those that acted."""
    count = 400
    right_L = [is_audited(f"id-{n}", 0.02) for n in range(count)]  # all that came unasked are wrong
    state = PromiseState.start(HALF, Settings()).take(block([0.9] * count, right_L, 0, [0.02] * count), 0.02)
    asked = sum(is_audited(f"id-{n}", 0.02) for n in range(count))
    assert (state.process.labels, state.process.wrong, state.left_out) == (asked, 0, count - asked) and asked > 0
    later = state.take(block([0.9], [False], count, [0.02]), 0.1)  # another share since: the old one is still known
    assert later.audit_shares == (0.02, 0.1)
    assert later.process.labels + later.left_out == count + 1


def test_answers_that_came_while_the_report_was_read_do_no_harm() -> None:
    """What acted is counted after the answers are."""
    part = acting_alone(PromiseState.start(HALF, Settings()), Settings(), answers=5, acted_count=6)
    assert (part.answers, part.acted, part.share_upper) == (5, 5, 1.0)


def test_what_is_lacking_is_said() -> None:
    lacking = RiskEProcess.start(0.05).labels_to_notice(0.1)
    state = PromiseState.start(HALF, Settings()).take(block([0.5] * 30, [True] * 30), 0.0)
    part = acting_alone(state, Settings(), answers=100, acted_count=40)
    assert part.more_labels == lacking and part.escalated_labels == 30
    assert f"it takes about {lacking:,} more labels of acting answers" in part.reading
    assert "Only escalated answers get labels" in part.reading and "--audit-share .02" in part.reading
    audited = acting_alone(state, Settings(audit_share=0.02), answers=100, acted_count=40)
    assert f"An audit of 2% needs about {lacking / 0.02:,.0f} acting answers" in audited.reading


def test_labels_with_propensities_of_unlike_sizes_are_of_the_labelled() -> None:
    state = PromiseState.start(HALF, Settings()).take(block([0.9] * 20, [True] * 20, 0, [0.1, 0.9] * 10), 0.0)
    part = acting_alone(state, Settings(), answers=20, acted_count=20)
    assert "Callers gave propensities from 0.1 to 0.9" in part.reading and part.labels == 20


def test_evidence_of_another_promise_or_a_damaged_one_is_refused() -> None:
    tree = PromiseState.start(HALF, Settings()).take(block([0.9], [True]), 0.0).tree()
    with pytest.raises(StoreError, match="another promise"):
        PromiseState.read(tree, BY_TAG, Settings())
    with pytest.raises(StoreError, match="damaged or of another release"):
        PromiseState.read({**tree, "form": 2}, HALF, Settings())
    assert restarting_promise({"form": 2}, 1) is None
    assert restarting_promise(tree, 2) is None  # no label that was taken has changed
    again = restarting_promise(tree, 1)
    assert again is not None and again[1] == 0 and again[0]["process"]["labels"] == 0
