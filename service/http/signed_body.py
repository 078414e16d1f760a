"""Bodies that somebody signs: who does it, and why."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, ValidationError

from service.errors import ServiceError
from trueodds.texts import line_problem


def _line(value: object) -> object:
    """Refuses a text that is no plain line, before white space is stripped."""
    if isinstance(value, str) and (problem := line_problem(value)):
        raise ValueError(f"it {problem}")
    return value


_STRIPPED = StringConstraints(strip_whitespace=True, min_length=1)
Name = Annotated[str, _STRIPPED, Field(max_length=200), BeforeValidator(_line)]
Reason = Annotated[str, _STRIPPED, Field(max_length=2000), BeforeValidator(_line)]


class SignedBody(BaseModel):
    """Who does something, and why."""

    model_config = ConfigDict(extra="forbid", strict=True)

    who: Name
    why: Reason


B = TypeVar("B", bound=SignedBody)


def read(form: type[B], tree: Any, expected: str) -> B:
    """A body of this form.

    Raises:
        ServiceError: 422 naming the first field that is wrong, and what is expected.
    """
    try:
        return form.model_validate(tree)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "the body"
        problem = first["msg"].removeprefix("Value error, ")
        raise ServiceError(422, "invalid_body", f"{where}: {problem}; expected {expected}") from None
