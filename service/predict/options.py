"""Options of a /predict call: version, parts of the answer, and the ids and tags of its inputs."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Request
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from service.errors import ServiceError
from service.http import parameters
from service.ids import own_id_problem
from trueodds.inputs import table
from trueodds.texts import plural, short, with_article

MAX_TAG = 64
PREDICTION_ID = "x-prediction-id"
_ID_HEADER = PREDICTION_ID.encode()


def _number(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return table.number(value)
    except ValueError:
        raise PydanticCustomError("number", "expected a number, such as 0.9") from None


class PredictOptions(BaseModel):
    """Query parameters of /predict."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str | None = Field(None, description="Model that answers. Default: the model named in MODELS/default.")
    version: str | None = Field(
        None, description="Published version that answers. Default: the model's served version."
    )
    top_k: Annotated[int, Field(ge=1)] | None = Field(
        None, description="Return only the k most probable classes, as `top`, instead of all probabilities."
    )
    logits: bool = Field(False, description="Also return the logits, each row minus its maximum.")
    classes: bool = Field(False, description="Also return the names of all classes, in the order of the probabilities.")
    abstain_below: Annotated[float, BeforeValidator(_number), Field(ge=0, le=1)] | None = Field(
        None, description="Return no label below this confidence. The answer gives coverage and risk on the test set."
    )
    set: Annotated[float, BeforeValidator(_number), Field(gt=0, lt=1)] | None = Field(
        None, description="Also return a set of classes that holds the true one with this probability, such as 0.9."
    )
    tag: Annotated[str, Field(max_length=MAX_TAG)] | None = Field(None, description="Tag of all inputs of this call.")
    propensity: Annotated[float, BeforeValidator(_number), Field(gt=0, le=1)] | None = Field(
        None, description="Probability that an answer of this call gets a label, if you know it."
    )

    @classmethod
    def of(cls, request: Request) -> PredictOptions:
        """Read the options from a query.

        Raises:
            ServiceError: 422 with the parameter, its value and the allowed values.
        """
        if not request.scope.get("query_string"):
            return DEFAULTS
        parameters.check(request, cls.model_fields)
        try:
            options = cls.model_validate(dict(request.query_params))
        except ValidationError as error:
            texts = [f"{'.'.join(map(str, e['loc']))} = {short(e['input'])}: {e['msg']}" for e in error.errors()[:5]]
            raise ServiceError(422, "invalid_parameter", "; ".join(texts)) from None
        check_tag(options.tag, "tag")
        return options


DEFAULTS = PredictOptions()


def check_id(value: Any, name: str) -> str:
    """Return a caller's own id.

    Raises:
        ServiceError: 422 if it is empty, too long, not printable, or has the form of the service's own ids.
    """
    if problem := own_id_problem(value):
        raise ServiceError(422, "invalid_id", f"{name} {problem}")
    assert isinstance(value, str)
    return value


def check_tag(value: Any, name: str) -> str | None:
    """Return a tag or None.

    Raises:
        ServiceError: 422 if it is empty, too long or not printable.
    """
    if value is None:
        return None
    if not isinstance(value, str) or not 1 <= len(value) <= MAX_TAG or not value.isprintable():
        message = f"{name} is {short(value)}; allowed is a text of 1 to {MAX_TAG} printable characters, or null"
        raise ServiceError(422, "invalid_tag", message)
    return value


def check_propensity(value: Any, name: str) -> float | None:
    """Return a propensity or None.

    Raises:
        ServiceError: 422 if it is not a number in (0, 1].
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        message = f"{name} is {short(value)}; allowed is a number in (0, 1], or null"
        raise ServiceError(422, "invalid_propensity", message)
    return float(value)


CHECKS = {"ids": check_id, "tags": check_tag, "propensities": check_propensity}


def lists_of(tree: dict[str, Any], count: int) -> dict[str, list[Any]]:
    """Return ids, tags and propensities of a JSON body, each with one entry per instance.

    Raises:
        ServiceError: 422 if a list has another length or an entry is not allowed.
    """
    lists: dict[str, list[Any]] = {}
    if len(tree) == 1:  # nothing beside the instances
        return lists
    for key, check in CHECKS.items():
        if key not in tree:
            continue
        values = tree[key]
        if not isinstance(values, list) or len(values) != count:
            what = plural(len(values), "entry", "entries") if isinstance(values, list) else short(values)
            message = f"{key} is {what}; expected a list with one entry per instance, {count:,} in all"
            raise ServiceError(422, "invalid_instances", message)
        lists[key] = [check(value, f"{key}[{n}]") for n, value in enumerate(values)]
    return lists


def for_all(
    request: Request, options: PredictOptions, lists: dict[str, list[Any]], count: int, noun: str
) -> dict[str, list[Any]]:
    """Return the body's lists together with the values from the query and the header x-prediction-id.

    Args:
        noun: Name of an input in messages.

    Raises:
        ServiceError: 422 if an id is not allowed, if the header is sent with several inputs, or if a value is given
            twice.
    """
    own = _own_id(request, noun)
    if own is None and options is DEFAULTS:
        return lists
    beside: dict[str, tuple[str, list[Any]]] = {}
    if own is not None:
        if count != 1:
            message = f"{PREDICTION_ID} names one {noun}, but this call has {count:,}. Send JSON with a list of ids"
            raise ServiceError(422, "invalid_id", message)
        beside["ids"] = f"the header {PREDICTION_ID}", [check_id(own, PREDICTION_ID)]
    if options.tag is not None:
        beside["tags"] = "tag in the query", [options.tag] * count
    if options.propensity is not None:
        beside["propensities"] = "propensity in the query", [options.propensity] * count
    for key, (where, _) in beside.items():
        if key in lists:
            raise ServiceError(
                422, "invalid_parameter", f"the body has {key}, and there is {where}; send only one of them"
            )
    return {**lists, **{key: values for key, (_, values) in beside.items()}}


def _own_id(request: Request, noun: str) -> str | None:
    """Return the value of the header x-prediction-id, decoded as UTF-8. The framework would decode it as Latin-1.

    Raises:
        ServiceError: 422 if the header is repeated or not UTF-8.
    """
    values: list[bytes] = [value for key, value in request.scope["headers"] if key == _ID_HEADER]
    if not values:
        return None
    if len(values) > 1:
        message = f"the header {PREDICTION_ID} is sent {len(values)} times; {with_article(noun)} has one id"
        raise ServiceError(422, "invalid_id", message)
    try:
        return values[0].decode()
    except UnicodeDecodeError:
        message = f"{PREDICTION_ID} is {short(values[0])}, which is not UTF-8; send it in UTF-8, or JSON with ids"
        raise ServiceError(422, "invalid_id", message) from None
