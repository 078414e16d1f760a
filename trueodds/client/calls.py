"""Methods of both clients: they build the requests and parse the answers. No I/O (see `attempts.Steps`)."""

from __future__ import annotations

import json
import re
import tempfile
import uuid
import warnings
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from functools import partial, wraps
from itertools import islice, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, ParamSpec, Protocol, TypeVar, Unpack, overload
from urllib.parse import quote

import numpy as np
import numpy.typing as npt

from trueodds.client.attempts import JSON, NDJSON, Endpoint, Steps
from trueodds.client.decisions import DecisionSummary, Pair, pair_of
from trueodds.client.decisions import chunks as decision_chunks
from trueodds.client.decisions import summary_of as decision_summary
from trueodds.client.instances import Instance, instances_of
from trueodds.client.label_truths import LabelTruths
from trueodds.client.labelled import NO_ROWS, Labelled
from trueodds.client.labels import label_rows
from trueodds.client.observations import observation_rows, shared_options, with_names_of_columns
from trueodds.client.queries import ObserveOptions, PredictOptions, ReportQuery, encode_query
from trueodds.client.responses import (
    CallError,
    DeleteSummary,
    JudgeSummary,
    LabelPredictions,
    LabelSummary,
    ModelVersion,
    ObservationSummary,
    Predictions,
    Versions,
    VoidSummary,
    fields_of,
)
from trueodds.errors import ConfigError, unknown
from trueodds.files import atomic_write, naming
from trueodds.processes.choices import LABEL_FLOOR, LabelGoal
from trueodds.sums.frames import check_index
from trueodds.texts import plural, short

if TYPE_CHECKING:
    from trueodds.evaluation.audit_result import LiveAudit
    from trueodds.reports.display.live import LiveReport
    from trueodds.reports.schemas.alarm import Alarm, Watched
    from trueodds.reports.table.multilabel import MultilabelReport

NPY = "application/x-npy"
ROW_BYTES = 3_500_000
"""Largest size in bytes of the instances in one request.

The service accepts two million values, and two bytes hold at most one value.
"""
LABELS = 20_000
"""Labels per request: about a megabyte, which the service handles in half a second."""
IMPORT_ID = re.compile("[!-~]{1,128}")
"""Form of an import id: other characters cannot stand in a header."""
PROBLEMS = 20
"""Largest number of refused labels that an error lists; the service's answer has the same limit."""

T = TypeVar("T")
P = ParamSpec("P")
S = TypeVar("S", JudgeSummary, LabelSummary, ObservationSummary)
Labels = Mapping[str, str | int] | Iterable[tuple[str, str | int]]
"""True labels by the ids of their predictions."""


class _Blocking(Protocol):
    def _run(self, steps: Steps[T]) -> T: ...


class _Awaiting(Protocol):
    def _run(self, steps: Steps[T]) -> Coroutine[Any, Any, T]: ...


