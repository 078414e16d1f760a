"""A bundle's graph, tried as a service will use it: before it is published, and whenever a service loads it."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from trueodds.bundle.bundle import Bundle, BundleError, Infer, same_answers
from trueodds.inputs import InputError, Inputs, TensorSignature

BATCH, SECONDS = 64, 5.0
"""Rows of a service's largest batch, by default, and the time that its trial may take: a slow model gets fewer rows."""
FLOAT = "tensor(float)"


def check(
    bundle: Bundle, inputs: Sequence[TensorSignature], outputs: Sequence[TensorSignature], infer: Infer
) -> dict[str, Inputs]:
    """Checks a graph's signature, its golden prediction, and its answers to the extreme rows of the bundle's kind.

    Args:
        bundle: A bundle whose files are whole.
        inputs: The graph's inputs, as onnxruntime's session gives them.
        outputs: The graph's outputs; the first holds the logits.
        infer: Runs the graph.

    Returns:
        The rows that were answered, by what they are, each a batch of one.

    Raises:
        BundleError: another signature, another golden answer, a row that cannot be run or has no finite logits.
    """
    try:
        bundle.card.input.check_signature(inputs, bundle.model_path)
    except InputError as error:
        raise BundleError(str(error)) from None
    if outputs[0].type != FLOAT:
        problem = f"{bundle.model_path}: output {outputs[0].name!r} is {outputs[0].type}"
        raise BundleError(f"{problem}; expected float32 logits")
    answered = {"the golden input": bundle.golden_input()}
    bundle.check_golden(lambda rows: _run(bundle, infer, rows, "the golden input"))
    try:
        extremes = bundle.card.input.extremes()
    except InputError as error:
        raise BundleError(f"{bundle.directory}: no rows to try it with can be made: {error}") from None
    for what, row, is_answered in extremes:
        logits_1C = _run(bundle, infer, row, what)
        if not is_answered:
            continue
        if not np.isfinite(logits_1C).all():
            cure = "look for an overflow (float16) in the model, or state a lower limit in its card"
            raise BundleError(f"{bundle.model_path} gives no finite logits for {what}; {cure}")
        answered[what] = row
    return answered


def check_batch(bundle: Bundle, rows: dict[str, Inputs], infer: Infer) -> None:
    """Checks that a full batch is answered, each row as by itself; `rows` are those that `check` returns.

    Raises:
        BundleError: the batch cannot be run, or an answer depends on the rows beside it.
    """
    alone, began = [_run(bundle, infer, row, what) for what, row in rows.items()], time.perf_counter()
    _run(bundle, infer, next(reversed(rows.values())), "a row")
    count = int(np.clip(SECONDS / max(time.perf_counter() - began, 1e-6), len(rows), BATCH))
    place_N = np.arange(count) % len(rows)
    batch = bundle.card.input.join([[*rows.values()][place] for place in place_N])
    together_NC = _run(bundle, infer, batch, f"a batch of {count} rows")
    alone_NC = np.concatenate(alone)[place_N]
    if not same_answers(together_NC, alone_NC):
        off = float(np.abs(together_NC - alone_NC).max())
        problem = f"{bundle.model_path}: the logits of a row depend on the rows beside it (by {off:.2g})"
        raise BundleError(f"{problem}; export the model in evaluation mode, with a dynamic batch and its mask")


def _run(bundle: Bundle, infer: Infer, rows: Inputs, what: str) -> npt.NDArray[np.floating]:
    try:
        logits_NC = infer(rows)
    except Exception as error:  # onnxruntime has a dozen exception types without a common base
        raise BundleError(f"{bundle.model_path}: {what} cannot be run: {' '.join(str(error).split())}") from None
    if logits_NC.shape != (len(rows), len(bundle.card.classes)):
        shape = f"{logits_NC.shape}, expected {(len(rows), len(bundle.card.classes))}, one logit per class"
        raise BundleError(f"{bundle.model_path} answers {what} with shape {shape}")
    return logits_NC
