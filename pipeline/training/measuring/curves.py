"""Measurements for the papers' plots of a training run: columns of epochs.csv, and values of each row at chosen epochs.

They follow Mukhoti et al. 2020, figures 1 to 4, and the BSCE-GRA paper, figures 4 and 5. `pipeline.figures.training`
draws them.

Columns that begin with train_ use the logits that the epoch's steps computed anyway: of augmented rows, normalised by
their batch, while the weights moved. (Under mixup these are mixed rows with the class of the larger share.) Columns
that begin with val_, test_ and clean_train_ use rows without augmentation, and the net in eval mode at the epoch's
end.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from pipeline.methods.batch import Batch
from pipeline.methods.method import Method
from pipeline.nets.net import Net
from pipeline.training.batches import Batches
from pipeline.training.measuring.outputs import outputs
from trueodds.errors import UserError
from trueodds.files import FileError, read_npz, write_npz
from trueodds.metrics.binned import ece
from trueodds.metrics.scores import error_rate
from trueodds.sums.inputs import softmax
from trueodds.sums.losses import WORST_NLL
from trueodds.sums.sums import CalibrationSums

BY_OUTCOME = tuple(f"{name}_{outcome}" for name in ("nll", "entropy", "p") for outcome in ("right", "wrong"))
COLUMNS = ("error", "nll", "ece", *BY_OUTCOME)
CLEAN_TRAIN, TEST = "clean_train", "test"
ELEMENTS = 2**18  # values in a block of rows x classes: 2 MB in float64, 4 times as fast as 45,000 x 100 at once

Arrays = dict[str, npt.NDArray[Any]]


class CurvesError(UserError, RuntimeError):
    """Measurements of a chosen epoch that cannot be read."""


def scores(logits_NC: Tensor, labels_N: Tensor) -> dict[str, float | None]:
    """Return COLUMNS for these rows: error, NLL (nats), ECE in 15 equal-width bins, and `by_outcome`."""
    probabilities_NC = softmax(logits_NC.cpu().numpy().astype(np.float64))
    sums = CalibrationSums.from_probabilities(probabilities_NC, labels_N.cpu().numpy())
    # Not `nll` of trueodds.metrics, which warns of clipped rows, because nets of the first epochs may have many.
    nll = sums.total("nll") / sums.n
    whole = {"error": error_rate(sums), "nll": nll, "ece": ece(sums)}
    return {**whole, **by_outcome(logits_NC, labels_N)}


def by_outcome(logits_NC: Tensor, labels_N: Tensor) -> dict[str, float | None]:
    """Return BY_OUTCOME: means over the rows whose top label is right, and over the wrong ones; None without such rows.

    nll is -log p_y in nats. entropy is -sum_k p_k log p_k in nats. p is p_y, the probability of the row's own class
    (Mukhoti et al. 2020, figures 1 and 3). They are computed in float64 on the logits' device. Ties go to the smallest
    class.
    """
    sums, counts = logits_NC.new_zeros(3, 2, dtype=torch.float64), logits_NC.new_zeros(2, dtype=torch.float64)
    rows = max(ELEMENTS // logits_NC.shape[1], 1)
    for logits, labels in zip(torch.split(logits_NC, rows), torch.split(labels_N, rows), strict=True):
        log_p_NC = torch.log_softmax(logits.double(), 1)
        entropy_N = -(log_p_NC.exp() * log_p_NC).sum(1)
        log_p_N = log_p_NC.gather(1, labels.unsqueeze(1)).squeeze(1)
        right_N = is_right(logits, labels).double()
        outcome_N2 = torch.stack([right_N, 1 - right_N], 1)
        sums += torch.stack([(-log_p_N).clamp_max(WORST_NLL), entropy_N, log_p_N.exp()]) @ outcome_N2
        counts += outcome_N2.sum(0)
    totals = zip(sums.flatten().tolist(), 3 * counts.tolist(), strict=True)
    return dict(zip(BY_OUTCOME, (total / count if count else None for total, count in totals), strict=True))


def is_right(logits_NC: Tensor, labels_N: Tensor) -> Tensor:
    """Return whether the label is the first class with the row's maximum (argmax does not define the order of ties)."""
    label_N1 = labels_N.unsqueeze(1)
    top_N1, own_N1 = logits_NC.amax(1, keepdim=True), logits_NC.gather(1, label_N1)
    class_C = torch.arange(logits_NC.shape[1], device=logits_NC.device)
    return (own_N1 == top_N1).squeeze(1) & ~((logits_NC == top_N1) & (class_C < label_N1)).any(1)


def weight_norm(head: nn.Linear) -> float:
    """Return the Frobenius norm of the last layer's weights without its bias (Mukhoti et al. 2020, figure 3h)."""
    return float(torch.linalg.vector_norm(head.weight.detach(), dtype=torch.float64))


