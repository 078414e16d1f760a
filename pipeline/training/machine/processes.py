"""Several processes that train one net, each on its share of every batch, with the same result as one process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx

from pipeline.methods.batch import RandomState
from trueodds.errors import ConfigError

T = TypeVar("T")

WORLD, LOCAL = "WORLD_SIZE", "LOCAL_RANK"
"""Environment variables that torchrun sets for each process."""


@dataclass(frozen=True)
class Processes:
    """This process among those of a run; a single process needs no communication.

    The features of a batch are gathered, with their graph, before the head. After that each process has the whole
    batch. So losses, penalties over batches, learned exponents and all records equal those of one process. Only a net's
    body runs on shares. Batch normalisation sees a share: its statistics are those of `share` rows.

    Attributes:
        rank: Number of this process, from 0 on.
        world: Number of processes.
    """

    rank: int = 0
    world: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes files."""
        return self.rank == 0

    def share(self, rows: Tensor) -> Tensor:
        """Return this process's rows of a batch; shares differ by at most one row."""
        return rows if self.world == 1 else rows.tensor_split(self.world)[self.rank]

    def gather(self, rows_ND: Tensor, total: int) -> Tensor:
        """Return the `total` rows of all processes in the batch's order; gradients flow back to each row's process."""
        if self.world == 1:
            return rows_ND
        whole: Tensor = _Gather.apply(rows_ND, self, total)  # type: ignore[no-untyped-call]
        return whole

    @contextmanager
    def own_draws(self, device: torch.device) -> Iterator[None]:
        """Draw from a random stream of this process's own inside the block, as dropout of its rows must.

        The stream's seed is drawn from the stream that all processes share. So draws for whole batches are the same in
        all processes, and the random states of the first one hold for all. If the block draws nothing, no seed is
        consumed, and the draws equal those of a single process.
        """
        if self.world == 1:
            yield
            return
        with RandomState.of(device).again():
            torch.manual_seed(int(torch.randint(1 << 62, ())) + self.rank)
            before = RandomState.of(device)
            yield
            drew = not before.equals(RandomState.of(device))
        if drew:
            torch.randint(1 << 62, ())

    def sizes(self, total: int) -> list[int]:
        """Return the number of rows of each process for a batch of `total` rows."""
        return [total // self.world + (rank < total % self.world) for rank in range(self.world)]

    def add_up(self, gradients: Sequence[Tensor], alike: Sequence[bool]) -> None:
        """Sum gradients over processes in place.

        Gradients that come from a process's share are summed. Gradients that each process has completely (`alike`) are
        averaged, which removes differences by rounding.
        """
        if self.world == 1 or not gradients:
            return
        flat = torch.cat(
            [g.reshape(-1) / (self.world if same else 1) for g, same in zip(gradients, alike, strict=True)]
        )
        dist.all_reduce(flat)
        for gradient, part in zip(gradients, torch.split(flat, [g.numel() for g in gradients]), strict=True):
            gradient.copy_(part.view_as(gradient))

    def agree(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors by those of the first process, in place."""
        for tensor in tensors if self.world > 1 else ():
            dist.broadcast(tensor, 0)

    def wait(self) -> None:
        """Wait until all processes are here."""
        if self.world > 1:
            dist.barrier()

    def in_turn(self, work: Callable[[], T]) -> T:
        """Run `work` in one process after the other, so that each finds the files that earlier ones have written."""
        done = [work()] if self.is_first else []
        for rank in range(1, self.world):
            self.wait()
            if rank == self.rank:
                done.append(work())
        self.wait()
        return done[0]

    def from_first(self, value: Any) -> Any:
        """Return the first process's value."""
        if self.world == 1:
            return value
        held = [value]
        dist.broadcast_object_list(held, 0)
        return held[0]


ALONE = Processes()


class _Gather(torch.autograd.Function):
    """Gather of all rows. All processes then compute the same, so the gradient is a slice without communication."""

    @staticmethod
    def forward(ctx: FunctionCtx, rows_ND: Tensor, processes: Processes, total: int) -> Tensor:
        """Return the rows of all processes."""
        sizes = processes.sizes(total)
        ctx.begin, ctx.end = sum(sizes[: processes.rank]), sum(sizes[: processes.rank + 1])  # type: ignore[attr-defined]
        padded = rows_ND.new_zeros(max(sizes), *rows_ND.shape[1:])
        padded[: len(rows_ND)] = rows_ND
        parts = [torch.empty_like(padded) for _ in sizes]
        dist.all_gather(parts, padded)
        return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])

    @staticmethod
    def backward(ctx: FunctionCtx, gradient_ND: Tensor) -> tuple[Tensor, None, None]:
        """Return the gradient of this process's rows."""
        return gradient_ND[ctx.begin : ctx.end], None, None  # type: ignore[attr-defined]


@contextmanager
def join(device: str) -> Iterator[Processes]:
    """Join the processes that torchrun started, with NCCL on CUDA and Gloo on CPUs; without torchrun, yield ALONE.

    On CUDA each process takes the device of its local rank.

    Raises:
        ConfigError: This machine has fewer CUDA devices than processes.
    """
    world = int(os.environ.get(WORLD, "1"))
    if world == 1:
        yield ALONE
        return
    cuda = device == "cuda" or (device == "auto" and torch.cuda.is_available())
    if cuda:
        local = int(os.environ.get(LOCAL, "0"))
        if local >= torch.cuda.device_count():
            raise ConfigError(
                f"process {local} of this machine has no CUDA device of its own: there are {torch.cuda.device_count()};"
                f" start as many processes (torchrun --nproc-per-node {torch.cuda.device_count()}), or set device: cpu"
            )
        torch.cuda.set_device(local)
    dist.init_process_group("nccl" if cuda else "gloo")
    try:
        yield Processes(dist.get_rank(), dist.get_world_size())
    finally:
        dist.destroy_process_group()


def is_of_head(net: nn.Module) -> list[bool]:
    """Return for each parameter that learns whether it belongs to the head, which gets whole batches."""
    return [name.startswith("head.") for name, parameter in net.named_parameters() if parameter.requires_grad]
