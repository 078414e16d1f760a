"""Named training recipes: the papers' own, and short ones for two CPU cores. A leaf set in params.yaml wins."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Literal

from pipeline.config import Training, unknown


@dataclass(frozen=True)
class Recipe:
    """How a net is optimised: SGD with momentum, step schedule.

    learning_rate is multiplied by .1 at each milestone, a fraction of the run, so the schedule scales with `epochs`.
    reduction and clip: the papers' public code sums the loss over the batch and clips the gradient's norm to 2 at
    every step; the mean needs neither.
    threads: of the CPU; None is torch's choice. Sums depend on it in the last bits.
    """

    about: str
    net: str
    epochs: int
    batch_size: int = 128
    learning_rate: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    milestones: tuple[float, ...] = (150 / 350, 250 / 350)
    reduction: Literal["mean", "sum"] = "mean"
    clip: float | None = None
    padding: int = 4
    flip: bool = True
    threads: int | None = None


RECIPES = {
    "digits": Recipe(
        "8 x 8 digits in seconds on one CPU thread: no flips, shifts of one pixel",
        net="resnet8",
        epochs=24,
        batch_size=64,
        padding=1,
        flip=False,
        threads=1,  # so small that a second thread gains little, and on a busy machine waiting for it costs 50 times
    ),
    "cpu": Recipe("32 x 32 images within 30 minutes on 2 cores", net="resnet8", epochs=30),
    "papers-350": Recipe(
        "CIFAR in the focal, BSCE-GRA and gamma-net papers: 350 epochs, drops at 150 and 250; sum over the batch and"
        " gradients clipped to 2 as in their public code",
        net="resnet18",
        epochs=350,
        reduction="sum",
        clip=2.0,
    ),
    "papers-100": Recipe(
        "Tiny-ImageNet in the same papers: 100 epochs, drops at 40 and 60, batch 64",
        net="resnet18",
        epochs=100,
        batch_size=64,
        milestones=(0.4, 0.6),
        reduction="sum",
        clip=2.0,
    ),
}


def resolve(training: Training, dataset: str) -> Recipe:
    """The named recipe with the leaves of params.yaml that are not null put over it.

    Raises:
        ConfigError: an unknown recipe.
    """
    name = ("digits" if dataset == "digits" else "cpu") if training.recipe == "auto" else training.recipe
    if name not in RECIPES:
        raise unknown("recipe", name, ["auto", *RECIPES])
    leaves = {field.name: getattr(training, field.name, None) for field in fields(Recipe)}
    return replace(RECIPES[name], **{key: value for key, value in leaves.items() if value is not None})
