"""Given weights into a net, name by name."""

from __future__ import annotations

import torch
from torch import Tensor

from pipeline.nets.net import Net
from pipeline.training.start.source import WeightsError

HEAD = ("head.weight", "head.bias")
COUNTERS = "num_batches_tracked"
SHOWN = 10
"""Names that a message lists."""


def load(net: Net, state: dict[str, Tensor], source: str) -> str:
    """Takes the weights; the head stays as drawn where they have none, or one of another number of classes.

    Returns what became of the head, for the card.

    Raises:
        WeightsError: weights of another net, or that are not finite.
    """
    given, own = net.own_names(state), net.state_dict()
    body = [name for name in own if name not in HEAD and not name.endswith(COUNTERS)]
    problems = [f"{name} is missing" for name in body if name not in given]
    problems += [f"{name} is none of its own" for name in given if name not in own]
    problems += [
        f"{name} is {_size(given[name])}, here {_size(own[name])}"
        for name in [*body, HEAD[0]]
        if name in given and not _fits(name, given[name], own[name])
    ]
    if problems:
        more = f" and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
        raise WeightsError(
            f"{source} does not hold weights of this net ({len(problems)} names differ: {'; '.join(problems[:SHOWN])}"
            f"{more}); set training.net, width and depth to those of the net that they are of (trueodds nets)"
        )
    if bad := [name for name, tensor in given.items() if not bool(torch.isfinite(tensor.float()).all())]:
        raise WeightsError(f"{source}: {bad[0]} holds values that are not finite numbers")
    classes = len(own[HEAD[1]])
    if HEAD[0] not in given or HEAD[1] not in given:
        note = "The last layer is new: the weights have none."
    elif len(given[HEAD[1]]) != classes:
        theirs = len(given[HEAD[1]])
        note = f"The last layer is new: that of the weights is of {theirs:,} classes, the data's of {classes:,}."
    else:
        note = f"The last layer began as that of the weights, which has {classes:,} classes, too."
    new = "is new" in note
    net.load_state_dict({n: t for n, t in given.items() if not (new and n in HEAD)}, strict=False)
    return note


def _fits(name: str, given: Tensor, own: Tensor) -> bool:
    """Of the head only the features must be as many."""
    return given.shape[1:] == own.shape[1:] if name in HEAD else given.shape == own.shape


def _size(tensor: Tensor) -> str:
    return " x ".join(map(str, tensor.shape)) or "one number"
