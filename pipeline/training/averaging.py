"""Averages of a net's weights over steps (EMA) or over epochs (SWA), which the run measures, selects and keeps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from pipeline.methods.batch import RandomState
from pipeline.nets.net import Net
from pipeline.training.batches import Augmentation, Batches
from pipeline.training.recipe import Recipe

BATCH_ROWS = 128
"""Rows in a batch when batch normalisation is estimated anew."""


class WeightAverage:
    """An average of the weights beside the net that learns.

    With `recipe.ema` = d, after step t (from 0 on)

        average_0 = w_0,    average_t = d_t average_(t-1) + (1 - d_t) w_t,    d_t = min(d, (1 + t) / (10 + t)).

    The small d_t at the start keeps the random first weights out of a short run's average. The running statistics of
    batch normalisation are averaged with the same d_t; integer buffers are copied.

    With `recipe.swa` = s, the average is the mean of the weights at the ends of the last s x epochs epochs. A mean over
    epochs is too far from each of its nets for their statistics. So batch normalisation is estimated anew from the
    training rows, without augmentation, before each measurement (`settle`).

    Args:
        recipe: The recipe, with either `ema` or `swa`.
        net: The net before the first step.

    References:
        Izmailov et al. 2018, Averaging Weights Leads to Wider Optima and Better Generalization, algorithm 1. The ramp
        d_t is that of TensorFlow's ExponentialMovingAverage.
    """

    def __init__(self, recipe: Recipe, net: Net) -> None:
        self._recipe = recipe
        ema = recipe.ema > 0
        self._model = AveragedModel(net, multi_avg_fn=self._mix if ema else None, use_buffers=ema)

    @property
    def is_begun(self) -> bool:
        """Whether any weights were averaged."""
        return int(self._model.n_averaged) > 0

    @property
    def net(self) -> Net:
        """The net with the averaged weights."""
        module = self._model.module
        assert isinstance(module, Net)
        return module

    def after_step(self, net: Net) -> None:
        """Add the weights after a step, for EMA."""
        if self._recipe.ema:
            self._model.update_parameters(net)

    def after_epoch(self, net: Net, epoch: int) -> None:
        """Add the weights after epoch number `epoch`, from 1 on, for SWA."""
        if self._recipe.swa and epoch > self._recipe.swa_begin:
            self._model.update_parameters(net)

    def settle(self, net: Net, rows: Batches, seed: int) -> None:
        """Estimate the statistics of batch normalisation of an SWA average from the training rows.

        Statistics of frozen layers stay. The random draws of training do not change.

        Args:
            net: The net that learns, whose frozen layers are the average's.
            rows: The training rows.
            seed: Seed of their order.
        """
        if not self._recipe.swa or not self.is_begun:
            return
        average = self.net
        for ours, theirs in zip(average.parameters(), net.parameters(), strict=True):
            ours.requires_grad_(theirs.requires_grad)
        average.train()
        # torch's update_bn would reset the frozen layers too, and the others would learn from what these give then.
        learning = {
            module: module.momentum
            for module in average.modules()
            if isinstance(module, _BatchNorm) and module.training
        }
        for module in learning:
            module.reset_running_stats()
            module.momentum = None  # the mean over batches
        random = RandomState.of(next(average.parameters()).device)
        with random.again(), torch.no_grad():
            for inputs in _plain(rows, seed) if learning else ():
                average(inputs)
        for module, momentum in learning.items():
            module.momentum = momentum
        average.eval()

    def notes(self, epoch: int) -> list[str]:
        """Return a note for the card; `epoch` is the one whose weights the run keeps."""
        recipe = self._recipe
        if recipe.ema:
            return [f"The weights are an exponential moving average over the training steps (decay {recipe.ema:g})."]
        if epoch <= recipe.swa_begin:
            return [
                f"The weights are those of epoch {epoch}. The average over epochs (swa) began after it, with epoch"
                f" {recipe.swa_begin + 1}."
            ]
        return [
            f"The weights are the mean of those after epochs {recipe.swa_begin + 1} to {epoch} (SWA); batch"
            " normalisation was estimated anew from the training rows."
        ]

    def tensors(self) -> list[Tensor]:
        """Return the averaged weights and buffers."""
        return list(self.net.state_dict().values())

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return self._model.state_dict()

    def restore(self, state: dict[str, Any]) -> None:
        """Restore a `state`."""
        self._model.load_state_dict(state)

    def _mix(self, averages: Sequence[Tensor], current: Sequence[Tensor], _count: Tensor | int) -> None:
        """Mix weights into their exponential moving average, in place. Integers are copied."""
        if not averages[0].is_floating_point():
            for ours, theirs in zip(averages, current, strict=True):
                ours.copy_(theirs)
            return
        step = int(self._model.n_averaged)  # on the CPU; _count is a copy on the device of the weights
        decay = min(self._recipe.ema, (1 + step) / (10 + step))
        get_ema_multi_avg_fn(decay)(list(averages), list(current), step)  # type: ignore[no-untyped-call]


def _plain(rows: Batches, seed: int) -> Iterator[Tensor]:
    """Yield the rows once, without augmentation, in a random order: batches of one class have too small a variance."""
    plain = replace(rows, augment=Augmentation(), draws_ahead=False)
    for inputs, _ in plain.shuffle(BATCH_ROWS, torch.Generator().manual_seed(seed)):
        yield inputs
