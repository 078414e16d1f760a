"""metrics.json, calibrators.csv, logits.npz and the pictures."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from pipeline import calibrate
from pipeline.config import Calibration, Evaluation
from pipeline.figures import evaluation as pictures
from trueodds import calibrators, logits, metrics
from trueodds.drawing.bin_counts import BINS, HEIGHT, TOP, by_number_of_bins
from trueodds.drawing.calibrators import APART, LEFT, PLANE, apart, uncertainty
from trueodds.drawing.class_chart import NAMED
from trueodds.errors import ConfigError
from trueodds.evaluation.entries import check_entries
from trueodds.evaluation.improvement import post_hoc_improvement
from trueodds.evaluation.measurement import FailedFit, Measurement, measure
from trueodds.evaluation.results import Results, measure_others, rows_of, table_of
from trueodds.files import read_json, write_json, write_npz
from trueodds.logits import Logits, LogitsError


def rows(n: int = 4000, temperature: float = 2.0) -> tuple[np.ndarray, np.ndarray]:
    """Logits whose labels were drawn from softmax(z / T): temperature scaling is exactly right."""
    generator = np.random.default_rng(5)
    z = generator.normal(0, 3, (n, 4))
    p = metrics.softmax(z / temperature)
    y = (p.cumsum(1) < generator.random((n, 1))).sum(1)
    return z.astype(np.float32), y


def table(calibrator: calibrators.Calibrator, z: Any, y: Any, settings: Evaluation) -> dict[str, Any]:
    before, after = (measure(c, z, y, settings) for c in (calibrators.Identity(), calibrator))
    return table_of(before, after, [], calibrator, settings)


def test_every_number_before_and_after() -> None:
    z, y = rows()
    calibrator = calibrators.fit(z, y, "temperature")
    metrics_table = table(calibrator, z, y, Evaluation())
    assert metrics_table["calibrator"]["temperature"] == pytest.approx(2.0, rel=0.05)
    assert metrics_table["unit"] == "fraction"
    before, after = metrics.softmax(z.astype(float)), calibrator(z)
    for when, p in (("before", before), ("after", after)):
        values = metrics_table[when]
        assert values["ece"] == metrics.ece(p, y)
        assert values["nll"] == metrics.nll(p, y)
        assert values["ece_lower"] <= values["ece_estimate"] <= values["ece_upper"]
        assert values["accuracy"] + values["error_rate"] == pytest.approx(1)
        for name in ("adaptive_ece", "debiased_ece", "ks_error", "label_binned_ece", "classwise_ece"):
            assert values[name] == pytest.approx(getattr(metrics, name)(p, y), rel=1e-12)
        assert values["mean_entropy"] == metrics.mean_entropy(p)
        limits: dict[str, Any] = {
            "adaptive_ece": metrics.ece_interval(metrics.CalibrationSums.from_probabilities(p, y), binning="mass"),
            "classwise_ece": metrics.classwise_ece_interval(p, y),
            "mce": metrics.mce_interval(p, y),
            "nll": metrics.score_interval(p, y),
        }
        for name, interval in limits.items():
            assert (values[f"{name}_lower"], values[f"{name}_upper"]) == (interval.lower, interval.upper)
            assert values[f"{name}_lower"] <= values[name] or "ece" in name, "a calibration error may be all noise"
        assert values["error_rate_lower"] < values["error_rate"] < values["error_rate_upper"]
        floors = {
            "adaptive": metrics.noise_floor(p, y, binning="mass"),
            "classwise": metrics.classwise_noise_floor(p),
            "mce": metrics.mce_noise_floor(p, y),
        }
        for name, floor in floors.items():
            assert values["classwise_floor" if name == "classwise" else f"{name}_floor_mean"] == floor.mean
            assert values[f"{name}_floor_p95"] == floor.p95
        part = {name.removeprefix("top_brier_"): value for name, value in values.items() if "brier_" in name}
        binned = part["reliability"] - part["resolution"] + part["uncertainty"]
        assert values["top_brier"] == pytest.approx(
            binned + part["within_bin_variance"] - part["within_bin_covariance"]
        )
    assert metrics_table["before"]["ece"] > 0.08 > 0.03 > metrics_table["after"]["ece"]
    assert metrics_table["before"]["calibration_p_value"] < 1e-3 < metrics_table["after"]["calibration_p_value"]
    notes = metrics_table["notes"]
    assert len(notes) == 2 and notes[1].startswith("The NLL falls by ")


def test_what_is_not_defined_is_null() -> None:
    """No row above .99: there is no accuracy there, and JSON knows no NaN."""
    z, y = np.zeros((20, 3)), np.arange(20) % 3
    before, after = (measure(calibrators.Identity(), z, y, Evaluation()) for _ in range(2))
    assert table_of(before, after, [], calibrators.Identity(), Evaluation())["after"]["accuracy_above_99"] is None
    assert rows_of(before, after, [])[0]["accuracy_above_99"] is None


def test_large_fits_stay_out_of_the_table() -> None:
    z, y = rows(300)
    metrics_table = table(calibrators.fit(z, y, "matrix"), z, y, Evaluation())
    assert metrics_table["calibrator"] == {"calibrator": "matrix", "fitted_classes": 4}


def test_the_difference_is_told_by_the_nll_and_never_by_the_ece() -> None:
    z, y = rows(300, temperature=1.0)
    assert table(calibrators.Identity(), z, y, Evaluation())["notes"] == []
    for temperature, shown in ((1.01, False), (4.0, True)):
        metrics_table = table(calibrators.Temperature(temperature), z, y, Evaluation())
        ece, nll, *unshown = metrics_table["notes"]
        after = metrics_table["after"]
        assert "is no evidence: chance raises each" in ece
        assert nll.startswith(
            f"The NLL {'falls' if after['phi_nll'] >= 0 else 'rises'} by {abs(after['phi_nll']):.4f} ("
        )
        limits = sorted((abs(after["phi_nll_lower"]), abs(after["phi_nll_upper"])))
        assert sorted(float(number) for number in re.findall(r"\d\.\d{4}", nll)[1:]) == pytest.approx(limits, abs=1e-4)
        assert shown == (not unshown)
        for note in unshown:
            assert note.startswith("These rows do not show that calibration changes it. A change of 0.0")
            seen = float(re.findall(r"0\.\d{4}", note)[0])
            half = (after["phi_nll_upper"] - after["phi_nll_lower"]) / 2
            assert seen == pytest.approx(half * (1 + 0.842 / 1.96), abs=1e-4), "t: 1.96 for the level, .842 for 80%"


def test_the_interval_of_the_nll_that_the_note_reads_holds() -> None:
    """A calibrator that changes nothing on average: 0 lies in the interval in about 95% of 200 draws of 400 rows."""
    z, y = rows(80_000, temperature=1.0)
    gentle = calibrators.Temperature(1.2)
    whole = post_hoc_improvement(metrics.softmax(z), gentle(z), y)["nll"].value
    held = 0
    for part in np.split(np.arange(80_000), 200):
        found = post_hoc_improvement(metrics.softmax(z[part]), gentle(z[part]), y[part])["nll"]
        held += found.lower <= whole <= found.upper
    assert held >= 182


def test_a_hit_bound_is_written_down() -> None:
    z, y = np.eye(3)[[0, 1, 2]] * 5, np.array([0, 1, 2])
    metrics_table = table(calibrators.fit(z, y, "temperature", shrinkage=0.0), z, y, Evaluation())
    assert metrics_table["calibrator"]["bound"] == "lower"
    assert "stopped at its lower bound 0.025" in metrics_table["notes"][0]


def test_compared_calibrators_are_fitted_on_validation_and_judged_on_test() -> None:
    z, y = rows(900)
    settings, after = Evaluation(compare=["vector", "identity", "temperature"]), calibrators.fit(z, y, "temperature")
    validation, test = Logits(z, y), Logits(z[::-1][:300], y[::-1][:300])
    (vector,) = measure_others(after, validation, test, settings)  # identity is before, the same temperature is after
    assert isinstance(vector, Measurement) and vector.sums.n == 300
    expected = calibrators.fit(z, y, "vector")(test.logits_NC)
    assert vector.values["nll"] == metrics.nll(expected, test.labels_N)


def test_a_calibrator_that_cannot_be_fitted_is_a_line_with_its_reason() -> None:
    z, y = rows(200)
    y[y == 3] = 0  # a class that validation never saw
    settings, after = Evaluation(compare=["all"]), calibrators.fit(z, y, "temperature")
    others = measure_others(after, Logits(z, y), Logits(z, y), settings)
    assert [other.name for other in others] == [
        n for n in calibrators.names(has_groups=False) if n not in ("identity", "temperature")
    ]
    problems = {other.name: other.reason for other in others if isinstance(other, FailedFit)}
    assert "vector" in problems and "never hold class 3" in problems["vector"]
    assert "structured_vector" not in problems
    before, now = (measure(c, z, y, settings) for c in (calibrators.Identity(), after))
    metrics_table, lines = table_of(before, now, others, after, settings), rows_of(before, now, others)
    assert metrics_table["compared"]["vector"] == {"problem": problems["vector"]}
    assert {line["calibrator"]: line["problem"] for line in lines}["vector"] == problems["vector"]
    assert len({tuple(line) for line in lines}) == 1, "all rows have the same columns"


def test_an_unknown_name_to_compare_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"unknown calibrator in compare 'vectr'.* Did you mean 'vector'"):
        check_entries(["temperature", "vectr"])
    for entry, message in {
        "temperature objctive=ece": "'objctive'.* Did you mean 'objective'",
        "temperature ece": "in which 'ece' is not of the form option=value, such as temperature objective=ece",
        "temperature bins=10 bins=15": "in which 'bins' stands twice",
        "all bins=10": "options follow the name of one calibrator, not 'all'",
    }.items():
        with pytest.raises(ConfigError, match=message):
            check_entries([entry])


def test_an_option_of_compare_whose_value_its_fit_refuses_is_named() -> None:
    """Before any rows are there."""
    for entry, message in {
        "temperature objective=ec": "objective is 'ec'; allowed: nll, brier, ece.* Did you mean 'ece'",
        "histogram bins=1.5": "bins is 1.5; allowed is an integer in",
        "temperature bins=10": "bins is 10, which the objective 'nll' does not read; leave it out, or choose an"
        " objective that does: ece, adaptive_ece, sb_ece, sb_ece_label",
        "ensemble_temperature objective=brier shrinkage=1": "shrinkage is 1, which the objective 'brier' does not read",
    }.items():
        with pytest.raises(ConfigError, match=f"compare has '{entry}': {message}"):
            check_entries([entry])


def test_an_option_of_the_calibrator_itself_is_refused_before_training() -> None:
    with pytest.raises(ConfigError, match=r"calibration.calibrator_options = .*'brie'}: objective is 'brie'; allowed"):
        calibrate.check(Calibration(calibrator_options={"objective": "brie"}))


def test_a_calibrator_with_several_options_stands_in_one_table() -> None:
    rng = np.random.default_rng(0)
    z = 3 * rng.normal(size=(300, 4))
    y = np.where(rng.random(300) < 0.6, z.argmax(1), rng.integers(0, 4, 300))
    objectives = ("nll", "ece", "adaptive_ece", "sb_ece", "sb_ece_label")
    entries = [f"temperature  objective={name}" for name in objectives] + ["temperature objective=ece bins=10"]
    rows = Logits(z, y)
    others = measure_others(calibrators.Identity(), rows, rows, Evaluation(compare=entries))
    assert [one.name for one in others] == [" ".join(entry.split()) for entry in entries]
    nlls = [one.values["nll"] for one in others if isinstance(one, Measurement)]
    assert len(nlls) == 6 and nlls[0] == min(nlls) < max(nlls)


def draw(folder: Path, name: str, classes: int = 4) -> list[Path]:
    """Every picture; before and after differ in their calibrators only."""
    settings = Evaluation(bins=10, compare=["vector"])
    z, y = rows(300)
    z = np.pad(z, ((0, 0), (0, classes - 4)), constant_values=-3.0)
    after = calibrators.fit(z, y, name)
    before, now = (measure(c, z, y, settings) for c in (calibrators.Identity(), after))
    others = [*measure_others(after, Logits(z, y), Logits(z, y), settings), FailedFit("matrix", "too few rows")]
    names = [f"class {k} <&> $x_$" for k in range(classes)]
    pictures.draw(Results(before, now, others, after, settings), names, folder, "digits & <more>")
    return sorted(folder.iterdir())


def test_the_pictures_are_deterministic_and_pictures(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
    first, second = draw(tmp_path / "a", "temperature"), draw(tmp_path / "b", "temperature")
    assert [p.name for p in first] == ["bins.svg", "calibrators.svg", "classes.svg", "reliability.svg"]
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()
        assert ElementTree.parse(one).getroot().tag.endswith("svg")
        assert "var(" not in one.read_text() and "prefers-color-scheme:dark" in one.read_text()


def test_the_number_of_bins_is_drawn_at_its_errors() -> None:
    z, y = rows(300)
    before, after = (measure(c, z, y, Evaluation()) for c in (calibrators.Identity(), calibrators.fit(z, y, "vector")))
    svg = by_number_of_bins(before, after, "a title")
    grids = re.findall(r'<text class="e"[^>]*>([^<]*)<', svg)
    squares = re.findall(r'class="before hollow thin"[^>]* d="([^"]*)"', svg)
    p_NC = metrics.softmax(z)
    for panel, (metric, slack) in enumerate(((metrics.ece, 0.002), (metrics.mce, 0.002))):
        top = float(grids[5 * panel + 4])
        at = [float(y) + 2 for y in re.findall(r"M[\d.]+ (-?[\d.]+)h", squares[panel])]
        found = [top * (1 - (one - TOP) / HEIGHT) for one in at]
        assert found == pytest.approx([metric(p_NC, y, bins=bins) for bins in BINS], abs=slack * top)
    assert svg.count('class="chance" d="M62') == 1 and ">1,000<" in svg


def test_many_classes_are_drawn_with_the_worst_named(tmp_path: Path) -> None:
    draw(tmp_path, "histogram", classes=40)
    svg = (tmp_path / "classes.svg").read_text(encoding="utf-8")
    assert svg.count(">class ") == NAMED


def test_the_pictures_of_a_single_row(tmp_path: Path) -> None:
    one = measure(calibrators.Identity(), [[900.0, 0.0]], [0], Evaluation())
    pictures.draw(Results(one, one, [], calibrators.Identity(), Evaluation()), ["yes", "no"], tmp_path, "one row")
    assert all(ElementTree.parse(picture) for picture in tmp_path.iterdir())


@pytest.mark.parametrize("places", [[0.5] * 15, [0.0, 0.01, 0.99, 1.0], [0.2, 0.8], [0.4], []])
def test_numbers_above_the_points_do_not_overlap(places: list[float]) -> None:
    moved = apart(list(places))
    assert all(b - a >= min(APART, 1 / len(places)) - 1e-9 for a, b in pairwise(moved))
    assert all(-1e-9 <= place <= 1 for place in moved)


def test_numbers_above_the_points_stay_near_them() -> None:
    assert apart([0.2, 0.8]) == pytest.approx([0.2, 0.8])
    assert apart([0.1, 0.5, 0.5, 0.5, 0.9]) == pytest.approx([0.1, 0.5 - APART, 0.5, 0.5 + APART, 0.9])


@pytest.mark.parametrize("factor", [1.0, 50.0])
def test_lines_to_the_numbers_do_not_cross(factor: float) -> None:
    """Each goes straight up from its point and bends above the picture only, to a place in the points' order."""
    z, y = rows(300)
    judged = [measure(c, z, y, Evaluation()) for c in (calibrators.Identity(), calibrators.fit(z, y, "temperature"))]
    many = [
        replace(judged[k % 2], values={**judged[k % 2].values, "mean_entropy": 0.01 * (1 + (factor - 1) * (k == 11))})
        for k in range(12)
    ]
    content = uncertainty(many, 300.0).content
    assert ("log scale" in content) == (factor > 3)
    numbers = [re.findall(r"-?[0-9.]+", path) for path in re.findall(r'class="edge" d="([^"]*)"', content)]
    paths = [np.array(path, float).reshape(-1, 2) for path in numbers]
    assert len(paths) == 12
    for (x, low), (bend, edge), (place, above) in paths:
        assert x == bend and low >= edge > above and LEFT <= place <= LEFT + PLANE
    for (_, (at, _), (to, _)), (_, (next_at, _), (next_to, _)) in pairwise(paths):
        assert at <= next_at and to + 0.9 * APART * PLANE < next_to


