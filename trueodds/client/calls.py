"""The calls of both clients: the requests of each, and what their answers mean. No I/O: see `attempts.Steps`."""

from __future__ import annotations

import json
import re
import tempfile
import uuid
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from dataclasses import fields
from datetime import datetime
from functools import partial, wraps
from itertools import islice, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, Unpack, overload
from urllib.parse import quote

import numpy as np
import numpy.typing as npt

from trueodds.client.answers import (
    CallError,
    DeleteSummary,
    LabelSummary,
    ModelVersion,
    ObservationSummary,
    Predictions,
    Versions,
    VoidSummary,
    fields_of,
)
from trueodds.client.attempts import JSON, NDJSON, Caller, Steps
from trueodds.client.instances import Instance, instances_of
from trueodds.client.labelled import NONE, Labelled
from trueodds.client.labels import label_rows
from trueodds.client.observations import observation_rows, shared_options
from trueodds.client.queries import ObserveOptions, PredictOptions, ReportQuery, texts
from trueodds.errors import ConfigError
from trueodds.files import atomic_write, naming
from trueodds.texts import plural, short

if TYPE_CHECKING:
    from trueodds.reports import Report
    from trueodds.reports.schemas.alarm import Alarm, Watched

NPY = "application/x-npy"
ROW_BYTES = 3_500_000
"""Bytes of instances in one request: the service counts at most one value for two bytes, and takes two million."""
LABELS = 20_000
"""Labels in one request: a megabyte or so, half a second of the service."""
IMPORT_ID = re.compile("[!-~]{1,128}")
"""The ids of imports that the service takes; a header could not carry others."""
PROBLEMS = 20
"""Refused labels that an error lists, as the service's answer does."""

T = TypeVar("T")
P = ParamSpec("P")
S = TypeVar("S", LabelSummary, ObservationSummary)
Labels = Mapping[str, str | int] | Iterable[tuple[str, str | int]]
"""Labels by the ids of their predictions."""


class _Blocking(Protocol):
    def _run(self, steps: Steps[T]) -> T: ...


class _Awaiting(Protocol):
    def _run(self, steps: Steps[T]) -> Coroutine[Any, Any, T]: ...


class Call(Generic[P, T]):
    """A method of both clients, written once as steps: `Client` runs them, `AsyncClient` is awaited."""

    def __init__(self, steps: Callable[Concatenate[Any, P], Steps[T]]) -> None:
        self._steps = steps
        result = steps.__annotations__["return"]  # for people who read help(): what a call returns
        steps.__annotations__["return"] = result.removeprefix("Steps[").removesuffix("]")

    @overload
    def __get__(self, client: None, kind: type) -> Callable[Concatenate[Any, P], Any]: ...
    @overload
    def __get__(self, client: _Blocking, kind: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: _Awaiting, kind: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, client: Any, kind: type) -> Any:
        if client is None:
            return self._steps

        @wraps(self._steps)
        def method(*args: P.args, **kwargs: P.kwargs) -> Any:
            return client._run(self._steps(client, *args, **kwargs))

        return method


