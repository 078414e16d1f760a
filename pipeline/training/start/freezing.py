"""Freezing: the choice of the weights that learn."""

from __future__ import annotations

from torch import nn

from pipeline.nets.net import Net, Shape
from trueodds.errors import ConfigError, nearest

NOTHING, BODY = "nothing", "body"
SHOWN = 30


def freeze(net: Net, upto: str) -> None:
    """Lets all weights learn but those up to a stage.

    upto: nothing; body, all but the head; or the name of a module, which is frozen with what is registered before it,
    in every net here what its inputs meet before it. A net in training mode keeps the statistics and the dropout of
    frozen layers as in evaluation (`Net.train`).

    Raises:
        ConfigError: the net has no such module.
    """
    parameters = dict(net.named_parameters())
    frozen = _frozen(net, list(parameters), upto)
    for name, parameter in parameters.items():
        parameter.requires_grad_(name not in frozen)


def check(shape: Shape, upto: str) -> None:
    """Raises ConfigError as `freeze`, of a net that is not built yet."""
    if upto in (NOTHING, BODY):
        return
    import torch

    from pipeline.data.vision import torchvision

    torchvision()  # not first within a `torch.device` context
    with torch.device("meta"):
        freeze(shape.build(3, 2), upto)


def _frozen(net: Net, names: list[str], upto: str) -> set[str]:
    body = [name for name in names if not name.startswith("head.")]
    if upto in (NOTHING, BODY):
        return set(body) if upto == BODY else set()
    inside = [place for place, name in enumerate(body) if name.startswith(f"{upto}.")]
    if not inside:
        stages = _stages(net)
        shown = ", ".join(stages[:SHOWN]) + (", .." if len(stages) > SHOWN else "")
        raise ConfigError(
            f"training.freeze is {upto!r}; allowed are {NOTHING}, {BODY}, and the stages of this net: {shown}."
            f"{nearest(upto, [NOTHING, BODY, *stages])}"
        )
    return set(body[: inside[-1] + 1])


def _stages(net: nn.Module) -> list[str]:
    """The net's modules with weights, and those of its sequences, without the head."""
    found = []
    for name, module in net.named_modules():
        parent, level = net.get_submodule(name.rpartition(".")[0]), name.count(".")
        if name not in ("", "head") and (level < 2 or isinstance(parent, nn.Sequential)) and list(module.parameters()):
            found.append(name)
    return found
