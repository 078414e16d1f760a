"""Methods on vectors: every name trains, or says by its part why it needs pixels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pipeline import data, methods
from pipeline.config import Data, Training
from pipeline.data import DataSet
from tests.training_runs import plan, train
from trueodds.errors import ConfigError

NEED_PIXELS = ("augmix",)


@pytest.fixture(scope="module")
def wine() -> DataSet:
    return data.load(Data(dataset="wine", train_size=40, held_out_size=20))


@pytest.mark.parametrize("name", methods.names())
def test_every_name_trains_or_is_refused(name: str, wine: DataSet, tmp_path: Path) -> None:
    training = Training(method=name, epochs=1, width=8)
    if name in NEED_PIXELS:
        with pytest.raises(
            ConfigError, match=rf"method '{name}': augmix changes the pixels of images, and data set 'wine'"
        ):
            plan(wine, training)
        return
    (row,) = train(wine, training, tmp_path / "c").history
    assert all(value is None or np.isfinite(value) for value in row.values())
