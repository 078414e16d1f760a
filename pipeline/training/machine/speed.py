"""Faster training steps with the same meaning: bfloat16 and compilation, of a net's body only."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from pipeline.nets.net import Net
from pipeline.nets.text import WordNet
from pipeline.training.recipe import Recipe
from trueodds.errors import ConfigError

COMPILERS = ("c++", "g++", "clang++")
Features = Callable[[Tensor], Tensor]


def check(recipe: Recipe, device: torch.device) -> None:
    """Raise ConfigError if this machine cannot compile as the recipe asks."""
    if recipe.compile == "graphs" and device.type != "cuda":
        raise ConfigError("training.compile is graphs, and CUDA graphs need a CUDA device; use features, or off")
    named = os.environ.get("CXX")
    if recipe.compile == "features" and device.type == "cpu" and not any(map(shutil.which, [*COMPILERS, named or ""])):
        raise ConfigError(
            "training.compile is features, and on a CPU torch.compile needs a C++ compiler: none of"
            f" {', '.join(COMPILERS)} is installed; install one (apt install g++), or set compile: off"
        )


@contextmanager
def accelerate(net: Net, recipe: Recipe, device: torch.device) -> Iterator[None]:
    """Replace `net.features` in training mode by the version that the recipe's `precision` and `compile` ask for.

    In evaluation mode `net.features` stays the plain version. So measurements, checkpoints and calibration use what the
    exported net computes. Features are float32 (a bfloat16 logit near 20 is a multiple of 0.125), and so are head, loss
    and penalties.

    Raises:
        ConfigError: As `check`.
    """
    check(recipe, device)
    plain: Features = net.features
    fast = plain
    if recipe.precision == "bfloat16":
        fast = _in_bfloat16(fast, device.type)
    if recipe.compile != "off":
        fast = _compile_any_length(fast) if isinstance(net, WordNet) else _compile(fast, recipe.compile == "graphs")
    if fast is plain:
        yield
        return

    def features(inputs: Tensor) -> Tensor:
        """Return fast features in training mode, plain ones otherwise."""
        return fast(inputs) if net.training else plain(inputs)

    net.features = features  # type: ignore[method-assign]
    try:
        yield
    finally:
        del net.features


def _in_bfloat16(plain: Features, device: str) -> Features:
    """Return features computed by autocast; weights, running statistics and the optimizer stay float32."""

    def features(inputs: Tensor) -> Tensor:
        with torch.autocast(device, dtype=torch.bfloat16):
            return plain(inputs).float()

    return features


def _compile_any_length(plain: Features) -> Features:
    """Compile for texts N x L: one graph for every L, and at most two for L = 1."""
    compiled = torch.compile(plain)

    def features(inputs: Tensor) -> Tensor:
        if inputs.shape[1] > 1:  # torch treats 1 as a constant
            torch._dynamo.mark_dynamic(inputs, 1)
        return compiled(inputs)

    return features


def _compile(plain: Features, graphs: bool) -> Features:
    """Compile for fixed shapes: the batches of an epoch have at most two sizes, so there are two graphs."""
    compiled = torch.compile(plain, dynamic=False, mode="reduce-overhead" if graphs else None)
    if not graphs:
        return compiled

    def features(inputs: Tensor) -> Tensor:
        torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]  # torch's stubs
        features_ND: Tensor = compiled(inputs)
        return features_ND.clone()  # the next replay overwrites the memory of this output

    return features
