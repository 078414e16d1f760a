"""Named training recipes: the papers' own, and short ones for two CPU cores. Settings in params.yaml override them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pipeline.config import OptionValue, Training
from pipeline.training.recipe import Recipe
from trueodds.errors import ConfigError, unknown

if TYPE_CHECKING:
    from pipeline.data.raw import Kind

USUAL_RATE = {"sgd": 0.1, "adam": 0.001, "adamw": 0.001, "adagrad": 0.01}
"""Optimizer -> learning rate, if params.yaml names another optimizer than the recipe and no learning_rate."""

AUTOMATIC: dict[Kind, str] = {"image": "cpu", "vector": "mlp", "text": "newsgroups", "tree": "sst"}
"""Kind of rows -> recipe that `auto` selects. Digits have a recipe of their own."""


@dataclass(frozen=True)
class NamedRecipe:
    """A recipe that params.yaml can name.

    Attributes:
        about: Description.
        recipe: The recipe.
        beside: Other settings of params.yaml in the paper's runs: splits and seeds.
        paper_nets: Nets of the paper's tables, if the recipe has no net: the paper has several, or none exists here.
    """

    about: str
    recipe: Recipe
    beside: str = ""
    paper_nets: str = ""


def _paper(about: str, epochs: int, beside: str = "", paper_nets: str = "", **changes: Any) -> NamedRecipe:
    """Return a recipe of the focal paper's public code, which later papers also use: summed loss, clipped gradients."""
    return NamedRecipe(about, replace(Recipe("", epochs, reduction="sum", clip=2.0), **changes), beside, paper_nets)


def _words(about: str, vectors: str, beside: str = "", **settings: Any) -> NamedRecipe:
    """Return a recipe of words: a constant rate, the epoch with the lowest validation error, and rows as they are."""
    recipe = Recipe(schedule="constant", selection="val_error", padding=0, flip=False, **settings)
    return NamedRecipe(about, recipe, f"embeddings={vectors}{f'; {beside}' if beside else ''}")


def _newsgroups(about: str, epochs: int, beside: str = "", **changes: Any) -> NamedRecipe:
    """Return a recipe of 20 Newsgroups."""
    vectors = "glove.6B.100d.txt validation_size=900 truncation_side=left"
    settings = {"optimizer": "adam", "learning_rate": 0.001, "weight_decay": 0.0, **changes}
    return _words(about, vectors, beside, net="gp_cnn", epochs=epochs, **settings)


def _sst(about: str, epochs: int, beside: str = "") -> NamedRecipe:
    """Return a recipe of the Stanford Sentiment Treebank."""
    settings = {"optimizer": "adagrad", "learning_rate": 0.05, "weight_decay": 1e-4, "vectors_rate": 0.1}
    return _words(about, "glove.840B.300d.txt", beside, net="tree_lstm", epochs=epochs, batch_size=25, **settings)