def test_logits_round_trip(tmp_path: Path) -> None:
    z, y = rows(50)
    logits.write(tmp_path / "l.npz", {"val": Logits(z, y), "test": Logits(z[:10], y[:10])})
    back = logits.read(tmp_path / "l.npz", "test")
    assert np.array_equal(back.logits_NC, z[:10]) and np.array_equal(back.labels_N, y[:10])


def test_logits_that_cannot_be_used(tmp_path: Path) -> None:
    path = tmp_path / "l.npz"
    with pytest.raises(LogitsError, match="does not exist; run the train stage first"):
        logits.read(path, "val")
    write_npz(path, {"val_logits": np.zeros((2, 3))})
    with pytest.raises(LogitsError, match="no array val_labels; it holds val_logits"):
        logits.read(path, "val")
    write_npz(path, {"val_logits": np.array([[0.0, np.nan]]), "val_labels": np.array([0])})
    with pytest.raises(LogitsError, match=r"val_logits\[0, 1\] is nan"):
        logits.read(path, "val")
    write_npz(path, {"val_logits": np.zeros((2, 3)), "val_labels": np.array([0, 3])})
    with pytest.raises(LogitsError, match=r"val_labels holds 3; allowed are the class indices 0\.\.2"):
        logits.read(path, "val")


def test_json_files_are_whole_and_hold_no_nan(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    write_json(path, {"b": 1, "a": [0.1]})
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(path, {"a": float("nan")})
    assert read_json(path) == {"b": 1, "a": [0.1]}
