"""The training loop. It survives a kill: one checkpoint folder per plan and data."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pipeline.data.dataset import DataSet
from pipeline.nets.net import Net
from pipeline.training import curves
from pipeline.training.batches import Batches, SplitBatches
from pipeline.training.checkpoint import EVERY, SHARE, Checkpoint
from pipeline.training.plan import Plan, fingerprint
from pipeline.training.state import Epoch, Row, TrainingState
from pipeline.training.trained import Trained
from trueodds.errors import ConfigError, UserError
from trueodds.processes.progress import bar

log = logging.getLogger("pipeline.training")

EVALUATION_BATCH = 500


class TrainingError(UserError, RuntimeError):
    """Training cannot go on; the message says why and what to change."""


def train(data: DataSet, plan: Plan, checkpoints: Path, *, every: float = EVERY, share: float = SHARE) -> Trained:
    """Trains as `plan` says; a run that was killed goes on from its last checkpoint to the same weights.

    On one machine the CPU result is repeatable bit for bit (same number of threads); on CUDA it is not promised.
    `every` and `share` say how often the middle of an epoch is kept (`Checkpoint`).

    Raises:
        ConfigError: batches of one row, or a device that is not there.
        TrainingError: the loss is no longer finite.
    """
    recipe, device, classes = plan.recipe, _device(plan.device), len(data.card["classes"])
    settings = {**plan.result_settings(), "data_sha256": data.card["sha256"]}
    state = TrainingState.initial(plan, data.arrays["train"][0].shape[-1], classes, device)
    net, method = state.net, state.method
    batches = SplitBatches.of(data, device, recipe, method.views, held_out=plan.method.needs_held_out)
    # What is measured, and where, is in the name of the folder, not in the model's card.
    key = fingerprint({**settings, "device": device.type, "curves": plan.curves})
    checkpoint = Checkpoint(checkpoints / key[:16], every=every, share=share)
    _resume(state, checkpoint, device)

    steps = batches.train.steps(recipe.batch_size)
    total = steps * recipe.epochs
    with _repeatable(device, recipe.threads), bar(total, "train", "step", done=state.steps_done(steps)) as shown:
        while len(state.history) < recipe.epochs:
            epoch, before = state.begin_epoch(plan.seed), steps * len(state.history)
            held_out = batches.held_out_rows(recipe.batch_size, epoch.seed, done=epoch.held_out)
            net.train()
            for inputs, labels in batches.train.shuffled(
                recipe.batch_size, epoch.generator, done=epoch.steps, state=epoch.resumed
            ):
                progress = (before + epoch.steps) / total
                state.set_rate(progress)
                inputs, targets = method.batch(inputs, labels, classes, epoch.generator)
                features = net.features(inputs)
                logits = net.head(features)
                loss = method.objective(logits, targets, labels, features, head=net.head, progress=progress)
                state.descend(loss, len(labels), method.apart(logits, labels, progress=progress))
                epoch.add(loss.detach() * len(labels), logits[: len(labels)], labels)
                for term in method.due(before + epoch.steps, progress):
                    inputs, labels = next(held_out)
                    epoch.held_out += 1
                    state.descend(term.weight * term.value(net(inputs), labels), len(labels))
                shown.update()
                if checkpoint.due():
                    checkpoint.save_middle(state, epoch)
            row = _measure(plan, state, epoch, batches, checkpoint.folder)
            state.end_epoch(row)
            shown.set_postfix_str(_standing(row, recipe.epochs), refresh=False)
            checkpoint.save(state, last=len(state.history) == recipe.epochs)
    return _trained(data, plan, state, batches, settings, checkpoint)


def predict(net: Net, batches: Batches) -> tuple[Tensor, Tensor]:
    """Logits (N, C) and labels (N,) of a split, in order, in eval mode."""
    net.eval()
    with torch.inference_mode():
        pairs = [(net(inputs), labels) for inputs, labels in batches.ordered(EVALUATION_BATCH)]
    return torch.cat([logits for logits, _ in pairs]), torch.cat([labels for _, labels in pairs])


def _resume(state: TrainingState, checkpoint: Checkpoint, device: torch.device) -> None:
    if saved := checkpoint.load(device):
        state.restore(saved)
        done, epochs = len(state.history), state.recipe.epochs
        more = f" and {state.middle['steps']:,} steps of the next" if state.middle else ""
        log.info("going on after epoch %d of %d%s from %s", done, epochs, more, checkpoint.folder)


def _measure(plan: Plan, state: TrainingState, epoch: Epoch, batches: SplitBatches, folder: Path) -> Row:
    """The row of an epoch whose steps are done; a method that adapts to the validation rows does so here."""
    net, method, number = state.net, state.method, len(state.history) + 1
    progress = number / plan.recipe.epochs
    val_logits, val_labels = predict(net, batches.val)
    method.after_validation(val_logits, val_labels)
    with torch.no_grad():
        val_loss = method.loss(val_logits, val_labels, progress=progress)
    losses, logits, labels = epoch.outputs()
    return {
        "epoch": number,
        "learning_rate": state.optimizer.param_groups[0]["lr"],
        "weight_norm": curves.weight_norm(net.head),
        **_scores("train", losses.sum() / len(batches.train), logits, labels),
        **_scores("val", val_loss, val_logits, val_labels),
        **curves.measure_rows(
            plan.curves, number, net, method, batches.train, batches.test, folder,
            batch_size=plan.recipe.batch_size, progress=progress,
        ),
    }  # fmt: skip


def _scores(split: str, loss: Tensor, logits_NC: Tensor, labels_N: Tensor) -> Row:
    if not (torch.isfinite(logits_NC).all() and torch.isfinite(loss)):
        raise TrainingError(
            f"training has diverged: the {split} loss is {float(loss):.4g}. Lower learning_rate, or choose a recipe"
            " that clips gradients (trueodds recipes)"
        )
    values = {"loss": float(loss), **curves.scores(logits_NC, labels_N)}
    return {f"{split}_{name}": value for name, value in values.items()}


def _standing(row: Row, epochs: int) -> str:
    return f"epoch {row['epoch']}/{epochs} val error {row['val_error']:.3f} NLL {row['val_nll']:.3f}"


def _trained(
    data: DataSet,
    plan: Plan,
    state: TrainingState,
    batches: SplitBatches,
    settings: dict[str, Any],
    checkpoint: Checkpoint,
) -> Trained:
    """The net with the weights that the selection takes, its logits, and what its card must say."""
    net, method, selection = state.net, state.method, state.selection
    selection.take(net)
    penalties = method.acted()
    for line in penalties:
        log.info("penalty %(name)s: not 0 at %(acted)d of its %(steps)d steps, mean %(mean).4g x beta %(beta)g", line)
    for note in method.notes():
        log.warning(note)
    settings = {
        **settings,
        "selection": {"rule": selection.rule, "epoch": selection.epoch},
        "penalties": penalties,
        "notes": [*data.card["notes"], *method.notes(), *selection.notes(plan.recipe.epochs)],
    }
    splits = {"val": batches.val, "test": batches.test}
    logits = {name: predict(net, split)[0].cpu().numpy() for name, split in splits.items()}
    rows = curves.read_rows(checkpoint.folder, plan.curves)
    return Trained(net.eval().cpu(), logits, state.history, rows, settings, checkpoint)


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
