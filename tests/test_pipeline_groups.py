"""A temperature for each group from own data to the service: `data.groups` in the pipeline's parameters."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax

import trueodds
from pipeline import calibrate, config, data, stages
from pipeline.__main__ import main
from pipeline.config import Evaluation
from service.app import create_app
from service.models.model import Model
from service.settings import Settings
from tests.importing.models import Linear
from tests.importing.test_groups import rows_of, write_table
from tests.service.app_client import Client
from trueodds import calibrators, logits
from trueodds.bundle import Bundle, CardSets
from trueodds.calibrators import GroupTemperature, conformal
from trueodds.errors import ConfigError
from trueodds.evaluation import shift, shifted_logits
from trueodds.files import read_json
from trueodds.logits import Logits

OWN = ["dataset=gate", "groups=when", "calibrator=select"]


def tags_in(table: Path) -> dict[tuple[float, ...], str | None]:
    """The tag of each row of a table, by its features as float32, which are different in every row."""
    with table.open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    names = [name for name in lines[0] if name not in ("when", "label")]
    x = np.array([[float(line[name]) for name in names] for line in lines], np.float32)
    return {tuple(row): line["when"] or None for row, line in zip(x.tolist(), lines, strict=True)}


def with_tags(folder: Path, split: str) -> tuple[Any, Logits]:
    """Rows of a finished run and their logits, with the tags that the table itself has for these rows."""
    of, x = tags_in(folder / "datasets/gate.csv"), data.read(folder / "artifacts/data").arrays[split][0]
    kept = logits.read(folder / "artifacts/logits.npz", split)
    return x, Logits(kept.logits_NC, kept.labels_N, np.array([of[tuple(row)] for row in x.tolist()], dtype=object))


def answers(folder: Path, rows: Any, **body: Any) -> list[dict[str, Any]]:
    """Publish the run's bundle and ask a service."""
    assert main(["publish", "--models", str(folder / "models")]) == 0
    with Client(create_app(Settings(models=folder / "models", store=folder / "s.sqlite", threads=1))) as client:
        found: list[dict[str, Any]] = client.send("/predict", {"instances": rows.tolist(), **body})["predictions"]
    return found


