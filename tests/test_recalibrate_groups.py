"""Recalibration by tag: fitted on the live labels of a real service, judged, and served."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import httpx
import numpy as np
import pytest
from scipy.special import softmax

from pipeline.__main__ import main
from pipeline.recalibrate import Recalibration, choose, compare
from pipeline.recalibrate.candidate_comparison import Rules
from pipeline.recalibrate.gains import gain_limits, scores
from tests.service.tiny_bundle import pictures
from tests.test_recalibrate import SERVED, answers, drawn, serving, until_served
from trueodds.bundle import Bundle, open_models
from trueodds.calibrators import GroupTemperature, Temperature
from trueodds.client import Client
from trueodds.errors import ConfigError

TRUTHS = {"day": 0.9, "night": 5.0}


def label(service: httpx.Client, count: int, seed: int) -> None:
    """Ask `count` times by day and by night, and label the answers by the truth of that time."""
    rng = np.random.default_rng(seed)
    for start in range(0, count, 200):
        tags = ["day", "night"] * 100
        body = {"instances": pictures(200, seed=1000 * seed + start), "tags": tags}
        answer = service.post("/predict", json=body, params={"logits": True}).raise_for_status().json()
        z_NC = np.array([p["logits"] for p in answer["predictions"]])
        labels = drawn(softmax(z_NC / np.array([TRUTHS[tag] for tag in tags])[:, None], axis=1), rng)
        rows = [{"id": p["id"], "index": int(y)} for p, y in zip(answer["predictions"], labels, strict=True)]
        service.post("/feedback", json={"labels": rows}).raise_for_status()


@pytest.mark.full
def test_from_labels_with_tags_to_served_temperatures_by_tag(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    models = str(tmp_path / "models")
    with serving(tmp_path) as (service, _):
        where = ("--url", str(service.base_url), "--models", models)
        label(service, 600, seed=1)
        assert main(["recalibrate", *where, "--groups", "tag", "--candidates", "temperature", "group_temperature"]) == 0
        text = capsys.readouterr().out
        assert "  any other" in text and "is published as the recalibrated version" in text
        second = open_models(models).version_of("tiny", "recalibrated")
        assert second is not None
        fitted = Bundle.load(Path(models) / "tiny" / second).calibrator
        assert isinstance(fitted, GroupTemperature) and fitted.known_groups == ("day", "night")
        assert fitted.temperatures["day"] < 1.3 < 3.5 < fitted.temperatures["night"]
        label(service, 800, seed=2)
        assert main(["judge", *where]) == 0
        assert f"tiny/{second} answers now" in capsys.readouterr().out
        until_served(service, second)
        body = {"instances": pictures(2), "tags": ["day", "night"]}
        rows = service.post("/predict", json=body).raise_for_status().json()["predictions"]
        assert [row["group"] for row in rows] == ["day", "night"]
        # A later fit of a version with groups has groups again, without the flag
        label(service, 400, seed=3)
        assert main(["recalibrate", *where, "--candidates", "temperature"]) == 0
        assert "group_temperature (served)" in capsys.readouterr().out


@pytest.mark.full
def test_no_tags_and_other_groups_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(tmp_path) as (service, _):
        for start in range(2):
            body = {"instances": pictures(150, seed=start)}
            rows = service.post("/predict", json=body).raise_for_status().json()["predictions"]
            labels = [{"id": row["id"], "index": 0} for row in rows]
            service.post("/feedback", json={"labels": labels}).raise_for_status()
        where = ("--url", str(service.base_url), "--models", str(tmp_path / "models"))
        assert main(["recalibrate", *where, "--groups", "tag"]) == 1
        assert "groups is 'tag', and no labelled answer of tiny/" in capsys.readouterr().err
        request = Recalibration(Client(str(service.base_url)), open_models(tmp_path / "models"))
        with pytest.raises(ConfigError, match="none of the candidates temperature, vector reads groups"):
            dataclasses.replace(request, groups="tag", candidates=("temperature", "vector"))
        with pytest.raises(ConfigError, match="groups is 'class'; allowed are tag"):
            dataclasses.replace(request, groups="class")  # type: ignore[arg-type]


def grouped(count: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Logits, labels and tags of rows of two temperatures."""
    (z_NC, y_N), (other_NC, other_N) = answers(count, 0.9, seed), answers(count, 5.0, seed + 1)
    tags_N = np.array(["day"] * count + ["night"] * count, dtype=object)
    order_N = np.random.default_rng(seed).permutation(2 * count)
    return np.vstack([z_NC, other_NC])[order_N], np.append(y_N, other_N)[order_N], tags_N[order_N]


