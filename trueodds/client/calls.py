"""The client's calls: which requests each one is, and what their answers mean. No I/O: see `attempts.Steps`."""

from __future__ import annotations

import json
import re
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass, fields
from itertools import islice, zip_longest
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from trueodds.client.answers import CallError, LabelSummary, ModelVersion, ObservationSummary, Predictions
from trueodds.client.attempts import NDJSON, Limits, Request, Steps, exchange
from trueodds.client.instances import Instance, instances_of
from trueodds.client.observations import CLASS, observation_rows, plain_class, shared_options
from trueodds.client.queries import ObserveOptions, texts
from trueodds.errors import ConfigError
from trueodds.texts import plural, short

if TYPE_CHECKING:
    from trueodds.reports import Report

JSON, NPY = "application/json", "application/x-npy"
ROW_BYTES = 3_500_000
"""Of the instances of one request: the service counts at most one value for every two bytes, and takes two million."""
LABELS = 20_000
"""In one request: some megabyte, half a second of the service."""
IMPORT_ID = re.compile("[!-~]{1,128}")
"""What the service takes as the id of an import; a header could not carry the rest."""
PROBLEMS = 20
"""Refused labels that an error lists, as the service's answer does."""

T = TypeVar("T")
S = TypeVar("S", LabelSummary, ObservationSummary)


@dataclass(frozen=True)
class Caller:
    """Where the service is, with the key of its caller, and how long a request is tried."""

    url: str
    key: str | None
    limits: Limits

    def call(
        self,
        read: Callable[[Any], T],
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: bytes = b"",
        headers: Mapping[str, str | bytes] | None = None,
    ) -> Steps[T]:
        """An answer, read.

        Raises:
            CallError: see `attempts.exchange`; or the answer is not what the service answers there.
        """
        authorization = {"authorization": f"Bearer {self.key}"} if self.key else {}
        request = Request(method, path, texts(query or {}), body, {"accept": JSON, **authorization, **(headers or {})})
        tree = yield from exchange(request, self.url, self.limits)
        try:
            return read(tree)
        except (LookupError, TypeError, ValueError) as error:
            message = f"{self.url}{path} answered JSON of another form ({type(error).__name__}: {error})"
            raise CallError("unexpected_answer", message) from None


def ready(caller: Caller) -> Steps[ModelVersion]:
    """The version that answers a call that names none."""
    return caller.call(lambda tree: ModelVersion(tree["model"], tree["version"]), "GET", "/health/ready")


def models(caller: Caller) -> Steps[list[ModelVersion]]:
    """The version that answers for each model that has one."""

    def read(tree: Any) -> list[ModelVersion]:
        return [ModelVersion(one["model"], one["default"]) for one in tree["models"] if one["default"] is not None]

    return caller.call(read, "GET", "/models")


def report(caller: Caller, query: Mapping[str, Any]) -> Steps[Report]:
    """The live report of a query."""
    from trueodds.reports import Report  # it loads scipy, which most clients do without

    return caller.call(Report.model_validate, "GET", "/calibration-report", query={**query, "format": "json"})


def predict(
    caller: Caller,
    inputs: Any,
    *,
    ids: Iterable[str] | None,
    rows: int,
    options: Mapping[str, Any],
) -> Steps[Predictions]:
    """Predictions of all rows by one version, in as many requests as it takes; `options` as in the service's query."""
    trees: list[dict[str, Any]] = []
    answered, query = 0, {**options, "classes": True}
    try:
        for chunk in _chunks(_with_ids(instances_of(inputs), ids), rows):
            tree = yield from caller.call(_predictions_of(len(chunk)), "POST", "/predict", query=query, **_body(chunk))
            trees.append(tree)
            answered += len(chunk)
            # Whatever is published meanwhile, the rest is for the version that answered first.
            query |= {"model": tree["model"], "version": tree["version"]}
    except (CallError, ConfigError, OSError) as error:
        if not trees:
            raise
        raise _interrupted(error, trees, answered) from error
    if not trees:
        raise ConfigError("the inputs have no row; predict takes at least one")
    return _joined(trees)


