"""Penalties over the rows of two processes: the value and the gradient of all rows at once."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.multiprocessing
from torch import distributed

from pipeline.methods import penalties
from pipeline.methods.gathered import gathered
from pipeline.methods.meta.outer import OuterLoss
from pipeline.methods.weighted import Weighted
from tests.methods.batches import batch

ROWS = 6


def work(rank: int, meeting: str, out: str) -> None:
    distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2)
    logits, labels = batch(5, rows=2 * ROWS)
    mine = logits[rank * ROWS : (rank + 1) * ROWS].clone().requires_grad_()
    own = labels[rank * ROWS : (rank + 1) * ROWS]
    value = Weighted(penalties.sece).value(mine, own) + OuterLoss("ce+mmce", 0.5)(mine, own)
    torch.autograd.backward(value)
    torch.save((value.detach(), mine.grad), f"{out}/{rank}.pt")
    distributed.destroy_process_group()


@pytest.mark.full
def test_two_processes_see_the_rows_of_both(tmp_path: Path) -> None:
    torch.multiprocessing.spawn(work, (f"file://{tmp_path}/meeting", str(tmp_path)), nprocs=2)  # type: ignore[attr-defined, no-untyped-call]
    logits, labels = batch(5, rows=2 * ROWS)
    logits.requires_grad_()
    value = penalties.sece(logits, labels) + OuterLoss("ce+mmce", 0.5)(logits, labels)
    torch.autograd.backward(value)
    parts = [torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1)]
    assert all(torch.allclose(part[0], value.detach(), rtol=1e-12) for part in parts)
    mean = torch.cat([part[1] for part in parts]) / 2  # as DistributedDataParallel takes it
    assert logits.grad is not None and torch.allclose(mean, logits.grad, rtol=1e-10, atol=1e-14)


def test_a_single_process_sees_its_own_rows() -> None:
    logits, labels = batch(5)
    assert gathered(logits, labels) == (logits, labels)
