"""Probabilities in inference bodies of KServe's protocols: version 1 (instances, predictions), 2 (inputs, outputs)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from service.errors import ServiceError
from service.observe.observation import Form
from trueodds.sums.inputs import BELOW_ZERO, ROW_SUM_TOLERANCE, sums_to_one
from trueodds.texts import quotes, short

PROBABILITIES = ("probabilities", "probability", "predict_proba", "output_probability", "scores")
LOGITS = ("logits",)
"""Names of outputs that are searched for."""
CURE = (
    f"searched for {', '.join(PROBABILITIES + LOGITS)}, and for one list of numbers per row that sums to 1. Let the"
    " model return probabilities (scikit-learn in KServe: PREDICT_PROBA=true), or name their output: ?output=NAME, with"
    " &form=logits if they are logits"
)


@dataclass(frozen=True)
class ResponseAnswers:
    """Answers in one response: per row the numbers of the classes, in order or by name."""

    rows: list[Any]
    form: Form
    version: str | None
    """Version of the model, if the response has it."""


def answers_of(tree: Any, output: str | None, form: Form) -> ResponseAnswers:
    """Find the answers in the body of a response.

    Args:
        tree: The body.
        output: Name of the output tensor, or of a key of each prediction.
        form: Form of its numbers.

    Raises:
        ServiceError: 422 if there are none.
    """
    if isinstance(tree, dict) and isinstance(tree.get("outputs"), list):
        return _of_tensors(tree, output, form)
    if isinstance(tree, dict) and isinstance(tree.get("predictions"), list):
        return _of_predictions(tree["predictions"], output, form)
    raise _none(f"the response is {short(tree)}, with neither predictions nor outputs")


def ids_of(tree: Any, name: str) -> list[str]:
    """Return the rows' ids in a request: a key of each instance, or an input tensor.

    Raises:
        ServiceError: 422 if there are none.
    """
    cells: Any = None
    if isinstance(tree, dict) and isinstance(tree.get("instances"), list):
        cells = [instance.get(name) if isinstance(instance, dict) else None for instance in tree["instances"]]
    elif isinstance(tree, dict) and isinstance(tree.get("inputs"), list):
        tensors = [one for one in tree["inputs"] if isinstance(one, dict) and one.get("name") == name]
        cells = tensors[0].get("data") if tensors else None
    sound = isinstance(cells, list) and set(map(type, cells)) <= {str, int}
    if not sound or not cells:
        message = f"the request has no ids under {short(name)}: expected a text or a whole number per row"
        raise ServiceError(422, "no_ids", f"{message}, as a key of each instance or as an input tensor of that name")
    return [str(cell) for cell in cells]


def _of_tensors(tree: dict[str, Any], output: str | None, form: Form) -> ResponseAnswers:
    named = (one for one in tree["outputs"] if isinstance(one, dict) and isinstance(one.get("name"), str))
    tensors = {one["name"]: one for one in named}
    name, form = _choose_output(list(tensors), output, form)
    unnamed = name is None and output is None and len(tensors) == 1
    tensor = next(iter(tensors.values())) if unnamed else tensors.get(name or "")
    rows = None if tensor is None else _matrix(tensor)
    if rows is None or (unnamed and not all(map(_sums_to_one, rows.tolist()))):
        raise _none(f"the response has the outputs {quotes(list(tensors))}")
    version = tree.get("model_version")
    return ResponseAnswers(list(rows), form, version if isinstance(version, str) and version else None)


def _of_predictions(predictions: list[Any], output: str | None, form: Form) -> ResponseAnswers:
    names = list(predictions[0]) if predictions and isinstance(predictions[0], dict) else []
    name, form = _choose_output(names, output, form)
    unnamed = name is None and output is None
    rows = [p.get(name) if isinstance(p, dict) and name else p for p in predictions] if name or unnamed else []
    doubtful = unnamed and form == "probabilities"
    if not rows or not all(isinstance(row, list | dict) and (not doubtful or _sums_to_one(row)) for row in rows):
        what = f"with the keys {quotes(names)}" if names else f"such as {short(predictions[:1])}"
        raise _none(f"the response has predictions {what}")
    return ResponseAnswers(rows, form, None)


def _choose_output(names: list[str], output: str | None, form: Form) -> tuple[str | None, Form]:
    """Return the name of the output with the answer, None if it is missing, and its form."""
    if output is not None:
        return (output if output in names else None), form
    output = next((name for name in (*PROBABILITIES, *LOGITS) if name in names), None)
    return output, "logits" if output in LOGITS else form


def _matrix(tensor: dict[str, Any]) -> Any:
    """Return the numbers of a tensor as rows x classes; None if it is not such a tensor."""
    shape, data = tensor.get("shape"), tensor.get("data")
    if not (isinstance(shape, list) and len(shape) == 2 and all(type(size) is int and size > 0 for size in shape)):
        return None
    flat = list(_flat(data)) if isinstance(data, list) else []
    if len(flat) != math.prod(shape) or shape[1] < 2 or not set(map(type, flat)) <= {int, float}:
        return None
    return np.array(flat, np.float64).reshape(shape)


def _flat(data: list[Any]) -> Iterator[Any]:
    """Yield the values of nested lists."""
    for value in data:
        if isinstance(value, list):
            yield from _flat(value)
        else:
            yield value


def _sums_to_one(row: Any) -> bool:
    numbers = list(row.values()) if isinstance(row, dict) else row
    return (
        len(numbers) > 1
        and all(type(number) in (int, float) and -BELOW_ZERO <= number <= 1 + ROW_SUM_TOLERANCE for number in numbers)
        and bool(sums_to_one(np.array([numbers], np.float64)).all())
    )


def _none(problem: str) -> ServiceError:
    return ServiceError(422, "no_probabilities", f"{problem}, and no probabilities; {CURE}")