class Call(Generic[P, T]):
    """Descriptor for a method of both clients. `Client` runs its steps; `AsyncClient` awaits them."""

    def __init__(self, steps: Callable[Concatenate[Any, P], Steps[T]]) -> None:
        self._steps = steps
        result = steps.__annotations__["return"]  # help() shows the result's type, without Steps[..]
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
    """Methods that `Client` and `AsyncClient` share."""

    _endpoint: Endpoint

    @Call
    def predict(
        self, inputs: Any, *, ids: Iterable[str] | None = None, rows: int = 256, **options: Unpack[PredictOptions]
    ) -> Steps[Predictions]:
        """Ask for calibrated predictions. The service has stored them when they arrive.

        Any number of rows is allowed. They are sent in as many requests as needed, and one version answers all of them.

        Args:
            inputs: One row or many, in one of these forms. Images: uint8 arrays (N x H x W x C, N x H x W for grey
                images, or a single image; a last axis of length 1 or 3 holds the channels), images of Pillow, or paths
                or bytes of image files. Vectors: an array N x F, lists of numbers, objects with a number for each
                feature, or a data frame of pandas or Polars; NaN or None stands for a missing value. Texts: strings, or
                `{"text": ".."}` for each. A string that names a file on this machine is sent as that file.
            ids: Your own ids, one for each row, unique for the model. A row sent again with the same id and input gets
                the stored answer.
            rows: Largest number of rows in one request.
            **options: `model` and `version` replace the service's default. `tag` and `propensity` are stored with all
                rows, for the report. `set` is the level of conformal sets, such as 0.9: `sets` then holds them.

        Returns:
            The predictions, in the order of the inputs. Features are matched by name, in any order. Case, blanks,
            underscores, points and dashes may differ; `notes` and `columns` then list the names.

        Warns:
            UserWarning: Names are spelled differently from the model's features. The warning lists them.

        Raises:
            ConfigError: The inputs or the ids cannot be sent.
            CallError: The service refused a request or did not answer. `answered` holds the rows of earlier requests.

        Examples:
            >>> import numpy as np, trueodds
            >>> client = trueodds.Client("http://127.0.0.1:8000")
            >>> predictions = client.predict(np.zeros((2, 8, 8, 1), np.uint8))
            >>> predictions.probabilities_NC.shape, len(predictions.ids), predictions.classes[:3]
            ((2, 10), 2, ('0', '1', '2'))
        """
        known = PredictOptions.__annotations__
        if wrong := [name for name in options if name not in known]:
            raise unknown("option", wrong[0], known)
        trees = yield from self._predict(_predictions_of, _join, inputs, ids, rows, dict(options))
        predictions = _join(trees)
        if predictions.notes:
            warnings.warn(" ".join(predictions.notes), UserWarning, stacklevel=2)
        return predictions

    @Call
    def predict_labels(
        self,
        inputs: Any,
        *,
        ids: Iterable[str] | None = None,
        rows: int = 256,
        model: str | None = None,
        version: str | None = None,
        tag: str | None = None,
    ) -> Steps[LabelPredictions]:
        """Ask a model of independent labels for the calibrated probability of each label.

        Args:
            inputs: One row or many, as `predict` takes them.
            ids: Your own ids, one for each row, unique for the model.
            rows: Largest number of rows in one request.
            model: Name of the model; default is the service's.
            version: Version that answers; default is the served one.
            tag: Tag of all rows, for the reports.

        Returns:
            The predictions, in the order of the inputs.

        Raises:
            ConfigError: The inputs or the ids cannot be sent.
            CallError: The service refused a request or did not answer, or the model has exclusive classes.
        """
        options = {"model": model, "version": version, "tag": tag}
        given = {name: value for name, value in options.items() if value is not None}
        trees = yield from self._predict(_labels_of, LabelPredictions.read, inputs, ids, rows, given)
        predictions = LabelPredictions.read(trees)
        if predictions.notes:
            warnings.warn(" ".join(predictions.notes), UserWarning, stacklevel=2)
        return predictions

    def _predict(
        self,
        reader: Callable[[int], Callable[[Any], dict[str, Any]]],
        join: Callable[[list[dict[str, Any]]], Predictions | LabelPredictions],
        inputs: Any,
        ids: Iterable[str] | None,
        rows: int,
        options: dict[str, Any],
    ) -> Steps[list[dict[str, Any]]]:
        """Send rows to /predict, in as many requests as needed. Return the answers.

        Args:
            reader: Returns a reader of one answer with this many rows.
            join: Joins the answers that came before an error.
            inputs: The rows.
            ids: Ids of the rows.
            rows: Largest number of rows in one request.
            options: Query of each request.
        """
        check_index(inputs=inputs, ids=ids)
        trees: list[dict[str, Any]] = []
        answered, query = 0, {**options, "classes": True}
        try:
            for chunk in _chunks(_with_ids(instances_of(inputs), ids), rows):
                read = reader(len(chunk))
                tree = yield from self._endpoint.read(read, "POST", "/predict", query=query, **_body(chunk))
                trees.append(tree)
                answered += len(chunk)
                # The version of the first answer answers the rest, even if another one is published meanwhile.
                query |= {"model": tree["model"], "version": tree["version"]}
        except (CallError, ConfigError, OSError) as error:
            if not trees:
                raise
            raise _interruption(error, join(trees), answered) from error
        if not trees:
            raise ConfigError("the inputs are empty; expected one row or more")
        return trees

    @Call
    def feedback(
        self,
        ids: Labels | Iterable[str] | str,
        labels: Any = None,
        *,
        index: Any = None,
        model: str | None = None,
        question: str | None = None,
        correct: bool = False,
        import_id: str | None = None,
    ) -> Steps[LabelSummary]:
        """Send true labels for predictions, by the predictions' ids.

        Labels are read and sent piece by piece, so there may be millions. Valid rows are stored even if others are
        refused.

        Args:
            ids: Pairs of id and label, a mapping from id to label, a pandas series of labels with the ids as its index,
                a sequence of ids, or one id.
            labels: Labels of the ids, if `ids` holds only ids. Each label is the name of a class. A whole number means
                the name with these digits: 3 is the class called "3".
            index: Positions of the classes among the model's, from 0, instead of `labels` (see `Predictions.index_N`).
            model: Name of the model. Required for an id of your own whose prediction has not arrived yet.
            question: Instead of `model`: name of the question, for answers of a decision model. True and False are
                then labels of a question that is answered with yes or no.
            correct: Replace a different label that is stored already.
            import_id: A name for all labels of this call. `void` can remove them by this name.

        Returns:
            The number of labels by outcome.

        Raises:
            ConfigError: A row is not a pair of id and label, or a header cannot carry the import id. Rows before it may
                have been sent.
            CallError: The service refused a label, or did not answer. For refused labels, `details` has the `problems`
                and the `outcomes` of the other labels. Sending all labels again is safe.

        Examples:
            >>> import numpy as np, trueodds
            >>> client = trueodds.Client("http://127.0.0.1:8000")
            >>> predictions = client.predict(np.zeros((2, 8, 8, 1), np.uint8))
            >>> client.feedback(predictions.ids, ["0", "8"])
            LabelSummary(stored=2, already_known=0, corrected=0, held=0)
        """
        rows, key = label_rows(ids, labels, index, booleans=question is not None)
        if import_id is not None and not (isinstance(import_id, str) and IMPORT_ID.fullmatch(import_id)):
            raise ConfigError(f"import_id is {short(import_id)}; allowed are 1 to 128 ASCII characters without blanks")
        headers = {"x-import-id": import_id} if import_id is not None else {}
        named = {"model": model, "question": question}
        shared: dict[str, Any] = {name: value for name, value in named.items() if value}
        shared |= {"correct": True} if correct else {}
        lines = ({"id": id_, key: class_, **shared} for id_, class_ in rows)
        return _in_lines(self._endpoint, "/feedback", lines, LABELS, "label", LabelSummary, headers=headers)

    @Call
    def judge(
        self,
        ids: Labels | Iterable[str] | str,
        labels: Any = None,
        *,
        index: Any = None,
        model: str | None = None,
        question: str | None = None,
    ) -> Steps[JudgeSummary]:
        """Send labels of a judge, such as a language model, for stored answers. They never count as human labels.

        A later label of the judge replaces an earlier one. The report's part `judge` combines them with human labels.

        Args:
            ids: Pairs of id and label, a mapping from id to label, a sequence of ids, or one id, as for `feedback`.
            labels: Labels of the ids, if `ids` holds only ids.
            index: Positions of the classes among the model's, from 0, instead of `labels`.
            model: Name of the model, if several have the id.
            question: Instead of `model`: name of the question, for answers of a decision model.

        Returns:
            The number of labels by outcome.

        Raises:
            ConfigError: A row is not a pair of id and label. Rows before it may have been sent.
            CallError: The service refused a label, or did not answer. Sending all labels again is safe.

        Examples:
            >>> import numpy as np, trueodds
            >>> client = trueodds.Client("http://127.0.0.1:8000")
            >>> predictions = client.predict(np.zeros((2, 8, 8, 1), np.uint8))
            >>> client.judge(predictions.ids, ["0", "8"])
            JudgeSummary(stored=2, already_known=0, replaced=0)
        """
        rows, key = label_rows(ids, labels, index, booleans=question is not None)
        named = {"model": model, "question": question}
        shared: dict[str, Any] = {name: value for name, value in named.items() if value}
        lines = ({"id": id_, key: class_, **shared} for id_, class_ in rows)
        return _in_lines(self._endpoint, "/judge-labels", lines, LABELS, "label", JudgeSummary)

    @Call
    def observe(
        self,
        ids: Iterable[str],
        probabilities: npt.ArrayLike | Sequence[Any],
        *,
        model: str,
        version: str,
        **options: Unpack[ObserveOptions],
    ) -> Steps[ObservationSummary]:
        """Send answers of a model that another server serves. The service stores them and watches their calibration.

        Args:
            ids: Your own ids, one for each answer.
            probabilities: Probabilities N x C; logits N x C with `logits=True`; N confidences together with `predicted`
                or `index`; or, with `form`, N values of a chat model.
            model: Name of the model.
            version: Version that gave the answers.
            **options: `predicted`: names of the predicted classes. `index`: their positions. `classes`: names of the
                columns in their order, needed once per version (default: the names of a data frame's columns, else "0",
                "1", "2", ...). `ordered=True`: the
                classes are levels, the lowest first. `positive`: of two classes, the one that p(positive) is about.
                Both are required with the first answers of a version. `times`: datetimes (UTC if without an offset) or
                Unix times; the default is now. `tags`, `propensities`: one for
                each answer. `shadow=True`: nobody acted on these answers; if their ids equal those of served answers,
                both versions can be compared. `act_alone`: the version's promise, such as
                `threshold=.93,risk=.05,confidence=.95`. If every call has it, the summary holds `acts_N`. `form`: the
                numbers are those of a chat model: "logprobs" (a list `top_logprobs` or a dict for each answer),
                "verbalised" (a number such as 0.85 or "85%", with `predicted`), or "votes" (counts by class).
                `confidence_source`, or `confidence_sources` for each answer: where the confidence comes from.
                `resolution`: step of rounded probabilities, such as 0.01, or "exact"; the version keeps the first one.
                `sets`: the conformal set of each answer, as a list of class names. `set_level`: their level, such as
                0.9. `set_rows`: the number of their calibration rows. The level and the rows are required with the
                first answers of a version.

        Returns:
            The number of answers by outcome.

        Raises:
            ConfigError: The shapes of the numbers and lists do not agree.
            CallError: The service refused a row, or did not answer. For refused rows, `details` has the `problems` and
                the `outcomes` of the other rows. Sending all rows again is safe.

        Examples:
            >>> import trueodds
            >>> client = trueodds.Client("http://127.0.0.1:8000")
            >>> client.observe(["a", "b"], [[0.9, 0.1], [0.3, 0.7]], model="mail", version="7", classes=["ham", "spam"])
            ObservationSummary(stored=2, already_known=0)
        """
        options = with_names_of_columns(probabilities, options)
        rows, most = observation_rows(ids, probabilities, options)
        query = {"model": model, "version": version, **shared_options(options)}
        headers = {"accept": NDJSON} if "act_alone" in query else None
        kind = ObservationSummary
        return _in_lines(self._endpoint, "/observe", rows, most, "answer", kind, query, headers)

    @Call
    def observe_decision(
        self,
        request: Any,
        response: Any,
        *,
        id: str | None = None,
        time: datetime | float | None = None,
        tag: str | None = None,
        propensity: float | None = None,
        act_alone: str | None = None,
        resolution: float | Literal["exact"] | None = None,
    ) -> Steps[DecisionSummary]:
        """Send a request to a decision model with its response. The service watches each question as a model.

        Both formats are read: that of `/v1/decisions` and that of `/v1/systemone`.

        Args:
            request: The request, as it was sent: a mapping, JSON text, or an object of openai, pydantic or httpx.
            response: Its response, in one of these forms.
            id: Your own id of the pair. Default: the response's id, else one made of the pair.
            time: Time of the answer: a datetime (UTC if without an offset) or Unix time. Default: now.
            tag: Tag of the answers.
            propensity: Probability that the answers get labels, if you know it.
            act_alone: Promise to act alone, such as `threshold=.93,risk=.05,confidence=.95`, or one per question, such
                as `spam:threshold=.9,risk=.05,confidence=.95;...`.
            resolution: Step of rounded probabilities, such as 0.01, or "exact". Each version keeps its first one.

        Returns:
            The number of questions by outcome, and `answers` with their ids. Send labels with the id and the question:
            `client.feedback(id, label, question=name)`.

        Raises:
            ConfigError: The request or the response has no JSON form.
            CallError: The service refused a question, or did not answer. For refused questions, `details` has the
                `problems` and the `outcomes` of the others, which are stored.

        Examples:
            >>> import trueodds
            >>> client = trueodds.Client("http://127.0.0.1:8000")
            >>> question = {"type": "noul", "instructions": "Is it spam?"}
            >>> request = {"model": "jev", "state": "Buy now", "questions": {"spam": question}}
            >>> response = {"model": "jev-2", "answers": {"spam": {"type": "noul", "noul": 0.9}}}
            >>> client.observe_decision(request, response, id="mail-1")
            DecisionSummary(stored=1, already_known=0, declined=0)
        """
        pair = pair_of(request, response, id, time, tag, propensity)
        return _observe_pairs(self._endpoint, [pair], None, act_alone, resolution)

    @Call
    def observe_decisions(
        self,
        pairs: Iterable[Pair],
        *,
        tag: str | None = None,
        act_alone: str | None = None,
        resolution: float | Literal["exact"] | None = None,
    ) -> Steps[DecisionSummary]:
        """Send many requests to decision models with their responses; see `observe_decision`.

        Args:
            pairs: Tuples (request, response), or mappings with `request`, `response` and optionally `id`, `time`, `tag`
                and `propensity`.
            tag: Tag of pairs that have none.
            act_alone: See `observe_decision`.
            resolution: See `observe_decision`.

        Returns:
            The number of questions by outcome, and `answers` with their ids.

        Raises:
            ConfigError: A pair has no JSON form. Pairs before it may have been sent.
            CallError: See `observe_decision`. Sending all pairs again is safe.
        """
        return _observe_pairs(self._endpoint, pairs, tag, act_alone, resolution)

    @Call
    def report(self, **query: Unpack[ReportQuery]) -> Steps[LiveReport]:
        """Read the live calibration report. Its numbers are attributes; printing it gives a few lines.

        `save` writes it to a file, `plot` draws it and `to_dict` returns its numbers, as with `trueodds.report`.

        Args:
            **query: `model`, `version`: default is the version that answers. `since`, `until`: times of the answers
                (ISO 8601, UTC if without an offset). `last`: only the latest labels, as many as this number.
                `predicted_class`, `tag`: only answers with this class or tag. `bins`, `binning` ("width" or "mass"):
                bins of the ECE. `level`: confidence level of the intervals. `by` ("class", "tag" or
                "confidence_source"): adds a table.
                `trend` ("minute", "hour", "day", "month" or "auto"): adds a trend. `costs`: costs of decisions.

        Returns:
            The report.

        Raises:
            CallError: The service refused the request or did not answer.

        Examples:
            >>> import trueodds
            >>> report = trueodds.Client("http://127.0.0.1:8000").report(last=1000, level=0.9)
            >>> report.level, report.window.last
            (0.9, 1000)
        """
        # deferred: it imports scipy, which most clients do not need
        from trueodds.reports.display.live import LiveReport

        read, path = LiveReport.model_validate, "/calibration-report"
        return self._endpoint.read(read, "GET", path, query={**query, "format": "json"})

    @Call
    def label_report(
        self,
        model: str | None = None,
        version: str | None = None,
        *,
        since: datetime | str | None = None,
        level: float | None = None,
    ) -> Steps[MultilabelReport]:
        """Read the live report of a model with independent labels: each label, and all together.

        Its values are those of `trueodds.report(..., multilabel=True)` on the same rows. `print`, `save` and `plot`
        work in the same way.

        Args:
            model: Model that answers all questions of an input. Default: the one for calls that name none.
            version: Version of a model that the service runs. Default: that of the last answer.
            since: Only answers given since then (ISO 8601, UTC if without an offset).
            level: Confidence level of the intervals. Default: 0.95.

        Raises:
            CallError: The service refused the request or did not answer, or there is no answer with a truth.
        """
        # deferred: it imports scipy, which most clients do not need
        from trueodds.reports.table.multilabel import MultilabelReport

        query = {"model": model, "version": version, "level": level}
        query["since"] = since.isoformat(timespec="milliseconds") if isinstance(since, datetime) else since
        return self._endpoint.read(MultilabelReport.read, "GET", "/multi-label-report", query=query)

    @Call
    def audit(
        self,
        model: str | None = None,
        version: str | None = None,
        *,
        features: Sequence[str] | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        last: int | None = None,
        tolerance: float | None = None,
        alpha: float | None = None,
        level: float | None = None,
        depth: int | None = None,
        swap: bool = False,
        seed: int = 0,
    ) -> Steps[LiveAudit]:
        """Look for the group of labelled answers whose confidence is furthest off, and test it on other answers.

        See `trueodds.evaluation.worst_group.worst_group` for the search and the test.

        Args:
            model: Name of the model; default is the service's.
            version: Its version; default is the one that answers.
            features: Features that may form groups, of `tag`, `predicted`, `confidence`, `hour` and `weekday`. Default:
                all.
            since: Only answers given since then (ISO 8601, UTC if without an offset).
            until: Only answers given before then.
            last: Only the labels that arrived last, as many as this number; at most 100,000.
            tolerance: Largest acceptable gap of a group. Default: 0.02.
            alpha: Largest probability of a false find. Default: 0.05.
            level: Confidence level of the intervals. Default: 0.95.
            depth: Largest number of conditions of a group. Default: 3.
            swap: Whether to also search on the second half and test on the first.
            seed: Seed of the split into halves.

        Returns:
            The audit. `print` shows it in words.

        Raises:
            CallError: The service refused the request or did not answer, or fewer than 40 labels count.
        """
        # deferred: it imports scipy, which most clients do not need
        from trueodds.evaluation.audit_result import LiveAudit

        query: dict[str, Any] = {"model": model, "version": version, "since": since, "until": until, "last": last}
        query |= {"tolerance": tolerance, "alpha": alpha, "level": level, "depth": depth, "swap": swap, "seed": seed}
        query["features"] = None if features is None else ",".join(features)
        return self._endpoint.read(LiveAudit.model_validate, "GET", "/audit", query=query)

    @Call
    def page(self, **query: Unpack[ReportQuery]) -> Steps[bytes]:
        """Read the report's HTML page. The arguments are those of `report`."""
        answer = yield from self._endpoint.exchange("GET", "/calibration-report", query={**query, "format": "html"})
        return answer.body

    @Call
    def ready(self) -> Steps[ModelVersion | None]:
        """Read which version answers requests that name none. None if the service only reads its store.

        Raises:
            CallError: The service cannot answer.
        """
        return self._endpoint.read(_answering, "GET", "/health/ready")

    @Call
    def problem(self) -> Steps[str]:
        """Read a problem that does not keep the service from answering; an empty text if there is none.

        Examples are an archive or a bucket of models that cannot be reached.

        Raises:
            CallError: The service cannot answer.
        """
        return self._endpoint.read(lambda tree: str(tree.get("problem") or ""), "GET", "/health/ready")

    @Call
    def models(self) -> Steps[list[ModelVersion]]:
        """List each model that answers, with the version that answers for it."""
        versions = yield from self._endpoint.read(Versions.read, "GET", "/models")
        return [ModelVersion(one.model, one.default) for one in versions.models if one.default is not None]

    @Call
    def versions(self) -> Steps[Versions]:
        """Read all versions of all models with their roles, and the models that other servers serve."""
        return self._endpoint.read(Versions.read, "GET", "/models")

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
        """Read the labelled answers of a version as logits and labels, to fit a calibrator.

        An empty result is no error. The service may require the admin key.

        Args:
            model: Name of the model.
            version: Version that gave the answers.
            last: Only the latest labels, as many as this number.
            since: Only answers given since then.
            shadow: A shadow version. Only answers that it has scored too are read, together with its logits.

        Returns:
            The labelled answers, in the order in which their labels arrived.
        """
        query = {"model": model, "version": version, "last": last, "shadow": shadow}
        if since is not None:
            query["since"] = since.isoformat(timespec="milliseconds")
        with naming(Path(tempfile.gettempdir())), tempfile.TemporaryFile() as file:
            try:
                answer = yield from self._endpoint.exchange("GET", "/admin/labelled.npz", query=query, file=file)
            except CallError as error:
                if error.code not in NO_ROWS:
                    raise
                return Labelled.none(shadow=shadow is not None)
            file.seek(0)
            return Labelled.read(file, answer.headers, last, shadow=shadow is not None)

    @Call
    def label_truths(
        self, model: str, version: str, *, last: int | None = None, since: datetime | None = None
    ) -> Steps[LabelTruths]:
        """Read the labelled answers of a version of independent labels, to fit a calibrator.

        An empty result is no error. The service may require the admin key.

        Args:
            model: Name of the model.
            version: Version that gave the answers.
            last: Only the answers whose first labels arrived last, as many as this number.
            since: Only answers given since then.

        Returns:
            Logits and truths with a column for each label, in the order of each answer's first label.
        """
        query = {"model": model, "version": version, "last": last}
        if since is not None:
            query["since"] = since.isoformat(timespec="milliseconds")
        with naming(Path(tempfile.gettempdir())), tempfile.TemporaryFile() as file:
            try:
                answer = yield from self._endpoint.exchange("GET", "/admin/labelled.npz", query=query, file=file)
            except CallError as error:
                if error.code not in NO_ROWS:
                    raise
                return LabelTruths.none()
            file.seek(0)
            return LabelTruths.read(file, answer.headers, last)

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
        """Write all stored predictions of a version, with their labels, to a file that `trueodds.report` can read.

        Args:
            file: Path of the file. A name that ends in .parquet makes a Parquet file, any other a CSV file.
            model: Name of the model; default is the service's.
            version: Version that gave the answers; default is the one that answers.
            since: Only answers given since then.
            until: Only answers given before then.
            probabilities: Add a column for each class.

        Raises:
            OSError: The file cannot be written. After this error, as after a CallError, an existing file is unchanged.
        """
        query = {"model": model, "version": version, "since": since, "until": until, "probabilities": probabilities}
        query["format"] = "parquet" if Path(file).suffix == ".parquet" else "csv"
        with atomic_write(Path(file)) as aside, aside.open("wb") as opened:
            yield from self._endpoint.exchange("GET", "/predictions", query=query, file=opened)

    @Call
    def draw_label_queue(
        self,
        budget: int,
        *,
        who: str,
        model: str | None = None,
        version: str | None = None,
        goal: LabelGoal = "ece",
        threshold: float | None = None,
        tag: str | None = None,
        floor: float = LABEL_FLOOR,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
    ) -> Steps[dict[str, Any]]:
        """Draw answers for people to label, and put them into the service's queue. It may require the admin key.

        Args:
            budget: Expected number of answers; each is drawn on its own.
            who: Your name, for the log.
            model: Name of the model; default is the service's.
            version: Its version; default is the one that answers.
            goal: Figure that the sample makes precise; see `metrics.label_propensities`.
            threshold: For the goal "threshold": the confidence from which on answers act alone.
            tag: For the goal "group": the only tag to label, beside the floor. Default: the tags that may be the worst,
                by the labels so far.
            floor: Smallest propensity, as a share of that in a plain sample.
            since: Only answers given since then; default is the end of the last draw.
            until: Only answers given before then; default is now.

        Returns:
            The numbers of the draw: `answers`, `sample_size`, `smallest_propensity`, `largest_propensity` and others.
            For the goal "group" without a tag, `suspects` has the tags that are most likely the worst.
        """
        times = encode_query({"since": since, "until": until})
        tree: dict[str, Any] = {"budget": budget, "who": who, "model": model, "version": version, "goal": goal, **times}
        tree = {**tree, "threshold": threshold, "tag": tag, "floor": floor}
        return self._endpoint.read(_without_none, "POST", "/label-queue", tree=_without_none(tree), once=True)

    @Call
    def lease_answers(
        self,
        who: str,
        *,
        count: int = 1,
        minutes: int = 15,
        show: Literal["input", "prediction", "probabilities"] = "input",
        model: str | None = None,
        version: str | None = None,
    ) -> Steps[dict[str, Any]]:
        """Lease the next answers of the label queue. Nobody else gets them before the lease ends.

        Args:
            who: Name of the person who labels. The same person gets the same answers again.
            count: Number of answers, at most 1,000.
            minutes: Length of the lease.
            show: What the answers show. A prediction may sway people.
            model: Name of the model; default is the service's.
            version: Its version; default is the one that answers.

        Returns:
            The queue's `state`, and its `answers` as objects with `id`, `tag`, `propensity` and others.
        """
        tree = {"who": who, "count": count, "minutes": minutes, "show": show, "model": model, "version": version}
        return self._endpoint.read(_without_none, "POST", "/label-queue/lease", tree=_without_none(tree))

    @Call
    def closed_answers(
        self, count: int = 100, *, model: str | None = None, version: str | None = None
    ) -> Steps[list[dict[str, Any]]]:
        """Read which answers of the label queue were labelled or skipped last, by whom and when.

        Args:
            count: Number of answers, at most 1,000.
            model: Name of the model; default is the service's.
            version: Its version; default is the one that answers.

        Returns:
            The answers, the newest first, as objects with `id`, `who`, `at`, `is_skip`, `skipped_by`, `skipped_at`,
            `corrected_at` and `import_id`. `who` is None if the label came from elsewhere, such as `feedback`.
        """
        query = {"model": model, "version": version, "closures": count}
        return self._endpoint.read(lambda tree: list(tree.get("closures", ())), "GET", "/label-queue", query=query)

    @Call
    def label_answers(
        self,
        labels: Mapping[str, str | None],
        *,
        who: str,
        model: str | None = None,
        version: str | None = None,
    ) -> Steps[dict[str, Any]]:
        """Label answers of the label queue. All labels are stored, or none.

        Args:
            labels: The name of the true class by id; None skips the answer.
            who: Name of the person who labels.
            model: Name of the model; default is the service's.
            version: Its version; default is the one that answers.

        Returns:
            The numbers `stored`, `already_known` and `skips`, and the `import_id` of the labels.
        """
        answers = [{"id": id_, **({"skip": True} if name is None else {"label": name})} for id_, name in labels.items()]
        tree = {"who": who, "model": model, "version": version, "answers": answers}
        return self._endpoint.read(_without_none, "POST", "/label-queue/answers", tree=_without_none(tree))

    @Call
    def delete(self, id: str, *, model: str | None = None) -> Steps[DeleteSummary]:
        """Delete a stored prediction and its label permanently. The report's sums stay, because they identify nobody.

        Args:
            id: Id of the prediction.
            model: Name of the model. Required if several models have this id of your own.
        """
        path = f"/predictions/{quote(id, safe='')}"
        read = partial(fields_of, DeleteSummary)
        return self._endpoint.read(read, "DELETE", path, query={"model": model}, once=True)

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
        """Remove labels from every number: those of an import, or those that arrived in some time.

        Args:
            who: Your name, for the log.
            why: Your reason, for the log.
            import_id: Only labels sent with this import id.
            since: Only labels that arrived since then.
            until: Only labels that arrived before then.
            model: Only labels of this model.
            dry_run: Count the labels without removing them.
        """
        labels = encode_query({"import_id": import_id, "since": since, "until": until, "model": model})
        tree = {"who": who, "why": why, "dry_run": dry_run, **labels}
        read = partial(fields_of, VoidSummary)
        return self._endpoint.read(read, "POST", "/admin/labels/void", tree=tree, once=not dry_run)

    @Call
    def acknowledge(self, model: str, version: str, *, who: str, why: str, null: Watched | None = None) -> Steps[Alarm]:
        """Acknowledge an alarm that has fired: record who takes care of it, and what the cause is.

        Args:
            model: Name of the model.
            version: Version whose alarm has fired.
            who: Your name, for the log.
            why: Your reason, for the log.
            null: The null hypothesis whose alarm has fired: `ece`, `positive`, `levels` or `point`. None means
                all of them.
        """
        tree = {"model": model, "version": version, "who": who, "why": why, "null": null}
        return _alarm(self._endpoint, "acknowledge", tree)

    @Call
    def rearm(self, model: str, version: str, *, who: str, why: str) -> Steps[Alarm]:
        """Start a new watch after an acknowledged alarm whose cause is fixed.

        Each watch has its own false alarms: k + 1 watches together raise at most k + 1 times as many as one.
        """
        tree = {"model": model, "version": version, "who": who, "why": why}
        return _alarm(self._endpoint, "rearm", tree)

    @Call
    def report_no_decision(
        self, model: str | None, version: str | None, *, who: str, why: str
    ) -> Steps[list[dict[str, Any]]]:
        """Report that a recalibration ended without a decision. The service counts this and notifies its webhooks.

        Returns:
            One entry for each webhook: `webhook`, `taken`, `problem`, `flow_run`.
        """
        tree = {"model": model, "version": version, "who": who, "why": why}
        path = "/admin/recalibration/undecided"
        return self._endpoint.read(lambda answer: list(answer["webhooks"]), "POST", path, tree=tree, once=True)

    @Call
    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        tree: Any = None,
        lines: bytes | None = None,
    ) -> Steps[Any]:
        """Send a request to any route and return its JSON, with the key, retries and errors of all calls.

        Sending the request twice must be safe, because it is sent again if no answer comes.

        Args:
            method: HTTP method.
            path: Path of the route.
            query: Parameters of the URL.
            tree: Body to send as JSON.
            lines: Body of JSON lines to send instead. The result then has an entry for each line of the answer.
        """
        if lines is None:
            return self._endpoint.read(lambda tree: tree, method, path, query=query, tree=tree)
        headers = {"content-type": NDJSON, "accept": NDJSON}
        return self._endpoint.read(lambda tree: tree, method, path, query=query, body=lines, headers=headers)


