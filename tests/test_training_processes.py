"""Two processes that train together: the loss, the gradients and what is written are those of one."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist

from pipeline import config, data, stages
from pipeline.__main__ import main
from pipeline.config import Data, Training
from pipeline.data.dataset import DataSet
from pipeline.flows.workspace import write_params
from pipeline.parameters import parse_overrides
from pipeline.training import loop
from pipeline.training.batches import Augmentation, Batches
from pipeline.training.machine import launch
from pipeline.training.machine.processes import ALONE, Processes
from tests.conftest import run
from tests.training_process import METHODS
from tests.training_runs import plan
from trueodds.errors import ConfigError

ROOT = Path(__file__).parent.parent
TOGETHER = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m"]


@pytest.fixture
def from_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.mark.full
@pytest.mark.usefixtures("from_here")
def test_a_step_of_two_processes_is_that_of_one_with_the_whole_batch(tmp_path: Path) -> None:
    run([sys.executable, "-m", "tests.training_process", str(tmp_path)], ROOT)
    run([*TOGETHER, "tests.training_process", str(tmp_path)], ROOT)
    for method in METHODS:
        one, two = (json.loads((tmp_path / f"{method}-{world}.json").read_text()) for world in (1, 2))
        assert one["loss"] == pytest.approx(two["loss"], rel=1e-12)
        assert one["gradients"], method
        for gradient, together in zip(one["gradients"], two["gradients"], strict=True):
            assert np.abs(gradient).max() > 1e-6, method
            np.testing.assert_allclose(together, gradient, rtol=0, atol=1e-12)
        assert one["meta"] == pytest.approx(two["meta"], rel=1e-9)
        assert one["leaks"] == pytest.approx(two["leaks"], abs=1e-12)


@pytest.mark.full
@pytest.mark.usefixtures("from_here")
def test_torchrun_writes_one_model(workspace: Path) -> None:
    write_params(
        workspace / "params.yaml", parse_overrides(["training.epochs=2", "training.curves=[1]", "data.train_size=200"])
    )
    for stage in (stages.fetch, stages.plan):
        stage(config.load())
    done = run([*TOGETHER, "pipeline", "train"], workspace)
    assert done.stderr.count("epoch 2/2") == 1
    training = json.loads((workspace / "artifacts/model/training.json").read_text())
    assert training["processes"] == 2
    assert (workspace / "artifacts/model/epoch_rows.npz").exists()
    assert not list((workspace / ".run").glob("**/state.pt"))


@pytest.mark.full
@pytest.mark.usefixtures("from_here")
def test_an_error_of_several_processes_is_one_line(workspace: Path) -> None:
    stages.fetch(config.load(overrides={"train_size": 200}))
    failed = run(
        [sys.executable, "-m", "pipeline", "train", "--processes", "2", "batch_size=3"], workspace, check=False
    )
    assert failed.returncode == 1
    # torch's own log has a line if one process ends while the other one still connects; a fault of NCCL is only there.
    (line,) = [line for line in failed.stderr.splitlines() if "ProcessGroupGloo.cpp" not in line]
    assert line.startswith("error: 2 processes train together on batches of 3 rows") and failed.stdout == ""


def test_of_processes_that_fail_the_first_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    store = dist.TCPStore("localhost", 0, is_master=True)
    for name, value in (("MASTER_ADDR", "localhost"), ("MASTER_PORT", str(store.port)), (launch.RUN, "of a test")):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(launch, "PATIENCE", timedelta(seconds=0.2))
    with pytest.raises(RuntimeError, match="a fault"), launch.single_message(2, 0):
        raise RuntimeError("a fault of its own, which nobody explains")
    with pytest.raises(ConfigError, match="no device"), launch.single_message(2, 1):
        raise ConfigError("no device")
    for error in (ConfigError("no device"), RuntimeError("Connection closed by peer")):
        with pytest.raises(SystemExit, match="1"), launch.single_message(2, 0):
            raise error


def test_stages_by_hand_train_with_the_rows_that_were_fetched(
    workspace: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """data.held_out_size, data.dataset are fetch's: `train` finds what they made."""
    assert main(["train"]) == 1
    assert "card.json is missing; run the fetch stage first" in capfd.readouterr().err
    assert main(["fetch", "dataset=breast_cancer", "held_out_size=60"]) == 0
    assert main(["train", "method=ce+unit_l2", "epochs=1"]) == 0
    notes = json.loads((workspace / "artifacts/model/training.json").read_text())["notes"]
    assert "Training also used the 60 set-aside rows." in notes


