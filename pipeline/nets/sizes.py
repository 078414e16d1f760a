"""How large a net is, and how fast it trains on the machine at hand."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from statistics import median
from typing import NamedTuple

import torch
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from pipeline.data.raw import WORDS, Kind
from pipeline.data.vision import torchvision
from pipeline.nets.net import Net, Shape
from pipeline.nets.text import SKIPPED, VECTORS, WordNet

ROWS: dict[Kind, tuple[int, ...]] = {"image": (3, 32, 32), "vector": (30,), "text": (100, 1000), "tree": (100, 19)}
CLASSES = 100
"""What the figures are of: rows of these sizes, channels or features first; of texts and trees the numbers of a word's
vector and the words. The vectors themselves are not counted."""


class Size(NamedTuple):
    """parameters: of the net with 100 classes. flops: floating-point operations to answer one row, an addition and a
    multiplication being two; of convolutions, products of matrices and attention."""

    parameters: int
    flops: int


def size(shape: Shape, sizes: tuple[int, ...] | None = None) -> Size:
    """Parameter and FLOP count of a net for rows of some sizes (ROWS otherwise). Runs on the `meta` device, except for
    nets of words, whose cost depends on the number of words.
    """
    sizes = sizes or ROWS[shape.kind]
    torchvision()  # its first import within a `torch.device` context would make its own tensors there
    device = "cpu" if shape.kind in WORDS else "meta"
    with torch.device(device), FlopCounterMode(display=False) as counter, torch.no_grad():
        net = _net(shape, sizes[0]).eval()
        net(_rows(shape, 1, sizes))
    parameters = sum(parameter.numel() for name, parameter in net.named_parameters() if name != VECTORS)
    return Size(parameters, counter.get_total_flops())


def rows_a_second(shape: Shape, *, batch_size: int = 32, repeats: int = 3) -> float:
    """How many rows a second a net trains on, here: a pass and its backward pass; the median of some, after a first."""
    sizes = ROWS[shape.kind]
    net = _net(shape, sizes[0]).train().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    rows = _rows(shape, batch_size, sizes)
    seconds = []
    for _ in range(1 + repeats):
        start = time.perf_counter()
        logits = net(rows)
        torch.autograd.backward(F.cross_entropy(logits, torch.arange(len(logits)) % CLASSES))
        seconds.append(time.perf_counter() - start)
    return batch_size / median(seconds[1:])


def device_name(name: str) -> str:
    """Name of the hardware behind `training.device`, such as NVIDIA H100, on the machine at hand."""
    if name != "cpu" and torch.cuda.is_available():
        return str(torch.cuda.get_device_name())
    return f"{platform.machine()} CPU, {os.cpu_count()} cores"


def _net(shape: Shape, inside: int) -> Net:
    net = shape.build(inside, CLASSES)
    if isinstance(net, WordNet):
        net.embed(torch.randn(SKIPPED + 1, inside))
    return net


def _rows(shape: Shape, count: int, sizes: tuple[int, ...]) -> torch.Tensor:
    return _OF_WORDS[shape.kind](count, sizes[1]) if shape.kind in WORDS else torch.randn(count, *sizes)


def _texts(count: int, words: int) -> torch.Tensor:
    return torch.full((count, words), SKIPPED)


def _chains(count: int, leaves: int) -> torch.Tensor:
    """Trees of nodes with a leaf to the left each, the deepest there are; every node with a label."""
    below = [[SKIPPED, -1, -1, 0, 0]] * leaves
    inner = [[0, leaves - 1 - height, leaves - 2 + height, 0, height] for height in range(1, leaves)]
    return torch.tensor(below + inner).expand(count, -1, -1)


_OF_WORDS: dict[Kind, Callable[[int, int], torch.Tensor]] = {"text": _texts, "tree": _chains}
