"""A study's figures and its page, of runs that are done."""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pipeline.figures import across, labels, style
from pipeline.figures import rows as row_figures
from pipeline.studies import baseline_comparison, drawing, measuring, reporting, runs
from pipeline.studies.format import StudyError, parse
from pipeline.studies.measuring import Setting
from pipeline.studies.running import StudyOutcome
from pipeline.training import files
from tests.studies.test_table import STUDY, T, done
from trueodds import calibrators, logits, metrics
from trueodds.evaluation import shifted_logits
from trueodds.files import write_npz
from trueodds.logits import Logits

FIGURES: list[dict[str, Any]] = [
    {"kind": "reliability", "bins": 20, "calibrator": T},
    {"kind": "training", "where": {"method": "ce"}},
    {"kind": "bins", "where": {"method": "ce"}},
    {"kind": "curves", "columns": ["val_ece", "val_nll"], "smoothing": 0.5, "title": "Over the epochs"},
    {"kind": "points", "x": "error_rate", "y": "ece"},
    {"kind": "bars", "y": "nll", "groups": "method"},
    {"kind": "shift", "y": "ece"},
    {"kind": "densities", "array": "train_gradient_norm"},
    {"kind": "densities", "array": "test_p"},
    {"kind": "gradients"},
    {"kind": "outcomes", "where": {"method": "ce"}},
]
COUNT = len(FIGURES)
EPOCHS = np.array([1, 6])
SEVERITIES = (1, 3, 5)


def places(home: Path, study: dict[str, Any]) -> list[runs.Place]:
    of = done(home, parse(study))
    names = ["epoch", "learning_rate", "weight_norm", "val_nll_right", "val_ece", "val_nll"]
    for place in of[:3]:
        rows = "\n".join(",".join([str(k + 1), *(str(np.cos(k * j) + 1) for j in range(5))]) for k in range(6))
        (place.folder / files.EPOCHS).write_text(f"{','.join(names)}\n{rows}\n")
        test = logits.read(place.folder / runs.LOGITS, "test")
        write_npz(place.folder / files.EPOCH_ROWS, of_rows(test))
        shifted_logits.write(
            place.folder / runs.SHIFT, {"shift": "cifar-c"}, np.arange(len(test.labels_N)), test, ("fog", "snow"),
            SEVERITIES, partial(surer, test.logits_NC),
        )  # fmt: skip
    return of


def surer(logits_NC: np.ndarray, corruption: str, severity: int) -> np.ndarray:
    return logits_NC * np.float32(1 + severity * len(corruption) / 9)


def of_rows(test: Logits) -> dict[str, np.ndarray]:
    """As `measure_rows` keeps them, of rows that are sure and mostly right, the more the later."""
    rng, shape = np.random.default_rng(0), (len(EPOCHS), len(test.labels_N))
    p = rng.beta([[1.5], [6.0]], 1.0, shape)
    brier = (1 - p) ** 2
    part = {"confidence": np.maximum(p, 1 - p), "brier": brier, "correct": p > 0.5}
    arrays = {f"{split}_{name}": values for split in ("train", "test") for name, values in part.items()}
    return {"epochs": EPOCHS, **arrays, "train_gradient_norm": brier * rng.uniform(0.5, 2, shape), "test_p": p}


@pytest.mark.full
def test_the_page_holds_all_that_a_study_found(tmp_path: Path) -> None:
    study = parse({
        **STUDY, "about": "1 < 2 & more", "figures": FIGURES, "baseline": {"method": "ce"},
        "differs": ["rows are drawn"], "choose": {"least": "val_ece"},
    })  # fmt: skip
    of = places(tmp_path, STUDY)
    said = reporting.report(study, StudyOutcome(tuple(of), ("tuned: kappa = 1",), ("a <b> failed",)), tmp_path / "out")
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names >= {
        "study.csv",
        "study.html",
        *(f"figure{k}.{kind}" for k in range(1, COUNT + 1) for kind in ("png", "svg")),
    }
    page = (tmp_path / "out" / "study.html").read_text()
    assert "1 &lt; 2 &amp; more" in page and "a &lt;b&gt; failed" in page and "tuned: kappa = 1" in page
    assert page.count("data:image/png;base64,") == COUNT and 'alt="Over the epochs"' in page
    assert "<td>fl3, identity</td>" in page and "| ce, identity | " in said and "| clean | severity 1 |" in said
    assert not re.search(r"https?://|<script|<link", page), "the page needs nothing from elsewhere"
    assert (
        "Chosen: lowest val_ece, of 2 settings" in page
        and "Chosen: lowest val_ece" in said
        and "rows are drawn" in said
    )
    for k in range(1, COUNT + 1):
        picture = np.asarray(Image.open(tmp_path / "out" / f"figure{k}.png").convert("L"))
        assert picture.shape[1] > 600 and picture.std() > 10, "something is drawn"
    again = {name: (tmp_path / "out" / name).read_bytes() for name in names if name.endswith("svg")}
    reporting.report(study, StudyOutcome(tuple(of), (), ()), tmp_path / "out")
    assert all((tmp_path / "out" / name).read_bytes() == data for name, data in again.items())