def test_stages_that_no_process_can_share_are_refused(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(launch, "_is_first_to_fail", lambda: True)
    assert main(["all"]) == 1
    assert "2 processes of all, but only train can share its work" in capfd.readouterr().err


def test_what_processes_cannot_share_is_refused(workspace: Path) -> None:
    digits, four = data.load(Data(train_size=200)), Processes(0, 4)
    loop.check_processes(plan(digits, Training(batch_size=6)), digits, ALONE)
    with pytest.raises(ConfigError, match="raise batch_size to 8 or more"):
        loop.check_processes(plan(digits, Training(batch_size=6)), digits, four)
    apart = data.load(Data(train_size=200, held_out_size=100))
    looking = Training(method="ce_meta_sece", method_options={"lookahead": "all"})
    with pytest.raises(ConfigError, match=r"set method_options\.lookahead: head"):
        loop.check_processes(plan(apart, looking), apart, four)


def test_shares_of_a_batch_are_all_of_it() -> None:
    rows = torch.arange(23)
    parts = [Processes(rank, 3).share(rows) for rank in range(3)]
    assert torch.equal(torch.cat(parts), rows)
    assert [len(part) for part in parts] == Processes(0, 3).sizes(23) == [8, 8, 7]


@pytest.mark.parametrize(
    "augment", [Augmentation(2, True), Augmentation(1, True, crop_scale=0.4, randaugment=1), Augmentation()]
)
@pytest.mark.parametrize("ahead", [True, False])
def test_each_process_makes_its_share_of_the_batch_that_one_would_make(augment: Augmentation, ahead: bool) -> None:
    x = np.random.default_rng(0).integers(0, 256, (11, 8, 8, 3), dtype=np.uint8)
    card = {"input": {"kind": "image"}, "normalise": {"mean": [0.5] * 3, "std": [0.2] * 3}}
    rows = Batches.of(DataSet({"train": (x, np.arange(11))}, card), "train", torch.device("cpu"), augment)
    rows = replace(rows, draws_ahead=ahead)
    whole = list(rows.shuffle(6, torch.Generator().manual_seed(3)))
    made = [
        list(rows.shuffle(6, torch.Generator().manual_seed(3), share=Processes(rank, 2).share)) for rank in range(2)
    ]
    for (inputs, labels), (first, all_labels), (second, _) in zip(whole, *made, strict=True):
        assert len(first) == 3 and len(first) + len(second) == len(labels)
        assert torch.equal(torch.cat([first, second]), inputs) and torch.equal(all_labels, labels)


def test_a_process_drops_as_it_would_have_without_a_kill() -> None:
    """Shares are of unequal sizes, and yet the first one's random state is everybody's: a checkpoint needs no other."""
    dropout, cpu = torch.nn.Dropout(), torch.device("cpu")
    masks, states = [], []
    for rank, rows in ((0, 8), (1, 7)):
        torch.manual_seed(5)
        for _ in range(2):
            with Processes(rank, 2).own_draws(cpu):
                dropout(torch.ones(rows, 4))
        states.append(torch.get_rng_state())
        with Processes(rank, 2).own_draws(cpu):
            masks.append(dropout(torch.ones(7, 4)))
    assert torch.equal(*states)
    assert not torch.equal(*masks), "rows of two processes do not share their masks"
    torch.set_rng_state(states[0])
    with Processes(1, 2).own_draws(cpu):
        assert torch.equal(dropout(torch.ones(7, 4)), masks[1])
