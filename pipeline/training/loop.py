"""The training loop. A killed run continues from its checkpoint; each plan and data set has a checkpoint folder."""

from __future__ import annotations

import copy
import logging
import math
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pipeline.data.dataset import DataSet
from pipeline.data.raw import WORDS
from pipeline.methods.batch import ForwardPass
from pipeline.methods.method import Method
from pipeline.nets.net import Net
from pipeline.nets.pool import Pool, pool_logits
from pipeline.training.batches import SplitBatches
from pipeline.training.checkpoint import EVERY, SHARE, Checkpoint
from pipeline.training.machine.device import device_of, repeatable
from pipeline.training.machine.processes import ALONE, Processes
from pipeline.training.machine.speed import accelerate
from pipeline.training.measuring import curves
from pipeline.training.measuring.epoch import measure
from pipeline.training.measuring.outputs import outputs
from pipeline.training.plan import Plan, fingerprint
from pipeline.training.start.beginning import Beginning
from pipeline.training.training_result import TrainingResult
from pipeline.training.training_state import Row, TrainingState
from trueodds.errors import ConfigError
from trueodds.processes.progress import bar

log = logging.getLogger("pipeline.training")


def train(
    data: DataSet,
    plan: Plan,
    checkpoints: Path,
    *,
    every: float = EVERY,
    share: float = SHARE,
    processes: Processes = ALONE,
) -> TrainingResult:
    """Train a net as `plan` says. A run that was killed continues from its last checkpoint to the same weights.

    On one machine and with one number of threads, the result on the CPU is repeatable bit for bit. On CUDA it may
    differ.

    Args:
        data: The data set.
        plan: The run (`pipeline.training.resolution.plan_of`).
        checkpoints: Folder of the checkpoints.
        every: Seconds between two checkpoints within an epoch (`Checkpoint`).
        share: Largest share of the time spent on checkpoints.
        processes: This process among those that train together. Each of them calls this function with the same data and
            plan and gets the same result. The first one writes checkpoints and shows the progress bar.

    Returns:
        The net, its logits and its history. `TrainingResult.write` writes them as files.

    Raises:
        WeightsError: The initial weights cannot be read or downloaded, or belong to another net.
        ConfigError: Batches would have one row, set-aside rows have one class, the device does not exist, the method
            cannot look ahead through the net, or a part of the method would never learn.
        TrainingError: The loss is no longer finite.

    Examples:
        >>> from pipeline import data
        >>> from pipeline.config import Data, Training
        >>> from pipeline.training.resolution import plan_of
        >>> wine = data.load(Data(dataset="wine"))
        >>> plan = plan_of(Training(method="focal", epochs=1), "wine", "vector", held_out=False)
        >>> train(wine, plan, Path("checkpoints")).logits["test"].shape
        (60, 3)
    """
    check_processes(plan, data, processes)
    recipe, classes = plan.recipe, len(data.card["classes"])
    device = device_of(plan.device, fixed_sizes=plan.net.kind not in WORDS)
    settings = {**plan.result_settings(), "data_sha256": data.card["sha256"]}
    beginning = processes.in_turn(lambda: Beginning.of(data, plan, device, checkpoints))
    settings |= beginning.settings
    if processes.world > 1:  # batch normalisation uses each process's own share of a batch
        settings["processes"] = processes.world
    state = TrainingState.initial(plan, beginning.learner)
    state.processes = processes
    net, method = state.net, state.method

    def features_of(own: Tensor, rows: int) -> Tensor:
        """Return the features of all processes' rows, computed from this process's own."""
        with processes.own_draws(device):
            features_ND = net.features(own)
        return processes.gather(features_ND, rows)

    batches = SplitBatches.of(
        beginning.rows, device, recipe, method.views, held_out=bool(plan.method.held_out_parts),
        draws_ahead=not method.draws,
    )  # fmt: skip
    method.meta.check(net, next(batches.train.in_order(2))[0])
    # The name of the folder says what is measured and on which device; the model's card does not.
    key = fingerprint({**settings, "device": device.type, "curves": plan.curves, "epoch_metrics": plan.epoch_metrics})
    checkpoint = Checkpoint(checkpoints / key[:16], every=every if processes.is_first else math.inf, share=share)
    rows_folder = checkpoint.folder / ("" if processes.is_first else f"process-{processes.rank}")
    _resume(state, checkpoint, device)
    if processes.from_first(len(state.history)) != len(state.history):
        raise ConfigError(
            f"process {processes.rank} finds no checkpoint in {checkpoint.folder}, and the first one does: processes on"
            " several machines need a checkpoint folder that all can read; put the checkout on a shared disk, or remove"
            " the folder on the first machine"
        )

    steps = batches.train.steps(recipe.batch_size)
    total = steps * recipe.epochs
    method.check(total)
    if recipe.validate_every > 1 and method.learns_from_validation:
        raise ConfigError(
            f"training.validate_every is {recipe.validate_every}, and method {method.name} learns from the validation"
            " rows after every epoch; set validate_every: 1"
        )
    if state.average is not None and method.learns_from_validation:
        raise ConfigError(
            f"training.ema is {recipe.ema:g} and swa {recipe.swa:g}, and method {method.name} learns from the"
            " validation rows of the net without average; set ema: 0 and swa: 0, or use another method"
        )
    with (
        repeatable(device, recipe.threads, is_compiled=recipe.compile != "off"),
        accelerate(net, recipe, device),
        bar(total, "train", "step", done=state.steps_done(steps), hidden=not processes.is_first) as progress_bar,
    ):
        while len(state.history) < recipe.epochs:
            epoch, before = state.begin_epoch(plan.seed), steps * len(state.history)
            held_out = batches.held_out_rows(recipe.batch_size, epoch.seed, skip=epoch.held_out)
            net.train()
            for inputs, labels in batches.train.shuffle(
                recipe.batch_size, epoch.generator, skip=epoch.steps, state=epoch.resumed, share=processes.share
            ):
                progress = (before + epoch.steps) / total
                state.set_rate(progress)
                weights = batches.train.weights(inputs, recipe.node_weight)
                if method.mixes:  # needs the rows of all processes
                    inputs = processes.gather(inputs, len(labels))
                inputs, targets = method.batch(inputs, labels, classes, epoch.generator)
                if method.mixes:
                    inputs = processes.share(inputs)
                gathered = partial(features_of, rows=len(labels))
                batch = ForwardPass.of(net, inputs, targets, labels, progress, weights, gathered)
                again = partial(_objective_again, method, net, batch) if recipe.sam else None
                for meta in method.meta.due(before + epoch.steps + 1):
                    state.look_ahead(meta, batch, epoch.next(held_out))
                loss = method.objective(batch)
                apart, rows = method.apart(batch.logits, labels, progress=progress), batches.train.rows_of(inputs)
                state.descend(loss, len(labels), apart, rows=rows, again=again)
                gamma = method.exponents(batch)
                epoch.add(loss.detach() * len(labels), batch.logits[: len(labels)], labels, gamma)
                del batch, loss, apart, again  # otherwise they stay in memory during the next forward pass: 20 MB
                for term in method.due(before + epoch.steps, progress):
                    inputs, labels = epoch.next(held_out)
                    value = term.value(net.head(features_of(processes.share(inputs), len(labels))), labels)
                    state.descend(term.at(progress) * value, len(labels), decay=False)
                state.end_step()
                progress_bar.update()
                if method.validates_after(before + epoch.steps):
                    val = outputs(net, batches.val, progress)
                    method.after_validation(val.logits, val.labels, step=before + epoch.steps)
                    net.train()
                if checkpoint.due():
                    checkpoint.save_middle(state, epoch)
            state.end_steps()
            row = measure(plan, state, epoch, batches, rows_folder)
            state.end_epoch(row)
            progress_bar.set_postfix_str(_standing(row, recipe.epochs), refresh=False)
            if processes.is_first:
                checkpoint.save(state, last=len(state.history) == recipe.epochs)
    trained = _result(beginning, plan, state, batches, settings, checkpoint, rows_folder)
    processes.wait()  # before the first one removes the checkpoint that all read
    return trained


