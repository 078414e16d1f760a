"""Resolution of params.yaml to a Plan: names are looked up, defaults filled in, and invalid settings refused."""

from __future__ import annotations

import logging

from pipeline import methods, nets
from pipeline.config import Training
from pipeline.data.raw import PIXELS, WORDS, Kind
from pipeline.methods.composition import Composition
from pipeline.nets.shape import Shape
from pipeline.training import recipes
from pipeline.training.plan import Plan
from pipeline.training.provenance import code_hashes
from pipeline.training.recipe import Recipe
from pipeline.training.start import freezing, initial_weights
from trueodds.errors import ConfigError
from trueodds.processes import extensions

log = logging.getLogger("pipeline.training")

LOOP, ENSEMBLE = "pipeline.training.loop", "pipeline.training.ensemble"
APART = ("separate", "interleaved")
"""Values of `when` of penalties with gradients of their own."""


def plan_of(training: Training, dataset: str, kind: Kind, *, held_out: bool) -> Plan:
    """Return the plan of a run.

    Args:
        training: The section `training` of params.yaml.
        dataset: Name of the data set.
        kind: Kind of its rows.
        held_out: Whether the data set has set-aside rows.

    Raises:
        ConfigError: A recipe, net, method or option is unknown; the initial weights do not exist; settings contradict
            each other or the kind of rows; the method needs set-aside rows and there are none; or `curves` names an
            epoch that the run does not have.

    Examples:
        >>> from pipeline.config import Training
        >>> plan_of(Training(method="fl3"), "wine", "vector", held_out=False).net.name
        'mlp'
    """
    method = methods.resolve(training.method, training.method_options)
    recipe = recipes.resolve(training, dataset, kind, method.recipe)
    options = {name: getattr(training, name) for name in nets.OPTIONS}
    shape = nets.resolve(recipe.net, **options)
    _check_net(shape, training, dataset, kind)
    _check_words(training, recipe, method, dataset, kind)
    start = None if training.start is None else initial_weights.find(training.start)
    _check_freezing(recipe, shape, start is not None)
    if kind not in PIXELS:
        _refuse_augmentation(recipe, method, dataset, kind)
    _check_held_out(method, recipe, held_out)
    _check_compile(method, recipe, dataset, kind)
    _check_average(recipe)
    _check_snapshots(recipe)
    if recipe.sam:
        _check_sharpness(method, recipe)
    if recipe.validate_every > 1 and recipe.selection != "last":
        raise ConfigError(
            f"training.validate_every is {recipe.validate_every}, and selection {recipe.selection} needs the"
            " validation rows after every epoch; set validate_every: 1, or selection: last"
        )
    if late := [epoch for epoch in sorted(training.curves) if epoch > recipe.epochs]:
        raise ConfigError(
            f"training.curves names epoch {late[0]}; allowed are the epochs of this run, 1 to {recipe.epochs}"
        )
    named = [*training.method.split("+"), *(part.name for part in method.components)]
    registered = [*extensions.lookup("methods", named), *extensions.lookup("nets", [shape.name])]
    users = [file for extension in registered for file in extension.files() if file.suffix == ".py"]
    entry = LOOP if recipe.members == 1 else ENSEMBLE
    code = code_hashes([entry, *shape.modules(), *method.modules()], users)
    code |= {extension.title: extension.sha256() for extension in registered}
    distributions = tuple(sorted({extension.distribution.requirement for extension in registered}))
    epochs = tuple(sorted(set(training.curves)))
    measured = tuple(dict.fromkeys(training.epoch_metrics))
    return Plan(shape, recipe, method, training.seed, training.device, epochs, code, start, measured, distributions)


def _check_freezing(recipe: Recipe, shape: Shape, has_start: bool) -> None:
    """Raise ConfigError if frozen layers would have random weights, or settings of freezing contradict each other."""
    if recipe.freeze == freezing.NOTHING and not recipe.head_epochs:
        return
    if not has_start:
        keeps = f"training.freeze is {recipe.freeze}, head_epochs {recipe.head_epochs}"
        raise ConfigError(
            f"{keeps}: some layers would keep random weights; set training.start to initial weights,"
            f" such as {initial_weights.TORCHVISION}resnet18, or freeze: {freezing.NOTHING} and head_epochs: 0"
        )
    freezing.check(shape, recipe.freeze)
    if recipe.freeze == freezing.BODY and recipe.head_epochs:
        raise ConfigError(
            f"training.head_epochs is {recipe.head_epochs}, and freeze is {freezing.BODY}: only the head learns in all"
            " epochs; set head_epochs: 0, or freeze to the part that stays frozen after them"
        )
    if recipe.head_epochs >= recipe.epochs and recipe.freeze != freezing.BODY:
        raise ConfigError(
            f"training.head_epochs is {recipe.head_epochs} of {recipe.epochs} epochs; set it lower, or set freeze:"
            f" {freezing.BODY} to train only the head"
        )


