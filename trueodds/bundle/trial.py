"""Trial of a bundle's graph, as a service uses it: before it is published, and when a service loads it.

It also explains why onnxruntime refuses a graph. Imports and services use the same messages.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trueodds.bundle.contents import BundleError
from trueodds.bundle.stored_bundle import Infer, StoredBundle, same_answers
from trueodds.inputs import InputError, Inputs, TensorSignature

BATCH, SECONDS = 64, 5.0
"""Rows of a service's default largest batch, and the time limit of the trial. A slow model gets fewer rows."""
FLOAT = "tensor(float)"
EXTENSIONS = ("ai.onnx.contrib", "com.microsoft.extensions")
"""Domains of the operators of the package onnxruntime-extensions."""
WITHOUT = "export the model without them, and do their preprocessing before rows are sent; texts are sent unchanged"


def check(
    bundle: StoredBundle[Any], inputs: Sequence[TensorSignature], outputs: Sequence[TensorSignature], infer: Infer
) -> dict[str, Inputs]:
    """Check a graph's signature, its golden prediction, and its answers to extreme rows of the bundle's kind of input.

    Args:
        bundle: A bundle with complete files.
        inputs: The graph's inputs, as onnxruntime's session describes them.
        outputs: The graph's outputs; the first one holds the logits.
        infer: Runs the graph.

    Returns:
        The rows that were answered, each as a batch of one, by their description.

    Raises:
        BundleError: The signature or the golden answer differs, a row cannot be run, or its logits are not finite.
    """
    try:
        bundle.card.input.check_signature(inputs, bundle.model_path)
    except InputError as error:
        raise BundleError(str(error)) from None
    if outputs[0].type != FLOAT:
        problem = f"{bundle.model_path}: output {outputs[0].name!r} is {outputs[0].type}"
        raise BundleError(f"{problem}; expected float32 logits")
    answered = {"the golden input": bundle.golden_input()}
    bundle.check_golden(lambda rows: _logits_of(bundle, infer, rows, "the golden input"))
    try:
        extremes = bundle.card.input.extremes()
    except InputError as error:
        raise BundleError(f"{bundle.directory}: no rows for a trial can be made: {error}") from None
    for name, row, is_answered in extremes:
        logits_1C = _logits_of(bundle, infer, row, name)
        if not is_answered:
            continue
        if not np.isfinite(logits_1C).all():
            cure = "check the model for an overflow (float16), or set a lower limit in its card"
            raise BundleError(f"{bundle.model_path} gives no finite logits for {name}; {cure}")
        answered[name] = row
    return answered


def check_batch(bundle: StoredBundle[Any], rows: dict[str, Inputs], infer: Infer) -> None:
    """Check that a full batch is answered, each row as it is alone. `rows` are those that `check` returns.

    Raises:
        BundleError: The batch cannot be run, or an answer depends on the other rows.
    """
    alone = [_logits_of(bundle, infer, row, name) for name, row in rows.items()]
    began = time.perf_counter()
    _logits_of(bundle, infer, next(reversed(rows.values())), "a row")
    count = int(np.clip(SECONDS / max(time.perf_counter() - began, 1e-6), len(rows), BATCH))
    place_N = np.arange(count) % len(rows)
    batch = bundle.card.input.join([[*rows.values()][place] for place in place_N])
    together_NC = _logits_of(bundle, infer, batch, f"a batch of {count} rows")
    alone_NC = np.concatenate(alone)[place_N]
    if not same_answers(together_NC, alone_NC):
        off = float(np.abs(together_NC - alone_NC).max())
        problem = f"{bundle.model_path}: the logits of a row depend on the other rows of its batch (by {off:.2g})"
        raise BundleError(f"{problem}; export the model in evaluation mode, with a dynamic batch and its mask")


def _logits_of(bundle: StoredBundle[Any], infer: Infer, rows: Inputs, name: str) -> npt.NDArray[np.floating]:
    """Run the graph on rows."""
    try:
        logits_NC = infer(rows)
    except Exception as error:  # onnxruntime has a dozen exception types without a common base
        raise BundleError(f"{bundle.model_path}: {name} cannot be run: {' '.join(str(error).split())}") from None
    if logits_NC.shape != (len(rows), len(bundle.card.classes)):
        shape = f"{logits_NC.shape}, expected {(len(rows), len(bundle.card.classes))}, one logit per class"
        raise BundleError(f"{bundle.model_path} answers {name} with shape {shape}")
    return logits_NC


def reason_to_refuse(path: Path, message: str, version: str) -> str:
    """Turn onnxruntime's message about the graph at `path` into an explanation with a cure.

    `version` is the installed one.
    """
    here = f"the installed onnxruntime {version}"
    upgrade = "pip install --upgrade onnxruntime, or export"
    if match := re.search(r"Opset (\d+) is under development.*till opset (\d+)", message, re.DOTALL):
        cure = f"{upgrade} with opset {match[2]} or earlier"
        return f"{path} has opset {match[1]}; {here} supports opsets up to {match[2]}: {cure}"
    if match := re.search(r"IR version: (\d+), max supported IR version: (\d+)", message):
        cure = f"{upgrade} with an older onnx, whose IR version is at most {match[2]}"
        return f"{path} has IR version {match[1]}; {here} supports versions up to {match[2]}: {cure}"
    if match := re.search(r"(\S+)\(-?\d+\) is not a registered function/op", message):
        domain, _, operator = match[1].rpartition(":")
        if domain in EXTENSIONS:
            return why_extensions(path, f"{domain}.{operator}")
        return f"{path} has the operator {match[1]}, which {here} does not have; {upgrade} without it"
    cure = ""
    if "tensor(double)" in message or "Could not find an implementation" in message:
        cure = "; export it with float32 inputs, scikit-learn's with to_onnx(model, X[:1].astype(numpy.float32))"
    return f"{path}: {here} cannot load it: {' '.join(message.split()).rstrip('.')}{cure}"


def why_extensions(path: Path, operators: str) -> str:
    """Explain that a graph has operators of onnxruntime-extensions."""
    return f"{path} has operators of the package onnxruntime-extensions, which no service loads: {operators}; {WITHOUT}"
