"""Several processes that train one net, each on its share of every batch: what they make together is what one would."""

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
"""Environment variables that torchrun sets for each process it starts."""


@dataclass(frozen=True)
class Processes:
    """This process among those of a run; one alone does nothing here.

    The features of a batch are gathered, with their graph, before the head: from there on each process has the whole
    batch, so that losses, penalties over batches, learned exponents and all that is recorded are those of one process.
    Only a net's body is run on shares. Batch normalisation sees a share: its statistics are those of `share` rows.
    """

    rank: int = 0
    world: int = 1

    @property
    def is_first(self) -> bool:
        """Whether it is the one that writes."""
        return self.rank == 0

    def share(self, rows: Tensor) -> Tensor:
        """This process's rows of a batch, all nearly as many."""
        return rows if self.world == 1 else rows.tensor_split(self.world)[self.rank]

    def gather(self, rows_ND: Tensor, total: int) -> Tensor:
        """The rows of all processes in the batch's order, `total` of them; gradients go back to their own process."""
        if self.world == 1:
            return rows_ND
        whole: Tensor = _Gather.apply(rows_ND, self, total)  # type: ignore[no-untyped-call]
        return whole

    @contextmanager
    def own_draws(self, device: torch.device) -> Iterator[None]:
        """Dropout of this process's rows: a stream of its own, from a number of the stream that all have alike.

        What draws for whole batches thus draws the same in all, and the first one's random states are everybody's. A
        body that draws nothing takes no number, so that these draws are one process's.
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
        """Rows of each process, of so many in a batch."""
        return [total // self.world + (rank < total % self.world) for rank in range(self.world)]

    def add_up(self, gradients: Sequence[Tensor], alike: Sequence[bool]) -> None:
        """In place: gradients that come of a process's share are summed; those that each has whole, `alike`, stay the
        mean, which takes out what rounding made of them.
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
        """In place: what the first process has."""
        for tensor in tensors if self.world > 1 else ():
            dist.broadcast(tensor, 0)

    def wait(self) -> None:
        """Until all are here."""
        if self.world > 1:
            dist.barrier()

    def in_turn(self, work: Callable[[], T]) -> T:
        """One process after another, so that each finds the files that those before it have kept."""
        done = [work()] if self.is_first else []
        for rank in range(1, self.world):
            self.wait()
            if rank == self.rank:
                done.append(work())
        self.wait()
        return done[0]

    def from_first(self, value: Any) -> Any:
        """Any value as the first process has it."""
        if self.world == 1:
            return value
        held = [value]
        dist.broadcast_object_list(held, 0)
        return held[0]


ALONE = Processes()


class _Gather(torch.autograd.Function):
    """All rows; every process computes the same of them, so the gradient of its own is a slice, and nothing is sent."""

    @staticmethod
    def forward(ctx: FunctionCtx, rows_ND: Tensor, processes: Processes, total: int) -> Tensor:
        sizes = processes.sizes(total)
        ctx.begin, ctx.end = sum(sizes[: processes.rank]), sum(sizes[: processes.rank + 1])  # type: ignore[attr-defined]
        padded = rows_ND.new_zeros(max(sizes), *rows_ND.shape[1:])
        padded[: len(rows_ND)] = rows_ND
        parts = [torch.empty_like(padded) for _ in sizes]
        dist.all_gather(parts, padded)
        return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])

    @staticmethod
    def backward(ctx: FunctionCtx, gradient_ND: Tensor) -> tuple[Tensor, None, None]:
        return gradient_ND[ctx.begin : ctx.end], None, None  # type: ignore[attr-defined]


@contextmanager
def joined(device: str) -> Iterator[Processes]:
    """This process among those that torchrun started, by NCCL on CUDA and Gloo on CPUs; alone without it.

    On CUDA each process takes the device of its local rank.

    Raises:
        ConfigError: fewer CUDA devices than processes on this machine.
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
    """Of each parameter that learns, whether it is of the last layer, which sees whole batches in each process."""
    return [name.startswith("head.") for name, parameter in net.named_parameters() if parameter.requires_grad]