RECIPES = {
    "digits": NamedRecipe(
        "8 x 8 digits in seconds on one CPU thread: no flips, shifts of one pixel",
        Recipe(
            net="resnet8",
            epochs=24,
            batch_size=64,
            padding=1,
            flip=False,
            threads=1,  # a second thread gains little, and on a busy machine waiting for it takes 50 times as long
        ),
    ),
    "cpu": NamedRecipe("32 x 32 images within 30 minutes on 2 cores", Recipe(net="resnet8", epochs=30)),
    "papers-350": _paper(
        "CIFAR in the focal and BSCE-GRA papers: the learning rate drops at epochs 150 and 250. The loss is summed and"
        " the gradient clipped as in their public code",
        350,
        beside="validation_size=5000; BSCE-GRA: seed=1, 42, 71",
        paper_nets="resnet50, resnet110, wrn26_10, densenet121",
    ),
    "papers-100": _paper(
        "Tiny-ImageNet in the focal paper's public code: the learning rate drops at epochs 40 and 60",
        100,
        net="resnet50_tiny",
        batch_size=64,
        milestones=(0.4, 0.6),
    ),
    "bsce-100": _paper(
        "Tiny-ImageNet in the BSCE-GRA paper: the learning rate drops at epochs 40 and 60",
        100,
        milestones=(0.4, 0.6),
        net="resnet50_tiny",
        beside="seed=1, 42, 71",
    ),
    "gamma-net": _paper(
        "CIFAR and Tiny-ImageNet in the gamma-net paper: the learning rate drops at epochs 150 and 250. The loss is"
        " summed and the gradient clipped as in the code that it adapts",
        350,
        net="resnet18",
        selection="val_error",
        beside="five seeds. The paper splits the rows 8:1:1 itself, and the last part is for the look-ahead",
    ),
    "soft-calibration": NamedRecipe(
        "CIFAR in the soft calibration objectives paper, which does not print its schedule. So the schedule is that of"
        " the Wide-ResNet baseline in the repository of its code: one epoch of warm-up, the learning rate drops to a"
        " fifth at epochs 60, 120 and 160, Nesterov momentum, 2e-4 of the squared weights. The paper tunes"
        " weight_decay",
        Recipe(
            net="wrn28_10",
            epochs=200,
            nesterov=True,
            weight_decay=4e-4,
            milestones=(60 / 200, 120 / 200, 160 / 200),
            decay=0.2,
            warmup=1 / 200,
        ),
        "batch_size=512 learning_rate=0.4, the same rate per row; ten seeds",
    ),
    "imagenet-90": NamedRecipe(
        "ImageNet in the soft calibration objectives paper, which does not print its schedule. So the schedule is that"
        " of the ResNet-50 baseline in the repository of its code: five epochs of warm-up, the learning rate drops to a"
        " tenth at epochs 30, 60 and 80, Nesterov momentum, 1e-4 of the squared weights. The paper tunes weight_decay",
        Recipe(
            net="torchvision_resnet50",
            epochs=90,
            batch_size=256,
            nesterov=True,
            weight_decay=2e-4,
            milestones=(30 / 90, 60 / 90, 80 / 90),
            warmup=5 / 90,
            padding=0,
            crop_scale=0.08,
        ),
        "image_size=224; ten seeds",
    ),
    "augmix": NamedRecipe(
        "CIFAR in the AugMix paper and its public code (Hendrycks et al. 2020)",
        Recipe(net="", epochs=100, nesterov=True, schedule="cosine"),
        "method=augmix seed=1",
        "AllConvNet, DenseNet-BC (densenet100), Wide ResNet-40-2, ResNeXt-29",
    ),
    "mlp": NamedRecipe(
        "tables of up to some ten thousand rows: seconds on one CPU thread for breast_cancer and wine",
        Recipe(
            net="mlp",
            epochs=40,
            batch_size=32,
            optimizer="adam",
            learning_rate=0.001,
            weight_decay=1e-4,
            schedule="cosine",
            padding=0,
            flip=False,
            threads=1,
        ),
    ),
    "finetune": NamedRecipe(
        "fine-tuning on photos of 224 px, from pretrained weights (training.start): the head alone for the first"
        " epochs, then all layers; 50 epochs as in the"
        " BSCE-GRA paper's Table 7 (its net: net=vit_b_16 resize=224 for CIFAR), whose other settings are not printed",
        Recipe(
            net="torchvision_resnet50",
            epochs=50,
            batch_size=64,
            optimizer="adamw",
            learning_rate=1e-4,
            weight_decay=0.05,
            schedule="cosine",
            warmup=0.1,
            padding=0,
            crop_scale=0.08,
            head_epochs=5,
        ),
        "start=torchvision:resnet50",
    ),
    "finetune-head": NamedRecipe(
        "fine-tuning on photos on two cores, from pretrained weights (training.start): the features are computed once,"
        " and only the head is trained on them",
        Recipe(
            net="torchvision_resnet18",
            epochs=50,
            optimizer="adamw",
            learning_rate=0.001,
            weight_decay=0.01,
            schedule="cosine",
            padding=0,
            flip=False,
            freeze="body",
        ),
        "start=torchvision:resnet18",
    ),
    "newsgroups": _newsgroups("20 Newsgroups in the focal paper", 50),
    "newsgroups-official": _newsgroups(
        "20 Newsgroups in the focal paper's public code",
        22,
        beside="fls531 and fls532 change at epochs 6 and 15: first_change=0.2727 second_change=0.6818",
        reduction="sum",
    ),
    "sst": _sst("Stanford Sentiment Treebank in the focal paper", 25),
    "sst-official": _sst(
        "Stanford Sentiment Treebank in the focal paper's public code",
        10,
        beside="method=fls531_tiny and fls532_tiny, whose gamma changes at epochs 3 and 7",
    ),
}


def resolve(
    training: Training, dataset: str, kind: Kind, of_method: Mapping[str, OptionValue] = MappingProxyType({})
) -> Recipe:
    """Return the named recipe with the method's settings, and with those in params.yaml that are not null.

    Args:
        training: The section `training` of params.yaml.
        dataset: Name of the data set.
        kind: Kind of its rows.
        of_method: Settings of the method's preset.

    Raises:
        ConfigError: The recipe is unknown, it has no net and none is named, or the optimizer or schedule does not have
            one of the settings.
    """
    automatic = "digits" if dataset == "digits" else AUTOMATIC[kind]
    name = automatic if training.recipe == "auto" else training.recipe
    if name not in RECIPES:
        raise unknown("recipe", name, ["auto", *RECIPES])
    named = RECIPES[name].recipe
    leaves = training.model_dump(include={field.name for field in fields(Recipe)}, exclude_none=True)
    changes: dict[str, Any] = {
        **of_method,
        **{key: tuple(v) if isinstance(v, list) else v for key, v in leaves.items()},
    }
    if changes.get("optimizer", named.optimizer) != named.optimizer:
        changes.setdefault("learning_rate", USUAL_RATE[changes["optimizer"]])
    recipe = replace(named, **changes)
    _refuse_idle(recipe, changes, ("momentum", "nesterov"), "optimizer", "sgd")
    _refuse_idle(recipe, changes, ("milestones", "decay"), "schedule", "step")
    if recipe.optimizer == "sgd" and recipe.nesterov and not recipe.momentum:
        raise ConfigError("training.nesterov is true, but momentum is 0; set momentum above 0, or nesterov: false")
    if recipe.swa_rate and not recipe.swa:
        raise ConfigError(
            f"training.swa_rate = {recipe.swa_rate:g} needs swa, and swa is 0; set swa: 0.25, or leave swa_rate null"
        )
    if not recipe.net:
        raise ConfigError(
            f"recipe {name!r} has no net of its own; its paper's tables have {RECIPES[name].paper_nets}. Name the net"
            f" to train, such as net: {RECIPES[AUTOMATIC[kind]].recipe.net} (trueodds nets)"
        )
    return recipe


def _refuse_idle(recipe: Recipe, changes: dict[str, object], leaves: tuple[str, ...], key: str, value: str) -> None:
    """Raise ConfigError for a setting that would have no effect, unless it is the recipe's own."""
    for leaf in leaves:
        if leaf in changes and getattr(recipe, key) != value:
            raise ConfigError(
                f"training.{leaf} = {changes[leaf]!r} needs {key} {value}, and {key} is {getattr(recipe, key)};"
                f" leave {leaf} null, or set {key}: {value}"
            )
