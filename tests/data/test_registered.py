"""Data sets of other distributions."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pipeline import config, data, starter
from pipeline.studies.runs import key_of
from tests.registered import install
from trueodds.processes.extensions import ExtensionError

MOONS = """
import numpy as np
from pipeline.data import Raw, Source


def read(params):
    rng = np.random.default_rng(0)
    y_N = np.arange(200) % 2
    angle_N = np.pi * (rng.random(200) + y_N)
    x_ND = np.stack([np.cos(angle_N) + y_N, np.sin(angle_N)], axis=1).astype(np.float32)
    return Raw(x_ND, y_N, None, None, ("up", "down"), features=("x", "y"))


MOONS = Source("vector", 40, read)
"""


@pytest.fixture(autouse=True)
def forget_modules() -> Iterator[None]:
    yield
    for module in [name for name in sys.modules if name.partition(".")[0] == "odds_data"]:
        del sys.modules[module]
    importlib.invalidate_caches()


def put(folder: Path, monkeypatch: pytest.MonkeyPatch, entry: str = "moons", value: str = "odds_data:MOONS") -> Path:
    install(folder, "odds-data", {"odds_data.py": MOONS}, {"trueodds.datasets": {entry: value}})
    monkeypatch.syspath_prepend(str(folder))
    return folder


def test_it_is_loaded_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, monkeypatch)
    params = config.Data(dataset="moons")
    assert data.names()[-1] == "moons" and data.kind_of(params) == "vector"
    loaded = data.load(params)
    assert loaded.card["classes"] == ["up", "down"] and loaded.card["input"]["features"] == ["x", "y"]
    assert loaded.card["splits"]["val"] == 40 and sum(loaded.card["splits"].values()) == 200
    with pytest.raises(data.DataError, match=r"'moon' is not built in \(digits, .*moons.*Did you mean 'moons'"):
        data.load(config.Data(dataset="moon"))


def test_a_file_of_ones_own_wins_as_over_a_built_in_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "site", monkeypatch)
    mirror = tmp_path / "mirror"
    mirror.mkdir()
    (mirror / "moons.csv").write_text("a,label\n" + "".join(f"{k},{'xyz'[k % 3]}\n" for k in range(90)))
    monkeypatch.setenv("TRUEODDS_DATA", str(mirror))
    assert data.load(config.Data(dataset="moons")).card["classes"] == ["x", "y", "z"]


def test_its_files_are_in_the_hashes_of_fetch_and_in_the_keys_of_studies(
    tmp_path: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = put(tmp_path / "site", monkeypatch)

    def watched() -> str:
        starter.write_code_hashes(tmp_path)
        return (tmp_path / starter.CODE / "fetch").read_text()

    params, ours = (config.Params(data=config.Data(dataset=name)) for name in ("moons", "wine"))
    before, key, of_ours = watched(), key_of(params), key_of(ours)
    assert "  trueodds.datasets: moons of odds-data==1.0\n" in before
    (site / "odds_data.py").write_text(MOONS.replace("default_rng(0)", "default_rng(1)"))
    assert watched() != before and key_of(params) != key and key_of(ours) == of_ours


@pytest.mark.parametrize(
    ("entry", "value", "problem"),
    [
        ("wine", "odds_data:MOONS", "trueodds and odds-data 1.0 both have the data set 'wine'"),
        ("default", "odds_data:MOONS", "both have the data set 'default'"),
        (
            "moons",
            "odds_data:read",
            "data set 'moons' of the distribution odds-data 1.0 is .*allowed is a pipeline.data",
        ),
        ("moons", "odds_data:SUNS", "cannot be imported from 'odds_data:SUNS'"),
    ],
)
def test_an_object_that_cannot_be_used_is_an_error(
    entry: str, value: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, monkeypatch, entry, value)
    with pytest.raises(ExtensionError, match=problem):
        data.load(config.Data(dataset="wine" if entry == "default" else entry))
        data.names()


def test_arrays_are_checked_as_those_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, monkeypatch)
    source = importlib.import_module("odds_data")
    monkeypatch.setattr(source, "MOONS", source.MOONS._replace(read=lambda params: broken(source.read(params))))
    with pytest.raises(data.DataError, match="moons"):
        data.load(config.Data(dataset="moons"))


def broken(raw: data.Raw) -> data.Raw:
    """Return the rows with a label that is not a class."""
    labels_N = np.array(raw.y_train)
    labels_N[0] = 7
    return data.Raw(raw.x_train, labels_N, None, None, raw.classes, features=raw.features)
