"""The outer loss after one step of the net, written out: what the look-ahead is differentiated against."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.func import functional_call

from pipeline.methods.batch import ForwardPass
from pipeline.methods.looking_ahead import Descent
from pipeline.methods.method import Method
from pipeline.nets.net import Net

Outer = Callable[[Tensor, Tensor], Tensor]


def outer_after(
    method: Method, net: Net, batch: ForwardPass, held_out: tuple[Tensor, Tensor], outer: Outer, descent: Descent,
    *, whole: bool, graph: bool,
) -> Tensor:  # fmt: skip
    """outer(theta - lr clip(d(R F)/d theta)), a function of the meta parameters; with `graph` to differentiate."""
    inputs, labels = held_out
    names = [name for name, _ in net.named_parameters() if whole or name.startswith("head.")]
    theta = {name: dict(net.named_parameters())[name] for name in names}
    buffers = {name: buffer.clone() for name, buffer in net.named_buffers()}

    def logits(of: Tensor, weights: Mapping[str, Tensor]) -> Tensor:
        made: Tensor = functional_call(net, {**buffers, **weights}, (of,))
        return made

    with batch.random.again():
        net.train()
        made = ForwardPass.of(net, batch.inputs, batch.targets, batch.labels, batch.progress)
        for name, buffer in net.named_buffers():
            buffer.data.copy_(buffers[name])
        objective = method.objective(made)
        loss = objective * (len(made.labels) if descent.is_sum else 1)
        gradients = torch.autograd.grad(loss, list(theta.values()), create_graph=graph, materialize_grads=True)
        if descent.clip:
            norm = torch.sqrt(torch.stack([(g * g).sum() for g in gradients]).sum())
            factor = torch.clamp(descent.clip / (norm + 1e-6), max=1.0)
            gradients = tuple(factor * g for g in gradients)
        ahead = {name: p - descent.rate * g for (name, p), g in zip(theta.items(), gradients, strict=True)}
        return outer(logits(inputs, ahead), labels)
