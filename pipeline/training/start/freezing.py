"""Freezing: the choice of the weights that do not learn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trueodds.errors import ConfigError, nearest

if TYPE_CHECKING:
    from torch import nn

    from pipeline.nets.net import Net
    from pipeline.nets.shape import Shape

NOTHING, BODY = "nothing", "body"
SHOWN = 30


def freeze(net: Net, upto: str) -> None:
    """Freeze all weights up to a stage, and let the others learn.

    Args:
        net: The net.
        upto: nothing; body, which is all but the head; or the name of a module. The module is frozen with all modules
            registered before it. In every net here those come earlier in the forward pass. In training mode, frozen
            layers keep their statistics and dropout as in evaluation (`Net.train`).

    Raises:
        ConfigError: The net has no such module.
    """
    parameters = dict(net.named_parameters())
    frozen = _frozen(net, list(parameters), upto)
    for name, parameter in parameters.items():
        parameter.requires_grad_(name not in frozen)


def check(shape: Shape, upto: str) -> None:
    """Raise ConfigError as `freeze` does, for a net that is not built yet."""
    if upto in (NOTHING, BODY):
        return
    import torch

    from pipeline.data.vision import torchvision

    torchvision()  # must not be imported first inside a `torch.device` context
    with torch.device("meta"):
        freeze(shape.build(3, 2), upto)


def _frozen(net: Net, names: list[str], upto: str) -> set[str]:
    """Return the names of the weights that are frozen."""
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
    """Return the net's modules with weights and those of its sequences, without the head."""
    from torch import nn

    found = []
    for name, module in net.named_modules():
        parent, level = net.get_submodule(name.rpartition(".")[0]), name.count(".")
        if name not in ("", "head") and (level < 2 or isinstance(parent, nn.Sequential)) and list(module.parameters()):
            found.append(name)
    return found