def feedback(
    caller: Caller,
    rows: Iterable[tuple[Any, Any]],
    *,
    key: Literal["label", "index"] = "label",
    model: str | None,
    correct: bool,
    import_id: str | None,
) -> Steps[LabelSummary]:
    """The outcomes of all labels, in as many requests as it takes; they are of one import where it has a name.

    `key`: what names the classes in the rows.

    Raises:
        ConfigError: an import id that no header can carry.
    """
    if import_id is not None and not (isinstance(import_id, str) and IMPORT_ID.fullmatch(import_id)):
        raise ConfigError(f"import_id is {short(import_id)}; allowed are 1 to 128 signs of ASCII without blanks")
    headers = {"x-import-id": import_id} if import_id is not None else {}
    shared: dict[str, Any] = {**({"correct": True} if correct else {}), **({"model": model} if model else {})}
    lines = ({"id": id_, key: class_, **shared} for id_, class_ in _checked(rows, key))
    return (yield from _in_lines(caller, "/feedback", lines, LABELS, "label", LabelSummary, headers=headers))


def observe(
    caller: Caller, ids: Iterable[str], numbers: npt.ArrayLike, *, model: str, version: str, options: ObserveOptions
) -> Steps[ObservationSummary]:
    """The outcomes of all answers of another server, in as many requests as it takes; decisions with `act_alone`."""
    rows, most = observation_rows(ids, numbers, options)
    query = {"model": model, "version": version, **shared_options(options)}
    headers = {"accept": NDJSON} if "act_alone" in query else None
    return _in_lines(caller, "/observe", rows, most, "answer", ObservationSummary, query, headers)


