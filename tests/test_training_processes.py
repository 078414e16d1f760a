"""Two processes that train together: the loss, the gradients and what is written are those of one."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from pipeline import config, data, stages
from pipeline.config import Data, Training
from pipeline.flows.workspace import write_params
from pipeline.parameters import parse_overrides
from pipeline.training import loop
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
