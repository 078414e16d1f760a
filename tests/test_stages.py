"""The stages, their graph, and the command line, on real runs of the default data."""

from __future__ import annotations

import ast
import base64
import contextlib
import csv
import importlib
import io
import json
import logging
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnxruntime
import pytest
import yaml

from pipeline import config
from pipeline.__main__ import main
from pipeline.parameters import STAGE_PARAMETERS
from pipeline.stages import STAGES
from tests.conftest import IDENTITY, ROOT, copy_of_repository, copy_tree, environment, run
from trueodds import calibrators, logits
from trueodds.bundle import Bundle
from trueodds.calibrators import conformal

GRAPH: dict[str, Any] = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]


BY_GIT = {
    "artifacts/data/checks.json",
    "artifacts/evaluation/calibrators.csv",
    "artifacts/evaluation/metrics.json",
    "artifacts/model/epochs.csv",
}


SHIFTED = {"shift": "cifar-c", "shift_options": {"corruptions": ["contrast"], "rows": 50}}
"""Parameters with which each stage loads all that it ever does."""


def hashes(folder: Path) -> dict[str, str]:
    lock = yaml.safe_load((folder / "dvc.lock").read_text())["stages"]
    return {out["path"]: out["md5"] for stage in lock.values() for out in stage["outs"]}


def ran(repro: subprocess.CompletedProcess[str]) -> set[str]:
    return {line.split("'")[1] for line in repro.stdout.splitlines() if line.startswith("Running stage")}


def skipped(repro: subprocess.CompletedProcess[str]) -> set[str]:
    return {line.split("'")[1] for line in repro.stdout.splitlines() if line.endswith("didn't change, skipping")}


def test_the_graph_names_the_stage_functions() -> None:
    assert list(GRAPH) == list(STAGES)
    assert all(stage["cmd"] == f"python -m pipeline {name}" for name, stage in GRAPH.items())


def test_any_code_may_change_the_plan() -> None:
    assert GRAPH["plan"]["deps"] == ["${data.path}", "pipeline", "trueodds"]