@pytest.mark.full
def test_the_choice_measures_by_tag() -> None:
    z_NC, y_N, tags_N = grouped(400, 0)
    choice = choose(Temperature(SERVED), z_NC, y_N, ("temperature",), groups_N=tags_N)
    assert choice.best.name == "temperature", "a request that names its candidates gets no other"
    by_tag = choose(Temperature(SERVED), z_NC, y_N, ("temperature", "group_temperature"), groups_N=tags_N)
    assert by_tag.best.name == "group_temperature" and by_tag.gain > choice.gain + 0.02
    assert by_tag.after.values["nll"] == pytest.approx((by_tag.served.nll or 0) - by_tag.gain)
    again = choose(by_tag.calibrator, z_NC, y_N, ("temperature",), groups_N=tags_N)
    assert again.served.nll == pytest.approx(by_tag.after.values["nll"], abs=0.02)
    assert again.before.values["nll"] == pytest.approx(again.served.nll)


def test_two_versions_are_compared_by_the_tags_of_the_answers() -> None:
    z_NC, y_N, tags_N = grouped(400, 5)
    by_tag = GroupTemperature(1.7, ["day", "night"], np.log([0.9 / 1.7, 5.0 / 1.7]), [1, 1], 0.8)
    found = compare(Temperature(SERVED), by_tag, z_NC, y_N, tags_N=tags_N)
    own_N, _ = scores(by_tag, z_NC, y_N, groups_N=tags_N)
    served_N, _ = scores(Temperature(SERVED), z_NC, y_N)
    assert found.gain == pytest.approx((own_N - served_N).mean()) and found.verdict == "better"
    chances_N = np.where(tags_N == "day", 0.5, np.nan)  # only the days' labels count
    of_days = compare(Temperature(SERVED), by_tag, z_NC, y_N, None, Rules(), chances_N, tags_N)
    assert of_days.left_out == 400
    assert of_days.gain == pytest.approx((own_N - served_N)[tags_N == "day"].mean())


def test_the_limits_of_the_gain_are_the_widest_of_all_groups() -> None:
    by_tag = GroupTemperature(1.7, ["day", "night"], np.log([0.9 / 1.7, 5.0 / 1.7]), [1, 1], 0.8)
    each = [gain_limits(Temperature(2.0), Temperature(t), 4, same_logits=True) for t in (1.7, 0.9, 5.0)]
    least, most = gain_limits(Temperature(2.0), by_tag, 4, same_logits=True)
    assert (least, most) == pytest.approx((min(a for a, _ in each), max(b for _, b in each)))
    z_NC = np.random.default_rng(0).normal(0, 6, (4000, 4))
    y_N, tags_N = np.arange(4000) % 4, np.array(["day", "night", None, "x"] * 1000, dtype=object)
    gain_N = scores(by_tag, z_NC, y_N, groups_N=tags_N)[0] - scores(Temperature(2.0), z_NC, y_N)[0]
    assert least <= gain_N.min() < gain_N.max() <= most
    both = gain_limits(by_tag, by_tag, 4, same_logits=True)
    assert both[0] > -0.01 and both[1] < 0.01, "the same temperature within each group"
