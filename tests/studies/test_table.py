"""A study's table: what is measured of kept logits, how seeds are taken together, and what stands beside it."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.studies import baseline_comparison, measuring, reporting, runs
from pipeline.studies.format import Study, parse
from pipeline.studies.measuring import is_plug_in
from pipeline.studies.runs import Place, expand
from tests.conftest import ROOT
from trueodds import calibrators, logits, metrics
from trueodds.files import write_json
from trueodds.logits import Logits

T = "temperature objective=ece"
STUDY: dict[str, Any] = {
    "title": "small",
    "vary": {"method": ["ce", "fl3"], "seed": [0, 1]},
    "calibrators": ["identity", T],
    "report": ["error_rate", "ece", "nll", "temperature"],
    "published": {
        "rows": [{"method": "ce", "ece": 5.0, "nll": 70.0}, {"method": "ce", "calibrator": T, "temperature": 2.0}]
    },
}


def done(home: Path, study: Study, seconds: float = 3.0, missing: int | None = 3) -> list[Place]:
    """Places of runs with logits drawn at random, but for one that is not done."""
    rng, places = np.random.default_rng(0), []
    for number, run in enumerate(expand(study, ROOT / "params.yaml")):
        place = Place(run, f"key{number}", home / runs.FOLDER / f"key{number}")
        places.append(place)
        if number == missing:
            continue
        place.folder.mkdir(parents=True)
        z = rng.normal(0, 2, (2, 400, 3)).astype(np.float32)
        y = np.stack([(p + rng.gumbel(size=p.shape)).argmax(1) for p in z])
        parts = {split: Logits(z[k], y[k]) for k, split in enumerate(("val", "test"))}
        logits.write(place.folder / runs.LOGITS, parts, [])
        write_json(place.folder / runs.RUN, {"seconds": seconds, "work": None})
    return places


@pytest.mark.full
def test_each_run_is_measured_with_each_calibrator(tmp_path: Path) -> None:
    study = parse(STUDY)
    places = done(tmp_path, study)
    table = measuring.rows_of(places, study.calibrators)
    assert [(row["method"], row["seed"], row["calibrator"]) for row in table][:3] == [
        ("ce", 0, "identity"), ("ce", 0, T), ("ce", 1, "identity"),
    ]  # fmt: skip
    assert len(table) == 6
    val, test = (logits.read(places[0].folder / runs.LOGITS, split) for split in ("val", "test"))
    fitted = calibrators.fit(val.logits_NC, val.labels_N, "temperature", objective="ece")
    assert isinstance(fitted, calibrators.Temperature)
    sums = metrics.CalibrationSums.from_probabilities(fitted(test.logits_NC), test.labels_N)
    assert table[1]["ece"] == pytest.approx(metrics.ece(sums)) and table[1]["temperature"] == fitted.temperature
    assert table[1]["ece_lower"] <= table[1]["ece_upper"] and "val_ece" in table[1] and "temperature" not in table[0]
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob(measuring.MEASURED)}
    assert measuring.rows_of(places, study.calibrators) == table
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob(measuring.MEASURED)}, "measured again"
    assert len(measuring.rows_of(places, [*study.calibrators, "vector"])) == 9


def test_the_files(tmp_path: Path) -> None:
    study = parse(STUDY)
    table = measuring.rows_of(done(tmp_path, study), study.calibrators)
    paths = measuring.write(tmp_path / "out", table)
    with paths[0].open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["ece"]) for row in rows] == [row["ece"] for row in table]
    from pyarrow import parquet

    assert parquet.read_table(paths[1]).to_pylist()[0]["ece"] == table[0]["ece"]


def test_seeds_are_taken_together_and_compared(tmp_path: Path) -> None:
    study = parse(STUDY)
    table = measuring.rows_of(done(tmp_path, study), study.calibrators)
    lines = reporting.markdown(reporting.cells(study, table))
    assert lines[0] == "| method | calibrator | runs | error_rate | ece | nll | temperature |"
    of = {tuple(cell.strip() for cell in line.split("|")[1:4]): line.split("|")[4:8] for line in lines[2:]}
    eces = [100 * row["ece"] for row in table if row["method"] == "ce" and row["calibrator"] == "identity"]
    floors = [100 * row["floor_mean"] for row in table if row["method"] == "ce" and row["calibrator"] == "identity"]
    spread = f"{np.mean(eces):.2f} ± {np.std(eces, ddof=1):.2f}"
    assert of["ce", "identity", "2"][1].strip() == f"{spread}, floor {np.mean(floors):.2f}"
    one = next(row for row in table if row["method"] == "fl3" and row["calibrator"] == "identity")
    interval = f"[{100 * one['ece_lower']:.2f}, {100 * one['ece_upper']:.2f}]"
    floor = f"floor {100 * one['floor_mean']:.2f}"
    assert of["fl3", "identity", "1"][1].strip() == f"{100 * one['ece']:.2f} {interval}, {floor}"
    published = [line for line in lines if "| published |" in line]
    assert f"| 5.00 ({np.mean(eces) - 5:+.2f}) | 0.7000 (" in published[0]
    assert len(published) == 2 and "| 2.0000 (" in published[1]


def test_chance_explains_what_differs_by_chance_alone(tmp_path: Path) -> None:
    """Logits of all runs are drawn alike; those of the baseline are then made three times too sure."""
    study = parse({**STUDY, "baseline": {"method": "ce"}})
    places = done(tmp_path, study)
    compared = baseline_comparison.compare(study, places)
    assert {(one.setting, one.calibrator, one.test.difference.seeds) for one in compared} == {
        ("method=fl3", "identity", 1), ("method=fl3", T, 1),
    }  # fmt: skip
    names = "error, NLL, Brier score, squared calibration error"
    tested = f"Chance explains all 7 tested differences ({names}) to the baseline."
    assert baseline_comparison.summary(compared).startswith(f"{tested} A difference of ")
    end = " squared points of squared calibration error would have been seen in 80% of repetitions."
    assert baseline_comparison.summary(compared).endswith(end)
    for one in compared:
        d, detectable = one.test.difference, one.test.detectable
        assert detectable is not None and d.lower is not None
        assert detectable > d.mean - d.lower, "more than the half width"
        assert " would have been seen in 80% of repetitions (p " in one.sentence()
        assert "one seed, which compares two nets, not two methods)." in one.sentence()
    measures = [one.test.measure for one in compared]
    assert measures.count("error_rate") == 1, "which temperature scaling leaves as it is"
    assert not [name for name in measures if is_plug_in(name)]
    for place in places[:2]:
        parts = {split: logits.read(place.folder / runs.LOGITS, split) for split in ("val", "test")}
        sure = {split: Logits(3 * part.logits_NC, part.labels_N) for split, part in parts.items()}
        logits.write(place.folder / runs.LOGITS, sure, [])
    again = {(one.calibrator, one.test.measure): one for one in baseline_comparison.compare(study, places)}
    for measure in ("nll", "squared_calibration_error"):
        better = again["identity", measure]
        assert better.test.adjusted_p < 0.05 and "lower than the baseline's (p " in better.sentence()
    assert " squared points [" in again["identity", "squared_calibration_error"].sentence()
    assert again["identity", "error_rate"].test.adjusted_p > 0.05
    assert not baseline_comparison.compare(parse(STUDY), places)


@pytest.mark.full
def test_times_are_judged_as_differences_are(tmp_path: Path) -> None:
    study = parse({
        **STUDY, "vary": {"method": ["ce", "fl3"], "seed": [0, 1, 2]}, "baseline": {"method": "ce"},
        "report": [*STUDY["report"], "seconds"],
    })  # fmt: skip
    table = measuring.rows_of(done(tmp_path, study, missing=None), study.calibrators)

    def said(*of_fl3: float | None, device: str = "cpu") -> str:
        for row in table:
            row["device"] = "cpu" if row["method"] == "ce" else device
            row["seconds"] = (4.0, 4.2, 3.9)[row["seed"]] if row["method"] == "ce" else of_fl3[row["seed"]]
        (line,) = baseline_comparison.times(study, table) or [""]
        return line

    assert said(5.0, 4.0, 4.4).startswith("method=fl3: 1.10 times the baseline's time [0.")
    assert "], not significantly different from the baseline's; a ratio of 1." in said(5.0, 4.0, 4.4)
    assert "would be detected in 80% of repetitions (p " in said(5.0, 4.0, 4.4)
    assert "], slower than the baseline (p " in said(8.1, 8.3, 7.7) and "faster" in said(2.1, 2.0, 1.9)
    assert said(8.0, None, None) == "method=fl3: 2.00 times the baseline's time (one seed; other runs may differ)."
    assert said(8.0, 8.0, 8.0, device="gpu") == "", "times of two devices are not compared"
    assert baseline_comparison.times(parse(STUDY), table) == []
    said(4.0, 4.2, 3.9)
    assert "| 4 ± 0 |" in "\n".join(reporting.markdown(reporting.cells(study, table)))
