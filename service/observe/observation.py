"""One answer of another server, read from JSON, CSV or Parquet. No I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from service.bulk.lines import WHOLE
from service.errors import Refusal, ServiceError
from service.http.error_answers import bad_row
from service.ids import MAX_ID, own_id_problem
from service.predict.options import check_propensity, check_tag
from trueodds.bundle import ActAlone
from trueodds.errors import nearest
from trueodds.inputs import times
from trueodds.inputs.sources import SOURCES, ConfidenceSource, SourceError, verbalised_number, verbalised_numbers
from trueodds.sums.inputs import BELOW_ZERO, Array
from trueodds.sums.rounding import Resolution
from trueodds.texts import NAME, as_name, as_whole, plural, short

Form = Literal["probabilities", "logits", "confidence", "logprobs", "verbalised", "votes"]
ALLOWED = (
    "id",
    "probabilities",
    "logits",
    "logprobs",
    "verbalised",
    "votes",
    "confidence",
    "predicted",
    "index",
    "model",
    "version",
    "tag",
    "time",
    "propensity",
    "confidence_source",
    "set",
)
"""Keys of a row."""
OF_CALLS = ("classes", "ordered", "positive", "act_alone", "shadow", "resolution", "set_level", "set_rows")
"""Values for all rows of a call. A row has none of its own."""
AHEAD_MS = 60_000
"""Largest time by which a sender's clock may be ahead."""
MOST_CLASSES = 100_000
_KEYS = frozenset(ALLOWED)
_NUMBERS = {int, float}
_ANSWER = ("probabilities", "logits", "logprobs", "verbalised", "votes", "confidence", "predicted", "index")
_FORMS: dict[tuple[str, ...], Form] = {
    ("probabilities",): "probabilities",
    ("logits",): "logits",
    ("confidence",): "confidence",
    ("confidence", "predicted"): "confidence",
    ("confidence", "index"): "confidence",
    ("logprobs",): "logprobs",
    ("votes",): "votes",
    ("verbalised",): "verbalised",
    ("verbalised", "predicted"): "verbalised",
    ("verbalised", "index"): "verbalised",
}
"""Form of an answer by the keys that a row has."""
_SOURCE_OF: dict[str, ConfidenceSource] = {"logprobs": "logprob", "verbalised": "verbalised", "votes": "votes"}
"""Sources that the form of an answer tells."""
_ONE_FORM = (
    "a row has probabilities, or logits, or confidence and predicted (or index), or what a chat model gave: logprobs,"
    " verbalised or votes"
)


@dataclass(frozen=True)
class CallDefaults:
    """Values that a call gives for all its rows. A row's own model, version and tag take precedence."""

    now_ms: int
    model: str | None = None
    version: str | None = None
    classes: tuple[str, ...] | None = None
    """Class names in the order of the rows' lists."""
    tag: str | None = None
    shadow: bool = False
    """Whether the rows are answers of the model's shadow."""
    positive: str | None = None
    """Positive class of the binary versions."""
    act_alone: ActAlone | None = None
    """Promise of the versions to act alone."""
    ordered: bool = False
    """Whether the classes of the versions are levels, the lowest first. False: not stated."""
    resolution: Resolution | None = None
    """Resolution of the probabilities. None: the one that the version has, or that its rows show."""
    confidence_source: ConfidenceSource | None = None
    set_level: float | None = None
    """Level of the conformal sets of the rows. None: they have none."""
    set_rows: int | None = None
    """Number of calibration rows of these sets. None: not known."""


@dataclass(frozen=True, slots=True)
class Observation:
    """Answer with a valid shape. `service.observe.batches` checks whether it fits its version."""

    row: int
    id: str
    model: str
    version: str
    form: Form
    values: Any
    """Numbers of the classes; for the form `confidence`, that one number. Logprobs and votes are as they were sent."""
    names: tuple[str, ...] | None
    """Class names of the values; None for all classes of the version in order."""
    predicted: str | int | None
    """Class by name (str) or by index (int), for the form `confidence` only."""
    tag: str | None
    created_ms: int
    has_time: bool
    """Whether the row gives its own time."""
    propensity: float | None
    confidence_source: ConfidenceSource | None = None
    label_mass: float | None = None
    """Share of the token probability that fell on the classes, for log-probabilities."""
    sent_form: Form | None = None
    """Form that was sent, if it was read as another one."""
    members: tuple[str, ...] | None = None
    """Classes of the row's conformal set. None: it has none."""


