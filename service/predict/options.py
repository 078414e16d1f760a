"""A call's options beside its inputs: which version answers, what the answer shows, and each input's id and tag."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Request
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from service.errors import ServiceError
from service.http import parameters
from service.ids import own_id_problem
from trueodds.inputs import table
from trueodds.texts import plural, short, with_article

MAX_TAG = 64
PREDICTION_ID = "x-prediction-id"


def _number(value: Any) -> Any:
    return table.number(value) if isinstance(value, str) else value


class Options(BaseModel):
    """The query of /predict."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str | None = Field(None, description="the model that answers; default: the model that MODELS/default names")
    version: str | None = Field(None, description="a published version; default: the one that serves the model")
    top_k: Annotated[int, Field(ge=1)] | None = Field(
        None, description="only the k most probable classes, as `top`, in place of all probabilities"
    )
    logits: bool = Field(False, description="the logits too, each row minus its maximum")
    classes: bool = Field(False, description="the names of all classes too, in the order of the probabilities")
    abstain_below: Annotated[float, BeforeValidator(_number), Field(ge=0, le=1)] | None = Field(
        None, description="no label below this confidence; the answer says what that means on the test set"
    )
    tag: Annotated[str, Field(max_length=MAX_TAG)] | None = Field(None, description="of all inputs of this call")
    propensity: Annotated[float, BeforeValidator(_number), Field(gt=0, le=1)] | None = Field(
        None, description="the chance that an answer of this call gets a label, where that is known"
    )

    @classmethod
    def of(cls, request: Request) -> Options:
        """The options of a query.

        Raises:
            ServiceError: 422 naming the parameter, its value and what is allowed.
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


DEFAULTS = Options()


def check_id(value: Any, name: str) -> str:
    """An id of the caller's own.

    Raises:
        ServiceError: 422 for one that is empty, too long, not printable or of the form of our own.
    """
    if problem := own_id_problem(value):
        raise ServiceError(422, "invalid_id", f"{name} {problem}")
    assert isinstance(value, str)
    return value


def check_tag(value: Any, name: str) -> str | None:
    """A tag or None.

    Raises:
        ServiceError: 422 for one that is empty, too long or not printable.
    """
    if value is None:
        return None
    if not isinstance(value, str) or not 1 <= len(value) <= MAX_TAG or not value.isprintable():
        message = f"{name} is {short(value)}; allowed is a text of 1 to {MAX_TAG} printable characters, or null"
        raise ServiceError(422, "invalid_tag", message)
    return value


def check_propensity(value: Any, name: str) -> float | None:
    """A chance or None.

    Raises:
        ServiceError: 422 for what is not a number in (0, 1].
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        message = f"{name} is {short(value)}; allowed is a number in (0, 1], or null"
        raise ServiceError(422, "invalid_propensity", message)
    return float(value)


CHECKS = {"ids": check_id, "tags": check_tag, "propensities": check_propensity}


def lists_of(tree: dict[str, Any], count: int) -> dict[str, list[Any]]:
    """ids, tags and propensities of a JSON body, each with an entry for every instance.

    Raises:
        ServiceError: 422 for a list of another length, or an entry that is not allowed.
    """
    lists: dict[str, list[Any]] = {}
    for key, check in CHECKS.items():
        if key not in tree:
            continue
        values = tree[key]
        if not isinstance(values, list) or len(values) != count:
            what = plural(len(values), "entry", "entries") if isinstance(values, list) else short(values)
            message = f"{key} is {what}; expected a list with one entry for each instance, {count:,} in all"
            raise ServiceError(422, "invalid_instances", message)
        lists[key] = [check(value, f"{key}[{n}]") for n, value in enumerate(values)]
    return lists


def for_all(
    request: Request, options: Options, lists: dict[str, list[Any]], count: int, noun: str
) -> dict[str, list[Any]]:
    """The body's lists, and those from the query and the header x-prediction-id, which names the one input of a call.

    `noun`: what an input is called.

    Raises:
        ServiceError: 422 for an id that is not allowed, or with several images, or for what is said in two places.
    """
    beside: dict[str, tuple[str, list[Any]]] = {}
    if (own := _own_id(request, noun)) is not None:
        if count != 1:
            message = f"{PREDICTION_ID} names one {noun}; this call has {count:,}. Send JSON with a list of ids"
            raise ServiceError(422, "invalid_id", message)
        beside["ids"] = f"the header {PREDICTION_ID}", [check_id(own, PREDICTION_ID)]
    if options.tag is not None:
        beside["tags"] = "tag in the query", [options.tag] * count
    if options.propensity is not None:
        beside["propensities"] = "propensity in the query", [options.propensity] * count
    for key, (where, _) in beside.items():
        if key in lists:
            raise ServiceError(422, "invalid_parameter", f"the body has {key}, and there is {where}; send one of both")
    return {**lists, **{key: values for key, (_, values) in beside.items()}}


def _own_id(request: Request, noun: str) -> str | None:
    """The value of the header x-prediction-id; the framework would read it as Latin-1.

    Raises:
        ServiceError: 422 for several of them, or for what is not UTF-8.
    """
    name = PREDICTION_ID.encode()
    values = [value for key, value in request.headers.raw if key == name]
    if not values:
        return None
    if len(values) > 1:
        message = f"there are {len(values)} headers {PREDICTION_ID}; {with_article(noun)} has one id"
        raise ServiceError(422, "invalid_id", message)
    try:
        return values[0].decode()
    except UnicodeDecodeError:
        message = f"{PREDICTION_ID} is {short(values[0])}, which is not UTF-8; send it in UTF-8, or JSON with ids"
        raise ServiceError(422, "invalid_id", message) from None
