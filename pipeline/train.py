"""The training loop, and what it needs to survive a kill: one checkpoint folder per (params, data, code)."""

from __future__ import annotations

import logging
import pickle
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from pipeline import methods, metrics, nets
from pipeline.config import ConfigError, Training
from pipeline.data import DataSet
from pipeline.data.images import Augmentation, ImageBatches
from pipeline.errors import UserError
from pipeline.metrics.inputs import Array
from pipeline.progress import bar
from pipeline.provenance import code_sha256, fingerprint
from pipeline.recipes import Recipe, resolve

log = logging.getLogger("pipeline.train")

EVALUATION_BATCH = 500
CHECKPOINT_SHARE = 0.05  # of the time; a run of short epochs then skips some of its checkpoints


class TrainingError(UserError, RuntimeError):
    """Training cannot go on; the message says why and what to change."""


@dataclass(frozen=True)
class Trained:
    """The net on the CPU in eval mode, its logits (float32 N x C) on val and test, and one row per epoch.

    `checkpoint` is still there: remove it when the rest is safely written.
    """

    net: nets.ResNet
    logits: dict[str, npt.NDArray[np.float32]]
    history: list[dict[str, float]]
    settings: dict[str, Any]
    checkpoint: Checkpoint


def train(data: DataSet, training: Training, checkpoints: Path) -> Trained:
    """Train as `training` says; a run that was killed goes on from its last checkpoint to the same weights.

    On one machine the CPU result is repeatable bit for bit (same number of threads); on CUDA it is not promised.

    Raises:
        ConfigError: an unknown recipe, net or method, or a device that is not there.
        TrainingError: the loss is no longer finite.
    """
    recipe = resolve(training, data.card["name"])
    method = methods.build(training.method, **training.method_options)
    device = _device(training.device)
    settings = {
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
    augment = Augmentation(recipe.padding, recipe.flip)
    train_batches = data.batches("train", device, augment)
    val_batches, test_batches = (data.batches(split, device) for split in ("val", "test"))
    if len(train_batches) // train_batches.steps(recipe.batch_size) < 2:
        raise ConfigError(
            "batch normalisation needs two rows in a batch: raise batch_size or the number of training rows"
        )

    checkpoint = Checkpoint(checkpoints / fingerprint({**settings, "device": device.type})[:16])
    history: list[dict[str, float]] = []
    if saved := checkpoint.load(device):
        net.load_state_dict(saved["net"])
        optimizer.load_state_dict(saved["optimizer"])
        method.restore(saved["method"])
        torch.set_rng_state(saved["rng"].cpu())
        history = saved["history"]
        log.info("going on after epoch %d of %d from %s", len(history), recipe.epochs, checkpoint.folder)

    steps = train_batches.steps(recipe.batch_size)
    total = steps * recipe.epochs
    with _repeatable(device, recipe.threads), bar(total, "train", "step", done=steps * len(history)) as shown:
        for epoch in range(len(history), recipe.epochs):
            generator = torch.Generator().manual_seed((training.seed << 20) + epoch)
            net.train()
            seen: list[tuple[Tensor, Tensor, Tensor]] = []
            for step, (images, labels) in enumerate(train_batches.shuffled(recipe.batch_size, generator)):
                progress = (epoch * steps + step) / total
                for group in optimizer.param_groups:
                    group["lr"] = learning_rate(recipe, progress)
                images, targets = method.batch(images, labels, classes, generator)
                features = net.features(images)
                logits = net.head(features)
                loss = method.objective(logits, targets, labels, features, head=net.head, progress=progress)
                optimizer.zero_grad(set_to_none=True)
                (loss * len(labels) if recipe.reduction == "sum" else loss).backward()  # type: ignore[no-untyped-call]
                if recipe.clip is not None:
                    nn.utils.clip_grad_norm_(net.parameters(), recipe.clip)
                optimizer.step()
                seen.append((loss.detach() * len(labels), logits.detach(), labels))
                shown.update()
            val_logits, val_labels = predict(net, val_batches)
            method.after_validation(val_logits, val_labels)
            with torch.no_grad():
                val_loss = method.loss(val_logits, val_labels, progress=(epoch + 1) / recipe.epochs)
            row = {"epoch": epoch + 1, "learning_rate": optimizer.param_groups[0]["lr"]}
            train_loss = torch.stack([loss for loss, _, _ in seen]).sum() / len(train_batches)
            row |= _scores("train", train_loss, *(torch.cat(parts) for parts in list(zip(*seen, strict=True))[1:]))
            row |= _scores("val", val_loss, val_logits, val_labels)
            history.append(row)
            shown.set_postfix_str(
                f"epoch {epoch + 1}/{recipe.epochs} val error {row['val_error']:.3f} NLL {row['val_nll']:.3f}",
                refresh=False,
            )
            checkpoint.save(net, optimizer, method, history, last=epoch + 1 == recipe.epochs)
    outcome = {split: predict(net, b)[0].cpu().numpy() for split, b in (("val", val_batches), ("test", test_batches))}
    return Trained(net.eval().cpu(), outcome, history, settings, checkpoint)


def learning_rate(recipe: Recipe, progress: float) -> float:
    """The step schedule: learning_rate x .1 for each milestone passed; `progress` in [0, 1) through the run."""
    return float(recipe.learning_rate * 0.1 ** sum(progress >= milestone for milestone in recipe.milestones))


def predict(net: nets.ResNet, batches: ImageBatches) -> tuple[Tensor, Tensor]:
    """Logits (N, C) and labels (N,) of a split, in order, in eval mode."""
    net.eval()
    with torch.inference_mode():
        pairs = [(net(images), labels) for images, labels in batches.ordered(EVALUATION_BATCH)]
    return torch.cat([logits for logits, _ in pairs]), torch.cat([labels for _, labels in pairs])


class Checkpoint:
    """The last finished epoch, in a folder of its own; removed when the run has succeeded."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._cost = 0.0
        self._written = time.monotonic()

    def load(self, device: torch.device) -> dict[str, Any] | None:
        path = self.folder / "state.pt"
        if not path.exists():
            return None
        try:
            state: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
        except (RuntimeError, EOFError, OSError, pickle.UnpicklingError) as error:
            log.warning("%s is damaged (%s): starting afresh", path, error)
            return None
        return state

    def save(
        self,
        net: nn.Module,
        optimizer: torch.optim.Optimizer,
        method: methods.Method,
        history: list[Any],
        *,
        last: bool,
    ) -> None:
        """Written aside and renamed. Skipped while writing so soon again would cost over 5% of the time."""
        begin = time.monotonic()
        if len(history) > 1 and not last and self._cost > CHECKPOINT_SHARE * (begin - self._written):
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        state = {
            "net": net.state_dict(),
            "optimizer": optimizer.state_dict(),
            "method": method.state(),
            "rng": torch.get_rng_state(),
            "history": history,
        }
        aside = self.folder / "state.pt.part"
        torch.save(state, aside)
        aside.replace(self.folder / "state.pt")
        self._written = time.monotonic()
        self._cost = self._written - begin

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def _optimizer(net: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    return torch.optim.SGD(
        net.parameters(), recipe.learning_rate, momentum=recipe.momentum, weight_decay=recipe.weight_decay
    )


def _scores(split: str, loss: Tensor, logits_NC: Tensor, labels_N: Tensor) -> dict[str, float]:
    logits: Array = logits_NC.cpu().numpy().astype(np.float64)
    if not (np.isfinite(logits).all() and torch.isfinite(loss)):
        raise TrainingError(
            f"training has diverged: the {split} loss is {float(loss):.4g}. Lower learning_rate, or choose a recipe"
            " that clips gradients (python -m pipeline recipes)"
        )
    sums = metrics.CalibrationSums.from_probabilities(metrics.softmax(logits), labels_N.cpu().numpy())
    values = {"loss": float(loss), "error": metrics.error(sums), "nll": metrics.nll(sums), "ece": metrics.ece(sums)}
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
def _repeatable(device: torch.device, threads: int | None) -> Iterator[None]:
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