def _alarm(endpoint: Endpoint, action: str, tree: dict[str, Any]) -> Steps[Alarm]:
    from trueodds.reports.schemas.alarm import Alarm

    return endpoint.read(Alarm.model_validate, "POST", f"/admin/alarm/{action}", tree=tree, once=True)


def _in_lines(
    endpoint: Endpoint,
    path: str,
    rows: Iterable[Mapping[str, Any]],
    most: int,
    noun: str,
    kind: type[S],
    query: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Steps[S]:
    """Send all rows as NDJSON, in as many requests as needed, and add up their outcomes."""

    def read(tree: Any) -> tuple[S, int, list[dict[str, Any]]]:
        tree = _summary_of(tree) if isinstance(tree, list) else tree
        counts = {field.name: tree[field.name] for field in fields(kind) if field.compare or field.name in tree}
        return kind(**counts), tree["failed"], tree["problems"]

    lines = (json.dumps(row).encode() + b"\n" for row in rows)
    total, sent, problems, failed = kind(), 0, list[dict[str, Any]](), 0
    while chunk := list(islice(lines, most)):
        content = {"content-type": NDJSON, **(headers or {})}
        try:
            summary, refused, first_problems = yield from endpoint.read(
                read, "POST", path, query=query, body=b"".join(chunk), headers=content
            )
        except CallError as error:
            before = plural(sent, f"{noun} was", f"{noun}s were")
            error.message += f". {before} sent before; sending all again is safe"
            raise
        total, failed = total + summary, failed + refused
        problems += [{**problem, "row": problem["row"] - 1 + sent} for problem in first_problems]  # it counts lines
        sent += len(chunk)
    if failed:
        first = problems[0]
        message = f"{failed:,} of {plural(sent, noun)} refused{', the others taken' if failed < sent else ''}"
        details = {"problems": problems[:PROBLEMS], "problem_count": failed, "outcomes": total}
        where = f"row {first['row']}, counted from 0"
        raise CallError(first["code"], f"{message}; {where}: {first['message']}", details=details)
    return total


def _observe_pairs(
    endpoint: Endpoint,
    pairs: Iterable[Pair],
    tag: str | None,
    act_alone: str | None,
    resolution: float | Literal["exact"] | None,
) -> Steps[DecisionSummary]:
    """Send pairs in as many requests as needed, and add up their outcomes."""
    total, sent, questions, problems, failed = DecisionSummary(), 0, 0, list[dict[str, Any]](), 0
    query: dict[str, Any] = {"tag": tag, "act_alone": act_alone, "resolution": resolution}
    headers = {"content-type": NDJSON, "accept": NDJSON}
    for chunk in decision_chunks(pairs):
        try:
            summary, refused = yield from endpoint.read(
                decision_summary, "POST", "/observe/decisions", query=query, body=b"".join(chunk), headers=headers
            )
        except CallError as error:
            error.message += f". {plural(sent, 'pair was', 'pairs were')} sent before; sending all again is safe"
            raise
        total, failed = total + summary, failed + len(refused)
        refused_rows = [{**problem, "row": problem["row"] - 1 + sent} for problem in refused]  # it counts lines
        problems += refused_rows[: PROBLEMS - len(problems)]
        sent += len(chunk)
        questions += len(summary.answers) + len(refused)
    if failed:
        first = problems[0]
        message = (
            f"{failed:,} of {plural(questions, 'question')} refused{', the others taken' if total.answers else ''}"
        )
        details = {"problems": problems, "problem_count": failed, "outcomes": total}
        where = f"pair {first['row']}, counted from 0"
        raise CallError(first["code"], f"{message}; {where}: {first['message']}", details=details)
    return total


def _summary_of(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the summary for an NDJSON answer, which has one line for each row."""
    problems = [{name: line[name] for name in ("row", "id", "code", "message")} for line in lines if "code" in line]
    counts = Counter(line["outcome"] for line in lines)
    tree: dict[str, Any] = {name: counts[name] for name in ("stored", "already_known", "failed")}
    if any("decision" in line for line in lines):
        tree["acts_N"] = np.array([line.get("decision") == "act" for line in lines], bool)
        tree["audit_N"] = np.array([line.get("audit", False) for line in lines], bool)
    return {**tree, "problems": problems}


def _answering(tree: dict[str, Any]) -> ModelVersion | None:
    """Read the version from an answer of /health/ready.

    Raises:
        LookupError: The answer has another form.
    """
    if tree["status"] != "ready":
        raise LookupError("status")
    return fields_of(ModelVersion, tree) if tree.get("model") is not None else None


def _with_ids(instances: Iterable[Instance], ids: Iterable[str] | None) -> Iterator[tuple[Instance, str]]:
    """Yield each row with its id. Ids made here let a request be sent again without being counted twice."""
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
            if not isinstance(id_, str):
                raise ConfigError(f"row {n} has the id {short(id_)}; expected a text, such as {str(id_)!r}")
            yield instance, str(id_)  # type: ignore[misc]


def _chunks(rows: Iterable[tuple[Instance, str]], most: int) -> Iterator[list[tuple[Instance, str]]]:
    """Yield the rows of each request: at most `most` rows and ROW_BYTES, or one row that needs its own body."""
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
    """Return body and headers of a request."""
    (first, id_), *_ = chunk
    if first.is_npy:
        return {"body": first.body, "headers": {"content-type": NPY, "x-prediction-id": id_.encode()}}
    instances = b",".join(instance.body for instance, _ in chunk)
    body = b'{"instances":[%b],"ids":%b}' % (instances, json.dumps([id_ for _, id_ in chunk]).encode())
    return {"body": body, "headers": {"content-type": JSON}}


def _predictions_of(count: int) -> Callable[[Any], dict[str, Any]]:
    """Return a reader of /predict that requires an answer with this many rows."""

    def read(tree: Any) -> dict[str, Any]:
        if "answers" in tree["predictions"][0]:
            words = f"{tree['model']} has independent labels, and its answers are stored; call client.predict_labels"
            raise CallError("multi_label", words)
        if len(predictions := Predictions.read([tree])) != count:
            raise ValueError(f"{plural(len(predictions), 'prediction')} to {plural(count, 'row')}")
        return dict(tree)

    return read


def _labels_of(count: int) -> Callable[[Any], dict[str, Any]]:
    """Return a reader of /predict that requires answers to labels, for this many rows."""

    def read(tree: Any) -> dict[str, Any]:
        if "answers" not in tree["predictions"][0]:
            words = f"{tree['model']} has exclusive classes, and its answers are stored; call client.predict"
            raise CallError("multi_label", words)
        if len(predictions := LabelPredictions.read([tree])) != count:
            raise ValueError(f"{plural(len(predictions), 'prediction')} to {plural(count, 'row')}")
        return dict(tree)

    return read


def _join(trees: list[dict[str, Any]]) -> Predictions:
    """Join the answers of all requests into one."""
    try:
        return Predictions.read(trees)
    except ValueError:  # ids answered before, by a version with other classes
        message = "some ids were answered before by a version with other classes; send them in a call of their own"
        raise CallError("other_classes", message) from None


def _interruption(error: Exception, predictions: Predictions | LabelPredictions, count: int) -> CallError:
    """Build the error for a failure after the first request.

    It holds the stored answers, whose ids are needed for their labels.
    """
    cause = error if isinstance(error, CallError) else CallError("invalid_input", str(error))
    message = f"{cause.message}. {plural(count, 'row was', 'rows were')} answered before: see the error's `answered`"
    rest = {"status": cause.status, "request_id": cause.request_id, "details": cause.details}
    failure = CallError(cause.code, f"from row {count} on: {message}", **rest)  # type: ignore[arg-type]
    failure.answered = predictions
    return failure


def _without_none(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that are not None."""
    return {name: value for name, value in tree.items() if value is not None}
