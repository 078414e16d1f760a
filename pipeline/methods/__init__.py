"""Training methods for calibration, by name: `build("focal", gamma=2).loss(logits_NC, labels_N)`.

A method has one primary loss. It may add penalties, changes to labels and batches, and a part that learns by looking
ahead. The tables PARTS and PRESETS (`pipeline.methods.catalogue`) hold all names. `build`, the check of params.yaml,
`trueodds methods` and the tests read them.

To add a loss, write a function that returns one value per row, in a module of its own, and enter its place into PARTS.
The tables need no torch: the code of a part is imported when a net is trained (`pipeline.methods.code`). Another
distribution registers a `Part` or a `Preset` in the entry-point group `trueodds.methods` instead.
A net is trained again when a module of its own method changes (`pipeline.training.provenance`).

Examples:
    A loss of one's own, tried without registering it:

    >>> import torch
    >>> from pipeline.methods import losses
    >>> def half(logits_NC, targets):
    ...     return losses.cross_entropy(logits_NC, targets) / 2
    >>> parts = {**PARTS, "half": Part(half, "this example")}
    >>> compose("half", {}, parts, PRESETS).build().loss(torch.zeros(2, 2), torch.tensor([0, 1]))
    tensor(0.3466)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pipeline.methods.catalogue import PARTS, PRESETS, parts, presets
from pipeline.methods.compose import Part, Preset, compose
from pipeline.methods.composition import Composition
from pipeline.methods.gamma import gamma_star

if TYPE_CHECKING:
    from pipeline.config import OptionValue
    from pipeline.methods.method import Method
    from pipeline.nets.net import Net


def names() -> list[str]:
    """Return every name that can stand alone: primary losses, then presets."""
    return list(dict.fromkeys([*(name for name, part in parts().items() if part.role == "primary"), *presets()]))


def resolve(spec: str, options: Mapping[str, OptionValue]) -> Composition:
    """Return the parts of a method with all their options.

    Args:
        spec: A primary loss (`focal`) or a preset (`fl3`), and the parts that `+` adds (`fl3+mixup`).
        options: Keyword arguments of the parts. They override the preset's. Write `part.option` where several parts
            have an option of that name.

    Returns:
        The composition. Its `build` makes the method for one net.

    Raises:
        ConfigError: A name or option is unknown, a value has the wrong type or is out of range, or the parts cannot be
            combined.

    Every penalty also has these options:

    - `beta`: its weight.
    - `start`: the fraction of the run after which it acts.
    - `when`: joint (a term of the objective), separate (a gradient of its own) or interleaved (steps of its own, on
      set-aside rows).
    - `every`: the number of steps between two interleaved steps.
    - `schedule`: constant, ramp (from 0 to beta at the end of the run) or decay (from beta to 0).
    - `relative`: whether the weight follows the size of the primary loss (`pipeline.methods.weighted_penalty`).

    A part that learns by looking ahead has the options of `pipeline.methods.meta.meta_learner.MetaLearner`. The penalty
    in its outer loss has its own options, such as `sece.bandwidth`. If the method also adds that penalty, both use
    them.

    Examples:
        >>> resolve("focal+mmce", {"gamma": 2.0, "beta": 0.5}).to_json()["parts"]["focal"]["gamma"]
        2.0
    """
    return compose(spec, options, parts(), presets())


def build(spec: str, net: Net | None = None, /, **options: OptionValue) -> Method:
    """Compose a method from its name and options.

    Args:
        spec: The name, as in `resolve`.
        net: The net to train. Methods with a part that learns by looking ahead need it.
        **options: The options, as in `resolve`.

    Returns:
        The method, in its state before the first step.

    Raises:
        ConfigError: As in `resolve`. Also if an option has one number per class and the net has another number of
            classes.

    Examples:
        >>> build("fl3+mixup", **{"mixup.alpha": 0.2}).name
        'fl3+mixup'
    """
    return resolve(spec, options).build(net)


__all__ = [
    "PARTS",
    "PRESETS",
    "Composition",
    "Part",
    "Preset",
    "build",
    "gamma_star",
    "names",
    "parts",
    "presets",
    "resolve",
]