@pytest.mark.full
@pytest.mark.parametrize("name", [name for name in STAGES if name not in ("plan", "train")])
def test_deps_are_the_code_that_a_stage_loads(name: str, trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Import by import: a missing dep would leave a stage stale, a superfluous one would rerun it for nothing."""
    monkeypatch.chdir(trained)
    if name == "evaluate":
        STAGES["shift"](config.load(overrides=SHIFTED))
    modules = own_modules_of(name)
    # The variables of other libraries' telemetry, the time of an import and the version number change no result.
    modules -= {"trueodds", "pipeline", "trueodds.processes"}
    modules -= {f"trueodds.processes.{name}" for name in ("lazy", "privacy", "version")}
    listed = {dep for dep in GRAPH[name]["deps"] if dep.startswith(("trueodds/", "pipeline/"))}
    files = {file_of(module) for module in modules if has_code(ROOT / file_of(module))}
    of_folder = {dep: {file for file in files if file.startswith(f"{dep}/")} for dep in listed if "." not in dep}
    assert all(of_folder.values())
    assert listed == (files - set().union(*of_folder.values())) | set(of_folder)


def own_modules_of(stage: str) -> set[str]:
    """The modules of ours that the stage loads in a process that has none yet; other libraries stay loaded."""

    def own() -> dict[str, ModuleType]:
        return {
            name: module for name, module in sys.modules.items() if name.partition(".")[0] in ("trueodds", "pipeline")
        }

    before = own()
    for name in before:
        del sys.modules[name]
    try:
        fresh, stages = (importlib.import_module(f"pipeline.{name}") for name in ("config", "stages"))
        stages.STAGES[stage](fresh.load(overrides=SHIFTED))
        return set(own())
    finally:
        for name in own():
            del sys.modules[name]
        sys.modules.update(before)


def file_of(module: str) -> str:
    path = module.replace(".", "/")
    return f"{path}/__init__.py" if (ROOT / path).is_dir() else f"{path}.py"


def has_code(path: Path) -> bool:
    """False for the `__init__.py` of a folder that is only described there."""
    return len(ast.parse(path.read_text(encoding="utf-8")).body) > 1


def test_a_command_takes_the_parameters_that_dvc_watches() -> None:
    assert {name: list(STAGE_PARAMETERS[name]) for name in GRAPH} == {n: s.get("params", []) for n, s in GRAPH.items()}


def test_git_tracks_the_small_tables_and_dvc_keeps_the_rest() -> None:
    listed = [out for stage in GRAPH.values() for kind in ("outs", "metrics", "plots") for out in stage.get(kind, [])]
    outs = {name: options for out in listed for name, options in (out if isinstance(out, dict) else {out: {}}).items()}
    by_git = {name for name, options in outs.items() if options.get("cache", True) is False}
    assert by_git == BY_GIT
    ignored = run(
        ["git", "check-ignore", "--no-index", *(f"{name}/" if "." not in name else name for name in outs)], ROOT
    )
    assert set(outs) - {line.rstrip("/") for line in ignored.stdout.splitlines()} == by_git
    assert set(run(["git", "ls-files", *by_git], ROOT).stdout.splitlines()) == by_git


@pytest.mark.full
def test_metrics_in_a_fresh_clone(tmp_path: Path) -> None:
    """Without `dvc repro`, and without the cache that made them."""
    clone = copy_of_repository(tmp_path / "clone", without=("benchmarks", "docs", "tests", "service", "deploy"))
    answer = run(["dvc", "metrics", "show", "--json"], clone)
    assert "failed" not in answer.stderr  # DVC takes a figure whose name is `error` for a file that cannot be read
    shown = json.loads(answer.stdout)
    table = clone / "artifacts/evaluation/metrics.json"
    before = shown[""]["data"]["artifacts/evaluation/metrics.json"]["data"]["after"]["nll"]
    assert before == json.loads(table.read_text())["after"]["nll"]
    table.write_text(table.read_text().replace(str(before), "0.5"))
    compared = run(["dvc", "metrics", "diff", "--json"], clone).stdout
    (nll,) = json.loads(compared)["diff"].values() if "diff" in json.loads(compared) else json.loads(compared).values()
    assert nll["after.nll"]["old"] == before and nll["after.nll"]["new"] == 0.5


def test_a_second_repro_skips_everything(reproduced: Path) -> None:
    again = run(["dvc", "repro"], reproduced)
    assert skipped(again) == set(STAGES) and not ran(again)


def test_the_run_left_what_it_should(reproduced: Path) -> None:
    table = json.loads((reproduced / "artifacts/evaluation/metrics.json").read_text())
    assert table["n"] == 600
    assert table["after"]["error_rate"] == table["before"]["error_rate"] < 0.05
    assert table["after"]["ece"] < table["after"]["floor_p95"] + 0.02
    assert set(table["compared"]) == {"structured_vector", "vector", "isotonic"}
    for picture in ("reliability", "bins", "classes", "calibrators"):
        assert (reproduced / f"artifacts/evaluation/{picture}.svg").read_text().count("<path") > 15
    with (reproduced / "artifacts/evaluation/calibrators.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["role"] for row in rows] == ["before", "after", "compared", "compared", "compared"]
    assert float(rows[1]["ece"]) == table["after"]["ece"] and rows[1]["problem"] == ""
    assert json.loads((reproduced / "artifacts/selection.json").read_text()) == []
    reference = json.loads((reproduced / "artifacts/bundle/card.json").read_text())["reference"]
    with np.load(reproduced / "artifacts/logits.npz") as file_of_logits:
        assert reference["rows"] == sum(reference["counts"]) == len(file_of_logits["val_labels"])
    assert 0.8 < reference["mean"] < 1
    assert not list((reproduced / ".checkpoints").glob("*"))
    lines = (reproduced / "artifacts/model/epochs.csv").read_text().splitlines()
    assert len(lines) == 1 + 24 and lines[0].startswith("epoch,learning_rate,weight_norm,train_loss")
    changed = run(["git", "status", "--porcelain"], reproduced).stdout.splitlines()
    assert {line[3:] for line in changed} <= {"dvc.lock", *BY_GIT}  # where another CPU made those of the commit
    shown = run(["dvc", "metrics", "show", "--json"], reproduced).stdout
    assert '"nll"' in shown


@pytest.mark.full
def test_an_experiment_in_dvcs_own_words(reproduced: Path, tmp_path: Path) -> None:
    """Another method as an experiment: what depends on it runs, and DVC says what differs from the last commit.

    Up to `evaluate`: the tutorial of the pipeline exports such an experiment too.
    """
    copy = committed(reproduced, tmp_path)
    again = run(["dvc", "exp", "run", "-S", "training.method=focal", "-S", "training.epochs=2", "evaluate"], copy)
    assert skipped(again) == {"fetch"}
    assert ran(again) == {"plan", "train", "shift", "calibrate", "evaluate"}
    changed = json.loads(run(["dvc", "params", "diff", "--json"], copy).stdout)["params.yaml"]
    assert changed == {
        "training.method": {"old": "ce", "new": "focal"},
        "training.epochs": {"old": None, "new": 2},
    }
    plots = json.loads(run(["dvc", "plots", "diff", "--json"], copy).stdout)
    (curve,) = plots["data"]["ECE"]
    rows = [row["rev"] for row in curve["content"]["data"]["values"]]
    assert "errors" not in plots and {rev: rows.count(rev) for rev in rows} == {"workspace": 2 * 2, "HEAD": 2 * 24}


@pytest.mark.full
def test_a_tagged_model_is_an_artifact(reproduced: Path, tmp_path: Path) -> None:
    copy = committed(reproduced, tmp_path)
    run(["git", *IDENTITY, "tag", "-a", "classifier@v1.0.0", "-m", "the first"], copy)
    run(["dvc", "artifacts", "get", ".", "classifier", "--out", str(tmp_path / "model")], copy)
    expected, fetched = (
        {file.name: file.read_bytes() for file in folder.iterdir()}
        for folder in (reproduced / "artifacts" / "bundle", tmp_path / "model")
    )
    assert fetched == expected


def committed(reproduced: Path, tmp_path: Path) -> Path:
    """A copy whose last commit holds the run's dvc.lock and small tables."""
    copy = copy_tree(reproduced, tmp_path / "copy")
    run(["git", *IDENTITY, "commit", "--quiet", "--allow-empty", "--all", "-m", "the run"], copy)
    return copy


@pytest.mark.full
def test_own_data_are_watched(reproduced: Path, tmp_path: Path) -> None:
    copy_tree(reproduced, tmp_path / "copy")
    (tmp_path / "copy" / "datasets" / "anything.npz").write_bytes(b"new")
    again = run(["dvc", "repro", "train"], tmp_path / "copy")
    assert ran(again) == {"fetch", "plan"} and skipped(again) == {"train"}  # digits come out the same


def command(arguments: list[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {**environment(), "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-m", "pipeline", *arguments], cwd=cwd, env=env, capture_output=True, text=True, timeout=300
    )


def obeyed(arguments: list[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    """As `command`, in this process: torch is imported once. What is logged is not among its output."""
    root, out, err = logging.getLogger(), io.StringIO(), io.StringIO()
    handlers = root.handlers[:]
    with contextlib.chdir(cwd), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = main(arguments)
        finally:
            root.handlers[:] = handlers
    return subprocess.CompletedProcess(arguments, status, out.getvalue(), err.getvalue())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["all", "method=focl"], "unknown method 'focl'; allowed: ce, mse, focal"),
        (["all", "method=mmce_interleaved"], "learns from set-aside rows, and there are none; set data.held_out_size"),
        (["all", "optimizer=adam", "momentum=0.5"], "momentum = 0.5 needs optimizer sgd, and optimizer is adam"),
        (["all", "net=resnet19"], "unknown net 'resnet19'; allowed: resnet8, resnet20, resnet56, "),
        (["all", "calibrator=temperatur"], "Did you mean 'temperature'?"),
        (["all", "calibrator=selct"], "Did you mean 'select'?"),
        (["all", "calibrator_options={objectiv: brier}"], "unknown option of 'temperature' 'objectiv'; allowed:"),
        (["all", "calibrator=select", "calibrator_options={candidates: [vectr]}"], "Did you mean 'vector'?"),
        (["all", "calibrator=select", "calibrator_options={candidates: vector}"], "allowed is a list of calibrators"),
        (["calibrate", "calibrator=select", "calibrator_options={fold: 3}"], "Did you mean 'folds'?"),
        (["all", "compare=[vectr]"], "unknown calibrator in compare 'vectr'"),
        (["export", "--fold"], "is not a complete bundle"),
        (["train", "epoch=3"], "unknown parameter 'epoch'"),
        (["train", "epochs=0"], "epochs = 0"),
        (["train", "epochs"], "'epochs' is not of the form name=value"),
        (["train"], "card.json is missing; run the fetch stage first"),
        (["calibrate"], "does not exist; run the train stage first"),
        (["curves"], "training.json does not exist; run the train stage first: dvc repro train"),
        (["train", "curves=[0]"], "training.curves.0 = 0: allowed is a whole number from 1."),
        (["publish"], "is not a complete bundle"),
        (["publish", "--bundle", "nowhere"], "nowhere is not a complete bundle"),
        (
            ["fetch", "method=focal"],
            "fetch does not read method: plan, train and evaluate do. fetch takes dataset, path,",
        ),
        (["train", "bins=30"], "train does not read bins: evaluate does. train takes model, model_options, recipe,"),
        (["train", "method_options.gamma=2", "data.split_seed=3"], "train does not read split_seed: fetch does."),
        (
            ["evaluate", "epochs=3"],
            "evaluate takes dataset, model, method, bins, level, compare, shift, shift_options. For every stage:",
        ),
        (["export", "bins=30"], "export takes no parameters"),
        (["export", "--fold", "bins=30"], "export --fold does not read bins: evaluate does."),
        (["demo", "--artifacts", "nowhere"], "card.json is missing"),
    ],
)
def test_errors_are_one_message_and_a_status(arguments: list[str], message: str, workspace: Path) -> None:
    done = obeyed(arguments, workspace)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ") and message in done.stderr


@pytest.mark.full
def test_a_run_is_drawn(workspace: Path) -> None:
    for arguments in (["fetch", "train_size=100"], ["train", "epochs=2", "width=4", "curves=[2]"]):
        assert obeyed(arguments, workspace).returncode == 0
    drawn = obeyed(["curves"], workspace)
    assert drawn.stdout.split() == [f"artifacts/curves/{name}.png" for name in ("training", "reliability", "gradients")]
    assert all((workspace / name).stat().st_size > 10_000 for name in drawn.stdout.split())
    assert obeyed(["gamma-curve"], workspace).stdout == "artifacts/curves/gamma.png\n"


def test_lists(workspace: Path) -> None:
    assert "fl3" in obeyed(["methods"], workspace).stdout
    assert "papers-350" in obeyed(["recipes"], workspace).stdout
    listed = obeyed(["calibrators"], workspace).stdout
    assert all(f"\n{name} " in listed for name in [*calibrators.names(), "select"])
    assert "objective=nll" in listed and "Temperature scaling, p = softmax(z / T)" in listed
    assert "dataset = 'digits'" in obeyed(["params"], workspace).stdout
    assert "epochs = 7" in obeyed(["params", "epochs=7"], workspace).stdout


@pytest.mark.full
def test_all_without_dvc(workspace: Path, caplog: pytest.LogCaptureFixture) -> None:
    done = obeyed(["all", "epochs=1", "width=4", "method=adafocal"], workspace)
    assert done.returncode == 0, done.stderr
    published, standing = obeyed(["publish"], workspace).stdout.splitlines()
    assert standing.endswith("answers now: calls with ?model=digits, and calls that name no model.")
    assert (workspace / published / "model.onnx").is_file()
    assert (workspace / "models" / "default").read_text().strip() == published.removeprefix("models/")
    # AdaFocal learns from the validation rows: said where the calibrator is fitted, and wherever its results are read.
    sentence = "Training used the validation rows (method adafocal), and the calibrator was fitted on the same rows"
    assert sentence in caplog.text
    for file in ("model/training.json", "evaluation/metrics.json", "bundle/card.json"):
        notes = json.loads((workspace / "artifacts" / file).read_text())["notes"]
        assert any(note.startswith(sentence) for note in notes), file


@pytest.fixture
def trained(reproduced: Path, tmp_path: Path) -> Path:
    """The default run's artifacts, to run later stages of."""
    shutil.copytree(reproduced / "artifacts", tmp_path / "artifacts")
    shutil.copy(reproduced / "params.yaml", tmp_path)
    return tmp_path


def test_select_takes_the_candidate_of_least_held_out_nll(trained: Path) -> None:
    words = ["calibrator=select", "calibrator_options={candidates: [identity, vector, structured_vector], folds: 4}"]
    done = command(["calibrate", *words], trained)
    assert done.returncode == 0, done.stderr
    table = json.loads((trained / "artifacts/selection.json").read_text())
    assert [line["name"] for line in table] == ["identity", "vector", "structured_vector"]
    sound = (line for line in table if line["nll"] is not None and line["passed_over"] is None)
    best = min(sound, key=lambda line: line["nll"])
    assert json.loads((trained / "artifacts/calibrator.json").read_text())["calibrator"] == best["name"]
    assert f"* {best['name']}: held-out NLL {best['nll']:.4f}, 0.0000 behind" in done.stderr


def test_an_option_of_the_calibrator_is_used_and_its_value_checked(trained: Path) -> None:
    assert obeyed(["calibrate", "calibrator_options={objective: brier}"], trained).returncode == 0
    assert json.loads((trained / "artifacts/calibrator.json").read_text())["objective"] == "brier"
    done = obeyed(["calibrate", "calibrator_options={objective: brie}"], trained)
    assert done.returncode == 1 and "Did you mean 'brier'?" in done.stderr


@pytest.mark.full
def test_conformal_sets_are_fitted_on_rows_of_their_own_and_exported(trained: Path) -> None:
    options = ["calibration.conformal=lac", "calibration.conformal_options={levels: [0.9, 0.8]}"]
    for stage in ("calibrate", "evaluate", "export"):
        done = obeyed(
            [stage, *(word.partition(".")[2] for word in options)] if stage == "calibrate" else [stage], trained
        )
        assert done.returncode == 0, done.stderr
    bundle = Bundle.load(trained / "artifacts/bundle")
    val = logits.read(trained / "artifacts/logits.npz", "val")
    apart, fitting = conformal.split_rows(len(val.labels_N), 0.5, 0)
    own = calibrators.fit(val.logits_NC[fitting], val.labels_N[fitting], "temperature")
    assert bundle.calibrator == own and bundle.conformal is not None and bundle.card.sets is not None
    fresh = conformal.fit(own(val.logits_NC[apart]), val.labels_N[apart])
    assert bundle.card.sets.rules == (fresh.at(0.9), fresh.at(0.8))
    test = logits.read(trained / "artifacts/logits.npz", "test")
    for rule, measured in zip(bundle.card.sets.rules, bundle.card.sets.test, strict=True):
        assert measured == conformal.measure(rule, own(test.logits_NC), test.labels_N)
    assert "## Conformal sets" in (bundle.directory / "MODEL_CARD.md").read_text()
    refused = obeyed(["calibrate", "conformal_options={levels: [0.9]}"], trained)
    assert refused.returncode == 1 and "calibration.conformal is null; name a method" in refused.stderr


def test_fold_writes_beside_the_bundle(trained: Path) -> None:
    def files() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in (trained / "artifacts/bundle").iterdir()}

    before = files()
    done = obeyed(["export", "--fold"], trained)
    assert done.stdout.strip() == "artifacts/model_calibrated.onnx", done.stderr
    assert files() == before, "another hash would be another version"
    card = json.loads(before["card.json"])
    pixels = np.frombuffer(base64.b64decode(card["golden"]["input_b64"]), np.uint8).reshape(1, 8, 8, 1)
    session = onnxruntime.InferenceSession(str(trained / "artifacts/model_calibrated.onnx"))
    (probabilities,) = session.run(None, {session.get_inputs()[0].name: pixels})
    assert np.abs(probabilities[0] - card["golden"]["probabilities"]).max() < 1e-5


