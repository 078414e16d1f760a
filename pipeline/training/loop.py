"""The training loop. It survives a kill: one checkpoint folder per (params, data, code)."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from pipeline import methods, nets
from pipeline.config import Training
from pipeline.data import HELD_OUT, DataSet
from pipeline.methods.gradients import backward
from pipeline.progress import bar
from pipeline.training import curves
from pipeline.training.batches import Augmentation, ImageBatches
from pipeline.training.checkpoint import Begun, Checkpoint, Selection
from pipeline.training.provenance import code_sha256, fingerprint
from pipeline.training.recipes import Recipe, learning_rate, resolve
from trueodds.errors import ConfigError, UserError

log = logging.getLogger("pipeline.training.loop")

EVALUATION_BATCH = 500


class TrainingError(UserError, RuntimeError):
    """Training cannot go on; the message says why and what to change."""


@dataclass(frozen=True)
class Trained:
    """The net on the CPU in eval mode, its logits (float32 N x C) on val and test, and one row per epoch.

    settings["notes"]: what whoever uses the rows must know, such as that the net learned from those of validation.
    looks: the arrays of the epochs that `training.curves` names (`pipeline.training.curves.gathered`).
    `checkpoint` is still there: remove it when the rest is safely written.
    """

    net: nets.ResNet
    logits: dict[str, npt.NDArray[np.float32]]
    history: list[dict[str, Any]]
    looks: curves.Arrays
    settings: dict[str, Any]
    checkpoint: Checkpoint


def train(data: DataSet, training: Training, checkpoints: Path) -> Trained:
    """Train as `training` says; a run that was killed goes on from its last checkpoint to the same weights.

    On one machine the CPU result is repeatable bit for bit (same number of threads); on CUDA it is not promised.

    Raises:
        ConfigError: an unknown recipe, net or method, held-out rows that are missing, or a device that is not there.
        TrainingError: the loss is no longer finite.
    """
    recipe = resolve(training, data.card["name"])
    curves.check(training.curves, recipe.epochs)
    method = methods.build(training.method, **training.method_options)
    check_held_out(method, data.card["splits"].get(HELD_OUT))
    device = _device(training.device)
    settings: dict[str, Any] = {
        "recipe": asdict(recipe),
        "method": {"name": training.method, "options": dict(training.method_options)},
        "net": {"name": recipe.net, "width": training.width, "depth": training.depth},
        "seed": training.seed,
        "data_sha256": data.card["sha256"],
        "code_sha256": code_sha256(),
    }
    torch.manual_seed(training.seed)
    channels, classes = data.card["input"]["channels"], len(data.card["classes"])
    net = nets.build(recipe.net, channels, classes, width=training.width, depth=training.depth)
    net = net.to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stubs lack it
    optimizer = _optimizer(net, recipe)
    train_batches = ImageBatches.of(data, "train", device, Augmentation(recipe.padding, recipe.flip, method.views))
    val_batches, test_batches = (ImageBatches.of(data, split, device) for split in ("val", "test"))
    held_out_batches = ImageBatches.of(data, HELD_OUT, device) if method.needs_held_out else None
    for batches in filter(None, (train_batches, held_out_batches)):
        if len(batches) // batches.steps(recipe.batch_size) < 2:
            raise ConfigError(
                "batch normalisation needs two rows in a batch: raise batch_size or the number of rows to learn from"
            )

    def descend(loss: Tensor, rows: int, apart: Sequence[tuple[float, Tensor]] = ()) -> None:
        optimizer.zero_grad(set_to_none=True)
        backward(loss * rows if recipe.reduction == "sum" else loss, apart, net)
        if recipe.clip:
            nn.utils.clip_grad_norm_(net.parameters(), recipe.clip)
        optimizer.step()

    logged = {"device": device.type, "curves": training.curves}  # in the name of the folder, not in the model's card
    checkpoint = Checkpoint(checkpoints / fingerprint({**settings, **logged})[:16])
    selection, history = Selection(recipe.selection), list[dict[str, Any]]()
    middle: dict[str, Any] | None = None
    if saved := checkpoint.load(device):
        net.load_state_dict(saved["net"])
        optimizer.load_state_dict(saved["optimizer"])
        method.restore(saved["method"])
        selection.restore(saved["selection"])
        torch.set_rng_state(saved["rng"].cpu())
        if saved["cuda_rng"] is not None:
            torch.cuda.set_rng_state(saved["cuda_rng"].cpu())
        history, middle = saved["history"], saved["begun"]
        more = f" and {middle['steps']:,} steps of the next" if middle else ""
        log.info("going on after epoch %d of %d%s from %s", len(history), recipe.epochs, more, checkpoint.folder)

    steps = train_batches.steps(recipe.batch_size)
    total = steps * recipe.epochs
    done = steps * len(history) + (middle["steps"] if middle else 0)
    with _repeatable(device, recipe.threads), bar(total, "train", "step", done=done) as shown:
        for epoch in range(len(history), recipe.epochs):
            begun = Begun((training.seed << 20) + epoch)
            if middle:
                begun.restore(middle)
                middle = None
            held_out = _held_out(held_out_batches, recipe.batch_size, (training.seed << 20) + epoch, begun.held_out)
            net.train()
            generator = begun.generator
            to_come = train_batches.shuffled(recipe.batch_size, generator, done=begun.steps, state=begun.drawn)
            for images, labels in to_come:
                progress = (epoch * steps + begun.steps) / total
                for group in optimizer.param_groups:
                    group["lr"] = learning_rate(recipe, progress)
                images, targets = method.batch(images, labels, classes, generator)
                features = net.features(images)
                logits = net.head(features)
                loss = method.objective(logits, targets, labels, features, head=net.head, progress=progress)
                descend(loss, len(labels), method.apart(logits, labels, progress=progress))
                begun.add(loss.detach() * len(labels), logits[: len(labels)], labels)
                for term in method.due(epoch * steps + begun.steps, progress):
                    images, labels = next(held_out)
                    begun.held_out += 1
                    descend(term.weight * term.value(net(images), labels), len(labels))
                shown.update()
                if checkpoint.due():
                    checkpoint.save(net, optimizer, method, selection, history, begun=begun)
            val_logits, val_labels = predict(net, val_batches)
            method.after_validation(val_logits, val_labels)
            with torch.no_grad():
                val_loss = method.loss(val_logits, val_labels, progress=(epoch + 1) / recipe.epochs)
            row: dict[str, Any] = {"epoch": epoch + 1, "learning_rate": optimizer.param_groups[0]["lr"]}
            row["weight_norm"] = curves.weight_norm(net.head)
            losses, logits, labels = begun.seen()
            row |= _scores("train", losses.sum() / len(train_batches), logits, labels)
            row |= _scores("val", val_loss, val_logits, val_labels)
            row |= curves.look(
                training.curves, epoch + 1, net, method, train_batches, test_batches, checkpoint.folder,
                batch_size=recipe.batch_size, progress=(epoch + 1) / recipe.epochs,
            )  # fmt: skip
            history.append(row)
            selection.offer(net, row)
            shown.set_postfix_str(
                f"epoch {epoch + 1}/{recipe.epochs} val error {row['val_error']:.3f} NLL {row['val_nll']:.3f}",
                refresh=False,
            )
            checkpoint.save(net, optimizer, method, selection, history, last=epoch + 1 == recipe.epochs)
    selection.take(net)
    settings["selection"] = {"rule": selection.rule, "epoch": selection.epoch}
    settings["penalties"] = method.acted()
    for line in settings["penalties"]:
        log.info("penalty %(name)s: not 0 at %(acted)d of its %(steps)d steps, mean %(mean).4g x beta %(beta)g", line)
    for note in method.notes():
        log.warning(note)
    settings["notes"] = [*data.card["notes"], *method.notes(), *selection.notes(recipe.epochs)]
    outcome = {split: predict(net, b)[0].cpu().numpy() for split, b in (("val", val_batches), ("test", test_batches))}
    looks = curves.gathered(checkpoint.folder, training.curves)
    return Trained(net.eval().cpu(), outcome, history, looks, settings, checkpoint)


def predict(net: nets.ResNet, batches: ImageBatches) -> tuple[Tensor, Tensor]:
    """Logits (N, C) and labels (N,) of a split, in order, in eval mode."""
    net.eval()
    with torch.inference_mode():
        pairs = [(net(images), labels) for images, labels in batches.ordered(EVALUATION_BATCH)]
    return torch.cat([logits for logits, _ in pairs]), torch.cat([labels for _, labels in pairs])


def check_held_out(method: methods.Method, rows: int | None) -> None:
    """Raises ConfigError if `method` learns from held-out rows and there are none; warns if there are some unused."""
    if rows is not None and not method.needs_held_out:
        log.warning("method %s does not learn from the %s held-out rows (data.held_out_size)", method.name, f"{rows:,}")
    if method.needs_held_out and rows is None:
        raise ConfigError(
            f"method {method.name!r} has a penalty with `when: interleaved`, which learns from held-out rows, and"
            " data.held_out_size is null; set it, such as held_out_size=5000 for CIFAR or 100 for digits"
        )


def _held_out(batches: ImageBatches | None, batch_size: int, seed: int, done: int) -> Iterator[tuple[Tensor, Tensor]]:
    """As they are, in an order of the epoch's own: what the training rows draw is the same with and without them."""
    if batches is None:
        return iter(())
    return batches.endless(batch_size, torch.Generator().manual_seed(seed + (1 << 52)), done=done)


