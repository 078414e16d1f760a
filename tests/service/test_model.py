"""Loading a bundle: what is refused, and why."""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from pydantic import ValidationError

from service.models.model import Model, _worth, available_cores, providers_by_name
from service.settings import Settings
from tests.service.tiny_bundle import change_card, write_bundle, write_model
from trueodds.bundle import CARD, MODEL, BundleError
from trueodds.files import sha256


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_bundle(tmp_path)


def replace_model(folder: Path, write: Callable[[Path], object]) -> None:
    write(folder / MODEL)
    change_card(folder, files={n: sha256(folder / n) for n in (MODEL, "calibrator.json")})


def test_scores_are_shifted_calibrated_and_float32(folder: Path) -> None:
    model = Model.load(folder, 1)
    images_NHWC = np.random.default_rng(0).integers(0, 256, (7, 4, 4, 1), np.uint8)
    scores = model.score(images_NHWC)
    assert scores.logits_NC.dtype == np.float32
    assert (scores.logits_NC.max(axis=1) == 0).all()
    np.testing.assert_allclose(scores.probabilities_NC, model.bundle.calibrator(model.logits(images_NHWC)), rtol=1e-6)
    assert (scores.confidence_N == scores.probabilities_NC.max(axis=1)).all()


def strings(path: Path) -> None:
    """A graph with an operator of onnxruntime-extensions."""
    write_model(path, (4, 4, 1), 4)
    graph = onnx.load(path)
    graph.graph.node[0].domain, graph.graph.node[0].op_type = "ai.onnx.contrib", "StringUpper"
    graph.opset_import.append(onnx.helper.make_opsetid("ai.onnx.contrib", 1))
    onnx.save(graph, path)


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (lambda p: p.write_bytes(b"junk"), "the installed onnxruntime .* cannot load it"),
        (strings, r"of the package onnxruntime-extensions, which no service loads: ai\.onnx\.contrib\.StringUpper"),
        (lambda p: write_model(p, (4, 4, 3), 4), r"shape \['N', 4, 4, 3\]"),
        (lambda p: write_model(p, (4, 4, 1), 4, batch=1), "any number N of images"),
        (lambda p: write_model(p, (4, 4, 1), 4, seed=1), "golden logits differ"),
        (lambda p: write_model(p, (4, 4, 1), 5), "one logit per class"),
    ],
)
def test_wrong_graphs_are_refused(folder: Path, write: Callable[[Path], object], words: str) -> None:
    replace_model(folder, write)
    with pytest.raises(BundleError, match=words):
        Model.load(folder, 1)


def test_an_altered_file_is_refused(folder: Path) -> None:
    with (folder / MODEL).open("ab") as file:
        file.write(b"x")
    with pytest.raises(BundleError, match="altered or damaged"):
        Model.load(folder, 1)
    (folder / CARD).unlink()
    with pytest.raises(BundleError, match="missing"):
        Model.load(folder, 1)


@pytest.mark.parametrize(
    ("slow", "worth", "adapt", "lanes", "one", "all_"),
    [
        (0.0, False, True, 3, 1, 3),
        (60.0, True, True, 1, 3, 3),
        (60.0, False, True, 1, 1, 1),
        (60.0, False, False, 1, 3, 3),
    ],
)
def test_threads_go_where_they_gain(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    slow: float,
    worth: bool,
    adapt: bool,
    lanes: int,
    one: int,
    all_: int,
) -> None:
    monkeypatch.setattr("service.models.model.SLOW_SECONDS", slow)
    monkeypatch.setattr("service.models.model._worth", lambda seconds, gain: worth)
    model = Model.load(folder, 3, adapt=adapt)
    threads = [session.get_session_options().intra_op_num_threads for session in (model._one, model._all)]
    assert (model.lanes, threads) == (lanes, [one, all_])
    assert Model.load(folder, 1, adapt=adapt).lanes == 1


def test_several_threads_are_worth_it_where_the_model_is_most_of_an_answer() -> None:
    assert not _worth(0.000226, 1.65)  # ResNet-8 in two cores
    assert _worth(0.00071, 1.8)  # ResNet-20
    assert not _worth(0.00071, 1.2)  # in two hyperthreads of one core


@pytest.mark.parametrize(
    ("threads", "one", "many", "limit", "inline"),
    [
        (2, 0.00002, 0.00015, 0.00004, 533),  # 9.4 us a row, for at most 5 ms
        (1, 0.00002, 0.00015, 0.00004, 533),
        (2, 0.0003, 0.0035, 0.00004, 0),  # ResNet-8, which has a thread
        (1, 0.0003, 0.0035, 0.0003, 22),  # unless the process has no other core
        (2, 0.006, 0.0001, 0.00004, 0),  # a single row would keep the event loop for longer
        (2, 0.00002, 0.00016, 0.0, 0),
    ],
)
def test_the_event_loop_scores_what_takes_it_less_than_a_hop(
    folder: Path, monkeypatch: pytest.MonkeyPatch, threads: int, one: float, many: float, limit: float, inline: int
) -> None:
    monkeypatch.setattr(Model, "_seconds", lambda self, rows, *of: [one if len(rows) == 1 else many] * len(of))
    model = Model.load(folder, threads, adapt=True, inline_seconds=limit)
    assert (model.inline, model.lanes) == (inline, 2 if one == 0.006 else 1)


