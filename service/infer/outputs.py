"""Outputs of an infer request: which are requested, in which form, and the answer made from them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
from starlette.responses import Response

from service.http.encodings import Coding, Packer
from service.http.json_body import JSON
from service.infer.infer_schemas import (
    CLASSIFIED,
    DATATYPES,
    DECISION,
    GROUP,
    OUTPUTS,
    SET,
    InferResponse,
    OutputTensor,
    datatypes_of,
)
from service.infer.request_parameters import invalid
from service.infer.tensors import BYTES, HEADER_LENGTH, Output
from service.models.acting import Acting
from service.models.calls import PredictionCall, PredictionResult, acting_rows
from service.models.engine import Engine
from service.models.set_answers import members, rule_of
from service.predict.request_body import RAW
from trueodds.calibrators.conformal import SetRule
from trueodds.texts import short

DEFAULT_OUTPUTS = OUTPUTS[:3]
PACKED = 1024
"""Size in bytes from which an answer is compressed, if the caller accepts it. Below it saves no packet."""


@dataclass(frozen=True)
class OutputForm:
    """Form of a requested output."""

    binary: bool
    most: int | None = None
    """Number of classes with the highest values, as texts. None: the whole tensor."""


def requested_outputs(tree: dict[str, Any], engine: Engine) -> dict[str, OutputForm]:
    """Return the outputs that a request names, in its order; the default outputs if it names none.

    Raises:
        ServiceError: 422 for an unknown output or parameter, or a value that is not allowed.
    """
    binary: bool = tree["parameters"].get("binary_data_output", False)
    named = tree.get("outputs")
    if named is None:
        decided = [DECISION] if engine.version.act_alone else []
        grouped = [GROUP] if engine.version.calibrator.known_groups else []
        sets = [SET] if "set" in tree["parameters"] else []
        return dict.fromkeys([*DEFAULT_OUTPUTS, *decided, *grouped, *sets], OutputForm(binary))
    if not isinstance(named, list):
        raise invalid(f"outputs is {short(named)}; expected a list")
    forms: dict[str, OutputForm] = {}
    known = datatypes_of(engine.version)
    for output in named:
        name = output.get("name") if isinstance(output, dict) else None
        if not isinstance(name, str) or name not in known:
            raise invalid(f"an output is {short(output)}; expected an object whose name is one of {', '.join(known)}")
        forms[name] = _form(name, output.get("parameters", {}), binary, len(engine.version.classes))
    if SET in forms and "set" not in tree["parameters"]:
        raise invalid(f"the output {SET!r} needs the level of the sets in parameters, such as {{'set': 0.9}}")
    return forms


def rule_of_sets(tree: dict[str, Any], engine: Engine) -> SetRule | None:
    """Return the rule of the sets that a request wants; None if it wants none.

    Raises:
        ServiceError: 422 if the version has no sets.
    """
    level = tree["parameters"].get("set")
    return None if level is None else rule_of(engine, level)


def _form(name: str, parameters: Any, binary: bool, classes: int) -> OutputForm:
    if not isinstance(parameters, dict):
        raise invalid(f"the output {name!r} has parameters {short(parameters)}; expected an object")
    allowed = ["binary_data", *(["classification"] if name in CLASSIFIED else [])]
    if unknown := parameters.keys() - set(allowed):  # such as shared_memory_region
        problem = f"the output {name!r} has the parameter {short(min(unknown))}; allowed is {' and '.join(allowed)}"
        raise invalid(problem)
    in_binary = parameters.get("binary_data", binary)
    if not isinstance(in_binary, bool):
        raise invalid(f"the output {name!r} has binary_data {short(in_binary)}; allowed are true and false")
    most = parameters.get("classification")
    if most is not None and (type(most) is not int or most < 1):
        raise invalid(f"the output {name!r} has classification {short(most)}; allowed is a whole number, 1 or more")
    return OutputForm(in_binary, None if most is None else min(most, classes))


def answer(
    tree: dict[str, Any],
    forms: dict[str, OutputForm],
    result: PredictionResult,
    engine: Engine,
    call: PredictionCall,
    coding: Coding | None,
    rule: SetRule | None = None,
) -> Response:
    """Return the answer to the request `tree`, compressed with `coding` if it is large enough."""
    shown_outputs, parts = [], []
    acting = acting_rows(result, engine.audit_share) if engine.version.act_alone else []
    inside = members(result, engine, rule) if rule is not None and SET in forms else []
    for output in _outputs(result, forms, acting, inside):
        shown: OutputTensor = {"name": output.name, "datatype": output.datatype, "shape": output.shape}
        if forms[output.name].binary:
            parts.append(output.binary())
            shown["parameters"] = {"binary_data_size": len(parts[-1])}
        else:
            shown["data"] = output.data()
        shown_outputs.append(shown)
    response: InferResponse = {
        "model_name": engine.version.model,
        "model_version": engine.version.version,
        "outputs": shown_outputs,
    }
    if "id" in tree:
        response["id"] = tree["id"]
    said: dict[str, list[dict[str, int]]] = {}
    for n, remarks in engine.input.remarks(call.inputs).items():
        for name, remark in remarks.items():
            said.setdefault(name, []).append({"row": n, **remark})
    if audited := [{"row": n} for n, row in enumerate(acting) if row.get("audit")]:
        said["audit"] = audited
    if without := [{"row": n} for n, inside_C in enumerate(inside) if inside_C is None]:
        said["no_set"] = without
    if said:
        response["parameters"] = said
    head = orjson.dumps(response)
    headers = {HEADER_LENGTH: str(len(head))} if parts else {}
    body = b"".join([head, *parts])
    if coding and len(body) >= PACKED:
        packer = Packer(coding)
        body = packer.pack(body) + packer.rest()
        headers["content-encoding"] = coding
    headers["vary"] = "accept-encoding"
    return Response(body, media_type=RAW if parts else JSON, headers=headers)


def _outputs(
    result: PredictionResult,
    forms: dict[str, OutputForm],
    acting: list[Acting],
    inside: list[npt.NDArray[np.bool_] | None],
) -> Iterator[Output]:
    """Yield the output tensors in the order of the request."""
    values: dict[str, npt.NDArray[np.floating[Any]]] = {
        "probabilities": result.probabilities_NC,
        "logits": result.logits_NC,
    }
    for name, form in forms.items():
        if name == "prediction_id":
            yield Output(name, BYTES, [len(result)], result.ids)
        elif name == "label":
            labels = [result.classes(n)[i] for n, i in enumerate(result.index_N.tolist())]
            yield Output(name, BYTES, [len(result)], labels)
        elif name == DECISION:  # empty for a repeated answer of a version without a promise
            yield Output(name, BYTES, [len(result)], [row.get("decision", "") for row in acting])
        elif name == GROUP:
            yield Output(name, BYTES, [len(result)], [group or "" for group in result.groups])
        elif name == SET:  # no class for a repeated answer of a version without sets
            none_C = np.zeros(result.probabilities_NC.shape[1], bool)
            inside_NC = np.array([none_C if inside_C is None else inside_C for inside_C in inside])
            yield Output(name, "BOOL", list(inside_NC.shape), inside_NC)
        elif form.most is None:
            yield Output(name, DATATYPES[name], list(values[name].shape), values[name])
        else:
            texts = _classification(values[name], result, form.most)
            yield Output(name, BYTES, [len(result), form.most], texts)


def _classification(values_NC: npt.NDArray[np.floating[Any]], result: PredictionResult, most: int) -> list[str]:
    """Return `value:index:label` of each row's highest values, in descending order, ties by the smaller index.

    References:
        https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_classification.md
    """
    order_NK = np.argsort(-values_NC, axis=1, kind="stable")[:, :most]
    top_NK = np.take_along_axis(values_NC, order_NK, axis=1)
    return [
        f"{value}:{index}:{result.classes(n)[index]}"
        for n, (indices, values) in enumerate(zip(order_NK.tolist(), top_NK, strict=True))
        for index, value in zip(indices, values, strict=True)
    ]
