"""A training recipe: the numbers of the optimisation, and the schedule of the learning rate."""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import torch
    from torch import nn


@dataclass(frozen=True)
class Recipe:
    """Settings of the optimisation of a net, and of the selection of its weights.

    Attributes:
        net: Name of a net (`pipeline.nets`). Empty if the paper's nets do not exist here; params.yaml must then name
            one.
        epochs: Number of epochs.
        batch_size: Rows in a batch.
        optimizer: The optimizer.
        learning_rate: Highest learning rate.
        momentum: Momentum of sgd.
        nesterov: Whether sgd uses Nesterov momentum.
        weight_decay: An L2 term in the gradient; for adamw it is decoupled (Loshchilov and Hutter 2019).
        schedule: Schedule of the learning rate (`rate_at`).
        milestones: Fractions of the run at which a step schedule multiplies the rate by `decay`. As they are fractions,
            the schedule scales with `epochs`.
        decay: Factor of a step schedule.
        warmup: Fraction of the run during which the rate rises from 0.
        selection: last takes the last epoch. The others take the first epoch with the least validation error, NLL, or
            NLL after temperature scaling.
        reduction: sum or mean of the losses of a batch. The papers' public code sums, and clips the gradient's norm to
            2 at every step; the mean needs neither.
        clip: Largest norm of the gradient; 0 means no clipping.
        padding: Zero padding of images before a random crop, in pixels.
        flip: Whether to flip images at random.
        crop_scale: Smallest area share of a random resized crop; 0 means none.
        randaugment: Number of RandAugment operations; 0 means none.
        freeze: Part of the net that does not learn (`pipeline.training.start.freezing`).
        head_epochs: Number of first epochs in which only the head learns.
        vectors_rate: For trees, the learning rate of the word vectors: plain SGD without decay or schedule. 0: they do
            not learn.
        node_weight: For trees, the factor of the loss of a node that is not a root. A tree's loss is the sum over its
            labelled nodes, and a batch's loss is the mean over trees.
        held_out: Use of set-aside rows if the method does not learn from them. apart: none, so that it has as many rows
            as methods that do. official: they are training rows, as in the public code of meta-calibration.
        threads: Threads of the CPU; 0 is torch's choice. Sums depend on it in the last bits.
        precision: Precision of the net's body in training steps; bfloat16 uses autocast. Pooling, head, loss,
            penalties, measurements and files are always float32.
        compile: Whether torch.compile compiles the same part: off, features, or graphs (as CUDA graphs).
        validate_every: Number of epochs between two measurements of the validation rows; the last epoch is always
            measured.
        ema: Decay of an exponential moving average of the weights (`pipeline.training.averaging`); 0 means none.
        swa: Share of the epochs, at the end of the run, whose weights are averaged; 0 means none.
        swa_rate: Constant learning rate in those epochs; 0 means that of the schedule.
        sam: Radius rho of sharpness-aware minimisation (`pipeline.training.sharpness`); 0 means none.
        snapshots: Number of cycles of a cosine schedule, whose last nets form a snapshot ensemble; 1 means none.
        members: Number of nets of a deep ensemble (`pipeline.training.ensemble`); 1 means a single net.
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
    ema: float = 0.0
    swa: float = 0.0
    swa_rate: float = 0.0
    sam: float = 0.0
    snapshots: int = 1
    members: int = 1

    @property
    def swa_begin(self) -> int:
        """Number of epochs before the first one whose weights are averaged."""
        return self.epochs - round(self.swa * self.epochs)

    def rate_at(self, progress: float) -> float:
        """Return the learning rate at `progress` in [0, 1) through the run.

        step: learning_rate x decay for each milestone passed. cosine: learning_rate (1 + cos(pi c)) / 2, where c is the
        progress through the present one of the `snapshots` cycles (Huang et al. 2017, equation 2).
        constant: learning_rate. Before `warmup` the rate is multiplied by progress / warmup, so it rises linearly from
        0. In the epochs that `swa` averages, the rate is `swa_rate`, if that is not 0.

        Examples:
            >>> [Recipe("mlp", 10, schedule="cosine").rate_at(t) for t in (0.0, 0.5)]
            [0.1, 0.05]
        """
        if self.swa_rate and progress * self.epochs >= self.swa_begin - 1e-9:  # rounding of a step's progress
            return self.swa_rate
        highest = self.learning_rate * (progress / self.warmup if progress < self.warmup else 1.0)
        if self.schedule == "cosine":
            cycle = progress if self.snapshots == 1 else (self.snapshots * progress + 1e-9) % 1  # rounding, as above
            return highest * (1 + math.cos(math.pi * cycle)) / 2
        passed = sum(progress >= milestone for milestone in self.milestones) if self.schedule == "step" else 0
        return float(highest * self.decay**passed)

    def optimizer_of(self, net: nn.Module) -> torch.optim.Optimizer:
        """Return the optimizer of all parameters except word vectors, at the highest learning rate."""
        import torch

        from pipeline.nets.text import VECTORS

        settings: dict[str, Any] = {"lr": self.learning_rate, "weight_decay": self.weight_decay}
        parameters = [parameter for name, parameter in net.named_parameters() if name != VECTORS]
        kinds: dict[str, Any] = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "adagrad": torch.optim.Adagrad}
        kind = kinds.get(self.optimizer, torch.optim.SGD)
        if kind is torch.optim.SGD:
            settings |= {"momentum": self.momentum, "nesterov": self.nesterov}
            if parameters[0].is_cuda:  # one kernel for all parameters, and a rate that changes without a new kernel
                settings |= {"fused": True, "lr": torch.tensor(self.learning_rate, device=parameters[0].device)}
        made: torch.optim.Optimizer = (eager_class(kind) if self.compile == "off" else kind)(parameters, **settings)
        return made

    def vectors_optimizer_of(self, net: nn.Module) -> torch.optim.Optimizer | None:
        """Return the optimizer of the word vectors, if the net learns them."""
        import torch

        from pipeline.nets.text import VECTORS

        vectors = [parameter for name, parameter in net.named_parameters() if name == VECTORS]
        if not (vectors and self.vectors_rate):
            return None
        kind: Any = eager_class(torch.optim.SGD) if self.compile == "off" else torch.optim.SGD
        made: torch.optim.Optimizer = kind(vectors, self.vectors_rate)
        return made


@cache
def eager_class(kind: type[torch.optim.Optimizer]) -> type[torch.optim.Optimizer]:
    """Return an optimizer's class for training without torch.compile. It takes the same steps.

    Torch wraps the methods of an optimizer, so that torch.compile leaves them alone. Each wrapper loads the compiler
    (`torch._dynamo`, and sympy with it), 1,200 modules: on one core this takes seconds, as long as a short training.

    Args:
        kind: A class of torch.optim. Its option `differentiable` stays off.
    """
    import torch

    wrapped = ("add_param_group", "load_state_dict", "state_dict", "zero_grad")
    methods = {name: inspect.unwrap(getattr(kind, name)) for name in wrapped}
    step = torch.no_grad()(inspect.unwrap(kind.step))
    return type(kind.__name__, (kind,), {**methods, "step": step})