def _objective_again(method: Method, net: Net, of: ForwardPass) -> Tensor:
    """Return the objective of a batch at the net's present weights, with the same dropout as in its first pass."""
    with of.random.again():
        batch = ForwardPass.of(net, of.inputs, of.targets, of.labels, of.progress, of.weights)
    first, *rest = method.terms(batch, is_step=False)
    return sum(rest, start=first)


def check_processes(plan: Plan, data: DataSet, processes: Processes) -> None:
    """Raise ConfigError for settings that several processes do not support."""
    if processes.world == 1:
        return
    said = f"{processes.world} processes train together"
    if data.card["input"]["kind"] == "tree":
        raise ConfigError(f"{said}, but trees, whose rows have many labels, need a single process; start one process")
    if plan.method.has_views:
        raise ConfigError(f"{said}, but method {plan.method.name} has several views of each row; start one process")
    if plan.method.looks_through_all:
        raise ConfigError(f"{said}, but lookahead: all needs one process; set method_options.lookahead: head")
    if plan.recipe.sam:
        raise ConfigError(f"{said}, but training.sam, which takes two passes, needs one process; set sam: 0")
    if plan.recipe.batch_size < 2 * processes.world:
        raise ConfigError(
            f"{said} on batches of {plan.recipe.batch_size} rows, but batch normalisation needs two rows per process;"
            f" raise batch_size to {2 * processes.world} or more"
        )


