"""Independent yes/no labels: the report of arrays and tables, its doors, marks, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy
import scipy.sparse

import trueodds
from trueodds import cli
from trueodds.errors import ConfigError, UserError
from trueodds.metrics.significance.at_least import holm
from trueodds.reports.table.multilabel_reading import read_labels
from trueodds.sums.label_matrix import check_label_matrix

NAMES = ["rain", "snow", "fog"]


def rows(n: int = 1_500, seed: int = 0, off: float = 0.0) -> tuple[Any, Any]:
    """Calibrated labels, except that `fog` is `off` less frequent; a quarter of the truths is unknown."""
    rng = np.random.default_rng(seed)
    p_NL = scipy.special.expit(rng.normal(-0.5, 1.5, (n, 3)))
    truth_NL = (rng.random((n, 3)) < p_NL * [1, 1, 1 - off]).astype(float)
    truth_NL[rng.random((n, 3)) < 0.25] = np.nan
    return p_NL, truth_NL


def run(*words: object) -> int:
    return cli.main("trueodds", cli.COMMANDS, ["report", *map(str, words)])


def saved(folder: Path, p_NL: Any, truth_NL: Any, *, prefix: str = "p_") -> Path:
    path = folder / "photos.csv"
    lines = [",".join(["id", *(prefix + name for name in NAMES), *("y_" + name for name in NAMES)])]
    for k, (p, y) in enumerate(zip(p_NL.tolist(), truth_NL.tolist(), strict=True)):
        lines.append(",".join([f"r{k}", *map(repr, p), *("" if np.isnan(one) else f"{one:.0f}" for one in y)]))
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("binning", ["mass", "width"])
def test_one_label_is_the_binary_report(binning: Any) -> None:
    p_NL, truth_NL = rows()
    known_N = ~np.isnan(truth_NL[:, 0])
    of_one = trueodds.report(p_NL[:, 0], truth_NL[:, 0], multilabel=True, binning=binning)
    (label,) = of_one.by_label
    if binning == "mass":  # the bins of a binary report of arrays
        binary = trueodds.report(p_NL[known_N, 0], truth_NL[known_N, 0].astype(int)).positive
        assert binary is not None
        assert of_one.whole.model_dump(exclude={"label"}) == binary.model_dump(exclude={"label"})
    for name, value in of_one.whole.model_dump().items():
        if name in type(label).model_fields:
            assert getattr(label, name) == value, name
    assert of_one.n == label.labelled == known_N.sum() and of_one.design_effect == pytest.approx(1)


def test_each_label_has_the_figures_of_its_own_report() -> None:
    p_NL, truth_NL = rows(off=0.3)
    report = trueodds.report(p_NL, truth_NL, multilabel=True, classes=NAMES)
    for k, one in enumerate(report.by_label):
        known_N = ~np.isnan(truth_NL[:, k])
        twin = trueodds.report(p_NL[known_N, k], truth_NL[known_N, k].astype(int)).positive
        assert twin is not None and one.name == NAMES[k] and one.positives == twin.observed
        for name in ("prevalence_upper", "nll_lower", "brier", "ece", "ece_lower", "ece_upper", "floor_p95"):
            assert getattr(one, name) == getattr(twin, name)
    p_values = [one.p_value or 0.0 for one in report.by_label]
    assert [one.more_than_chance for one in report.by_label] == holm(p_values, 0.05) == [False, False, True]
    pooled = report.whole
    known_NL = ~np.isnan(truth_NL)
    assert report.pairs == known_NL.sum() and pooled.prevalence == pytest.approx(truth_NL[known_NL].mean())
    of_true = np.where(truth_NL == 1, p_NL, 1 - p_NL)[known_NL]
    assert pooled.nll == pytest.approx(-np.log(of_true).mean())
    assert pooled.brier == pytest.approx(np.square(1 - of_true).mean())
    assert pooled.calibration_p_value is None and pooled.ks_p_value is None
    text = str(report)
    assert "1 of 3 labels is off by more than chance: 'fog'" in text and "too high by" in text
    assert report.to_dict()["by_label"][2]["more_than_chance"] is True


def test_files(tmp_path: Path) -> None:
    report = trueodds.report(*rows(300), multilabel=True)
    for name in ("report.html", "report.json", "report.svg", "report.png"):
        report.save(tmp_path / name)
    assert json.loads((tmp_path / "report.json").read_text()) == json.loads(json.dumps(report.to_dict()))
    page = (tmp_path / "report.html").read_text()
    assert "<table>" in page and "all labels, share" in page and "<script" not in page
    assert "Fewer than 500 rows" in report.reading
    assert "all labels" in report.plot().get_title(loc="left")


def test_many_labels_are_cut_in_the_text_and_whole_in_the_tree() -> None:
    rng = np.random.default_rng(1)
    p_NL = rng.random((60, 50))
    report = trueodds.report(p_NL, (rng.random((60, 50)) < p_NL) * 1, multilabel=True)
    assert "and 10 more labels" in str(report) and len(report.to_dict()["by_label"]) == 50


@pytest.mark.parametrize("truths", [[[1, 0]], [[1, np.nan]], [[0, 0]], [[1, 0], [0, 1]]])
def test_very_few_rows(truths: Any) -> None:
    report = trueodds.report([[0.7, 0.2]] * len(truths), truths, multilabel=True)
    tree = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert 0 <= tree["whole"]["ece_lower"] <= tree["whole"]["ece_upper"] <= 1
    assert -1 <= tree["whole"]["signed_gap_lower"] <= tree["whole"]["signed_gap_upper"] <= 1
    assert str(report) and report.page()


def test_labels_without_truths_and_rare_labels() -> None:
    p_NL, truth_NL = rows(800)
    truth_NL[:, 1] = np.nan
    truth_NL[:, 2], p_NL[:, 2] = 0, 0.001
    report = trueodds.report(p_NL, truth_NL, multilabel=True, classes=NAMES)
    assert report.by_label[1].labelled == 0 and report.by_label[1].p_value is None
    assert "2 labels have fewer than 20 true" in report.reading and "None of 2 labels" in report.reading
    assert str(report)


def test_exclusive_classes_are_noticed() -> None:
    rng = np.random.default_rng(0)
    p_NL = rng.dirichlet([1, 1, 1], 600)
    report = trueodds.report(p_NL, np.eye(3)[rng.integers(0, 3, 600)], multilabel=True)
    assert "report on them as classes" in report.reading


def test_gaps_of_rounding_are_not_named() -> None:
    p_NL = np.full((600, 3), [0.333334, 0.333333, 0.333334])  # the sums are 1 + 1e-6
    report = trueodds.report(p_NL, np.eye(3)[np.arange(600) % 3], multilabel=True)
    assert (report.whole.signed_gap_upper or 0) < 0 and "on average" not in report.reading


@pytest.mark.parametrize(
    ("p", "labels", "words"),
    [
        ([[0.2, 3.0]], [[0, 1]], r"probabilities\[0, 1\] is 3; allowed is \[0, 1\]"),
        ([[0.2, np.nan]], [[0, 1]], r"probabilities\[0, 1\] is nan"),
        ([[0.2, 0.3]], [[0, -1]], r"labels\[0, 1\] is -1; allowed are 0, 1 and NaN"),
        ([[0.2, 0.3]], [[np.nan, None]], "labels has no known truth"),
        ([[0.2, 0.3]], [0, 1], r"labels has shape \(2,\); expected \(1, 2\)"),
        ([[0.2, 0.3]], [["yes", 1]], "labels has dtype"),
        ([[0.2, 0.3]], np.array([["yes", 1]], object), r"labels\[0, 0\] is 'yes'"),
        ([[0.2, 0.3]], np.ma.masked_equal([[0, 1]], 1), "labels has 1 masked values"),
        ([[0.2, 0.3], [0.1, 0.2]], [[0, 1], [1]], "labels is ragged"),
    ],
)
def test_bad_arrays(p: Any, labels: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        trueodds.report(p, labels, multilabel=True)


def test_forms_of_scikit_learn_are_named_with_their_cure() -> None:
    p_NL, truth_NL = rows(40)
    truth_NL = np.nan_to_num(truth_NL)
    of_labels = [np.stack([1 - p_N, p_N], axis=1) for p_N in p_NL.T]
    with pytest.raises(ValueError, match=r"pass numpy\.stack\(\[one\[:, 1\] for one in probabilities\], axis=1\)"):
        trueodds.report(of_labels, truth_NL, multilabel=True)
    with pytest.raises(ValueError, match=r"labels is a sparse matrix; .* pass labels\.toarray\(\)"):
        trueodds.report(p_NL, scipy.sparse.csr_array(truth_NL), multilabel=True)
    with pytest.raises(ValueError, match=r"pass numbers, such as labels\.astype\(float\)"):
        trueodds.report(p_NL, truth_NL.astype(int).astype(str), multilabel=True)


def test_bad_options() -> None:
    p, y = [[0.2, 0.3]], [[0, 1]]
    with pytest.raises(ConfigError, match="classes has 3 names for 2 columns"):
        trueodds.report(p, y, multilabel=True, classes=NAMES)
    with pytest.raises(ConfigError, match="the name 'a' twice"):
        trueodds.report(p, y, multilabel=True, classes=["a", "a"])
    with pytest.raises(ConfigError, match="ordered and multilabel are both True"):
        trueodds.report(p, y, multilabel=True, ordered=True)  # type: ignore[call-overload]
    with pytest.raises(ConfigError, match="multilabel is 'yes'"):
        trueodds.report(p, y, multilabel="yes")  # type: ignore[call-overload]
    with pytest.raises(ConfigError, match="pass multilabel=True"):
        trueodds.report([[0.2, 0.8]], [[0, 1]])
    with pytest.raises(ValueError, match="bins is 7"):
        trueodds.report(p, y, multilabel=True, bins=7, binning="width")
    with pytest.raises(ValueError, match="not a multiple of the resolution"):
        trueodds.report([[0.123]], [[1]], multilabel=True, resolution=0.01)


def test_missing_values_of_pandas_are_unknown_truths() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": pandas.array([1, None], "Int64"), "b": [0, 1]})
    assert np.array_equal(check_label_matrix(frame, (2, 2)), np.array([[1, 0], [np.nan, 1]]), equal_nan=True)


def test_the_command_says_what_the_library_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    p_NL, truth_NL = rows(700, off=0.3)
    path, out, page = saved(tmp_path, p_NL, truth_NL), tmp_path / "r.json", tmp_path / "r.html"
    assert run(path, "--multi-label", "--json", out, "--html", page) == 0
    report = trueodds.report(p_NL, truth_NL, multilabel=True, classes=NAMES)
    text, tree = capsys.readouterr().out, json.loads(out.read_text())
    assert str(report) in text.replace("photos.csv: ", "") and "photos.csv: 689 rows" in text
    assert {**tree, "source": ""} == json.loads(json.dumps(report.to_dict()))
    assert report.reading.split(":")[0] in page.read_text()
    assert run(path, "--multi-label", "--classes", "fog,rain", "--json", out) == 0
    assert [one["name"] for one in json.loads(out.read_text())["by_label"]] == ["fog", "rain"]


@pytest.mark.parametrize("kind", ["npz", "npy", "logits.csv", "logits.npz", "parquet"])
def test_forms_of_tables(tmp_path: Path, kind: str) -> None:
    p_NL, truth_NL = rows(200)
    z_NL = scipy.special.logit(p_NL)
    words: list[object] = []
    if kind == "npz":
        np.savez(path := tmp_path / "a.npz", probabilities=p_NL, labels=truth_NL, class_names=NAMES)
    elif kind == "logits.npz":
        np.savez(path := tmp_path / "a.npz", logits=z_NL, labels=truth_NL, class_names=NAMES)
    elif kind == "npy":
        np.save(path := tmp_path / "a.npy", p_NL)
        np.save(tmp_path / "y.npy", truth_NL)
        words = ["--labels", tmp_path / "y.npy", "--classes", ",".join(NAMES)]
    elif kind == "parquet":
        pandas = pytest.importorskip("pandas")
        pytest.importorskip("pyarrow")
        values = {f"p_{name}": p_NL[:, k] for k, name in enumerate(NAMES)}
        truths = {f"y_{name}": pandas.array(truth_NL[:, k]).astype("boolean") for k, name in enumerate(NAMES)}
        pandas.DataFrame(values | truths).to_parquet(path := tmp_path / "a.parquet")
    else:
        path = saved(tmp_path, z_NL, truth_NL, prefix="z_")
    assert run(path, "--multi-label", *words, "--json", tmp_path / "r.json") == 0
    tree = json.loads((tmp_path / "r.json").read_text())
    report = trueodds.report(p_NL, truth_NL, multilabel=True, classes=NAMES)
    assert [one["name"] for one in tree["by_label"]] == NAMES
    assert tree["whole"]["ece"] == pytest.approx(report.whole.ece, abs=1e-12)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("p_a,y_a,p_b\n.5,1,.2\n", "has the column p_b and no column y_b"),
        ("p_a,y_a,y_b\n.5,1,1\n", "has the column y_b and no column p_b"),
        ("p_a,y_a\n.5,maybe\n", r"row 2, column 'y_a' holds 'maybe'; allowed are 0, 1, true, false"),
        ("p_a,y_a\n.5,-1\n", "row 2, column 'y_a' holds '-1'"),
        ("p_a,y_a\n.5,1\n,0\n", "row 3, column 'p_a' is empty; only a truth"),
        ("p_a,y_a\n7,1\n", r"is 7; allowed is \[0, 1\]"),
        ("p_a,y_a,z_a\n.5,1,2\n", "columns p_NAME and z_NAME; choose one"),
        ("a,b\n.5,1\n", "no labels by these names"),
        ("p_a,y_a\n", "holds no rows"),
    ],
)
def test_bad_tables(tmp_path: Path, text: str, words: str) -> None:
    (path := tmp_path / "bad.csv").write_text(text)
    with pytest.raises(UserError, match=words):
        read_labels(path)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--positive", "a"], "--positive is given beside --multi-label"),
        (["--ordered"], "--ordered is given beside"),
        (["--by", "tag"], "--by is given beside"),
        (["--label", "x"], "--label x is given beside"),
        (["--judge", "guess"], "--judge is given beside"),
        (["--human-labels", "drawn.csv"], "--human-labels is given beside"),
        (["--tolerance", "0.1"], "--tolerance 0.1 is given beside"),
        (["--classes", "rian"], "no column p_rian"),
        (["--logits"], "no labels by these names"),
    ],
)
def test_bad_options_of_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    path = saved(tmp_path, *rows(20))
    assert run(path, "--multi-label", *words) == 1
    assert message in capsys.readouterr().err


def test_a_url_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("s3://bucket/photos.parquet", "--multi-label") == 1
    assert "is a URL; allowed with --multi-label is the path of a file" in capsys.readouterr().err
    np.save(path := tmp_path / "p.npy", np.full((2, 2), 0.5))
    assert run(path, "--multi-label", "--labels", "https://host/y.npy") == 1


@pytest.mark.parametrize("command", ["report", "calibrate"])
def test_the_other_scale_has_a_cure_for_its_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    p_NL, truth_NL = rows(60)
    z_NL = scipy.special.logit(p_NL)
    np.save(y := tmp_path / "y.npy", truth_NL)
    for values, name, column, other in (
        (z_NL, "probabilities", "p_", "logits"),
        (p_NL, "logits", "z_", "probabilities"),
    ):
        np.savez(arrays := tmp_path / "a.npz", labels=truth_NL, **{name: values})
        np.save(array := tmp_path / "a.npy", values)
        is_default = name == ("probabilities" if command == "report" else "logits")
        scale = [] if is_default else [f"--{name}"]
        for words, cure in (
            ([saved(tmp_path, values, truth_NL, prefix=column)], f"name their columns {'zp'[column == 'z_']}_NAME"),
            ([arrays], f"name the array {other}"),
            ([array, "--labels", y, *scale], f"give --{other}"),
        ):
            assert cli.main("trueodds", cli.COMMANDS, [command, *map(str, words), "--multi-label"]) == 1
            assert cure in capsys.readouterr().err


def test_test_rows_without_truths_name_the_cure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    p_NL, truth_NL = rows(60)
    z, y = tmp_path / "z.npy", tmp_path / "y.npy"
    np.save(z, scipy.special.logit(p_NL))
    np.save(y, truth_NL)
    words = ["calibrate", str(z), "--multi-label", "--labels", str(y), "--test", str(z), "--out", str(tmp_path / "o")]
    assert cli.main("trueodds", cli.COMMANDS, words) == 1
    text = capsys.readouterr().err
    assert (
        f"--test {z} holds no truths, and --labels names those of {z}" in text and "or an .npz with the logits" in text
    )


def test_names_in_bytes_are_texts(tmp_path: Path) -> None:
    p_NL, truth_NL = rows(20)
    np.savez(path := tmp_path / "a.npz", probabilities=p_NL, labels=truth_NL, class_names=np.array(NAMES, "S"))
    assert read_labels(path).names == tuple(NAMES)


def test_a_report_of_classes_names_the_option_of_labels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    p_NL, truth_NL = rows(20)
    np.savez(path := tmp_path / "a.npz", probabilities=p_NL, labels=np.nan_to_num(truth_NL))
    for one in (path, saved(tmp_path, p_NL, truth_NL)):
        assert run(one) == 1 and "add --multi-label" in capsys.readouterr().err


@pytest.mark.full
def test_marks_keep_the_family_rate() -> None:
    """40 tables of 30 calibrated, dependent labels: 7 tables or more with a mark have a probability of .3%."""
    marked = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        p_NL = scipy.special.expit(rng.normal(-2, 1.5, (250, 30)))
        score_NL = 0.8 * rng.normal(size=(250, 1)) + 0.6 * rng.normal(size=(250, 30))
        report = trueodds.report(p_NL, scipy.special.ndtr(score_NL) < p_NL, multilabel=True)
        marked += any(one.more_than_chance for one in report.by_label)
    assert marked < 7


def test_data_frames_with_other_orders_are_refused() -> None:
    pandas = pytest.importorskip("pandas")
    p_NL, truth_NL = rows(60)
    p, y = pandas.DataFrame(p_NL, columns=NAMES), pandas.DataFrame(truth_NL, columns=NAMES)
    turned = list(reversed(NAMES))
    assert trueodds.report(p, y.add_prefix("y_"), multilabel=True, classes=NAMES).n
    assert trueodds.report(p, pandas.DataFrame(truth_NL), multilabel=True, classes=["a", "b", "c"]).n
    for labels, classes in ((y[turned], None), (y[turned].add_prefix("y_"), None), (truth_NL, turned)):
        with pytest.raises(ConfigError, match="allowed is one order"):
            trueodds.report(p, labels, multilabel=True, classes=classes)
    z = pandas.DataFrame(scipy.special.logit(p_NL), columns=NAMES)
    with pytest.raises(ConfigError, match="labels has the order 'fog', 'snow', 'rain', and logits has 'rain'"):
        trueodds.fit(z, y[turned], multilabel=True)
    fitted = trueodds.fit(z, y, multilabel=True, classes=NAMES)
    assert fitted(z).shape == (60, 3)
    with pytest.raises(ConfigError, match="logits has the order 'fog'"):
        fitted(z[turned])


def test_classes_choose_labels_of_arrays_by_their_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    p_NL, truth_NL = rows(100)
    np.savez(path := tmp_path / "a.npz", probabilities=p_NL, labels=truth_NL, class_names=NAMES)
    for chosen in (["fog", "rain"], ["fog", "rain", "snow"]):
        assert run(path, "--multi-label", "--classes", ",".join(chosen), "--json", tmp_path / "r.json") == 0
        found = json.loads((tmp_path / "r.json").read_text())["by_label"]
        places = [NAMES.index(name) for name in chosen]
        assert [one["name"] for one in found] == chosen
        assert [one["positives"] for one in found] == np.nansum(truth_NL, axis=0)[places].tolist()
    assert run(path, "--multi-label", "--classes", "fog,hail") == 1
    assert "has no label 'hail'; its class_names are 'rain', 'snow', 'fog'" in capsys.readouterr().err
    np.savez(path, probabilities=p_NL, labels=truth_NL[:, :2], class_names=NAMES)
    assert run(path, "--multi-label", "--classes", "fog") == 1 and "expected (rows, 3)" in capsys.readouterr().err
