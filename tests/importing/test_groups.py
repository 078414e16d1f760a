"""`trueodds import --groups`: a temperature for each group of the rows, served by the tag of a request."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax

from service.app import create_app
from service.settings import Settings
from tests.importing.models import Linear
from tests.importing.test_command import command
from tests.service.app_client import Client
from trueodds import cli, logits
from trueodds.bundle import Bundle
from trueodds.calibrators import GroupTemperature, from_json
from trueodds.files import read_json
from trueodds.importing import labelled_rows

NAMES = ["day", "night"]
TRUTHS = np.array([0.7, 4.0])


def rows_of(model: Linear, count: int, seed: int) -> tuple[Any, Any, list[str]]:
    """Vectors, labels and tags. By night the model is far too sure; every tenth row has no tag."""
    rng = np.random.default_rng(seed)
    x, of = rng.normal(0, 2, (count, 5)).astype(np.float32), rng.integers(0, 2, count)
    p_NC = softmax(model.logits(x) / TRUTHS[of][:, None], axis=1)
    y = (p_NC.cumsum(axis=1) < rng.random((count, 1))).sum(axis=1).clip(max=2)
    return x, y, [NAMES[k] if n % 10 else "" for n, k in enumerate(of.tolist())]


def write_table(path: Path, rows: tuple[Any, Any, list[str]], **renamed: str) -> Path:
    x, y, tags = rows
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*(f"f{k}" for k in range(x.shape[1])), renamed.get("when", "when"), "label"])
        writer.writerows([*values, tag, label] for values, tag, label in zip(x.tolist(), tags, y.tolist(), strict=True))
    return path


@pytest.fixture
def imported(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> tuple[Any, str]:
    monkeypatch.chdir(tmp_path)
    model = Linear()
    path, table = model.write(tmp_path / "net.onnx"), write_table(tmp_path / "val.csv", rows_of(model, 1_500, 1))
    test = write_table(tmp_path / "test.csv", rows_of(model, 600, 2))
    words = [path, "--labelled", table, "--test", test, "--groups", "when", "--publish", "models"]
    assert command(*words) == 0, capsys.readouterr().err
    return model, capsys.readouterr().out


@pytest.mark.full
def test_the_tag_of_a_request_chooses_the_temperature(imported: tuple[Any, str], tmp_path: Path) -> None:
    model, printed = imported
    assert "* group_temperature" in printed and "  any other" in printed and "  night" in printed
    fitted = Bundle.load(tmp_path / "imported/net/bundle").calibrator
    assert isinstance(fitted, GroupTemperature) and fitted.known_groups == ("day", "night")
    assert fitted.temperatures["day"] < 1 < 2.5 < fitted.temperatures["night"]
    x, tags = rows_of(model, 4, 3)[0], ["day", "night", "dusk", None]
    with Client(create_app(Settings(models=tmp_path / "models", store=tmp_path / "s.sqlite", threads=1))) as client:
        answers = client.send("/predict", {"instances": x.tolist(), "tags": tags}, logits=True)["predictions"]
    assert [one["group"] for one in answers] == ["day", "night", None, None]
    used = [fitted.temperatures["day"], fitted.temperatures["night"], fitted.temperature, fitted.temperature]
    for one, temperature in zip(answers, used, strict=True):
        assert one["probabilities"] == pytest.approx(softmax(np.array(one["logits"]) / temperature), rel=1e-9)


@pytest.mark.full
def test_it_is_measured_with_the_groups_of_the_test_rows(imported: tuple[Any, str]) -> None:
    folder = Path("imported/net")
    metrics = read_json(folder / "metrics.json")
    assert metrics["after"]["nll"] < metrics["compared"]["temperature"]["nll"] - 0.05
    kept = logits.read(folder / "logits.npz", "test")
    assert kept.groups_N is not None and set(kept.groups_N) == {"day", "night", None}
    assert cli.main("trueodds", cli.COMMANDS, ["calibrate", str(folder / "logits.npz"), "--groups", "groups"]) == 0
    again = from_json(read_json(Path("calibration/calibrator.json")))
    assert again == Bundle.load(folder / "bundle").calibrator


@pytest.mark.full
def test_arrays_and_sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Half of the rows is test rows, and a share of the others gives the thresholds; all keep their groups."""
    monkeypatch.chdir(tmp_path)
    model = Linear()
    x, y, tags = rows_of(model, 2_000, 4)
    np.savez("val.npz", x=x, y=y, when=np.array(tags))
    path = model.write(tmp_path / "net.onnx")
    words = [path, "--labelled", "val.npz", "--classes", "a,b,c", "--groups", "when", "--conformal", "lac"]
    read, plain = list[Path](), labelled_rows.read_npz  # type: ignore[attr-defined]
    monkeypatch.setattr(labelled_rows, "read_npz", lambda place: read.append(place) or plain(place))  # type: ignore[func-returns-value]
    assert command(*words) == 0, capsys.readouterr().err
    assert read == [Path("val.npz")]
    card = Bundle.load(tmp_path / "imported/net/bundle").card
    assert card.sets is not None and card.sets.test[0].coverage > 0.85


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["val.csv", "--groups", "where"], "the column of groups, 'where', is not one of"),
        (["val.csv", "--groups", "label"], "the column of groups, 'label', holds the labels"),
        (["empty.csv", "--groups", "when"], "when is empty in every row"),
        (["val.csv", "--groups", "when", "--test", "other.csv"], "the column of groups, 'when', is not one of"),
        (["val.npz", "--groups", "when"], "val.npz has no array 'when' of groups"),
        (["short.npz", "--groups", "when"], "when has 2 entries for 100 rows"),
        (["photos", "--groups", "when"], "has no table groups.csv with the groups of its files"),
        (["val.csv", "--groups", "when", "--multi-label"], "--groups"),
    ],
)
def test_refusals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], problem: str
) -> None:
    monkeypatch.chdir(tmp_path)
    model = Linear()
    x, y, tags = rows_of(model, 100, 1)
    write_table(tmp_path / "val.csv", (x, y, tags))
    write_table(tmp_path / "empty.csv", (x, y, [""] * 100))
    write_table(tmp_path / "other.csv", (x, y, tags), when="time")
    np.savez("val.npz", x=x, y=y)
    np.savez("short.npz", x=x, y=y, when=np.array(["day", "night"]))
    (tmp_path / "photos/cat").mkdir(parents=True)
    (tmp_path / "photos/cat/1.png").write_bytes(b"")
    assert command(model.write(tmp_path / "net.onnx"), "--labelled", *words) == 1
    assert problem in capsys.readouterr().err