@pytest.mark.full
def test_what_is_not_affine_is_not_folded(trained: Path) -> None:
    for words in (["calibrate", "calibrator=isotonic"], ["export"]):
        assert obeyed(words, trained).returncode == 0
    done = obeyed(["export", "--fold"], trained)
    assert done.returncode == 1 and "'isotonic' is not of the form softmax(W z + b)" in done.stderr
    assert not (trained / "artifacts/model_calibrated.onnx").exists()


@pytest.mark.parametrize(
    ("stage", "file", "message"),
    [
        ("train", "data/arrays.npz", "arrays.npz is not a complete .npz file"),
        ("train", "data/card.json", "card.json is not complete JSON"),
        ("calibrate", "logits.npz", "logits.npz is not a complete .npz file"),
        ("evaluate", "calibrator.json", "run: dvc repro calibrate"),
        ("export", "model/network/weights.safetensors", "run: dvc repro train"),
        ("export", "model/training.json", "training.json is not complete JSON"),
    ],
)
def test_damaged_artifacts_are_named(stage: str, file: str, message: str, trained: Path) -> None:
    path = trained / "artifacts" / file
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content[: len(content) // 2])
    done = obeyed([stage], trained)
    assert done.returncode == 1 and message in done.stderr


def test_weights_of_other_data_are_not_exported(trained: Path) -> None:
    assert obeyed(["fetch", "split_seed=1"], trained).returncode == 0
    done = obeyed(["export"], trained)
    assert done.returncode == 1 and "was trained on data other than" in done.stderr


def test_the_demo_empties_only_its_own_folder(reproduced: Path) -> None:
    done = obeyed(["demo", "--work", "artifacts"], reproduced)
    assert done.returncode == 1 and "was not made by a demo" in done.stderr
    assert (reproduced / "artifacts" / "bundle").is_dir()