def _resume(state: TrainingState, checkpoint: Checkpoint, device: torch.device) -> None:
    """Restore the state from the checkpoint, if there is one."""
    if saved := checkpoint.load(device):
        state.restore(saved)
        done, epochs = len(state.history), state.recipe.epochs
        more = f" and {state.middle['steps']:,} steps of the next" if state.middle else ""
        log.info("continuing after epoch %d of %d%s from %s", done, epochs, more, checkpoint.folder)


def _standing(row: Row, epochs: int) -> str:
    """Return the text beside the progress bar."""
    split = "train" if row["val_nll"] is None else "val"
    return f"epoch {row['epoch']}/{epochs} {split} error {row[f'{split}_error']:.3f} NLL {row[f'{split}_nll']:.3f}"


def _result(
    beginning: Beginning,
    plan: Plan,
    state: TrainingState,
    batches: SplitBatches,
    settings: dict[str, Any],
    checkpoint: Checkpoint,
    rows_folder: Path,
) -> TrainingResult:
    """Return the net with the selected weights, its logits, and the settings for its card."""
    net, method, selection = state.finish(), state.method, state.selection
    penalties = method.penalty_tallies()
    for line in penalties:
        log.info("penalty %(name)s: not 0 at %(acted)d of its %(steps)d steps, mean %(mean).4g x beta %(beta)g", line)
    for note in method.notes():
        log.warning(note)
    settings = {
        **settings,
        "selection": {"rule": selection.rule, "epoch": selection.epoch},
        "penalties": penalties,
        "meta": method.meta.to_json(),
        "notes": [
            *beginning.rows.card["notes"],
            *beginning.notes,
            *batches.notes(),
            *method.notes(),
            *selection.notes(plan.recipe.epochs),
            *(state.average.notes(selection.epoch) if state.average is not None else ()),
        ],
    }
    splits = {"val": batches.val, "test": batches.test}
    rows = curves.read_rows(rows_folder, plan.curves)
    if not state.snapshots:
        logits = {name: outputs(net, split).logits.cpu().numpy() for name, split in splits.items()}
        return TrainingResult(beginning.net.eval().cpu(), logits, state.history, rows, settings, checkpoint)
    nets: list[Net] = []
    of_snapshots: dict[str, list[Tensor]] = {name: [] for name in splits}
    for weights in state.snapshots:
        net.load_state_dict(weights)
        for name, split in splits.items():
            of_snapshots[name].append(outputs(net, split).logits.cpu())
        nets.append(copy.deepcopy(beginning.net).eval().cpu())
    logits = {name: pool_logits(of).numpy() for name, of in of_snapshots.items()}
    settings["notes"].append(
        f"The model is a snapshot ensemble: the nets at the ends of {len(nets)} cycles of one run, whose probabilities"
        f" are averaged. An answer takes about {len(nets)} times as long as one net's."
    )
    return TrainingResult(Pool(nets).eval(), logits, state.history, rows, settings, checkpoint)