@pytest.mark.full
def test_the_tag_of_a_request_chooses_the_temperature(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With a model of one's own, whose logits are right by day and far too sure by night."""
    model = Linear()
    write_table(workspace / "datasets/gate.csv", rows_of(model, 1_500, 1))
    model.write(workspace / "datasets/net.onnx")
    words = [*OWN, "model=datasets/net.onnx", "validation_size=600", "compare=[temperature]"]
    assert main(["all", *words]) == 0, capsys.readouterr().err
    _, val = with_tags(workspace, "val")
    assert val.groups_N is not None and {*val.groups_N} == {"day", "night", None}
    fitted = trueodds.fit(val.logits_NC, val.labels_N, groups=val.groups_N)
    bundle = Bundle.load(workspace / "artifacts/bundle")
    assert isinstance(fitted, GroupTemperature) and bundle.calibrator == fitted
    assert fitted.temperatures["day"] < 1 < 2.5 < fitted.temperatures["night"]
    chosen = [line["name"] for line in read_json(workspace / "artifacts/selection.json") if line["chosen"]]
    metrics = read_json(workspace / "artifacts/evaluation/metrics.json")
    assert (
        chosen == ["group_temperature"] and metrics["after"]["nll"] < metrics["compared"]["temperature"]["nll"] - 0.05
    )
    x, test = with_tags(workspace, "test")
    assert bundle.card.input.model_dump()["features"] == [f"f{k}" for k in range(5)]
    p_NC = fitted(test.logits_NC, groups=test.groups_N)
    nll = -np.log(p_NC[np.arange(len(x)), test.labels_N]).mean()
    assert metrics["after"]["nll"] == pytest.approx(nll)
    assert bundle.card.risk_coverage is not None
    assert bundle.card.risk_coverage.at(0).wrong == (p_NC.argmax(1) != test.labels_N).sum()
    tags = ["day", "night", "dusk", None]
    tagged, plain = answers(workspace, x[:4], tags=tags), answers(workspace, x[:4])
    assert [one["group"] for one in tagged] == ["day", "night", None, None] and {one["group"] for one in plain} == {
        None
    }
    expected = fitted(test.logits_NC[:4], groups=tags), fitted(test.logits_NC[:4])
    for row in range(4):
        for one, p in zip((tagged[row], plain[row]), expected, strict=True):
            assert one["probabilities"] == pytest.approx(p[row].tolist(), abs=1e-6)
    assert np.abs(np.array(tagged[1]["probabilities"]) - plain[1]["probabilities"]).max() > 0.01


@pytest.mark.full
def test_a_trained_net_its_sets_and_its_int8_twin(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    x, night = rng.normal(0, 2, (3_000, 4)).round(3), rng.integers(0, 2, 3_000)
    y = (x.sum(axis=1) + rng.normal(0, 1 + 9 * night) > 0).astype(int)
    with (workspace / "datasets/gate.csv").open("w", newline="", encoding="utf-8") as file:
        lines = [[*row, ("day", "night")[n], k] for row, n, k in zip(x.tolist(), night, y, strict=True)]
        csv.writer(file).writerows([[*"abcd", "when", "label"], *lines])
    words = [*OWN, "epochs=3", "validation_size=800", "conformal=lac", "conformal_options={levels: [0.9]}"]
    assert main(["all", *words]) == 0, capsys.readouterr().err
    x_test, test = with_tags(workspace, "test")
    sets, bundle = read_json(workspace / "artifacts/conformal.json"), Bundle.load(workspace / "artifacts/bundle")
    settings = conformal.SetSettings.model_validate(sets["settings"])
    apart = conformal.rows_apart(with_tags(workspace, "val")[1], settings)
    fitted = calibrators.fit(
        apart.fitting.logits_NC, apart.fitting.labels_N, "group_temperature", groups=apart.fitting.groups_N
    )
    assert bundle.calibrator == fitted and fitted.known_groups == ("day", "night")
    rows = conformal.fit_sets(fitted, apart.sets.logits_NC, apart.sets.labels_N, settings, apart.sets.groups_N)
    assert rows.to_json() == sets["sets"]
    expected = CardSets.of(rows, settings, fitted, (test.logits_NC, test.labels_N), test.groups_N)
    assert bundle.card.sets == expected
    (one, other) = answers(workspace, x_test[:2], tags=["day", "night"])
    p_NC = fitted(test.logits_NC[:2], groups=["day", "night"])
    assert [one["probabilities"], other["probabilities"]] == pytest.approx(p_NC, abs=1e-5)
    assert main(["export", "--fold"]) == 1 and "a temperature for each group" in capsys.readouterr().err
    assert main(["export", "--int8", "calibrator=select"]) == 0
    twin, x_val = Model.load(workspace / "artifacts/bundle_int8", threads=1), with_tags(workspace, "val")
    again = calibrators.fit(twin.logits(x_val[0]), x_val[1].labels_N, "group_temperature", groups=x_val[1].groups_N)
    refitted = Bundle.load(workspace / "artifacts/bundle_int8").calibrator
    assert isinstance(refitted, GroupTemperature) and isinstance(again, GroupTemperature)
    assert refitted.temperatures == pytest.approx(again.temperatures, rel=1e-4)


def test_corrupted_rows_keep_their_groups(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    z_NC, y = rng.normal(0, 3, (300, 4)), rng.integers(0, 4, 300)
    tags = np.array(["day", "night", None] * 100, dtype=object)
    clean = Logits(z_NC, y, tags)
    shifted_logits.write(
        tmp_path, {"shift": "cifar-c"}, np.arange(300), clean, ["fog"], [1, 2], lambda _, severity: z_NC / severity
    )
    kept = shifted_logits.read(tmp_path)
    assert kept.clean.groups_N is not None and kept.clean.groups_N.tolist() == tags.tolist()
    calibrator = GroupTemperature(1.0, ["day", "night"], np.log([0.5, 3.0]), [1, 1], 1.0)
    found = shift.evaluate(calibrator, clean, kept, Evaluation())
    after = next(one for one in found.measurements if one.role == "after")
    T_N1 = np.tile([[0.5], [3.0], [1.0]], (100, 1))
    for severity, nll in zip((1, 2), after.values_FTS[shift.FIGURES.index("nll"), 0], strict=True):
        p_NC = softmax(z_NC / severity / T_N1, axis=1)
        assert nll == pytest.approx(-np.log(p_NC[np.arange(300), y]).mean())


@pytest.mark.full
def test_the_shift_stage_keeps_the_groups_of_its_rows(workspace: Path) -> None:
    digits = data.load(config.Data(dataset="digits"))
    x, y = (np.concatenate([digits.arrays[split][k] for split in ("train", "val")])[:900] for k in (0, 1))
    tags = np.where(np.arange(900) % 3 > 0, "day", "")
    np.savez(workspace / "datasets/own.npz", x=x, y=y, class_names=digits.card["classes"], when=tags)
    of = {"dataset": "own", "groups": "when", "calibrator": "group_temperature", "train_size": 200, "epochs": 1}
    params = config.load(
        overrides=of
        | {"shift": "cifar-c", "shift_options": {"corruptions": ["contrast"], "rows": 50, "severities": [5]}}
    )
    for name in ("fetch", "plan", "train", "shift", "calibrate", "evaluate"):
        stages.STAGES[name](params)
    kept, test = shifted_logits.read(stages.SHIFT), logits.read(stages.LOGITS, "test")
    rows_N = np.load(stages.SHIFT / "clean.npz")["rows"]
    assert test.groups_N is not None and kept.clean.groups_N is not None
    assert kept.clean.groups_N.tolist() == test.groups_N[rows_N].tolist() and {*kept.clean.groups_N} == {"day", None}
    fitted = calibrate.read(stages.CALIBRATOR)
    measured = read_json(stages.EVALUATION / "shift/shift.json")
    p_NC = fitted(dict(kept)["contrast"][0], groups=kept.clean.groups_N)
    nll = -np.log(p_NC[np.arange(50), kept.clean.labels_N]).mean()
    assert measured["calibrators"]["group_temperature"]["nll"]["mean"][1] == pytest.approx(nll)


@pytest.mark.parametrize(
    "overrides",
    [
        {"calibrator": "temperature"},
        {"calibrator": "select", "calibrator_options": {"candidates": ["temperature", "vector"]}},
        {"calibrator": "vector", "compare": ["isotonic", "temperature objective=ece"]},
    ],
)
def test_groups_that_nothing_reads(workspace: Path, overrides: dict[str, Any]) -> None:
    write_table(workspace / "datasets/gate.csv", rows_of(Linear(), 100, 1))
    of = {"dataset": "gate", "groups": "when", **overrides}
    with pytest.raises(ConfigError, match=r"data.groups is 'when', and the calibrator .* reads no groups; set calib"):
        stages.check_names(config.load(overrides=of))
    for more in (
        {"calibrator": "group_temperature"},
        {"compare": ["group_temperature spread=0.2"]},
        {"compare": ["all"]},
    ):
        stages.check_names(config.load(overrides=of | {"calibrator_options": {}} | more))


def test_a_calibrator_that_reads_none_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """The calibrate stage may run alone, with another calibrator."""
    rng = np.random.default_rng(0)
    rows = Logits(rng.normal(size=(60, 3)), rng.integers(0, 3, 60), np.array(["a", "b"] * 30, dtype=object))
    calibrate.fit(config.Calibration(), rows)
    assert "The rows have groups, and the calibrator temperature reads none" in caplog.text