def _check_net(shape: Shape, training: Training, dataset: str, kind: Kind) -> None:
    """Raise ConfigError if the net takes another kind of rows."""
    if shape.kind != kind:
        source = f"recipe {training.recipe!r} has the net" if training.net is None else "training.net is"
        allowed = nets.names(kind)[0]
        raise ConfigError(
            f"{source} {shape.name!r}, which takes {shape.kind}s, and data set {dataset!r} holds {kind}s; set net:"
            f" {allowed}, or another of `trueodds nets`"
        )


def _check_words(training: Training, recipe: Recipe, method: Composition, dataset: str, kind: Kind) -> None:
    """Raise ConfigError for settings that texts and trees do not support, and for settings of trees with other rows."""
    if kind != "tree":
        for leaf in ("vectors_rate", "node_weight"):
            if getattr(training, leaf) is not None:
                problem = f"training.{leaf} is {getattr(training, leaf):g}, which needs trees, and data set {dataset!r}"
                raise ConfigError(f"{problem} holds {kind}s; set it to null")
    if kind not in ("text", "tree"):
        return
    if mixed := [part.name for part in method.components if part.mixes]:
        raise ConfigError(
            f"method {method.name!r}: {mixed[0]} mixes the numbers of rows, and data set {dataset!r} holds {kind}s,"
            f" whose numbers are word ids; leave {mixed[0]} out (smoothing works on {kind}s)"
        )
    if kind != "tree":
        return
    if method.held_out_parts:
        raise ConfigError(
            f"method {method.name!r}: {' and '.join(method.held_out_parts)} learns from set-aside rows, which trees do"
            f" not support; use another method (data set {dataset!r} holds {kind}s)"
        )
    if recipe.freeze != freezing.NOTHING or recipe.head_epochs or training.start is not None:
        raise ConfigError(
            "training.start, freeze and head_epochs are for images and vectors, and data set"
            f" {dataset!r} holds trees; set start: null, freeze: null and head_epochs: null"
        )


def _refuse_augmentation(recipe: Recipe, method: Composition, dataset: str, kind: Kind) -> None:
    """Raise ConfigError for settings that change pixels if the rows have none."""
    if recipe.padding or recipe.flip:
        raise ConfigError(
            f"training.padding is {recipe.padding} and flip {str(recipe.flip).lower()}: they move the pixels of images,"
            f" and data set {dataset!r} holds {kind}s; set padding: 0 and flip: false, or recipe:"
            f" {recipes.AUTOMATIC[kind]}"
        )
    if recipe.crop_scale or recipe.randaugment:
        raise ConfigError(
            f"training.crop_scale is {recipe.crop_scale:g} and randaugment {recipe.randaugment}: they change the pixels"
            f" of images, and data set {dataset!r} holds {kind}s; set both to 0"
        )
    if views := [part.name for part in method.components if part.role == "views"]:
        raise ConfigError(
            f"method {method.name!r}: {views[0]} changes the pixels of images, and data set {dataset!r} holds {kind}s;"
            f" leave {views[0]} out (mixup works on {kind}s)"
        )


def _check_compile(method: Composition, recipe: Recipe, dataset: str, kind: Kind) -> None:
    """Raise ConfigError for settings that compiled bodies do not support.

    These are changing sizes, and another pass before the gradient of a step is complete.
    """
    problem = f"training.compile is {recipe.compile}"
    if recipe.compile == "off":
        return
    if kind == "tree":
        raise ConfigError(f"{problem}, and data set {dataset!r} holds trees of different shapes; set it to off")
    if recipe.compile == "graphs" and kind in WORDS:
        raise ConfigError(f"{problem}, and data set {dataset!r} holds {kind}s of many lengths; set compile: features")
    if method.looks_through_all:
        raise ConfigError(
            f"{problem}, and method {method.name!r} looks ahead through every layer, which compiled bodies do not"
            " support; set compile: off, or method_options.lookahead: head"
        )
    if recipe.compile == "graphs" and (again := method.parts_that_pass_again):
        raise ConfigError(
            f"{problem}, and method {method.name!r}: {' and '.join(again)} passes through the net again before a"
            " step's gradient is complete, which overwrites the graph's memory; set compile: features"
        )


