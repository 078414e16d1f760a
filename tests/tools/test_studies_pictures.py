"""The pictures of the papers' methods: what they draw of finished runs, and what they leave out."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.training import paper_claims
from benchmarks.training.paper_claims import PAPERS, SHOWN
from tools import studies_pictures


def method(name: str, ece: float, **epochs: list[float]) -> dict[str, Any]:
    figures = {"ece": ece, "floor_p95": 0.03}
    calibrators = {"identity": figures, "temperature": {**figures, "ece": ece / 4}}
    return {"method": name, "seeds": 2, "calibrators": calibrators, "epochs": epochs}


def test_only_finished_methods_are_drawn() -> None:
    two = [method("bsce_gra", 0.04), method("ce", 0.1), method("fl1", 0.05)]
    drawn = studies_pictures.by_method("bsce-gra", two)
    assert drawn is not None and ">ce<" in drawn and ">bsce_gra<" in drawn
    assert ">dfl<" not in drawn and ">fl1<" not in drawn, "not run, and not of this paper"
    assert "mean of 2 seeds" in drawn and drawn.index(">ce<") < drawn.index(">bsce_gra<")
    assert studies_pictures.by_method("bsce-gra", two[1:]) is None, "one method alone is no comparison"


@pytest.mark.parametrize("paper", PAPERS)
def test_a_picture_has_every_method_of_the_paper(paper: str) -> None:
    names = paper_claims.methods_of_paper(paper)
    assert names[0] == "ce" and len(set(names)) == len(names)
    drawn = studies_pictures.by_method(paper, [method(name, 0.05) for name in names])
    assert drawn is not None and all(f">{name}<" in drawn for name in names)


def test_a_larger_ece_is_farther_to_the_right() -> None:
    drawn = [studies_pictures.by_method("focal", [method("ce", 0.1), method("mmce", ece)]) for ece in (0.02, 0.08)]
    places = []
    for svg in drawn:
        assert svg is not None
        row = svg[svg.index(">mmce<") :]
        places.append(float(row[row.index('class="before" d="M') :].split("M")[1].split()[0]))
    assert places[0] < places[1]


def test_epochs_need_cross_entropy() -> None:
    epochs = {"train_error": [0.5, 0.1, 0.0], "test_ece": [0.02, 0.05, 0.1]}
    drawn = studies_pictures.by_epoch([method("ce", 0.1, **epochs), method("flsd53", 0.03, **epochs)])
    assert drawn is not None and "ce</text>" in drawn and "flsd53</text>" in drawn
    assert studies_pictures.by_epoch([method("flsd53", 0.03, **epochs)]) is None
    assert studies_pictures.by_epoch([method("ce", 0.03)]) is None, "without columns by epoch"


def test_the_page_shows_the_pictures_that_are_drawn() -> None:
    epochs = {"train_error": [0.5, 0.0], "test_ece": [0.02, 0.1], "val_nll": [2.0, 1.0]}
    shown = [method(name, 0.1, **epochs) for name in paper_claims.SHOWN]
    for methods in ([], [method("ce", 0.1)], [method("ce", 0.1, **epochs), method("mmce", 0.1)], shown, shown[:2]):
        named = paper_claims.pictures(methods)
        drawn = {paper: studies_pictures.by_method(paper, methods) for paper in PAPERS}
        drawn["epochs"] = studies_pictures.by_epoch(methods)
        drawn["nll"] = studies_pictures.nll_by_epoch(methods)
        assert named == [name for name, svg in drawn.items() if svg is not None]


def test_each_seed_has_a_line_of_exponents() -> None:
    runs = [{"method": name, "by_epoch": values} for name, values in (("flg_sece", [1.0, 2.0]), ("flg_sece", [1, 0.5]))]
    drawn = studies_pictures.exponents_by_epoch([*runs, {"method": "flg_dece", "by_epoch": [1.0, 1.5]}])
    assert drawn is not None and drawn.count("flg_") == 2, "a panel for each method"
    assert drawn.count('<path class="before line" d="M40') == 3, "a line for each run"
    assert studies_pictures.exponents_by_epoch([]) is None


def test_smaller_gradients_are_drawn_lower() -> None:
    rows = [{"method": name, "epochs": [1, 20, 40], "quantiles": [[1, 50, 90], [1, 2, 4], [0, 1, 2]]} for name in SHOWN]
    drawn = studies_pictures.norms_by_epoch(rows)
    assert drawn is not None and drawn.count('class="band" d=') == 3 and ">4<" in drawn, "the first epoch sets no scale"
    assert drawn.count('d="M40 107L240 154.5"') == 3, "medians 2 and 1 of at most 4"
    assert studies_pictures.norms_by_epoch(rows[1:]) is None
