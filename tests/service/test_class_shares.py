"""Class shares under prior shift at each door of the service: from the card's rows, until labels take them away."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import expit, logit

from service.app import create_app
from service.settings import Settings
from tests.service.app_client import Client
from tests.service.tiny_bundle import change_card, write_bundle
from trueodds.bundle import POSITIVE_EDGES, Reference, open_models
from trueodds.metrics import prior_shift
from trueodds.sums.bins import CELLS
from trueodds.sums.positive import PositiveClass

CLASSES = ("ok", "fraud")


def scores(n: int, positives: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Log-odds that are calibrated for 50% positives, and labels."""
    y_N = (rng.random(n) < positives).astype(int)
    return 2 * rng.normal(2 * y_N - 1, 1), y_N


def both(p_N: np.ndarray) -> np.ndarray:
    return np.stack([1 - p_N, p_N], axis=1)


def gauges(client: Any) -> dict[str, float]:
    lines = [line for line in client.get("/metrics").text.splitlines() if line.startswith("trueodds_class_share")]
    named = [line.rpartition(" ") for line in lines if 'class="ok"' not in line]
    return {name.partition("{")[0].removeprefix("trueodds_class_"): float(value) for name, _, value in named}


def test_the_card_counts_its_rows_by_class() -> None:
    rng = np.random.default_rng(0)
    z_N, y_N = scores(500, 0.3, rng)
    p_N = expit(z_N)
    reference = Reference.of_probabilities(both(p_N), PositiveClass("fraud", 1), y_N)
    assert reference.rows_by_class is not None
    edges = [-1.0, *(edge / CELLS for edge in POSITIVE_EDGES), 2.0]
    for label, counts in enumerate(reference.rows_by_class):
        slow = [
            sum(low < p <= high and y == label for p, y in zip(p_N, y_N, strict=True)) for low, high in pairwise(edges)
        ]
        assert counts == slow
    assert Reference.model_validate_json(reference.model_dump_json()) == reference
    assert "rows_by_class" not in Reference.of_probabilities(both(p_N), PositiveClass("fraud", 1)).model_dump_json()
    for bad in (([1], [2]), ([0] * 42, [0] * 42), ([-1, *[0] * 41], [501, *[0] * 41])):
        with pytest.raises(ValueError, match="rows_by_class"):
            Reference.model_validate(reference.model_dump() | {"rows_by_class": bad})


@pytest.mark.few(1)
@pytest.mark.parametrize("positive", CLASSES)
@pytest.mark.parametrize("agree", [True, False])
def test_report_page_and_metrics(tmp_path: Path, positive: str, agree: bool) -> None:
    """Before labels: shares near those of exact rows. After 400 labels: still there if they agree, else withdrawn."""
    rng, at = np.random.default_rng(1), CLASSES.index(positive)
    bundle = write_bundle(tmp_path / "bundle", features=["z"], classes=CLASSES, positive=positive)
    (z_R, y_R), (z_N, y_N) = scores(2000, 0.5, rng), scores(2000, 0.1, rng)
    known = both(expit(z_R))
    reference = Reference.of_probabilities(known, PositiveClass(positive, at), y_R)
    change_card(bundle, reference=reference.model_dump())
    open_models(tmp_path / "models").publish(bundle)
    settings = Settings(models=tmp_path / "models", store=tmp_path / "s.sqlite", threads=1)
    with Client(create_app(settings)) as client:
        assert client.report()["class_shares"] is None  # no answer yet
        slope = logit(client.predict([[0.5]])[0]["probabilities"][1]) / 0.5
        answers = [client.predict([[z / slope] for z in part.tolist()]) for part in np.split(z_N, 8)]
        ids = [one["id"] for part in answers for one in part]
        part = client.report()["class_shares"]
        (one,) = (row for row in part["classes"] if row["name"] == "fraud")
        exact = prior_shift(both(expit(z_N)), known, y_R)
        assert (part["answers"], part["reference_rows"], part["refused"]) == (2001, 2000, None)
        assert one["reference"] == pytest.approx(y_R.mean())
        for name, own in (("em", exact.em[1]), ("bbse", exact.bbse[1])):
            assert one[name]["lower"] <= y_N.mean() <= one[name]["upper"]
            assert one[name]["value"] == pytest.approx(own.value, abs=0.005)
        page = client.get("/calibration-report", params={"format": "html"}).text
        assert 'id="class-shares-table"' in page and f"The share of {positive} has changed" in page
        for words in ("No test without labels can confirm it. No label has tested it yet.", "p(x | y)"):
            assert words in page and words in part["reading"]
        shown = gauges(client)
        assert (shown["share"], shown["share_upper"]) == (one["em"]["value"], one["em"]["upper"])
        assert (shown["shares_refused"], shown["shares_withdrawn"]) == (0, 0)
        for query in ({"last": 100}, {"class": "fraud"}):
            assert client.report(**query)["class_shares"] is None
        truth_N = y_N if agree else (rng.random(2000) < expit(z_N)).astype(int)
        client.label([{"id": ids[n], "label": CLASSES[truth_N[n]]} for n in range(400)])
        part, shown = client.report()["class_shares"], gauges(client)
        page = client.get("/calibration-report", params={"format": "html"}).text
        assert (part["withdrawn"] is None) == bool(part["classes"]) == ("share" in shown) == agree
        assert shown["shares_withdrawn"] == (not agree)
        words = "400 labels so far do not contradict it." if agree else "Withdrawn: there are no class shares"
        assert words in part["reading"] and words in page
