"""The flow's smaller parts, without a server: a stage's process, names, the summary, the parameters' signature."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import jsonschema_rs
import psutil
import pytest
from prefect.utilities.schema_tools import validation

from pipeline import config, methods
from pipeline.flows import artifacts, child, recalibrate, schema, server, train
from pipeline.recalibrate import Recalibration
from tests.conftest import ROOT, environment, run
from tests.service.hooks import Hook
from tests.service.tiny_bundle import write_bundle
from trueodds.bundle import open_models
from trueodds.client import Client
from trueodds.errors import ConfigError


def test_lines_come_as_they_are_written_and_the_status_is_returned(tmp_path: Path) -> None:
    """The process goes on only after its second line has come."""
    lines: list[str] = []

    def take(text: str) -> None:
        lines.append(text)
        if text == "two":
            (tmp_path / "go").touch()

    script = "echo one; echo; echo two >&2; until [ -e go ]; do sleep 0.02; done; echo three; exit 3"
    status = child.run(["sh", "-c", script], tmp_path, environment() | {"PYTHONPATH": str(Path.cwd())}, take, 60)
    assert status == 3 and lines == ["one", "two", "three"]


def test_a_stage_that_takes_too_long_is_stopped_with_all_it_started() -> None:
    lines: list[str] = []
    with pytest.raises(child.StageTimeoutError, match=r"timeout_seconds = 3;"):
        child.run(["sh", "-c", "echo begun; sleep 61.5 & sleep 61.5"], Path.cwd(), environment(), lines.append, 3)
    assert lines == ["begun"]
    assert not subprocess.run(["pgrep", "-f", "^sleep 61.5"], capture_output=True, text=True).stdout


def test_what_a_finished_process_left_behind_ends_too() -> None:
    assert child.run(["sh", "-c", "sleep 62.5 & exit 0"], Path.cwd(), environment(), print) == 0
    assert not subprocess.run(["pgrep", "-f", "^sleep 62.5"], capture_output=True, text=True).stdout


def test_stop_all_ends_what_another_thread_waits_for() -> None:
    pids: list[int] = []
    begun = threading.Event()

    def stage() -> None:
        pids.append(child.run(["sh", "-c", "echo x; sleep 63"], Path.cwd(), environment(), lambda _: begun.set()))

    thread = threading.Thread(target=stage)
    thread.start()
    assert begun.wait(60)
    child.stop_all()
    thread.join(60)
    assert pids and pids[0] != 0


def test_every_leaf_is_a_parameter_with_its_type_and_bounds() -> None:
    parameters = dict(schema.signature().parameters)
    assert parameters.pop("publish").default == "shadow"
    assert set(parameters) == set(config.SECTION_OF)
    assert all(p.default is None for p in parameters.values())


@pytest.mark.few(4)
@pytest.mark.parametrize(
    ("parameters", "refused"),
    [
        ({"method": "focall"}, "'focall' does not match"),
        ({"method": "fl3+mixup+nothing"}, "does not match"),
        ({"net": "resnet9"}, "'resnet9' is not one of ['resnet8', 'resnet20', 'resnet56', "),
        ({"recipe": "papers"}, "'papers' is not one of ['auto', "),
        ({"calibrator": "temprature"}, "'temprature' is not one of ['identity', "),
        ({"compare": ["vectr"]}, "'vectr' does not match '^(identity|"),
        ({"compare": ["temperature objective"]}, "'temperature objective' does not match"),
        ({"compare": ["all objective=ece"]}, "'all objective=ece' does not match"),
        ({"method_options": "gamma"}, "'gamma' does not match"),
        ({"method": "fl3+mixup", "recipe": "auto", "net": None, "calibrator": "select", "compare": ["all"]}, ""),
        ({"compare": ["vector", "temperature objective=sb_ece softness=0.05"]}, ""),
        ({"method_options": "{gamma: 2}", "calibrator_options": {"folds": 3}, "curves": "[1, 2]"}, ""),
    ],
)
def test_names_are_in_the_schema_that_the_server_holds_runs_to(parameters: dict[str, object], refused: str) -> None:
    if not refused:
        validation.validate(parameters, train.train.parameters.model_dump(), raise_on_error=True)
        return
    with pytest.raises(validation.ValidationError, match=re.escape(refused)):
        validation.validate(parameters, train.train.parameters.model_dump(), raise_on_error=True)


def test_every_name_is_in_the_schema() -> None:
    """Of the tables that the code itself reads; Prefect's own validation takes a tenth of a second for each."""
    parameters = train.train.parameters.model_dump()
    of_method = jsonschema_rs.Draft202012Validator(parameters["properties"]["method"])
    assert all(of_method.is_valid(name) for name in methods.names()) and not of_method.is_valid("focall")
    validation.validate({"method": methods.names()[-1]}, parameters, raise_on_error=True)


