"""How large a net is, and how fast it trains on the machine at hand."""

from __future__ import annotations

import time
from statistics import median
from typing import NamedTuple

import torch
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from pipeline.data.raw import Kind
from pipeline.data.vision import torchvision
from pipeline.nets.net import Shape

ROWS: dict[Kind, tuple[int, ...]] = {"image": (3, 32, 32), "vector": (30,)}
CLASSES = 100
"""What the figures are of: rows of these sizes, channels or features first."""


class Size(NamedTuple):
    """parameters: of the net with 100 classes. flops: floating-point operations to answer one row, an addition and a
    multiplication being two; of convolutions, products of matrices and attention."""

    parameters: int
    flops: int


def size(shape: Shape) -> Size:
    """Of a net; nothing is computed, on torch's device `meta`."""
    torchvision()  # its first import within a `torch.device` context would make its own tensors there
    with torch.device("meta"), FlopCounterMode(display=False) as counter, torch.no_grad():
        net = shape.build(ROWS[shape.kind][0], CLASSES).eval()
        net(_rows(shape, 1))
    return Size(sum(parameter.numel() for parameter in net.parameters()), counter.get_total_flops())


def rows_a_second(shape: Shape, *, batch_size: int = 32, repeats: int = 3) -> float:
    """How many rows a second a net trains on, here: a pass and its backward pass; the median of some, after a first."""
    net = shape.build(ROWS[shape.kind][0], CLASSES).train().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    rows, labels = _rows(shape, batch_size), torch.arange(batch_size)
    seconds = []
    for _ in range(1 + repeats):
        start = time.perf_counter()
        torch.autograd.backward(F.cross_entropy(net(rows), labels))
        seconds.append(time.perf_counter() - start)
    return batch_size / median(seconds[1:])


def _rows(shape: Shape, count: int) -> torch.Tensor:
    return torch.randn(count, *ROWS[shape.kind])
