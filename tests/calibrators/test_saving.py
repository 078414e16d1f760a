"""A calibrator's file: `save` writes it and `trueodds.load` reads it, as it reads a bundle's folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import trueodds
from tests.test_bundle import make_bundle
from trueodds import calibrators
from trueodds.bundle import BundleError
from trueodds.files import FileError

RNG = np.random.default_rng(7)
Z = RNG.normal(0, 3, (400, 3))
Y = np.array([RNG.choice(3, p=p) for p in trueodds.metrics.softmax(Z / 2)])


@pytest.mark.parametrize("name", calibrators.names())
def test_every_calibrator_comes_back_with_every_bit(name: str, tmp_path: Path) -> None:
    calibrator = calibrators.fit(Z, Y, name)
    assert np.array_equal(calibrator.predict_proba(Z), calibrator(Z))
    calibrator.save(str(tmp_path / "calibrator.json"))
    again = trueodds.load(str(tmp_path / "calibrator.json"))
    assert isinstance(again, calibrators.Calibrator)
    assert again == calibrator and again.classes == calibrator.classes == 3
    assert np.array_equal(again(Z), calibrator(Z))


def test_a_folder_is_a_bundle(tmp_path: Path) -> None:
    bundle = trueodds.load(make_bundle(tmp_path / "bundle"))
    assert isinstance(bundle, trueodds.Bundle)
    calibrator = trueodds.load(tmp_path / "bundle" / "calibrator.json")
    assert calibrator == bundle.calibrator
    (tmp_path / "bundle" / "model.onnx").write_bytes(b"another")
    with pytest.raises(BundleError, match="altered or damaged"):
        trueodds.load(tmp_path / "bundle")
    (tmp_path / "empty").mkdir()
    with pytest.raises(BundleError, match="not a complete bundle"):
        trueodds.load(tmp_path / "empty")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"a\.json does not exist; allowed are the JSON file that calibrator\.save wrote, .* Check the path"),
        ("{", r"a\.json is not JSON; allowed are .* Save the calibrator again"),
        ("[1]", r"a\.json holds no calibrator; allowed are .* Save it with calibrator\.save"),
        ('{"temperature": 2}', "holds no calibrator"),
        (
            '{"calibrator": "temprature"}',
            r"no valid calibrator: unknown calibrator 'temprature'.* Did you mean 'temper",
        ),
        ('{"calibrator": "temperature", "temperature": -1}', "no valid calibrator: .*Save it again"),
        ('{"calibrator": "temperature", "width": 1}', "no valid calibrator: .*cannot be restored from"),
    ],
)
def test_files_that_hold_none(tmp_path: Path, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / "a.json").write_text(content)
    with pytest.raises(FileError, match=message):
        trueodds.load(tmp_path / "a.json")


def test_a_file_that_cannot_be_written_is_left_alone(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="none"):
        calibrators.Temperature(2.0).save(tmp_path / "none" / "a.json")
    assert list(tmp_path.iterdir()) == []
