"""CloudEvents of KServe's inference logger: a request and its response have the same id and arrive in either order.

The attributes are headers (binary mode, which KServe uses) or keys of the JSON beside the data (structured mode).
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from fastapi import Request

from service.errors import ServiceError
from service.http import json_body
from service.ids import id_problem
from trueodds.texts import short

_invalid = partial(ServiceError, 422, "invalid_event")

STRUCTURED = "application/cloudevents+json"
Kind = Literal["request", "response"]
KINDS: dict[str, Kind] = {
    "org.kubeflow.serving.inference.request": "request",
    "org.kubeflow.serving.inference.response": "response",
}
"""Half of an inference, by the event's type."""
BINARY_CURE = "the log does not contain binary tensors: let clients request outputs in JSON"


@dataclass(frozen=True)
class CloudEvent:
    """Event with one half of an inference."""

    id: str
    """Id of the inference, the same for both halves."""
    kind: Kind
    service: str
    """Name of the InferenceService."""
    time: Any
    """Time at which it was sent, in a format of /observe; None if missing."""
    data: bytes | None
    """Body of the inference, unless it is in the event's JSON."""
    tree: Any
    """Body of the inference in the event's JSON."""

    async def inference(self, max_values: int) -> Any:
        """Return the body of the inference as JSON.

        Raises:
            ServiceError: 400 if it is not JSON, 413 for too many values.
        """
        if self.data is None:
            return self.tree
        try:
            return await json_body.convert_json(self.data, max_values, lambda tree: tree)
        except ServiceError as error:
            raise ServiceError(error.status, error.code, f"{error.message}; {BINARY_CURE}") from None


async def read_event(request: Request, max_values: int) -> CloudEvent:
    """Read the event in a request.

    Raises:
        ServiceError: 422 if it is not an inference event; for structured events also 400 if it is not JSON, or 413 for
            too many values.
    """
    body = await json_body.read(request)
    if json_body.media_type(request) == STRUCTURED:
        tree = await json_body.convert_json(body, max_values, lambda tree: tree)
        if not isinstance(tree, dict):
            raise _invalid(f"the event is {short(tree)}; expected an object with specversion, id, type and data")
        data = _decode(tree["data_base64"]) if "data_base64" in tree else None
        attributes = tree
    else:
        attributes = {key[3:]: value for key, value in request.headers.items() if key.startswith("ce-")}
        tree, data = {}, body
    kind, id_, service = (attributes.get(name) for name in ("type", "id", "inferenceservicename"))
    if not isinstance(kind, str) or kind not in KINDS:
        allowed = " and ".join(KINDS)
        raise _invalid(f"the event's type (ce-type) is {short(kind)}; expected an inference event: {allowed}")
    if problem := id_problem(id_):
        raise _invalid(f"the event's id (ce-id) {problem}")
    if not isinstance(service, str):
        raise _invalid(f"inferenceservicename (ce-inferenceservicename) is {short(service)}; expected the model's name")
    assert isinstance(id_, str)
    return CloudEvent(id_, KINDS[kind], service, attributes.get("time"), data, tree.get("data"))


def _decode(text: Any) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise _invalid(f"data_base64 is {short(text)}, which is not base64") from None