class NamedNumbers(NamedTuple):
    """Numbers of classes by name, like the columns of a table. Verbalised ones may be texts."""

    names: tuple[str, ...]
    numbers: Sequence[float] | Sequence[str] | Sequence[Any] | Array


class RowError(ValueError):
    """The row cannot be read. The message has what was sent and what is allowed."""


def observation_of(row: int, value: Any, defaults: CallDefaults) -> Observation | Refusal:
    """Read the observation in a row, or return why there is none."""
    if not isinstance(value, dict):
        return bad_row(row, None, f"a row is {short(value)}; expected an object with an id, and {_ONE_FORM}")
    id_ = value.get("id")
    try:
        return _read(row, value, defaults)
    except (RowError, ServiceError) as error:
        return bad_row(row, id_[:MAX_ID] if isinstance(id_, str) else None, str(error))


def _read(row: int, value: Mapping[str, Any], defaults: CallDefaults) -> Observation:
    if not value.keys() <= _KEYS:
        raise RowError(_unknown_key(min(value.keys() - _KEYS)))
    if "id" not in value:
        raise RowError(f"id is missing; {_ONE_FORM}, and an id")
    if problem := own_id_problem(value["id"]):
        raise RowError(f"id {problem}")
    form, values, names = _answer(value)
    sent_form: Form | None = None
    source = _source(value, form, defaults)
    if form == "verbalised":
        form, sent_form = "confidence" if names is None and len(values) == 1 else "probabilities", form
    time = value.get("time")
    return Observation(
        row=row,
        id=value["id"],
        model=_name("model", value.get("model"), defaults.model),
        version=_name("version", value.get("version"), defaults.version),
        form=form,
        values=values,
        names=names,
        predicted=_predicted_class(value) if form == "confidence" else None,
        tag=check_tag(defaults.tag if (tag := value.get("tag")) is None else tag, "tag"),
        created_ms=defaults.now_ms if time is None else unix_ms(time, defaults.now_ms),
        has_time=time is not None,
        propensity=check_propensity(value.get("propensity"), "propensity"),
        confidence_source=source,
        sent_form=sent_form,
        members=_members(value.get("set")),
    )


def _members(value: Any) -> tuple[str, ...] | None:
    """Return the classes of a conformal set, which may be empty; None without a set."""
    if value is None:
        return None
    names = list(map(as_name, value)) if isinstance(value, list) else [None]
    if not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise RowError(f'set is {short(value)}; expected a list of different class names, such as ["a", "b"] or []')
    return tuple(map(str, names))


def _source(value: Mapping[str, Any], form: Form, defaults: CallDefaults) -> ConfidenceSource | None:
    """Return the source of the row's confidence: its own, the call's, or what its form tells."""
    own = check_source(value.get("confidence_source"))
    told = _SOURCE_OF.get(form)
    if told is None:
        return own or defaults.confidence_source
    if own not in (None, told):
        raise RowError(f"confidence_source is {own}, but the row has {form}; leave it out: it is {told}")
    return told


def check_source(value: Any) -> ConfidenceSource | None:
    """Return the source of a confidence, or None.

    Raises:
        RowError: Another value.
    """
    if value is not None and value not in SOURCES:
        raise RowError(f"confidence_source is {short(value)}; allowed are {', '.join(SOURCES)}")
    source: ConfidenceSource | None = value
    return source


def _unknown_key(name: str) -> str:
    if name == "label":
        return (
            "label is not a key of an observation: give the predicted class as `predicted`, and send true labels to"
            " POST /feedback"
        )
    if name in OF_CALLS:
        return (
            f"{name} is not a key of a row, because it holds for a version: give it for the whole call, beside"
            f" `observations` or as ?{name}=..."
        )
    return f"unknown key {short(name)}; allowed are {', '.join(ALLOWED)}.{nearest(name[:100], ALLOWED)}"


