"""Reading the body of a /predict request into rows of the model's kind. Slow work runs off the event loop."""

from __future__ import annotations

from functools import partial
from typing import Any

from fastapi import Request
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException

from service.errors import ServiceError
from service.http import json_body
from service.http.json_body import JSON
from service.models.calls import PredictionCall
from service.predict import decoding
from service.predict.decoding import AnswerTimer
from service.predict.options import PredictOptions, for_all, lists_of
from service.settings import Settings
from trueodds.inputs import Format, InputKind, Inputs, InputTooLargeError, Limits, table
from trueodds.texts import short

_invalid = partial(ServiceError, 422, "invalid_instances")

SMALL, SMALL_PIXELS = 8 * 1024, 1 << 16
"""Characters of base64, and pixels, up to which decoding runs in place: at most .2 ms, and a thread costs .1 ms."""
MULTIPART, NPY, RAW, CSV = "multipart/form-data", "application/x-npy", "application/octet-stream", "text/csv"
IMAGE = "image/*"
"""The body is one image file. Its bytes decide the format, whatever stands after the slash."""
FORMATS: dict[str, Format] = {NPY: "npy", RAW: "bytes", CSV: "csv"}
"""Format by media type."""
PER_INSTANCE = ("ids", "tags", "propensities")
_KEYS = frozenset(("instances", *PER_INSTANCE))


async def read_call(
    request: Request, options: PredictOptions, kind: InputKind, settings: Settings
) -> tuple[PredictionCall, AnswerTimer]:
    """Read the rows of a /predict body with their details. Also return the time limit, which starts now.

    Raises:
        ServiceError: See `json_body.read_json`, `instances`, `options.lists_of` and `Answering.run`.
        InputError: See the kind of input.
    """
    media_type, limits = json_body.media_type(request), Limits(settings.max_instances, settings.max_pixels)
    form, files = FORMATS.get(media_type), list[tuple[str, bytes]]()
    body = b""
    if media_type == MULTIPART and kind.files:
        files = await _files_of(request, kind, limits)
    elif media_type.startswith(IMAGE[:-1]) and kind.files:
        files = [("the body", await json_body.read(request))]
    elif media_type == JSON or form in kind.formats:
        body = await json_body.read(request)
    else:
        *some, last = media_types(kind)
        raise json_body.unsupported_type(request, f"{', '.join(some)} and {last}")
    answering = AnswerTimer(request, settings.answer_seconds, kind.noun)
    lists: dict[str, list[Any]] = {}
    columns: dict[str, str] = {}
    if media_type == JSON:
        inputs, lists, columns = await _json_inputs(body, kind, limits, settings.max_json_values, answering)
    elif form is None:
        size = sum(len(data) for _, data in files)
        inputs = await answering.run(decoding.threads, size, partial(kind.from_files, files, limits))
    else:
        read = partial(_read, body, kind, form, limits)
        far = len(body) >= kind.light
        inputs, columns = await answering.run(decoding.threads, len(body), read) if far else read()
    lists = for_all(request, options, lists, len(inputs), kind.noun)
    return PredictionCall(inputs, request.scope["state"]["request_id"], **lists, columns=columns), answering


def light(limits: Limits) -> Limits:
    """Return the limits up to which inputs are decoded in place. Larger ones are decoded in a thread."""
    return Limits(limits.rows, min(limits.pixels, SMALL_PIXELS), SMALL)


def media_types(kind: InputKind | type[InputKind]) -> list[str]:
    """Return the media types that /predict accepts for a kind of input."""
    files = [MULTIPART, IMAGE] if kind.files else []
    return [JSON, *files, *(media_type for media_type, form in FORMATS.items() if form in kind.formats)]


def _read(body: bytes, kind: InputKind, form: Format, limits: Limits) -> tuple[Inputs, dict[str, str]]:
    """Return the rows of a body, and the differently spelled columns of CSV by feature name."""
    inputs = kind.read(body, form, limits)
    return inputs, table.columns_of(body, kind.columns)[2] if form == "csv" else {}


async def _json_inputs(
    body: bytes, kind: InputKind, limits: Limits, max_values: int, answering: AnswerTimer
) -> tuple[Inputs, dict[str, list[Any]], dict[str, str]]:
    """Read rows, lists, and differently spelled names by feature name.

    Encoded inputs are decoded in a thread, unless their headers say that they are small.
    """

    def read(tree: dict[str, Any], limits: Limits) -> Inputs:
        return kind.from_json(tree["instances"], limits)

    def build(tree: Any) -> tuple[Inputs | None, dict[str, Any], dict[str, list[Any]]]:
        lists = lists_of(tree, len(instances(tree, kind, limits)))
        try:
            return read(tree, light(limits)), tree, lists
        except InputTooLargeError:
            return None, tree, lists

    inputs, tree, lists = await json_body.convert_json(body, max_values, build, answering.run)
    if inputs is None:
        inputs = await answering.run(decoding.threads, len(body), partial(read, tree, limits))
    return inputs, lists, kind.other_spellings(tree["instances"])


async def _files_of(request: Request, kind: InputKind, limits: Limits) -> list[tuple[str, bytes]]:
    limit = limits.rows
    try:
        async with request.form(max_files=limit, max_fields=limit) as form:
            files: list[tuple[str, bytes]] = []
            for field, value in form.multi_items():
                if field != "files" or not isinstance(value, UploadFile):
                    message = f"the form has a field {short(field)}; expected only files, in fields named 'files'"
                    raise ServiceError(422, "invalid_form", message)
                files.append((f"files[{len(files)}]", await value.read()))
    except HTTPException as error:  # Starlette's error for a broken form or too many parts
        many = str(error.detail).startswith("Too many")
        code, status = ("too_many_instances", 413) if many else ("invalid_form", 400)
        cure = f"the limit is {limit:,} {kind.noun}s per call" if many else "send files in fields named 'files'"
        raise ServiceError(status, code, f"{str(error.detail).rstrip('.')}; {cure}") from None
    kind.check_count(len(files), limits)
    return files


def instances(tree: Any, kind: InputKind, limits: Limits) -> list[Any]:
    """Check the shape of a /predict body, and return its instances.

    Raises:
        ServiceError: The body has another shape.
        InputError: There are no instances, or too many.
    """
    if not isinstance(tree, dict) or not isinstance(tree.get("instances"), list):
        raise _invalid(f"the body must be {_expected_body(kind)}")
    if extra := tree.keys() - _KEYS:
        raise _invalid(f"unknown key {short(min(extra))} in the body; expected {_expected_body(kind)}")
    values: list[Any] = tree["instances"]
    kind.check_count(len(values), limits)
    return values


def _expected_body(kind: InputKind) -> str:
    beside = "beside it, optionally, ids, tags and propensities, with one entry per instance"
    return f'{{"instances": [...]}}, each {kind.instance}; {beside}'