class Calls:
    """The methods of `Client` and `AsyncClient`."""

    _caller: Caller

    @Call
    def predict(
        self, inputs: Any, *, ids: Iterable[str] | None = None, rows: int = 256, **options: Unpack[PredictOptions]
    ) -> Steps[Predictions]:
        """Ask for calibrated predictions; the service has stored them when they arrive.

        `inputs`: images, uint8 (N x H x W x C, N x H x W of grey ones, or one of them; a last axis of 1 or 3 is that of
        the channels); paths or bytes of image files; vectors, as an array N x F, as lists of numbers, or as
        objects with a number for each feature, NaN or None where one is missing. One row or many.

        `ids`: your own, one for each row, unique for the model: sent again with the same input they get the stored
        answer. `rows`: the most in one request; one version answers all. `model`, `version`: in place of the service's
        default. `tag`, `propensity`: of all rows, for the report.

        Raises:
            ConfigError: inputs or ids that cannot be sent.
            CallError: refused, or not answered; its `answered` has the rows of earlier requests.

        >>> import numpy as np, trueodds
        >>> client = trueodds.Client("http://127.0.0.1:8000")
        >>> predictions = client.predict(np.zeros((2, 8, 8, 1), np.uint8))
        >>> predictions.probabilities_NC.shape, len(predictions.ids), predictions.classes[:3]
        ((2, 10), 2, ('0', '1', '2'))
        """
        trees: list[dict[str, Any]] = []
        answered, query = 0, {**options, "classes": True}
        try:
            for chunk in _chunks(_with_ids(instances_of(inputs), ids), rows):
                read = _predictions_of(len(chunk))
                tree = yield from self._caller.read(read, "POST", "/predict", query=query, **_body(chunk))
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

    @Call
    def feedback(
        self,
        ids: Labels | Iterable[str] | str,
        labels: Any = None,
        *,
        index: Any = None,
        model: str | None = None,
        correct: bool = False,
        import_id: str | None = None,
    ) -> Steps[LabelSummary]:
        """Send true labels, each the name of a class, for predictions by their ids.

        Pairs of id and label, a mapping, two sequences of one length (arrays too), or one id and its label; millions
        are read and sent piece by piece. A whole number is the name that its digits are: 3 is the class called 3.
        Rows stand alone: good ones are stored where others are refused.

        `index`: in place of `labels`, the places of the classes among the model's, from 0, as `Predictions.index_N`.
        `model`: needed for an id of your own that is not predicted yet. `correct`: replace a different label.
        `import_id`: a name of yours for all labels of the call, by which `void` voids them.

        Raises:
            ConfigError: a row that is no id and label, or an import id that no header can carry. Rows before it may
                have been sent.
            CallError: the service refused a label (`details` has the `problems` and the `outcomes` of the others), or
                did not answer. Sending all again is safe.

        >>> import numpy as np, trueodds
        >>> client = trueodds.Client("http://127.0.0.1:8000")
        >>> predictions = client.predict(np.zeros((2, 8, 8, 1), np.uint8))
        >>> client.feedback(predictions.ids, ["0", "8"])
        LabelSummary(stored=2, already_known=0, corrected=0, held=0)
        """
        rows, key = label_rows(ids, labels, index)
        if import_id is not None and not (isinstance(import_id, str) and IMPORT_ID.fullmatch(import_id)):
            raise ConfigError(f"import_id is {short(import_id)}; allowed are 1 to 128 signs of ASCII without blanks")
        headers = {"x-import-id": import_id} if import_id is not None else {}
        shared: dict[str, Any] = {**({"correct": True} if correct else {}), **({"model": model} if model else {})}
        lines = ({"id": id_, key: class_, **shared} for id_, class_ in rows)
        return _in_lines(self._caller, "/feedback", lines, LABELS, "label", LabelSummary, headers=headers)

    @Call
    def observe(
        self,
        ids: Iterable[str],
        probabilities: npt.ArrayLike,
        *,
        model: str,
        version: str,
        **options: Unpack[ObserveOptions],
    ) -> Steps[ObservationSummary]:
        """Send answers of a model that another server serves, each with an id of yours: the service watches them.

        `probabilities`: N x C; logits with `logits=True`; or N confidences beside the `predicted` classes, by name, or
        beside their `index`. `classes`: their names in the order of the columns, needed once (else 0, 1, 2, ...).
        `positive`: of two classes the one that is asked about; to be said with the first answer of a version. `times`:
        datetimes (UTC without an offset) or Unix time; now, where there is none. `shadow`: nobody got these
        answers; with the ids of those that were given they can be judged against them. `act_alone`: the version's
        promise, such as threshold=.93,risk=.05,confidence=.95. Said with every call, it has the summary hold `acts_N`.

        Raises:
            ConfigError: numbers and lists of other shapes.
            CallError: the service refused a row (`details` has the `problems` and the `outcomes` of the others), or
                did not answer. Sending all again is safe.

        >>> import trueodds
        >>> client = trueodds.Client("http://127.0.0.1:8000")
        >>> client.observe(["a", "b"], [[0.9, 0.1], [0.3, 0.7]], model="mail", version="7", classes=["ham", "spam"])
        ObservationSummary(stored=2, already_known=0)
        """
        rows, most = observation_rows(ids, probabilities, options)
        query = {"model": model, "version": version, **shared_options(options)}
        headers = {"accept": NDJSON} if "act_alone" in query else None
        kind = ObservationSummary
        return _in_lines(self._caller, "/observe", rows, most, "answer", kind, query, headers)

    @Call
    def report(self, **query: Unpack[ReportQuery]) -> Steps[Report]:
        """Read the live calibration report: its numbers are attributes, and printed it is a few lines.

        It is about the answers given from `since` until `until` (ISO 8601; UTC without an offset), the labels that came
        `last`, one predicted class or tag; `level` is that of the intervals.

        >>> import trueodds
        >>> report = trueodds.Client("http://127.0.0.1:8000").report(last=1000, level=0.9)
        >>> report.level, report.window.last
        (0.9, 1000)
        """
        from trueodds.reports import Report  # it loads scipy, which most clients do without

        read, path = Report.model_validate, "/calibration-report"
        return self._caller.read(read, "GET", path, query={**query, "format": "json"})

    @Call
    def page(self, **query: Unpack[ReportQuery]) -> Steps[bytes]:
        """Read the page of a report, in HTML. Its arguments are those of `report`."""
        answer = yield from self._caller.exchange("GET", "/calibration-report", query={**query, "format": "html"})
        return answer.body

    @Call
    def ready(self) -> Steps[ModelVersion | None]:
        """Read which version answers calls that name none; None for a service that only reads its store.

        Raises:
            CallError: the service cannot answer.
        """
        return self._caller.read(_answering, "GET", "/health/ready")

    @Call
    def models(self) -> Steps[list[ModelVersion]]:
        """List each model that answers, with the version that does."""
        versions = yield from self._caller.read(Versions.read, "GET", "/models")
        return [ModelVersion(one.model, one.default) for one in versions.models if one.default is not None]

    @Call
    def versions(self) -> Steps[Versions]:
        """Read every version of every model with its role, and which models other servers answer for."""
        return self._caller.read(Versions.read, "GET", "/models")

    @Call
    def labelled(
        self,
        model: str,
        version: str,
        *,
        last: int | None = None,
        since: datetime | None = None,
        shadow: str | None = None,
    ) -> Steps[Labelled]:
        """Read the labelled answers of a version as logits and labels, to calibrate on; none is no error.

        `last`: only so many labels, the latest. `since`: only answers given since then. `shadow`, a version: only those
        that it has scored as well, with its logits. The service may want the admin key.
        """
        query = {"model": model, "version": version, "last": last, "shadow": shadow}
        if since is not None:
            query["since"] = since.isoformat(timespec="milliseconds")
        with naming(Path(tempfile.gettempdir())), tempfile.TemporaryFile() as file:
            try:
                answer = yield from self._caller.exchange("GET", "/admin/labelled.npz", query=query, file=file)
            except CallError as error:
                if error.code not in NONE:
                    raise
                return Labelled.none(shadow=shadow is not None)
            file.seek(0)
            return Labelled.read(file, answer.headers, last, shadow=shadow is not None)

    @Call
    def predictions(
        self,
        file: str | Path,
        *,
        model: str | None = None,
        version: str | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        probabilities: bool = False,
    ) -> Steps[None]:
        """Write all stored predictions of a version, with their labels, to a file: a table for `trueodds.report`.

        The file is Parquet where its name ends in .parquet, else CSV. With `probabilities` it has a column for each
        class. `since`, `until`: only answers given in that time.

        Raises:
            OSError: the file cannot be written. As after a CallError, an earlier file of this name stays as it was.
        """
        query = {"model": model, "version": version, "since": since, "until": until, "probabilities": probabilities}
        query["format"] = "parquet" if Path(file).suffix == ".parquet" else "csv"
        with atomic_write(Path(file)) as aside, aside.open("wb") as opened:
            yield from self._caller.exchange("GET", "/predictions", query=query, file=opened)

    @Call
    def delete(self, id: str, *, model: str | None = None) -> Steps[DeleteSummary]:
        """Remove a stored prediction with its label, for good. The report's sums stay: they name nobody.

        `model`: of an id of your own that several models know.
        """
        path = f"/predictions/{quote(id, safe='')}"
        read = partial(fields_of, DeleteSummary)
        return self._caller.read(read, "DELETE", path, query={"model": model}, once=True)

    @Call
    def void(
        self,
        *,
        who: str,
        why: str,
        import_id: str | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        model: str | None = None,
        dry_run: bool = False,
    ) -> Steps[VoidSummary]:
        """Take labels out of every number: those of an import, or those that arrived in some time.

        `who`, `why`: kept in the log. `model`: only labels of this one. `dry_run`: only count them.
        """
        labels = texts({"import_id": import_id, "since": since, "until": until, "model": model})
        tree = {"who": who, "why": why, "dry_run": dry_run, **labels}
        read = partial(fields_of, VoidSummary)
        return self._caller.read(read, "POST", "/admin/labels/void", tree=tree, once=not dry_run)

    @Call
    def acknowledge(self, model: str, version: str, *, who: str, why: str, null: Watched | None = None) -> Steps[Alarm]:
        """Say who takes care of an alarm that has fired, and why it may rest.

        `null`: the one that has fired, `ece`, `point` or `positive`; all, where none is named.
        """
        tree = {"model": model, "version": version, "who": who, "why": why, "null": null}
        return _alarm(self._caller, "acknowledge", tree)

    @Call
    def rearm(self, model: str, version: str, *, who: str, why: str) -> Steps[Alarm]:
        """Begin a new watch after an acknowledged alarm whose cause is mended.

        Each watch has its own false alarms: k + 1 watches together alarm falsely at most k + 1 times as often as one.
        """
        tree = {"model": model, "version": version, "who": who, "why": why}
        return _alarm(self._caller, "rearm", tree)

    @Call
    def observe_decision(
        self, model: str | None, version: str | None, *, who: str, why: str
    ) -> Steps[list[dict[str, Any]]]:
        """Report that a recalibration ended without a decision: the service counts it and tells its webhooks.

        Returns what became of each webhook: `webhook`, `taken`, `problem`, `flow_run`.
        """
        tree = {"model": model, "version": version, "who": who, "why": why}
        path = "/admin/recalibration/undecided"
        return self._caller.read(lambda answer: list(answer["webhooks"]), "POST", path, tree=tree, once=True)

    @Call
    def request(
        self, method: str, path: str, *, query: Mapping[str, Any] | None = None, tree: Any = None
    ) -> Steps[Any]:
        """Send a request to any route, and read its JSON: with the key, the tries and the errors of all calls.

        `tree`: the body, sent as JSON. What is sent must be safe to send again.
        """
        return self._caller.read(lambda tree: tree, method, path, query=query, tree=tree)


def _alarm(caller: Caller, action: str, tree: dict[str, Any]) -> Steps[Alarm]:
    from trueodds.reports.schemas.alarm import Alarm

    return caller.read(Alarm.model_validate, "POST", f"/admin/alarm/{action}", tree=tree, once=True)


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
            summary, refused, first_problems = yield from caller.read(
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


def _answering(tree: dict[str, Any]) -> ModelVersion | None:
    """Read the version of /health/ready. Raises LookupError for another form."""
    if tree["status"] != "ready":
        raise LookupError("status")
    return fields_of(ModelVersion, tree) if tree.get("model") is not None else None


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