def measure_rows(
    epochs: Sequence[int],
    epoch: int,
    net: Net,
    method: Method,
    train: Batches,
    test: Batch | None,
    folder: Path,
    batch_size: int,
) -> dict[str, float | None]:
    """Return the columns of one epoch that are logged on request, and write the arrays of a chosen epoch into `folder`.

    test_ columns exist in every epoch, clean_train_ columns in the chosen ones (None elsewhere). Weights, random states
    and the method's state do not change; the net is left in eval mode.

    Args:
        epochs: The chosen epochs.
        epoch: This epoch.
        net: The net.
        method: The training method.
        train: The training rows.
        test: The net's outputs for the test rows; None if they were not computed.
        folder: Folder of the arrays.
        batch_size: Batch size of training.
    """
    row = _prefix(TEST, dict.fromkeys(COLUMNS) if test is None else scores(test.logits, test.labels))
    if epoch not in epochs or test is None:
        return {**row, **_prefix(CLEAN_TRAIN, dict.fromkeys(COLUMNS))}
    clean = outputs(net, train, test.progress)
    assert clean.features is not None
    # Parts as large as a training batch, because one loss (mse, official) is divided by the number of rows.
    parts = zip(*(x.tensor_split(train.steps(batch_size)) for x in (clean.features, clean.labels)), strict=True)
    cuda = [clean.logits.device] if clean.logits.is_cuda else []
    with torch.random.fork_rng(cuda):  # `consistency` draws
        norms = [gradient_norms(method, net.head, *part, progress=test.progress) for part in parts]
    arrays = {**_rows(method, "train", clean), **_rows(method, "test", test)}
    folder.mkdir(parents=True, exist_ok=True)
    write_npz(_path(folder, epoch), {**arrays, "train_gradient_norm": torch.cat(norms).cpu().numpy()})
    return {**row, **_prefix(CLEAN_TRAIN, scores(clean.logits, clean.labels))}


def gradient_norms(
    method: Method, head: nn.Linear, features_ND: Tensor, labels_N: Tensor, *, progress: float = 0.0
) -> Tensor:
    """Return ‖dL_n / d(W, b)‖_2 (N,), float64: the gradient norm of each row's own loss in the last layer.

    L_n is the primary loss, with smoothed labels if the method smooths them, but never mixed. Penalties belong to a
    batch and are left out. With z = W h + b, dL/dW = g h^T for g = dL/dz, so the norm is ‖g‖ sqrt(1 + ‖h‖^2). Autograd
    gives g. If a loss passes features through the layer again (`consistency`), ‖sum_t g_t (h_t, 1)^T‖^2 = sum_st (g_s .
    g_t) (1 + h_s . h_t). It is computed in float64, because float32 ends at 6e-8, where p_y rounds to 1.
    """
    weight, bias = head.weight.detach().double(), head.bias.detach().double()
    calls: list[tuple[Tensor, Tensor]] = []

    def layer(features: Tensor) -> Tensor:
        """Apply the last layer and record its inputs and outputs."""
        logits = nn.functional.linear(features, weight, bias).requires_grad_()
        calls.append((features, logits))
        return logits

    features_ND = features_ND.detach().double()
    first = layer(features_ND)
    with torch.enable_grad():
        total = method.per_sample(first, labels_N, features_ND, head=layer, progress=progress).sum()
    gradients = torch.autograd.grad(total, [logits for _, logits in calls], allow_unused=True)
    used = [(h, g) for (h, _), g in zip(calls, gradients, strict=True) if g is not None]
    h_TND, g_TNC = (torch.cat([x if x.ndim == 3 else x.unsqueeze(0) for x in xs]) for xs in zip(*used, strict=True))
    g_STN, h_STN = torch.einsum("snc,tnc->stn", g_TNC, g_TNC), torch.einsum("snd,tnd->stn", h_TND, h_TND)
    return (g_STN * (1 + h_STN)).sum((0, 1)).clamp_min(0).sqrt()


def read_rows(folder: Path, epochs: Sequence[int]) -> Arrays:
    """Return `epochs` (E,), and the arrays that `measure_rows` wrote for each, stacked to (E, N).

    Train and test rows, in the order of the data set, have confidence, correct, brier, p (p_y), and gamma if the method
    has one. Train rows also have gradient_norm. A training row takes 29 to 33 bytes, a test row 21 to 25. Without
    epochs the result is only that empty array.

    Raises:
        CurvesError: A file is missing or damaged.
    """
    measured: list[Arrays] = []
    for epoch in epochs:
        path = _path(folder, epoch)
        try:
            measured.append(read_npz(path))
        except (FileNotFoundError, FileError):
            raise CurvesError(f"{path} is missing or damaged; remove {folder} and train again") from None
    names = measured[0] if measured else ()
    stacked = {name: np.stack([arrays[name] for arrays in measured]) for name in names}
    return {"epochs": np.array(epochs, dtype=np.int64), **stacked}


def _rows(method: Method, split: str, batch: Batch) -> Arrays:
    """Return for each row confidence, correctness, Brier score sum_k (p_k - [k = y])^2, p_y, and any gamma."""
    logits_NC, labels_N = batch.logits, batch.labels
    p_NC = torch.softmax(logits_NC.double(), 1)
    others_NC = p_NC.scatter(1, labels_N.unsqueeze(1), 0)  # 1 - p_y as their sum, without cancellation
    brier_N = others_NC.square().sum(1) + others_NC.sum(1).square()
    values = {"confidence": p_NC.amax(1).clamp_max(1), "correct": is_right(logits_NC, labels_N), "brier": brier_N}
    values["p"] = p_NC.gather(1, labels_N.unsqueeze(1)).squeeze(1).clamp_max(1).float()
    if (gamma_N := method.exponents(batch)) is not None:
        values["gamma"] = gamma_N.float()
    return {f"{split}_{name}": values_N.cpu().numpy() for name, values_N in values.items()}


def _prefix(split: str, columns: dict[str, Any]) -> dict[str, Any]:
    """Prefix the names of columns with the split."""
    return {f"{split}_{name}": value for name, value in columns.items()}


def _path(folder: Path, epoch: int) -> Path:
    """Return the file of an epoch."""
    return folder / f"epoch-{epoch}.npz"
