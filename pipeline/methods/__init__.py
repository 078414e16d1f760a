"""How to train for calibration, by name: `build("focal", gamma=2).loss(logits_NC, labels_N)`.

A method is a primary loss, penalties added to it, changes to labels and batches, and options of all of them. PARTS and
PRESETS (`pipeline.methods.catalogue`) are the only place where names live; `build`, the check of params.yaml,
`trueodds methods` and the tests read them. To add a loss, write a function that returns one value per sample, in a
module of its own, and enter it into PARTS: a net is trained anew when a module of its own method changes
(`pipeline.training.provenance`).
"""

from __future__ import annotations

from collections.abc import Mapping

from pipeline.config import OptionValue
from pipeline.methods import losses, penalties
from pipeline.methods.catalogue import PARTS, PRESETS
from pipeline.methods.compose import Part, Preset, compose
from pipeline.methods.composition import Composition
from pipeline.methods.gamma import gamma_star
from pipeline.methods.method import Method, Moment
from pipeline.nets.net import Net


def names() -> list[str]:
    """Every name that can stand alone."""
    return list(dict.fromkeys([*(name for name, part in PARTS.items() if part.role == "primary"), *PRESETS]))


def resolve(spec: str, options: Mapping[str, OptionValue]) -> Composition:
    """The parts of a method with all their options.

    `spec`: a primary loss (`focal`) or a preset (`fl3`), and what `+` adds (`fl3+mixup`).
    `options` are the parts' keyword arguments and win over the preset's; one that several parts have is written
    `part.option`. A penalty also has `beta`, its weight; `start`, the fraction of the run where it sets in; `when`:
    joint (in the objective), separate (a gradient of its own) or interleaved (steps of its own, on held-out rows);
    `every`, after how many steps such a step comes; and `schedule`: constant, ramp (from 0 up to beta at the run's
    end) or decay (from beta down to 0). A part that learns by looking ahead has the options of
    `pipeline.methods.meta.learner.MetaLearner`; the penalty in its outer loss has its own options, `sece.bandwidth`.
    Where the method adds the same penalty, these hold for both.

    Raises:
        ConfigError: an unknown name or option, a value of another type or out of range, or parts that do not compose.
    """
    return compose(spec, options, PARTS, PRESETS)


def build(spec: str, net: Net | None = None, /, **options: OptionValue) -> Method:
    """Composes a method; see `resolve`. What learns by looking ahead needs the net that it will train.

    >>> build("fl3+mixup", **{"mixup.alpha": 0.2}).name
    'fl3+mixup'
    """
    return resolve(spec, options).build(net)


__all__ = [
    "PARTS",
    "PRESETS",
    "Composition",
    "Method",
    "Moment",
    "Part",
    "Preset",
    "build",
    "gamma_star",
    "losses",
    "names",
    "penalties",
    "resolve",
]
