"""How a net is optimised: the numbers of a training recipe, and the schedule of the learning rate."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from pipeline.nets.text import VECTORS


@dataclass(frozen=True)
class Recipe:
    """How a net is optimised, and which epoch's weights are taken.

    net: a name of `pipeline.nets`; of a paper whose nets are not here empty, until params.yaml names another.
    schedule: `rate_at` below. milestones and warmup are fractions of the run, so the schedule scales with `epochs`.
    weight_decay: an L2 term in the gradient, of adamw apart from it (Loshchilov and Hutter 2019).
    freeze: what of the net does not learn (`pipeline.training.start.freezing`). head_epochs: so many epochs at first in
    which the head alone learns.
    selection: last epoch, or the first epoch of least validation error, NLL, or NLL after temperature scaling.
    reduction and clip: the papers' public code sums the loss over the batch and clips the gradient's norm to 2 at
    every step; the mean needs neither. clip 0: none.
    held_out: what becomes of held-out rows that the method does not learn from. apart: nothing, so that it has as many
    rows as the methods that do. official: they are training rows, as in the public code of meta-calibration.
    vectors_rate, node_weight: of trees, whose loss is the sum over the labelled nodes, and whose batch's the mean over
    trees. The words' vectors go down by plain SGD at this rate, without decay or schedule (0: they do not learn); the
    loss of a node that is no root is multiplied by the weight.
    threads: of the CPU; 0 is torch's choice. Sums depend on it in the last bits.
    precision: of the net's body in training steps, bfloat16 by autocast; pooling, head, loss, penalties, and all that
    is measured and written are float32 in any case. compile: the same part by torch.compile; graphs: as CUDA graphs.
    validate_every: so many epochs lie between two measurements of the validation rows; the last is always measured.
    """

    net: str
    epochs: int
    batch_size: int = 128
    optimizer: Literal["sgd", "adam", "adamw", "adagrad"] = "sgd"
    learning_rate: float = 0.1
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 5e-4
    schedule: Literal["step", "cosine", "constant"] = "step"
    milestones: tuple[float, ...] = (150 / 350, 250 / 350)
    decay: float = 0.1
    warmup: float = 0.0
    selection: Literal["last", "val_error", "val_nll", "val_refinement"] = "last"
    reduction: Literal["mean", "sum"] = "mean"
    clip: float = 0.0
    padding: int = 4
    flip: bool = True
    crop_scale: float = 0.0
    randaugment: int = 0
    freeze: str = "nothing"
    head_epochs: int = 0
    vectors_rate: float = 0.0
    node_weight: float = 1.0
    held_out: Literal["apart", "official"] = "apart"
    threads: int = 0
    precision: Literal["float32", "bfloat16"] = "float32"
    compile: Literal["off", "features", "graphs"] = "off"
    validate_every: int = 1

    def rate_at(self, progress: float) -> float:
        """The learning rate at `progress` in [0, 1) through the run.

        step: learning_rate x decay for each milestone passed. cosine: learning_rate (1 + cos(pi progress)) / 2.
        constant. Until `warmup` times progress / warmup: the rate rises linearly from 0.
        """
        highest = self.learning_rate * (progress / self.warmup if progress < self.warmup else 1.0)
        if self.schedule == "cosine":
            return highest * (1 + math.cos(math.pi * progress)) / 2
        passed = sum(progress >= milestone for milestone in self.milestones) if self.schedule == "step" else 0
        return float(highest * self.decay**passed)

    def optimizer_of(self, net: nn.Module) -> torch.optim.Optimizer:
        """The optimizer of the net's parameters but its words' vectors, at the highest learning rate."""
        settings: dict[str, Any] = {"lr": self.learning_rate, "weight_decay": self.weight_decay}
        parameters = [parameter for name, parameter in net.named_parameters() if name != VECTORS]
        if self.optimizer == "adam":
            return torch.optim.Adam(parameters, **settings)
        if self.optimizer == "adamw":
            return torch.optim.AdamW(parameters, **settings)
        if self.optimizer == "adagrad":
            return torch.optim.Adagrad(parameters, **settings)
        if parameters[0].is_cuda:  # one kernel for all parameters, and a rate that changes without a new one
            settings |= {"fused": True, "lr": torch.tensor(self.learning_rate, device=parameters[0].device)}
        return torch.optim.SGD(parameters, momentum=self.momentum, nesterov=self.nesterov, **settings)

    def vectors_optimizer_of(self, net: nn.Module) -> torch.optim.SGD | None:
        """That of the words' vectors, where the net learns them."""
        vectors = [parameter for name, parameter in net.named_parameters() if name == VECTORS]
        return torch.optim.SGD(vectors, self.vectors_rate) if vectors and self.vectors_rate else None