@pytest.mark.full
def test_two_workers_write_one_report_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both would write study.parquet.part: the second found it renamed by the first."""
    inside, most, write = list[int](), list[int](), measuring.write

    def counted(*arguments: Any) -> list[Path]:
        inside.append(0)
        for _ in range(10):
            time.sleep(0.1)  # until the other one comes here
            if len(inside) > 1:
                break
        most.append(len(inside))
        inside.pop()
        return write(*arguments)

    monkeypatch.setattr(measuring, "write", counted)
    study = parse(STUDY)
    outcome = StudyOutcome(tuple(done(tmp_path, study)), (), ())
    with ThreadPoolExecutor(2) as threads:
        said = list(threads.map(lambda _: reporting.report(study, outcome, tmp_path / "out"), range(2)))
    assert most == [1, 1] and said[0] == said[1]


def test_a_study_without_runs_writes_nothing(tmp_path: Path) -> None:
    assert reporting.report(parse(STUDY), StudyOutcome((), (), ()), tmp_path / "out") == "small: no run is finished"
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
        ({"kind": "shift", "y": "mce"}, "figures.0"),
        ({"kind": "shift", "calibrators": ["vector"]}, "figures.0: unknown calibrator 'vector'"),
        ({"kind": "effects", "leaf": "net", "against": {"a": "b"}}, r"figures.0: unknown leaf 'net'"),
    ],
)
def test_figures_that_cannot_be_drawn(figure: dict[str, Any], message: str) -> None:
    with pytest.raises(StudyError, match=message):
        parse({**STUDY, "figures": [figure]})


def test_a_column_of_training_that_was_not_measured(tmp_path: Path) -> None:
    study = parse({**STUDY, "figures": [{"kind": "curves", "columns": ["val_eec"]}]})
    with pytest.raises(StudyError, match=r"ce: unknown column of epochs.csv 'val_eec'; .* Did you mean 'val_ece'"):
        reporting.report(study, StudyOutcome(tuple(places(tmp_path, STUDY)), (), ()), tmp_path / "out")


def test_smoothing_is_exponential_and_keeps_gaps() -> None:
    values = np.array([np.nan, 1.0, 3.0, np.nan, 2.0])
    assert across._smooth(values, 0.5)[[1, 2, 4]].tolist() == [1.0, 2.0, 2.0]
    assert np.isnan(across._smooth(values, 0.5)[[0, 3]]).all()
    assert across._smooth(values[1:3], 0.0).tolist() == [1.0, 3.0]


def test_no_point_of_the_front_is_beaten() -> None:
    assert drawing._beats((1.0, 2.0), (1.0, 3.0)) and not drawing._beats((1.0, 2.0), (1.0, 2.0))
    assert not drawing._beats((0.0, 4.0), (1.0, 3.0))


def test_of_a_shift_the_mean_over_corruptions_at_each_severity(tmp_path: Path) -> None:
    study = parse({**STUDY, "figures": [{"kind": "shift", "y": "ece", "calibrators": [T], "where": {"method": "ce"}}]})
    of = places(tmp_path, STUDY)
    table = measuring.shifted_rows_of(of, study.calibrators)
    assert len(table) == 3 * 2 * (1 + len(SEVERITIES)), "three runs are done, each with two calibrators"
    val, test = (logits.read(of[0].folder / runs.LOGITS, split) for split in ("val", "test"))
    fitted = calibrators.fit(val.logits_NC, val.labels_N, "temperature", objective="ece")

    def ece(factor: float) -> float:
        p_NC = fitted(test.logits_NC * np.float32(factor))
        return metrics.ece(metrics.CalibrationSums.from_probabilities(p_NC, test.labels_N))

    (row,) = [row for row in table if row["run"] == of[0].key and row["calibrator"] == T and row["severity"] == 5]
    assert row["ece"] == pytest.approx((ece(1 + 5 * 3 / 9) + ece(1 + 5 * 4 / 9)) / 2, abs=1e-9)
    clean = next(row for row in table if row["calibrator"] == T)
    assert clean["severity"] == 0 and clean["ece"] == pytest.approx(ece(1)) and clean["ece_standard_error"] is None
    assert measuring.shifted_rows_of(of, study.calibrators) == table, "kept"
    (head, line) = reporting.shift_cells(study, table, study.figures[0])  # type: ignore[arg-type]
    assert head[1:] == ["clean", "severity 1", "severity 3", "severity 5"]
    ours = [row["ece"] for row in table if row["method"] == "ce" and row["calibrator"] == T and row["severity"] == 5]
    error = np.std(ours, ddof=1) / np.sqrt(2)
    assert line[0] == f"ce, {T}" and line[-1] == f"{100 * np.mean(ours):.2f} ± {100 * error:.2f}"
    assert reporting.shift_cells(parse(STUDY), [], study.figures[0]) == []  # type: ignore[arg-type]


def test_a_figure_that_the_runs_have_nothing_for_is_left_out(tmp_path: Path) -> None:
    study = parse({**STUDY, "figures": [{"kind": "shift"}, {"kind": "gradients"}, {"kind": "bars"}]})
    said = reporting.report(study, StudyOutcome(tuple(done(tmp_path, study)), (), ()), tmp_path / "out")
    assert "figure3.png" in said and "figure1.png" not in said and "figure2.png" not in said


@pytest.mark.full
def test_effect_sizes_are_of_each_value_against_its_baseline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figures = [{"kind": "effects", "y": "nll", "against": {"fl3": "ce"}}]
    study = parse({**STUDY, "figures": figures})
    of = done(tmp_path, study, missing=None)
    seen: list[dict[str, dict[str, float]]] = []
    draw = across.effects

    def effects(groups: dict[str, dict[str, float]], *rest: Any) -> None:
        seen.append(groups)
        draw(groups, *rest)

    monkeypatch.setattr(across, "effects", effects)
    said = reporting.report(study, StudyOutcome(tuple(of), (), ()), tmp_path / "out")
    assert "figure1.png" in said
    table = measuring.rows_of(of, study.calibrators)
    nll = {
        (method, entry): [row["nll"] for row in table if row["method"] == method and row["calibrator"] == entry]
        for method in ("ce", "fl3")
        for entry in study.calibrators
    }
    assert seen[0] == {
        f"against ce\n{entry}": {"fl3": baseline_comparison.cohens_d(nll["fl3", entry], nll["ce", entry])}
        for entry in study.calibrators
    }


def test_a_density_adds_up_to_one_between_its_ends() -> None:
    values = np.random.default_rng(0).beta(0.6, 5.0, 20_000)
    at, density = row_figures._density(values, (0.0, 1.0))
    assert np.trapezoid(density, at) == pytest.approx(1, abs=2e-3)
    share = np.trapezoid(density[at <= 0.2], at[at <= 0.2])
    assert share == pytest.approx((values <= 0.2).mean(), abs=0.03)
    assert np.isfinite(row_figures._density(np.zeros(9), (0.0, 1.0))[1]).all()


def test_no_interval_is_outside_of_what_a_measure_can_be(tmp_path: Path) -> None:
    """Two seeds whose errors differ: Student's interval of the mean ends below 0 and above 1."""
    of = {"method": "ce", "calibrator": "identity"}

    def interval(column: str, *values: float) -> across.Interval:
        found = drawing._interval(Setting("ce", tuple({**of, column: value} for value in values)), column)
        assert found is not None
        return found

    assert interval("error_rate", 0.05, 0.3).lower == 0 and interval("val_ece", 0.7, 0.95).upper == 1
    assert interval("nll", 0.1, 0.5).lower == 0 and interval("nll", 0.1, 0.5).upper > 1
    assert interval("phi_nll", 0.01, 0.1).lower < 0 and interval("debiased_ece", 0.01, 0.1).lower < 0


