"""Named training recipes: the papers' own, and short ones for two CPU cores. A leaf set in params.yaml wins."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from pipeline.config import Training
from trueodds.errors import ConfigError, unknown

USUAL_RATE = {"sgd": 0.1, "adam": 0.001, "adagrad": 0.01}
"""Where params.yaml names another optimizer than the recipe and no learning_rate."""


@dataclass(frozen=True)
class Recipe:
    """How a net is optimised, and which epoch's weights are taken.

    schedule: `learning_rate` below. milestones are fractions of the run, so the schedule scales with `epochs`.
    weight_decay: an L2 term in the gradient, for every optimizer.
    selection: last epoch, or the first epoch of least validation error or NLL.
    reduction and clip: the papers' public code sums the loss over the batch and clips the gradient's norm to 2 at
    every step; the mean needs neither. clip 0: none.
    threads: of the CPU; 0 is torch's choice. Sums depend on it in the last bits.
    beside: what the paper's runs had in other leaves of params.yaml: splits and seeds.
    """

    about: str
    net: str
    epochs: int
    batch_size: int = 128
    optimizer: Literal["sgd", "adam", "adagrad"] = "sgd"
    learning_rate: float = 0.1
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 5e-4
    schedule: Literal["step", "cosine", "constant"] = "step"
    milestones: tuple[float, ...] = (150 / 350, 250 / 350)
    decay: float = 0.1
    selection: Literal["last", "val_error", "val_nll"] = "last"
    reduction: Literal["mean", "sum"] = "mean"
    clip: float = 0.0
    padding: int = 4
    flip: bool = True
    threads: int = 0
    beside: str = ""


def _paper(about: str, epochs: int, **changes: Any) -> Recipe:
    """The focal paper's public code, on which the later papers build: loss summed over the batch, gradients clipped."""
    return replace(Recipe(about, "resnet18", epochs, reduction="sum", clip=2.0), **changes)


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
    "papers-350": _paper(
        "CIFAR in the focal and BSCE-GRA papers: drops at 150 and 250; sum and clipping as in their public code",
        350,
        beside="validation_size=5000; BSCE-GRA: seed=1, 42, 71",
    ),
    "papers-100": _paper(
        "Tiny-ImageNet in the focal paper's public code: drops at 40 and 60",
        100,
        batch_size=64,
        milestones=(0.4, 0.6),
    ),
    "bsce-100": _paper(
        "Tiny-ImageNet in the BSCE-GRA paper: drops at 40 and 60",
        100,
        milestones=(0.4, 0.6),
        beside="seed=1, 42, 71",
    ),
    "gamma-net": _paper(
        "CIFAR, Tiny-ImageNet in the gamma-net paper: drops at 150 and 250; sum and clipping as in the code it adapts",
        350,
        selection="val_error",
        beside="8:1:1, so for CIFAR validation_size=5000 held_out_size=5000; five seeds",
    ),
    "soft-calibration": Recipe(
        "CIFAR in the soft calibration objectives paper, whose schedule is not printed: drops to a fifth at 60, 120 and"
        " 160 and Nesterov are those of the Wide-ResNet baseline in the repository of its code; weight_decay is tuned",
        net="resnet18",
        epochs=200,
        nesterov=True,
        milestones=(60 / 200, 120 / 200, 160 / 200),
        decay=0.2,
        beside="ten seeds",
    ),
    "augmix": Recipe(
        "CIFAR in the AugMix paper and its public code (Hendrycks et al. 2020)",
        net="resnet18",
        epochs=100,
        nesterov=True,
        schedule="cosine",
        beside="method=augmix seed=1",
    ),
    "newsgroups": Recipe(
        "20 Newsgroups in the focal paper: its optimisation, on the net you name; there is no text net",
        net="resnet8",
        epochs=50,
        optimizer="adam",
        learning_rate=0.001,
        weight_decay=0.0,
        schedule="constant",
        selection="val_error",
        padding=0,
        flip=False,
    ),
    "sst": Recipe(
        "Stanford Sentiment Treebank in the focal paper: its optimisation, on the net you name; there is no text net",
        net="resnet8",
        epochs=25,
        batch_size=25,
        optimizer="adagrad",
        learning_rate=0.05,
        weight_decay=1e-4,
        schedule="constant",
        selection="val_error",
        padding=0,
        flip=False,
    ),
}


def learning_rate(recipe: Recipe, progress: float) -> float:
    """The schedule at `progress` in [0, 1) through the run.

    step: learning_rate x decay for each milestone passed. cosine: learning_rate (1 + cos(pi progress)) / 2. constant.
    """
    if recipe.schedule == "cosine":
        return recipe.learning_rate * (1 + math.cos(math.pi * progress)) / 2
    passed = sum(progress >= milestone for milestone in recipe.milestones) if recipe.schedule == "step" else 0
    return float(recipe.learning_rate * recipe.decay**passed)


def resolve(training: Training, dataset: str) -> Recipe:
    """The named recipe with the leaves of params.yaml that are not null put over it.

    Raises:
        ConfigError: an unknown recipe, or a leaf that the chosen optimizer or schedule does not have.
    """
    name = ("digits" if dataset == "digits" else "cpu") if training.recipe == "auto" else training.recipe
    if name not in RECIPES:
        raise unknown("recipe", name, ["auto", *RECIPES])
    leaves = {field.name: getattr(training, field.name, None) for field in fields(Recipe)}
    given: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in leaves.items() if v is not None}
    if given.get("optimizer", RECIPES[name].optimizer) != RECIPES[name].optimizer:
        given.setdefault("learning_rate", USUAL_RATE[given["optimizer"]])
    recipe = replace(RECIPES[name], **given)
    _refuse(recipe, given, ("momentum", "nesterov"), "optimizer", "sgd")
    _refuse(recipe, given, ("milestones", "decay"), "schedule", "step")
    if recipe.optimizer == "sgd" and recipe.nesterov and not recipe.momentum:
        raise ConfigError("training.nesterov is true, but momentum is 0; set momentum above 0, or nesterov: false")
    return recipe


def _refuse(recipe: Recipe, given: dict[str, object], leaves: tuple[str, ...], key: str, needed: str) -> None:
    """A setting that would be ignored is a mistake; one of the recipe's own is not."""
    for leaf in leaves:
        if leaf in given and getattr(recipe, key) != needed:
            raise ConfigError(
                f"training.{leaf} = {given[leaf]!r} is for {key} {needed}, and {key} is {getattr(recipe, key)};"
                f" leave {leaf} null, or set {key}: {needed}"
            )
