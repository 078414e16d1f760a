"""Gradient of an outer loss through one step of the net, with a forward-mode pass instead of a second backward pass.

The step is theta' = theta - lr c(g) with g = d(R F)/d theta. F is the objective of the training batch. R is the number
of rows if losses are summed over the batch, and 1 if they are averaged. c clips to a norm. Let v = d outer / d theta'.
Where clipping to c is active, replace v by (c / |g|)(v - g (g . v) / |g|^2). For an objective
F = 1/B (sum_n l(z_n, phi) + penalty(theta, phi)) + rest the gradient is

    d outer / d phi = -lr R/B d/d phi [ sum_n l'(z_n, phi) . (J v)_n + v . d penalty / d theta ].

J v is the change of the logits along v: one forward-mode pass of the training batch, or a matrix product for the last
layer alone. Only l and the penalty are differentiated twice, and their arguments are the logits and the weights.
(The step is plain gradient descent as in Luketina et al. 2016. Its clipping is that of the focal paper's code.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.func import functional_call
from torch.nn import functional as F

from pipeline.methods.batch import ForwardPass, RandomState
from pipeline.methods.looking_ahead import Descent, TrainingLoss
from pipeline.methods.meta.outer import OuterLoss
from pipeline.nets.net import Net
from trueodds.errors import ConfigError

Tensors = Sequence[Tensor]


@dataclass(frozen=True)
class LookAhead:
    """Result of a look-ahead, detached.

    Attributes:
        gradient: d outer / d phi for each meta parameter.
        before: Outer loss before the step.
        after: Outer loss after the step.
        leak: Gradient that the public code also adds to the net's own; empty for the other variants.
    """

    gradient: tuple[Tensor, ...]
    before: Tensor
    after: Tensor
    leak: list[Tensor] = field(default_factory=list)


def through_head(
    method: TrainingLoss, net: Net, phi: Tensors, batch: ForwardPass, held_out: tuple[Tensor, Tensor], outer: OuterLoss,
    descent: Descent,
) -> LookAhead:  # fmt: skip
    """Look ahead through a step of the last layer alone, clipped by its own norm.

    It costs one pass of the set-aside rows, and no backward pass through the net. Running statistics do not change.
    """
    inputs, labels = held_out
    theta = [net.head.weight, net.head.bias]
    inner = _Inner.of(method, net, theta, batch, descent.is_sum)
    features_ND = batch.features.detach()
    g = inner.by_weights((inner.by_logits_NC.mT @ features_ND, inner.by_logits_NC.sum(0)))
    with torch.no_grad(), separate_buffers(net):
        held_out_ND = net.features(inputs)
        before = outer(net.head(held_out_ND), labels)
    ahead = _ahead(theta, g, descent)
    after = outer(F.linear(held_out_ND, *ahead), labels)
    v = _before_clipping(torch.autograd.grad(after, ahead), g, descent.clip)
    with torch.no_grad():
        tangent_NC = F.linear(features_ND, *v)
    return LookAhead(inner.gradient(phi, tangent_NC, v, descent.rate), before, after.detach())


def through_all(
    method: TrainingLoss, net: Net, phi: Tensors, batch: ForwardPass, held_out: tuple[Tensor, Tensor], outer: OuterLoss,
    descent: Descent,
) -> LookAhead:  # fmt: skip
    """Look ahead through a step of every layer.

    It costs a backward pass for the step, one for the set-aside rows, and the forward-mode pass.
    """
    inputs, labels = held_out
    named = {name: parameter for name, parameter in net.named_parameters() if parameter.requires_grad}
    theta = list(named.values())
    inner = _Inner.of(method, net, theta, batch, descent.is_sum)
    along = torch.autograd.grad(batch.logits, theta, inner.by_logits_NC, retain_graph=True, materialize_grads=True)
    g = inner.by_weights(along)
    with torch.no_grad(), separate_buffers(net):
        before = outer(net(inputs), labels)
    ahead = _ahead(theta, g, descent)
    with separate_buffers(net):
        after = outer(functional_call(net, dict(zip(named, ahead, strict=True)), (inputs,)), labels)
    v = _before_clipping(torch.autograd.grad(after, ahead, materialize_grads=True), g, descent.clip)
    tangent_NC = logit_tangent(net, dict(zip(named, v, strict=True)), batch.inputs, batch.random)
    return LookAhead(inner.gradient(phi, tangent_NC, v, descent.rate), before, after.detach())


def as_public_code(
    method: TrainingLoss, net: Net, phi: Tensors, batch: ForwardPass, held_out: tuple[Tensor, Tensor], outer: OuterLoss,
    descent: Descent,
) -> LookAhead:  # fmt: skip
    """Look ahead as the public code of meta-calibration does (Bohdal et al. 2021), which differs from its paper.

    The step is one of the last layer down the SUM of the losses, whatever the recipe's reduction, without clipping. The
    graph of the outer loss also reaches the net. Its gradient there is never cleared: it is the `leak`. The set-aside
    rows change the running statistics.
    """
    inputs, labels = held_out
    theta = [net.head.weight, net.head.bias]
    summed = len(batch.labels) * torch.stack(method.terms(batch, is_step=False)).sum()
    g = torch.autograd.grad(summed, theta, create_graph=True)
    ahead = [p - descent.rate * part for p, part in zip(theta, g, strict=True)]
    held_out_ND = net.features(inputs)
    after = outer(F.linear(held_out_ND, *ahead), labels)
    with torch.no_grad():
        before = outer(net.head(held_out_ND), labels)
    parameters = [parameter for parameter in net.parameters() if parameter.requires_grad]
    both = torch.autograd.grad(after, [*phi, *parameters], retain_graph=True, materialize_grads=True)
    return LookAhead(both[: len(phi)], before, after.detach(), list(both[len(phi) :]))


def logit_tangent(net: Net, v: dict[str, Tensor], inputs: Tensor, random: RandomState) -> Tensor:
    """Return J v (N, C), the change of the logits along v, by forward-mode differentiation.

    The pass repeats the one that began at `random`: the same batch statistics, the same dropout.

    Args:
        net: The net.
        v: A direction for each parameter, by name.
        inputs: The rows.
        random: State of the random generators before the pass.

    Raises:
        ConfigError: A layer of the net has no forward mode.
    """
    with torch.no_grad(), separate_buffers(net), random.again(), forward_ad.dual_level():
        dual = {n: forward_ad.make_dual(p.detach(), v[n]) for n, p in net.named_parameters() if n in v}  # type: ignore[no-untyped-call]
        try:
            logits_NC, tangent_NC = forward_ad.unpack_dual(functional_call(net, dual, (inputs,)))  # type: ignore[no-untyped-call]
        except NotImplementedError as error:
            raise ConfigError(
                "lookahead: all needs forward-mode differentiation, and a layer of the net has none"
                f" ({str(error).splitlines()[0]}); use lookahead: head"
            ) from None
    return torch.zeros_like(logits_NC) if tangent_NC is None else tangent_NC


def check_forward_mode(net: Net, inputs: Tensor) -> None:
    """Raise ConfigError as `logit_tangent` does, tried on some rows; do not change the net."""
    directions = {name: torch.zeros_like(parameter) for name, parameter in net.named_parameters()}
    logit_tangent(net, directions, inputs, RandomState.of(inputs.device))


@contextmanager
def separate_buffers(net: nn.Module) -> Iterator[None]:
    """Give the net copies of its buffers inside the block, so that changes of batch statistics are discarded.

    Afterwards the original tensors return, not only their values, because a graph that waits for its backward pass
    refers to them.
    """
    kept = [(module, name, buffer) for module in net.modules() for name, buffer in module.named_buffers(recurse=False)]
    try:
        for module, name, buffer in kept:
            setattr(module, name, buffer.clone())
        yield
    finally:
        for module, name, buffer in kept:
            setattr(module, name, buffer)


@dataclass(frozen=True)
class _Inner:
    """Training loss R F as a function of logits z, weights theta and meta parameters phi.

    Attributes:
        by_logits_NC: d(R F)/dz.
        shaped_by_logits_NC: d/dz of the term that phi shapes, still a function of phi.
        shaped_direct: d/d theta of that term at fixed z, from the meta part's penalty; None for a weight that it does
            not depend on.
    """

    by_logits_NC: Tensor
    shaped_by_logits_NC: Tensor
    shaped_direct: Sequence[Tensor | None]

    @classmethod
    def of(cls, method: TrainingLoss, net: Net, theta: Tensors, batch: ForwardPass, is_sum: bool) -> _Inner:
        """Differentiate the terms of the training loss at the batch's logits."""
        at = batch.apart()
        scale = len(batch.labels) if is_sum else 1
        shaped, *rest = method.terms(at, is_step=False)
        first, *direct = torch.autograd.grad(scale * shaped, [at.logits, *theta], create_graph=True, allow_unused=True)
        by_logits_NC = first.detach()
        if rest:
            by_logits_NC = by_logits_NC + torch.autograd.grad(scale * torch.stack(rest).sum(), at.logits)[0]
        return cls(by_logits_NC, first, direct)

    def by_weights(self, along: Tensors) -> list[Tensor]:
        """Return d(R F)/d theta: the part through the logits and the part of the penalty."""
        both = zip(along, self.shaped_direct, strict=True)
        return [part if direct is None else part + direct.detach() for part, direct in both]

    def gradient(self, phi: Tensors, tangent_NC: Tensor, v: Tensors, rate: float) -> tuple[Tensor, ...]:
        """Return -rate d/d phi of the derivative of the training loss along v."""
        slope = (self.shaped_by_logits_NC * tangent_NC).sum()
        for part, along in zip(self.shaped_direct, v, strict=True):
            if part is not None:
                slope = slope + (part * along).sum()
        return torch.autograd.grad(-rate * slope, phi)


def _ahead(theta: Tensors, g: Tensors, descent: Descent) -> list[Tensor]:
    """Return theta after the step, as leaves of a new graph."""
    scale = _clipping(g, descent.clip)[0] if descent.clip else 1.0
    return [(p.detach() - descent.rate * scale * part).requires_grad_() for p, part in zip(theta, g, strict=True)]


def _before_clipping(v: Tensors, g: Tensors, clip: float) -> Tensors:
    """Return v multiplied by the transposed derivative of g's clipping."""
    if not clip:
        return v
    scale, norm = _clipping(g, clip)
    dot = torch.stack([(a * b).sum() for a, b in zip(g, v, strict=True)]).sum()
    along = torch.where(scale < 1, dot / (norm * (norm + ROUNDING)), 0.0)
    return [scale * (part - along * direction) for part, direction in zip(v, g, strict=True)]


def _clipping(g: Tensors, clip: float) -> tuple[Tensor, Tensor]:
    """Return (factor, norm of g), as `clip_grad_norm_` clips."""
    norm = nn.utils.get_total_norm(g)
    return (clip / (norm + ROUNDING)).clamp_max(1.0), norm


ROUNDING = 1e-6
"""Number that `torch.nn.utils.clip_grad_norm_` adds to a norm."""
