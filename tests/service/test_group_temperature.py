"""A calibrator by group in the service: the tag of each input chooses the temperature, at every door."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax

from service.models.model import of_logits
from tests.service.app_client import Client
from tests.service.tiny_bundle import CLASSES, pictures, write_bundle
from trueodds import calibrators
from trueodds.bundle import Bundle
from trueodds.client.labelled import Labelled
from trueodds.client.responses import Predictions
from trueodds.importing.folding import FoldError, fold_graph

BY_TAG = calibrators.GroupTemperature(1.5, ["eu", "us"], [-0.7, 0.9], [60, 40], 0.4, fitted_classes=4)
TAGS = ["eu", "us", "asia", None]
TEMPERATURES = [1.5 * np.exp(-0.7), 1.5 * np.exp(0.9), 1.5, 1.5]


@pytest.fixture
def client(serve: Callable[..., Client]) -> Client:
    return serve(calibrator=BY_TAG)


def predicted(client: Client, **query: Any) -> list[dict[str, Any]]:
    body = {"instances": pictures(4), "tags": TAGS}
    rows: list[dict[str, Any]] = client.send("/predict", body, logits=True, **query)["predictions"]
    return rows


def expected(row: dict[str, Any], temperature: float) -> Any:
    return pytest.approx(softmax(np.array(row["logits"]) / temperature), rel=1e-12)


def test_each_input_has_the_temperature_of_its_tag(client: Client) -> None:
    rows = predicted(client)
    assert [row["group"] for row in rows] == ["eu", "us", None, None]
    for row, temperature in zip(rows, TEMPERATURES, strict=True):
        assert row["probabilities"] == expected(row, temperature)
        assert row["confidence"] == max(row["probabilities"])
    untagged = client.send("/predict", {"instances": pictures(4)})["predictions"]
    assert [row["group"] for row in untagged] == [None] * 4
    assert untagged[2]["probabilities"] == rows[2]["probabilities"]
    (by_query,) = client.send("/predict", {"instances": pictures(1)}, tag="us", logits=True)["predictions"]
    assert (by_query["group"], by_query["probabilities"]) == ("us", expected(by_query, TEMPERATURES[1]))
    answers = Predictions.read([client.send("/predict", {"instances": pictures(4), "tags": TAGS}, classes=True)])
    assert answers.groups == ("eu", "us", None, None)


def test_a_version_without_groups_names_none(serve: Callable[..., Client]) -> None:
    answer = serve().send("/predict", {"instances": pictures(4), "tags": TAGS}, classes=True)
    assert all("group" not in row for row in answer["predictions"])
    assert Predictions.read([answer]).groups is None


def test_a_stored_answer_is_the_served_one(client: Client) -> None:
    body = {"instances": pictures(4), "tags": TAGS, "ids": ["a", "b", "c", "d"]}
    first = client.send("/predict", body)["predictions"]
    again = client.send("/predict", body | {"tags": [None] * 4})["predictions"]  # the stored tag decides
    for one, other in zip(first, again, strict=True):
        assert (one["probabilities"], one["group"]) == (other["probabilities"], other["group"])
    for row in first:
        stored = client.read(f"/predictions/{row['id']}", model="tiny")
        assert stored["probabilities"] == row["probabilities"] and stored.get("group") == row["group"]
    text = client.get("/predictions", params={"probabilities": True, "format": "csv"}).text
    table = {line["id"]: line for line in csv.DictReader(io.StringIO(text))}
    for row in first:
        assert [float(table[row["id"]][name]) for name in CLASSES] == pytest.approx(row["probabilities"], rel=1e-12)


def test_the_live_report_counts_what_was_answered(client: Client) -> None:
    rows = predicted(client)
    client.label([{"id": row["id"], "index": n % 4} for n, row in enumerate(rows)])
    report = client.report()
    p_N = [row["probabilities"][n % 4] for n, row in enumerate(rows)]
    assert report["nll"] == pytest.approx(-np.log(p_N).mean(), rel=1e-6)
    assert report["mean_confidence"] == pytest.approx(np.mean([row["confidence"] for row in rows]), abs=2e-3)


def test_labelled_answers_carry_their_tags(client: Client) -> None:
    rows = predicted(client)
    client.label([{"id": row["id"], "index": 0} for row in rows])
    answer = client.get("/admin/labelled.npz")
    assert answer.status_code == 200, answer.text
    labelled = Labelled.read(io.BytesIO(answer.content), {}, None, shadow=False)
    assert labelled.tags_N is not None
    found = of_logits(BY_TAG, labelled.logits_NC, labelled.tags_N.tolist())
    by_tag = {tag: p.tolist() for tag, p in zip(labelled.tags_N.tolist(), found.probabilities_NC, strict=True)}
    assert by_tag == {tag: row["probabilities"] for tag, row in zip(TAGS, rows, strict=True)}
    last = Labelled.read(io.BytesIO(answer.content), {}, 2, shadow=False)
    assert last.tags_N is not None and last.tags_N.tolist() == labelled.tags_N.tolist()[-2:]


def test_the_open_inference_protocol_names_the_group(client: Client) -> None:
    tensor = {"name": "images", "datatype": "UINT8", "shape": [2, 4, 4, 1], "data": pictures(2)}
    plain = client.send("/predict", {"instances": pictures(2), "tags": ["us", "us"]})["predictions"]
    body: dict[str, Any] = {"inputs": [tensor], "parameters": {"tag": "us"}}
    outputs = {one["name"]: one for one in client.send("/v2/models/tiny/infer", body)["outputs"]}
    assert outputs["group"]["data"] == ["us", "us"]
    assert outputs["probabilities"]["data"] == pytest.approx([p for row in plain for p in row["probabilities"]])
    unknown = client.send("/v2/models/tiny/infer", body | {"parameters": {"tag": "new"}})["outputs"]
    assert {one["name"]: one for one in unknown}["group"]["data"] == ["", ""]
    metadata = client.read("/v2/models/tiny")["outputs"]
    assert {"name": "group", "datatype": "BYTES", "shape": [-1]} in metadata


def test_the_graph_stays_as_it_is_and_the_card_says_so(tmp_path: Path) -> None:
    bundle = Bundle.load(write_bundle(tmp_path / "bundle", calibrator=BY_TAG))
    card = (tmp_path / "bundle" / "MODEL_CARD.md").read_text()
    assert "has a temperature for each of these: `eu`, `us`" in card and "not a part of the graph" in card
    assert "bundle.calibrator(session.run(None, inputs)[0], groups=['eu'])" in card
    assert bundle.card.golden.probabilities == BY_TAG([bundle.card.golden.logits])[0].tolist()
    with pytest.raises(FoldError, match="has a temperature for each group, which is no input of a graph"):
        fold_graph(bundle.model_path, BY_TAG)