def test_figures_have_titles_and_labels_of_their_own() -> None:
    study = parse({**STUDY, "figures": FIGURES})
    titles = [drawing.title_of(study, number) for number in range(1, COUNT + 1)]
    assert len({*titles}) == COUNT
    assert titles[0] == f"small: reliability diagrams after {T}" and titles[3] == "Over the epochs"
    assert titles[4] == "small: ECE against error"
    assert labels.label("val_error_rate") == "validation error (fraction)" and labels.label("nll") == "NLL (nats)"


def test_epochs_are_whole_and_long_titles_are_not_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settle = style._settle

    def settled(figure: Any) -> None:
        settle(figure)
        assert all(tick == int(tick) for axes in figure.axes for tick in axes.get_xticks())
        title, (legend,) = figure._suptitle.get_window_extent(), figure.legends
        assert title.x1 <= figure.bbox.x1 and title.y1 <= figure.bbox.y1
        assert not title.overlaps(legend.get_window_extent())
        assert not any(title.overlaps(axes.get_tightbbox()) for axes in figure.axes)

    monkeypatch.setattr(style, "_settle", settled)
    curves = {name: [{"epoch": np.arange(1.0, 4.0), "val_ece": np.array([0.1, 0.2, 0.1])}] for name in ("ce", "fl3")}
    across.overlay(curves, ["val_ece"], 0.0, tmp_path / "curves", "A title of many words, " * 8)