def test_mappings_and_lists_are_read_from_text() -> None:
    leaves = {"method_options": "{gamma: 2}", "curves": "[1, 2]", "milestones": [0.5], "method": "focal", "epochs": 3}
    assert schema.read_text(leaves) == leaves | {"method_options": {"gamma": 2}, "curves": [1, 2]}
    with pytest.raises(ConfigError, match="the value of 'curves=\\[1' is not valid YAML"):
        schema.read_text({"curves": "[1"})


@pytest.mark.parametrize(
    ("name", "ref"),
    [
        ("cifar100 method=focal+sb_ece seed=42", "cifar100-method-focal-sb-ece-seed-42-3d4e5f"),
        ("..//~^: ", "run-3d4e5f"),
        ("x" * 300, "x" * 60 + "-3d4e5f"),
    ],
)
def test_experiment_names_are_git_refs(name: str, ref: str) -> None:
    assert train.experiment_name(name, "0a1b2c3d-0000-0000-0000-0000003d4e5f") == ref
    assert subprocess.run(["git", "check-ref-format", f"refs/exps/{ref}"]).returncode == 0


def test_the_summary_shows_what_metrics_json_holds() -> None:
    table = json.loads((ROOT / "artifacts/evaluation/metrics.json").read_text())  # the default run's, which git tracks
    markdown = artifacts.summary_markdown(table, "digits")
    assert f"| ECE | {table['before']['ece']:.4f} | {table['after']['ece']:.4f} |" in markdown
    assert f"{table['after']['ece_lower']:.4f} .. {table['after']['ece_upper']:.4f} |" in markdown
    assert f"Calibrator: **temperature** (temperature {table['calibrator']['temperature']:.4g})" in markdown
    assert all(note in markdown for note in table["notes"])
    assert "600 test rows, 15 bins; calibration errors are fractions" in markdown
    assert not re.search(r"None|nan", markdown)
    assert all(f"| {name} | {one['error_rate']:.4f} |" in markdown for name, one in table["compared"].items())
    assert "p(" not in markdown
    of_p = {"class": "7", "prevalence": 0.1, "mean_probability": 0.2, "ece": 0.1, "ece_lower": 0.05, "ece_upper": 0.15}
    of_p |= {"floor_mean": 0.01, "floor_p95": 0.02}
    both = {side: {**table[side], "positive": of_p} for side in ("before", "after")}
    of_both = artifacts.summary_markdown(table | both, "digits")
    assert "| ECE of p(7) | 0.1000 | 0.1000 |\n| 95% interval |" in of_both
    assert "| ECE of the more probable class |" in of_both and "| ECE |" not in of_both
    table["compared"] = {"vector": {"problem": "class 3 never occurs"}}
    assert "| vector | class 3 never occurs | | | |" in artifacts.summary_markdown(table, "digits")


def test_a_wrong_input_is_not_tried_again() -> None:
    from prefect import State
    from prefect.states import Failed

    def failed(error: Exception) -> State[object]:
        return Failed(data=error)

    assert not train._worth_another_try(None, None, failed(train.StageError("x", wrong_input=True)))
    assert train._worth_another_try(None, None, failed(train.StageError("x", wrong_input=False)))
    assert train._worth_another_try(None, None, failed(child.StageTimeoutError("x")))