def _optimizer(net: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    parameters, rate, weight_decay = net.parameters(), recipe.learning_rate, recipe.weight_decay
    if recipe.optimizer == "adam":
        return torch.optim.Adam(parameters, rate, weight_decay=weight_decay)
    if recipe.optimizer == "adagrad":
        return torch.optim.Adagrad(parameters, rate, weight_decay=weight_decay)
    momentum = {"momentum": recipe.momentum, "nesterov": recipe.nesterov}
    return torch.optim.SGD(parameters, rate, weight_decay=weight_decay, **momentum)  # type: ignore[arg-type]


def _scores(split: str, loss: Tensor, logits_NC: Tensor, labels_N: Tensor) -> dict[str, float | None]:
    if not (torch.isfinite(logits_NC).all() and torch.isfinite(loss)):
        raise TrainingError(
            f"training has diverged: the {split} loss is {float(loss):.4g}. Lower learning_rate, or choose a recipe"
            " that clips gradients (python -m pipeline recipes)"
        )
    values = {"loss": float(loss), **curves.scores(logits_NC, labels_N)}
    return {f"{split}_{name}": value for name, value in values.items()}


def _device(name: str) -> torch.device:
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device is 'cuda', but torch sees no CUDA device; use device: auto or cpu")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda":
        torch.backends.cudnn.benchmark = True
        torch.set_float32_matmul_precision("high")
    return torch.device(name)


@contextmanager
def _repeatable(device: torch.device, threads: int) -> Iterator[None]:
    before = torch.are_deterministic_algorithms_enabled(), torch.get_num_threads()
    torch.use_deterministic_algorithms(device.type == "cpu")
    # On by default in this mode, to show reads of memory never written: 10 to 20% of a step for nothing here.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # not in its stubs
    torch.set_num_threads(threads or before[1])
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0])
        torch.set_num_threads(before[1])