def _in_lines(
    caller: Caller,
    path: str,
    rows: Iterable[Mapping[str, Any]],
    most: int,
    noun: str,
    kind: type[S],
    query: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Steps[S]:
    """The outcomes of all rows, sent as lines of JSON in as many requests as it takes."""

    def read(tree: Any) -> tuple[S, int, list[dict[str, Any]]]:
        tree = _summed(tree) if isinstance(tree, list) else tree
        counts = {field.name: tree[field.name] for field in fields(kind) if field.compare or field.name in tree}
        return kind(**counts), tree["failed"], tree["problems"]

    lines = (json.dumps(row).encode() + b"\n" for row in rows)
    total, sent, problems, failed = kind(), 0, list[dict[str, Any]](), 0
    while chunk := list(islice(lines, most)):
        content = {"content-type": NDJSON, **(headers or {})}
        try:
            summary, refused, first_problems = yield from caller.call(
                read, "POST", path, query=query, body=b"".join(chunk), headers=content
            )
        except CallError as error:
            before = plural(sent, f"{noun} was", f"{noun}s were")
            error.message += f". {before} sent before; sending all again is safe"
            raise
        total, failed = total + summary, failed + refused
        problems += [{**problem, "row": problem["row"] + sent} for problem in first_problems]
        sent += len(chunk)
    if failed:
        first = problems[0]
        message = f"{failed:,} of {plural(sent, noun)} refused{', the others taken' if failed < sent else ''}"
        details = {"problems": problems[:PROBLEMS], "problem_count": failed, "outcomes": total}
        raise CallError(first["code"], f"{message}; row {first['row']}: {first['message']}", details=details)
    return total


def _summed(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """The summary that an answer in lines, one for each row, stands for."""
    problems = [{name: line[name] for name in ("row", "id", "code", "message")} for line in lines if "code" in line]
    counts = Counter(line["outcome"] for line in lines)
    tree: dict[str, Any] = {name: counts[name] for name in ("stored", "already_known", "failed")}
    if any("decision" in line for line in lines):
        tree["acts_N"] = np.array([line.get("decision") == "act" for line in lines], bool)
        tree["audit_N"] = np.array([line.get("audit", False) for line in lines], bool)
    return {**tree, "problems": problems}


def label_rows(ids: Any, labels: Any, index: Any) -> tuple[Iterable[tuple[Any, Any]], Literal["label", "index"]]:
    """Pairs of id and class from a mapping, from pairs, from one id and its class, or from two sequences; and which of
    label and index names the classes.

    Raises:
        ConfigError: what is neither, sequences of two lengths, or both a label and an index.
    """
    if labels is not None and index is not None:
        raise ConfigError("labels and index are both given; send the names of the classes or their indices")
    classes, key = (labels, "label") if index is None else (index, "index")
    return _pairs(ids, classes, "labels" if key == "label" else key), key  # type: ignore[return-value]


def _pairs(ids: Any, classes: Any, name: str) -> Iterable[tuple[Any, Any]]:
    if isinstance(ids, str):
        return [(ids, classes)]
    if isinstance(ids, Mapping) and classes is None:
        return ids.items()
    if classes is None:
        return ids  # type: ignore[no-any-return]
    if isinstance(classes, str) or not isinstance(classes, Iterable):
        raise ConfigError(f"{name} is {short(classes)}, for several ids; expected one for each")
    if isinstance(ids, Sized) and isinstance(classes, Sized) and len(ids) != len(classes):
        raise ConfigError(f"there are {plural(len(ids), 'id')} and {len(classes):,} of {name}; expected as many")
    return zip(ids, classes, strict=True)


def _checked(rows: Iterable[tuple[Any, Any]], key: Literal["label", "index"]) -> Iterator[tuple[str, str | int]]:
    """The rows: labels as texts, indices as numbers, also of numpy.

    Raises:
        ConfigError: what is no pair of an id and a label, naming the row.
    """
    n = -1
    iterator = iter(rows)
    while True:
        try:
            row = next(iterator)
        except StopIteration:
            return
        except ValueError as error:  # of zip
            raise ConfigError(f"the ids and their classes are not equally many: {error}") from None
        n += 1
        try:
            id_, class_ = row
        except (TypeError, ValueError):
            raise ConfigError(f"row {n} is {short(row)}; expected a pair of an id and a label") from None
        if not isinstance(id_, str):
            raise ConfigError(f"row {n} has the id {short(id_)}; expected a text, as predict answered it")
        class_ = plain_class(class_, key)
        if class_ is None:
            raise ConfigError(f"row {n} has the {key} {short(row[1])}; {CLASS[key]}")
        yield str(id_), class_


def _with_ids(instances: Iterable[Instance], ids: Iterable[str] | None) -> Iterator[tuple[Instance, str]]:
    """Each row with its id; an id made here is what lets a request be sent again without counting twice.

    Raises:
        ConfigError: more or fewer ids than rows.
    """
    if ids is None:
        yield from ((instance, uuid.uuid4().hex) for instance in instances)
    elif isinstance(ids, str):
        raise ConfigError(f"ids is the text {short(ids)}; expected a list with an id for each row")
    else:
        nothing = object()
        for n, (instance, id_) in enumerate(zip_longest(instances, ids, fillvalue=nothing)):
            if instance is nothing or id_ is nothing:
                fewer, more = ("rows", "ids") if instance is nothing else ("ids", "rows")
                raise ConfigError(f"there are {n:,} {fewer} and more {more}; expected an id for each row")
            yield instance, id_  # type: ignore[misc]


def _chunks(rows: Iterable[tuple[Instance, str]], most: int) -> Iterator[list[tuple[Instance, str]]]:
    """The rows of one request after the other: `most` rows, ROW_BYTES, or one that is a body of its own."""
    chunk: list[tuple[Instance, str]] = []
    size = 0
    for instance, id_ in rows:
        fits = len(chunk) < most and size + len(instance.body) <= ROW_BYTES and not instance.is_npy
        if chunk and (chunk[0][0].is_npy or not fits):
            yield chunk
            chunk, size = [], 0
        chunk.append((instance, id_))
        size += len(instance.body)
    if chunk:
        yield chunk


def _body(chunk: list[tuple[Instance, str]]) -> dict[str, Any]:
    """Body and headers of a request."""
    (first, id_), *_ = chunk
    if first.is_npy:
        return {"body": first.body, "headers": {"content-type": NPY, "x-prediction-id": id_.encode()}}
    instances = b",".join(instance.body for instance, _ in chunk)
    body = b'{"instances":[%b],"ids":%b}' % (instances, json.dumps([id_ for _, id_ in chunk]).encode())
    return {"body": body, "headers": {"content-type": JSON}}


def _predictions_of(count: int) -> Callable[[Any], dict[str, Any]]:
    """Reads an answer of /predict to so many rows."""

    def read(tree: Any) -> dict[str, Any]:
        if len(predictions := Predictions.read([tree])) != count:
            raise ValueError(f"{plural(len(predictions), 'prediction')} to {plural(count, 'row')}")
        return dict(tree)

    return read


def _joined(trees: list[dict[str, Any]]) -> Predictions:
    try:
        return Predictions.read(trees)
    except ValueError:  # repeated ids, answered by a version with other classes
        message = "some of the ids were answered before, by a version with other classes; ask for them apart"
        raise CallError("other_classes", message) from None


def _interrupted(error: Exception, trees: list[dict[str, Any]], answered: int) -> CallError:
    """The error, with the answers that came before it: they are stored, and their labels need their ids."""
    cause = error if isinstance(error, CallError) else CallError("invalid_input", str(error))
    message = f"{cause.message}. {plural(answered, 'row was', 'rows were')} answered before: see the error's `answered`"
    rest = {"status": cause.status, "request_id": cause.request_id, "details": cause.details}
    failure = CallError(cause.code, f"from row {answered} on: {message}", **rest)  # type: ignore[arg-type]
    failure.answered = _joined(trees)
    return failure