def test_a_service_that_serves_another_directory_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRUEODDS_SERVICE", raising=False)
    assert train._served_elsewhere(open_models(tmp_path)) is None
    nothing: dict[str, Any] = {"models": [], "observed": [], "problems": []}
    with Hook(reply={"folder": open_models(tmp_path).identify(), **nothing}) as service:
        monkeypatch.setenv("TRUEODDS_SERVICE", service.url)
        assert train._served_elsewhere(open_models(tmp_path)) is None
        service.reply = {"folder": "0" * 16, **nothing}
        reason = str(train._served_elsewhere(open_models(tmp_path)))
        assert f"the service at {service.url} serves another model directory" in reason
    assert train._served_elsewhere(open_models(tmp_path)) is None, "nobody answers: it may come later"


def test_variables_that_a_worker_was_started_with(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = {k: v for k, v in environment().items() if not k.startswith("TRUEODDS_")}
    started = kept | {"TRUEODDS_MODELS": "a", "TRUEODDS_SERVICE": "s"}
    command = [sys.executable, "-c", "print(flush=True); input()"]
    with psutil.Popen(command, env=started, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()  # while it is being started, a process has no variables yet
        assert server.changed_variables(process, started | {"HOME": "/"}) == []
        now = {k: v for k, v in started.items() if k != "TRUEODDS_SERVICE"} | {"TRUEODDS_MODELS": "b"}
        assert server.changed_variables(process, now) == ["TRUEODDS_MODELS", "TRUEODDS_SERVICE"]
        process.kill()


@pytest.mark.full
def test_cyclic_garbage_of_the_server_is_freed_outside_the_thread_of_its_event_loop() -> None:
    script = """
import threading, weakref
from pipeline.flows.prefect_server import collect_in_thread
class Cursor: pass
freed, where = threading.Event(), []
def note(): where.append(threading.current_thread().name); freed.set()
collect_in_thread(0.01)
one = Cursor(); one.error = one
weakref.finalize(one, note)
del one
kept = [[] for _ in range(100_000)]  # the collector of CPython would run here, in this thread
assert freed.wait(60) and where == ["garbage collection"], where
"""
    run([sys.executable, "-c", script], Path.cwd())


def test_four_runs_in_an_hour_leave_the_net_under_judgement_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRUEODDS_SERVICE", "http://127.0.0.1:9")
    models = open_models(tmp_path / "models")
    bundles = [write_bundle(tmp_path / f"run{seed}", seed=seed) for seed in range(5)]
    made = [train.publish(models, bundle, "shadow", f"run {k}") for k, bundle in enumerate(bundles)]
    versions = [folder.name for folder, _ in made]
    assert [words.split(" ", 1)[1].split(" ")[0] for _, words in made] == ["answers", "is", *["waits"] * 3]
    roles = [models.version_of("tiny", role) for role in ("default", "shadow", "waiting")]
    assert roles == [versions[0], versions[1], versions[4]], "the newest waits"
    folder, words = train.publish(models, bundles[2], "displace", "run 2 again")
    assert models.version_of("tiny", "shadow") == folder.name == versions[2]
    assert f"Evidence: displaces {versions[1]}: unknown (no service" in words
    assert models.changes("tiny")[-1].why.startswith(f"run 2 again; displaces {versions[1]}: unknown")
    _, words = train.publish(models, bundles[3], "default", "run 3 again")
    assert f"Evidence: ends the evidence about {versions[2]}: unknown (no service" in words
    change = next(
        change for change in models.changes("tiny") if (change.action, change.after) == ("publish", versions[3])
    )
    assert change.why.startswith(f"run 3 again; ends the evidence about {versions[2]}: unknown")


def test_a_run_that_looks_again_displaces_nothing_that_the_first_one_put_under_judgement(tmp_path: Path) -> None:
    request = Recalibration(Client.from_environment(), open_models(tmp_path), "tiny", displace=True)
    given = {"displace": True, "reason": "alarm 7", "model": None}
    for about, displace in (("few", True), ("away", True), ("3f2a9c01b7de", False), ("", False)):
        later = recalibrate.later_parameters(given, request, "1013f55bc330", about)
        assert (later["displace"], later["model"], later["reason"]) == (displace, "tiny", "alarm 7")