def _check_average(recipe: Recipe) -> None:
    """Raise ConfigError for averages of weights that contradict each other or average less than two epochs."""
    if recipe.ema and recipe.swa:
        raise ConfigError(
            f"training.ema is {recipe.ema:g} and swa {recipe.swa:g}; a run keeps one average of its weights: set one of"
            " them to 0"
        )
    if recipe.swa and recipe.epochs - recipe.swa_begin < 2:
        cure = f"set it to {2 / recipe.epochs:.3g} or more, or to 0" if recipe.epochs > 1 else "set it to 0"
        raise ConfigError(
            f"training.swa is {recipe.swa:g} of {recipe.epochs} epochs, which leaves fewer than two epochs to average;"
            f" {cure}"
        )


def _check_snapshots(recipe: Recipe) -> None:
    """Raise ConfigError for settings that a snapshot ensemble does not support."""
    if recipe.snapshots == 1:
        return
    problem = f"training.snapshots is {recipe.snapshots}"
    if recipe.schedule != "cosine" or recipe.swa_rate or recipe.warmup:
        raise ConfigError(
            f"{problem}, which needs a cosine schedule in cycles, and schedule is {recipe.schedule}, warmup"
            f" {recipe.warmup:g}, swa_rate {recipe.swa_rate:g}; set schedule: cosine, warmup: 0 and swa_rate: 0"
        )
    if recipe.epochs % recipe.snapshots:
        nearest = max(1, round(recipe.epochs / recipe.snapshots)) * recipe.snapshots
        raise ConfigError(
            f"{problem}, and {recipe.epochs} epochs are not whole epochs for each cycle; set epochs: {nearest}"
        )
    if recipe.selection != "last" or recipe.ema or recipe.swa or recipe.head_epochs:
        raise ConfigError(
            f"{problem}, which keeps the nets at the ends of the cycles; selection is {recipe.selection}, ema"
            f" {recipe.ema:g}, swa {recipe.swa:g}, head_epochs {recipe.head_epochs}; set selection: last, ema: 0,"
            " swa: 0 and head_epochs: 0"
        )
    if recipe.members > 1:
        raise ConfigError(
            f"{problem} and members {recipe.members}; an ensemble is either of snapshots or of members: set one of them"
            " to 1"
        )


def _check_sharpness(method: Composition, recipe: Recipe) -> None:
    """Raise ConfigError for settings that sharpness-aware minimisation does not support."""
    problem = f"training.sam is {recipe.sam:g}"
    if recipe.compile == "graphs":
        raise ConfigError(
            f"{problem}, which moves the weights between two passes of a step, and compile is graphs; set compile:"
            " features"
        )
    apart = [part.name for part in method.components if part.role == "meta" or part.options.get("when") in APART]
    if apart:
        raise ConfigError(
            f"{problem}, and method {method.name!r}: {' and '.join(apart)} takes gradients of its own, for which there"
            " are no worst weights; set sam: 0, or when: joint"
        )


def _check_held_out(method: Composition, recipe: Recipe, held_out: bool) -> None:
    """Check set-aside rows against the method and the recipe; warn if nothing uses them."""
    if held_out and not method.held_out_parts and recipe.held_out == "apart":
        log.warning(
            "method %s does not use the set-aside rows; training.held_out=official makes them training rows",
            method.name,
        )
    if recipe.held_out == "official" and not held_out:
        raise ConfigError(
            "training.held_out is 'official', and there are no set-aside rows; leave it null, or set data.held_out_size"
        )
    if method.held_out_parts and not held_out:
        raise ConfigError(
            f"method {method.name!r}: {' and '.join(method.held_out_parts)} learns from set-aside rows, and"
            " there are none; set data.held_out_size, such as 5000 for CIFAR or 100 for digits, and fetch again"
        )
