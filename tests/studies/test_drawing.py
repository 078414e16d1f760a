"""A study's figures and its page, of runs that are done."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pipeline.figures import across
from pipeline.studies import drawing, reporting, running
from pipeline.studies.format import StudyError, parse
from pipeline.studies.whole import Done
from tests.studies.test_table import STUDY, T, done

FIGURES: list[dict[str, Any]] = [
    {"kind": "reliability", "bins": 20, "calibrator": T},
    {"kind": "bins", "where": {"method": "ce"}},
    {"kind": "curves", "columns": ["val_ece", "val_nll"], "smoothing": 0.5, "title": "Over the epochs"},
    {"kind": "points", "x": "error_rate", "y": "ece"},
    {"kind": "bars", "y": "nll", "groups": "method"},
]


def places(home: Path, study: dict[str, Any]) -> list[running.Place]:
    of = done(home, parse(study))
    names = ["epoch", "learning_rate", "weight_norm", "val_nll_right", "val_ece", "val_nll"]
    for place in of[:3]:
        rows = "\n".join(",".join([str(k + 1), *(str(np.cos(k * j) + 1) for j in range(5))]) for k in range(6))
        (place.folder / running.EPOCHS).write_text(f"{','.join(names)}\n{rows}\n")
    return of


def test_the_page_holds_all_that_a_study_found(tmp_path: Path) -> None:
    study = parse({
        **STUDY, "about": "1 < 2 & more", "figures": FIGURES, "baseline": {"method": "ce"},
        "differs": ["rows are drawn"], "choose": {"least": "val_ece"},
    })  # fmt: skip
    of = places(tmp_path, STUDY)
    said = reporting.report(study, Done(tuple(of), ("tuned: kappa = 1",), ("a <b> failed",)), tmp_path / "out")
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names >= {"study.csv", "study.html", *(f"figure{k}.{kind}" for k in range(1, 6) for kind in ("png", "svg"))}
    page = (tmp_path / "out" / "study.html").read_text()
    assert "1 &lt; 2 &amp; more" in page and "a &lt;b&gt; failed" in page and "tuned: kappa = 1" in page
    assert page.count("data:image/png;base64,") == 5 and 'alt="Over the epochs: curves"' in page
    assert not re.search(r"https?://|<script|<link", page), "the page needs nothing from elsewhere"
    assert (
        "Chosen: least val_ece, of 2 settings" in page and "Chosen: least val_ece" in said and "rows are drawn" in said
    )
    for k in range(1, 6):
        picture = np.asarray(Image.open(tmp_path / "out" / f"figure{k}.png").convert("L"))
        assert picture.shape[1] > 600 and picture.std() > 10, "something is drawn"
    again = {name: (tmp_path / "out" / name).read_bytes() for name in names if name.endswith("svg")}
    reporting.report(study, Done(tuple(of), (), ()), tmp_path / "out")
    assert all((tmp_path / "out" / name).read_bytes() == data for name, data in again.items())


def test_a_study_without_runs_writes_nothing(tmp_path: Path) -> None:
    assert reporting.report(parse(STUDY), Done((), (), ()), tmp_path / "out") == "small: no run is done"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("figure", "message"),
    [
        ({"kind": "pie"}, "figures.0"),
        ({"kind": "points", "y": "ecc"}, r"figures.0: unknown column 'ecc'; .* Did you mean 'ece'\?"),
        ({"kind": "bins", "where": {"net": "resnet8"}}, r"figures.0: unknown leaf 'net'"),
        ({"kind": "bars", "groups": "metod"}, r"figures.0: unknown leaf 'metod'; .* Did you mean 'method'\?"),
        ({"kind": "bins", "calibrator": "vector"}, "figures.0: unknown calibrator 'vector'"),
        ({"kind": "curves", "smoothing": 1.0}, "smoothing"),
    ],
)
def test_figures_that_cannot_be_drawn(figure: dict[str, Any], message: str) -> None:
    with pytest.raises(StudyError, match=message):
        parse({**STUDY, "figures": [figure]})


def test_a_column_of_training_that_was_not_measured(tmp_path: Path) -> None:
    study = parse({**STUDY, "figures": [{"kind": "curves", "columns": ["val_eec"]}]})
    with pytest.raises(StudyError, match=r"ce: unknown column of epochs.csv 'val_eec'; .* Did you mean 'val_ece'"):
        reporting.report(study, Done(tuple(places(tmp_path, STUDY)), (), ()), tmp_path / "out")


def test_smoothing_is_exponential_and_keeps_gaps() -> None:
    values = np.array([np.nan, 1.0, 3.0, np.nan, 2.0])
    assert across._smoothed(values, 0.5)[[1, 2, 4]].tolist() == [1.0, 2.0, 2.0]
    assert np.isnan(across._smoothed(values, 0.5)[[0, 3]]).all()
    assert across._smoothed(values[1:3], 0.0).tolist() == [1.0, 3.0]


def test_no_point_of_the_front_is_beaten() -> None:
    assert drawing._beats((1.0, 2.0), (1.0, 3.0)) and not drawing._beats((1.0, 2.0), (1.0, 2.0))
    assert not drawing._beats((0.0, 4.0), (1.0, 3.0))