def _answer(value: Mapping[str, Any]) -> tuple[Form, Any, tuple[str, ...] | None]:
    """Return the form of the row's answer, its numbers, and their class names."""
    held = [key for key in _ANSWER if value.get(key) is not None]
    form = _FORMS.get(tuple(held))
    if form is None:
        raise RowError(f"the row has {' and '.join(held) or 'no answer'}; {_ONE_FORM}")
    answer = value[form]
    if form in ("logprobs", "votes"):
        return form, _plain(answer), None
    if form == "verbalised":
        return _read_verbalised_answer(answer, with_class=len(held) == 2)
    if form == "confidence":
        if type(answer) not in _NUMBERS or not -BELOW_ZERO <= answer <= 1:
            raise RowError(f"confidence is {short(answer)}; allowed is a number in [0, 1]")
        return form, [max(answer, 0)], None
    names = None
    if isinstance(answer, dict):
        answer = NamedNumbers(tuple(answer), list(answer.values()))
    if isinstance(answer, NamedNumbers):
        names, answer = answer
    if isinstance(answer, list) and not set(map(type, answer)) <= _NUMBERS:
        bad = next(number for number in answer if type(number) not in _NUMBERS)
        raise RowError(f"{form} holds {short(bad)}; allowed are numbers")
    if isinstance(answer, str | int | float | bool) or not 2 <= len(answer) <= MOST_CLASSES:
        what = plural(len(answer), "number") if isinstance(answer, list) else short(answer)
        expected = "a list with a number per class, or an object with a number per class name"
        raise RowError(f"{form} is {what}; expected {expected}, for at least 2 classes")
    return form, answer, names


def _plain(answer: Any) -> Any:
    """Return columns of a table as an object. An unknown number is left out."""
    if isinstance(answer, NamedNumbers):
        return {name: float(x) for name, x in zip(answer.names, answer.numbers, strict=True) if x == x}
    return answer if isinstance(answer, dict | list | str | int | float | bool) else list(map(float, answer))


def _read_verbalised_answer(answer: Any, *, with_class: bool) -> tuple[Form, list[float], tuple[str, ...] | None]:
    """Return a verbalised number with its class, or a verbalised distribution."""
    names = None
    try:
        if with_class:
            return "verbalised", [verbalised_number(answer)], None
        if isinstance(answer, dict):
            answer = NamedNumbers(tuple(answer), list(answer.values()))
        if isinstance(answer, NamedNumbers):
            names, answer = answer.names, [x if isinstance(x, str) else float(x) for x in answer.numbers]
        if not isinstance(answer, list) or not 2 <= len(answer) <= MOST_CLASSES:
            expected = "expected one number with predicted or index, or a number per class as an object or a list"
            raise RowError(f"verbalised is {short(answer)}; {expected}")
        return "verbalised", verbalised_numbers(answer), names
    except SourceError as error:
        raise RowError(str(error)) from None


def _name(what: str, own: Any, default: str | None) -> str:
    value = default if own is None else own
    if value is None:
        raise RowError(f"the {what} is missing; add {what} to the row, or to the call: ?{what}=...")
    if not (isinstance(value, str) and _is_name(value)):
        allowed = f"letters, digits, '.', '_' and '-', at most {MAX_ID}, a letter or digit first"
        raise RowError(f"{what} is {short(value)}; allowed are {allowed}")
    return value


@lru_cache(maxsize=1024)
def _is_name(text: str) -> bool:
    return len(text) <= MAX_ID and re.fullmatch(NAME, text) is not None


def _predicted_class(value: Mapping[str, Any]) -> str | int:
    if (given := value.get("index")) is not None:
        index = as_whole(given)
        if index is None or index < 0:
            raise RowError(f"index is {short(given)}; {WHOLE}")
        return index
    predicted = as_name(value.get("predicted"))
    if not isinstance(predicted, str):
        allowed = "expected the name of the predicted class, as a text or a whole number"
        raise RowError(f"predicted is {short(predicted)}; {allowed}")
    return predicted


def unix_ms(value: Any, now_ms: int) -> int:
    """Convert a time to Unix milliseconds: ISO 8601 (UTC if no offset), or Unix time as a number or text.

    Raises:
        RowError: Another value, a time before 1970 or in the future, or eight digits, which may be a date or seconds.
    """
    value = value.isoformat() if isinstance(value, date) else value
    if type(value) not in (int, float, str):
        raise RowError(f"time is {short(value)}; allowed is {times.ALLOWED}")
    try:
        time_ms = times.time_of(value).ms
    except ValueError as error:
        raise RowError(f"time is {error}") from None
    if not 0 <= time_ms <= now_ms + AHEAD_MS:
        raise RowError(f"time is {short(value)}; allowed are times from 1970 until now: {times.ALLOWED}")
    return time_ms