@pytest.mark.skipif(os.name == "nt", reason="Windows counts a thread's time in steps of 16 ms")
def test_other_processes_do_not_lengthen_the_time_of_one_thread(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model.load(folder, 1)
    monkeypatch.setattr(
        "service.models.model.RunnableModel._run", lambda *of: time.sleep(0.01)
    )  # as if others had the core
    row = model.bundle.golden_input()
    assert model._seconds(row, model._one)[0] < 0.005
    assert min(model._seconds(row, model._one, model._one)) >= 0.01


@pytest.mark.parametrize("step", [10.0, 0.01])
def test_a_thread_time_in_coarse_steps_does_not_count(
    folder: Path, monkeypatch: pytest.MonkeyPatch, step: float
) -> None:
    """Some systems count it in steps of 10 ms. Most timings are then 0."""
    monkeypatch.setattr("service.models.model.time.thread_time", lambda: step * (time.perf_counter() // step))
    model = Model.load(folder, 2, inline_seconds=1.0)
    assert model.inline >= 1
    monkeypatch.setattr("service.models.model.RunnableModel._run", lambda *of: time.sleep(0.006))
    assert model._seconds(model.bundle.golden_input(), model._one)[0] >= 0.006
    assert model._inline(0.0003, model.bundle.golden_input()) == 0


def test_one_thread_and_all_give_the_same_scores(folder: Path) -> None:
    model = Model.load(folder, 2)
    images_NHWC = np.random.default_rng(1).integers(0, 256, (5, 4, 4, 1), np.uint8)
    one, all_ = model.score(images_NHWC), model.score(images_NHWC, alone=True)
    np.testing.assert_allclose(one.logits_NC, all_.logits_NC, atol=1e-6)


V1 = ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"cpu.max": "100000 100000"}, 1),
        ({"cpu.max": "150000 100000"}, 2),
        ({"cpu.max": "max 100000"}, 99),
        ({"cpu.max": "x"}, 99),
        ({}, 99),
        (dict(zip(V1, ("150000\n", "100000\n"), strict=True)), 2),
        (dict(zip(V1, ("5000\n", "100000\n"), strict=True)), 1),
        (dict(zip(V1, ("-1\n", "100000\n"), strict=True)), 99),
        ({V1[0]: "150000"}, 99),
    ],
)
def test_cores_follow_the_containers_quota(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], cores: int
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(99)), raising=False)
    (tmp_path / "cpu").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert available_cores(tmp_path) == cores


def test_each_provider_has_to_reproduce_the_golden_prediction(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """This machine's onnxruntime has the provider azure beside cpu; cuda is one that cannot be started."""
    assert Model.load(folder, 2).provider == "cpu"
    azure = Model.load(folder, 2, providers=("azure", "cpu"))
    assert azure.provider == "azure" and azure.lanes == 1 and azure._one.get_providers()[0].startswith("Azure")
    known = {**providers_by_name(), "cuda": "CUDAExecutionProvider"}
    monkeypatch.setattr("service.models.model.providers_by_name", lambda: known)
    with pytest.warns(UserWarning, match="CUDAExecutionProvider"):
        assert Model.load(folder, 1, providers=("cuda", "cpu")).provider == "cpu"
    assert "cannot run on cuda: onnxruntime cannot start CUDAExecutionProvider;" in caplog.text
    with pytest.warns(UserWarning), pytest.raises(BundleError, match="its libraries or its device are missing"):
        Model.load(folder, 1, providers=("cuda",))


@pytest.mark.parametrize(("text", "words"), [("cuda", "'cuda' is not available"), (" , ", "no provider is given")])
def test_a_provider_that_is_not_installed_is_refused_at_once(text: str, words: str) -> None:
    with pytest.raises(ValidationError, match=f"{words}; the installed onnxruntime has azure, cpu; for cuda, install"):
        Settings(providers=text)
    assert Settings(providers="Azure, cpu,azure").providers == ("azure", "cpu")


def test_a_package_that_some_inputs_need_is_said_at_loading(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    Model.load(folder, threads=1)
    assert "simplejpeg" not in caplog.text
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    Model.load(folder, threads=1)
    assert "reading a JPEG needs the package simplejpeg, which is not installed here; install" in caplog.text
    assert "pip install 'trueodds[serve]'" in caplog.text


def test_a_package_that_every_input_needs_is_said_at_loading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_bundle(tmp_path, words=("good", "bad"))
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    words = r"a model of texts needs the package tokenizers.*pip install 'trueodds\[text"
    with pytest.raises(BundleError, match=words):
        Model.load(folder, 1)
