"""Size of a net, and its training speed on this machine."""

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
from pipeline.nets.net import Net
from pipeline.nets.shape import Shape
from pipeline.nets.text import SKIPPED, VECTORS, WordNet

ROWS: dict[Kind, tuple[int, ...]] = {"image": (3, 32, 32), "vector": (30,), "text": (100, 1000), "tree": (100, 19)}
CLASSES = 100
"""Row sizes and classes for which sizes are given. Channels or features come first; for texts and trees, the width of a
word vector and the number of words. The word vectors themselves are not counted.
"""
OUR_NETS = "pipeline.nets."
"""Start of the places of our own nets. None of them needs torchvision, whose import takes a second of a processor."""


class Size(NamedTuple):
    """Size of a net.

    Attributes:
        parameters: Number of parameters with 100 classes.
        flops: Floating-point operations for one row. An addition and a multiplication are two operations. Convolutions,
            matrix products and attention are counted.
    """

    parameters: int
    flops: int


def size(shape: Shape, sizes: tuple[int, ...] | None = None) -> Size:
    """Return parameter and FLOP count of a net for rows of some sizes (default ROWS).

    It runs on the `meta` device, except for text and tree nets, whose cost depends on the number of words.
    """
    sizes = sizes or ROWS[shape.kind]
    if not shape.net.startswith(OUR_NETS):
        torchvision()  # must not be imported first inside a `torch.device` context, which would move its own tensors
    device = "cpu" if shape.kind in WORDS else "meta"
    with torch.device(device), torch.no_grad():
        net, rows = _net(shape, sizes[0]).eval(), _rows(shape, 1, sizes)
        with FlopCounterMode(display=False) as counter:  # the initial weights are made outside of it: it is slow
            net(rows)
    parameters = sum(parameter.numel() for name, parameter in net.named_parameters() if name != VECTORS)
    return Size(parameters, counter.get_total_flops())


def rows_a_second(shape: Shape, *, batch_size: int = 32, repeats: int = 3) -> float:
    """Return the number of rows per second that a net trains on, on this machine.

    It is the median time of some forward and backward passes, after a first one.
    """
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
    """Return the name of the hardware behind `training.device` on this machine, such as NVIDIA H100."""
    return gpu_name(name) or f"{platform.machine()} CPU, {os.cpu_count()} cores"


def gpu_name(name: str) -> str | None:
    """Return the name of the GPU behind `training.device` on this machine; None if nets are trained on the CPU."""
    return str(torch.cuda.get_device_name()) if name != "cpu" and torch.cuda.is_available() else None


def _net(shape: Shape, inside: int) -> Net:
    """Build a net with some word vectors."""
    net = shape.build(inside, CLASSES)
    if isinstance(net, WordNet):
        net.embed(torch.randn(SKIPPED + 1, inside))
    return net


def _rows(shape: Shape, count: int, sizes: tuple[int, ...]) -> torch.Tensor:
    """Return random rows."""
    return _OF_WORDS[shape.kind](count, sizes[1]) if shape.kind in WORDS else torch.randn(count, *sizes)


def _texts(count: int, words: int) -> torch.Tensor:
    """Return texts of one word."""
    return torch.full((count, words), SKIPPED)


def _chains(count: int, leaves: int) -> torch.Tensor:
    """Return trees whose inner nodes each have a leaf to the left, the deepest possible; every node has a label."""
    below = [[SKIPPED, -1, -1, 0, 0]] * leaves
    inner = [[0, leaves - 1 - height, leaves - 2 + height, 0, height] for height in range(1, leaves)]
    return torch.tensor(below + inner).expand(count, -1, -1)


_OF_WORDS: dict[Kind, Callable[[int, int], torch.Tensor]] = {"text": _texts, "tree": _chains}
