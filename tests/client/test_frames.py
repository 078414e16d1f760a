"""Data frames and series of pandas given to the client: names and indexes count, or are refused if they contradict."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest

from trueodds.client import CallError, Client, ObservationSummary
from trueodds.client.instances import instances_of
from trueodds.client.labels import label_rows
from trueodds.client.observations import observation_rows, with_names_of_columns
from trueodds.errors import ConfigError

IDS = ["a", "b", "c"]
P = np.array([[0.9, 0.1], [0.25, 0.75], [0.5, 0.5]])
FRAME = pd.DataFrame(P, columns=["ham", "spam"])


def test_columns_in_another_order_reach_their_classes(client: Client) -> None:
    whose: dict[str, Any] = {"model": "frames", "version": "1"}
    ids = [f"frame-{name}" for name in IDS]
    assert client.observe(ids, FRAME, **whose) == ObservationSummary(stored=3)
    turned = FRAME[["spam", "ham"]]  # without the names, the same ids would have other answers: a refusal
    assert client.observe(ids, turned, **whose) == ObservationSummary(already_known=3)
    assert client.observe(["frame-d"], turned[1:2], **whose) == ObservationSummary(stored=1)
    labels = pd.Series(["spam", "ham"], index=["frame-b", "frame-d"])
    assert client.feedback(labels).stored == 2
    report = client.report(**whose)
    assert (report.labelled, report.accuracy) == (2, 0.5)
    with pytest.raises(CallError, match="the classes 'ham', 'spam', not 'x'"):
        client.observe(["frame-e"], FRAME[:1].rename(columns={"ham": "x"}), **whose)


def test_a_row_of_a_frame_is_one_vector_by_its_names() -> None:
    def bodies(inputs: Any) -> list[Any]:
        return [json.loads(one.body) for one in instances_of(inputs)]

    assert bodies(FRAME.iloc[1]) == bodies(FRAME[1:2]) == [{"ham": 0.25, "spam": 0.75}]
    assert bodies(pd.Series([1.0, None], index=["age", "b"])) == [{"age": 1.0, "b": None}]
    assert bodies(pd.Series(["tea", "milk"], index=["a", "b"])) == [{"text": "tea"}, {"text": "milk"}]


def test_only_names_of_columns_become_classes() -> None:
    assert with_names_of_columns(FRAME, {}) == {"classes": ["ham", "spam"]}
    for numbers in (P, P.tolist(), pd.DataFrame(P), pd.Series([0.5])):
        assert with_names_of_columns(numbers, {}) == {}
    given: list[Any] = [{"classes": ["ham", "spam"]}, {"predicted": ["ham"]}, {"form": "votes"}]
    for options in given:
        assert with_names_of_columns(FRAME, options) == options


@pytest.mark.parametrize(
    ("ids", "numbers", "options", "message"),
    [
        (IDS, FRAME, {"classes": ["spam", "ham"]}, "probabilities has the columns 'ham', 'spam', and classes is"),
        (IDS, P, {"classes": {"spam", "ham"}}, "give a list of names, in the order of the columns"),
        (pd.Series(IDS), FRAME[::-1], {}, "the index of probabilities has the entries of that of ids in another"),
        (IDS, FRAME, {"tags": pd.Series(IDS)[::-1]}, "the index of tags has the entries of that of probabilities"),
        (
            pd.Series(IDS),
            [0.9, 0.8, 0.7],
            {"predicted": pd.Series(IDS)[::-1]},
            "the index of predicted has the entries of that of ids in another",
        ),
    ],
)
def test_answers_that_contradict_their_frames(ids: Any, numbers: Any, options: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        observation_rows(ids, numbers, options)


def test_nullable_columns_are_numbers() -> None:
    rows, _ = observation_rows(IDS, FRAME.astype("Float64"), {"classes": ["ham", "spam"]})
    assert [row["probabilities"] for row in rows] == P.tolist()


def test_labels_of_a_series_have_its_index_as_ids() -> None:
    rows, key = label_rows(pd.Series(["cat", "no"], index=["a", "b"]), None, None)
    assert (list(rows), key) == ([("a", "cat"), ("b", "no")], "label")
    rows, _ = label_rows(pd.Series(["a", "b"]), pd.Series(["cat", "no"]), None)
    assert list(rows) == [("a", "cat"), ("b", "no")]


def test_labels_that_contradict_their_frames() -> None:
    with pytest.raises(ConfigError, match="the index of labels has the entries of that of ids in another order"):
        label_rows(pd.Series(["a", "b"]), pd.Series(["cat", "no"])[::-1], None)
    frame = pd.DataFrame({"id": ["a", "b"], "label": ["cat", "no"]})
    with pytest.raises(ConfigError, match=r"a data frame with the columns 'id', 'label'; give .*\(frame\['id'\]"):
        label_rows(frame, None, None)
    rows, _ = label_rows(["ab", "cd"], None, None)  # each would be an id and a label of one character
    with pytest.raises(ConfigError, match="row 0 is 'ab'; expected a pair of an id and a label"):
        next(rows)


def test_inputs_and_ids_in_two_orders(client: Client) -> None:
    with pytest.raises(ConfigError, match="the index of ids has the entries of that of inputs in another order"):
        client.predict(FRAME, ids=pd.Series(IDS)[::-1])


def test_percentages_are_not_advised_to_be_logits(client: Client) -> None:
    whose: dict[str, Any] = {"model": "percentages", "version": "1", "classes": ["ham", "spam"]}
    percent = np.array([[k + 0.5, 99.5 - k] for k in range(12)])
    ids = [f"percent-{k}" for k in range(12)]
    with pytest.raises(CallError, match=r"these logits are percentages: .* sums to 100; divide percentages by 100"):
        client.observe(ids, percent, logits=True, **whose)
    with pytest.raises(CallError, match=r"holds 99.5, and they sum to 100; divide percentages by 100"):
        client.observe(ids, percent, **whose)
