"""The two clients: one blocks, one is awaited."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, Unpack

import numpy.typing as npt

from trueodds.client import calls
from trueodds.client.answers import LabelSummary, ModelVersion, ObservationSummary, Predictions
from trueodds.client.attempts import Answer, Limits, NoAnswer, Send, Steps
from trueodds.client.queries import ObserveOptions, PredictOptions, ReportQuery
from trueodds.errors import ConfigError, MissingExtraError
from trueodds.texts import short

try:
    import httpx
except ModuleNotFoundError:
    raise MissingExtraError("trueodds.Client", "httpx", "client") from None

if TYPE_CHECKING:
    from trueodds.reports import Report

T = TypeVar("T")
H = TypeVar("H", httpx.Client, httpx.AsyncClient)
Labels = Mapping[str, str | int] | Iterable[tuple[str, str | int]]
"""Labels by the ids of their predictions."""


class _Arguments(Generic[H]):
    """The arguments of both clients, checked."""

    _transport: Callable[[], H]

    def __init__(
        self, url: str, *, key: str | None = None, tries: int = 5, seconds: float = 60.0, timeout: float = 35.0
    ) -> None:
        if not re.fullmatch(r"https?://[^\s/?#]+[^\s?#]*", url):
            raise ConfigError(f"url is {short(url)}; expected a URL such as http://127.0.0.1:8000")
        if key is not None and not re.fullmatch(r"[!-~]+", key):
            raise ConfigError("key has blanks or characters beyond ASCII; expected one that `trueodds key` printed")
        if tries < 1 or not seconds > 0 or not timeout > 0:
            limits = f"tries={tries}, seconds={seconds}, timeout={timeout}"
            raise ConfigError(f"{limits}; expected at least one try, and times above 0 s")
        self._caller = calls.Caller(url.rstrip("/"), key, Limits(tries, seconds, timeout))
        self._http: H = self._transport()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._caller.url!r})"


class Client(_Arguments[httpx.Client]):
    """A service, by its URL: asks for predictions, sends true labels, and reads the live report.

    A request is sent again where no answer came, or 502, 503 or 504, after the pause that Retry-After asks for: in at
    most `tries` within `seconds`. That counts nothing twice: every prediction has an id, which is made here unless it
    is given, and the same label again changes nothing. A try fails after `timeout` seconds without a byte. `key` is one
    of `trueodds key`; of a service with a key for each role, the admin's opens all. Threads may share a client; `with`
    closes its connections.

    Raises:
        ConfigError: an argument that cannot be used.
        MissingExtraError: httpx is not installed (extra `client`).

    >>> import trueodds
    >>> client = trueodds.Client("http://127.0.0.1:9", tries=1)  # where nobody listens
    >>> try:
    ...     client.predict([[5.1, 3.5, 1.4, 0.2]])
    ... except trueodds.client.CallError as error:
    ...     print(error.code)
    no_answer
    """

    _transport = httpx.Client

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections; the next call would open one again."""
        self._http.close()

    def predict(
        self, inputs: Any, *, ids: Iterable[str] | None = None, rows: int = 256, **options: Unpack[PredictOptions]
    ) -> Predictions:
        """Calibrated predictions; the service has stored them when they arrive.

        `inputs`: images, uint8 (N x H x W x C, N x H x W of grey ones, or one of them; a last axis of 1 or 3 is that of
        the channels); paths or bytes of image files; vectors, as an array N x F, as lists of numbers, or as
        objects with a number for each feature, NaN or None where one is missing. One row or many.

        `ids`: of your own, one for each row, unique for the model: sent again with the same input they get the stored
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
        return self._run(calls.predict(self._caller, inputs, ids=ids, rows=rows, options=options))

    def feedback(
        self,
        ids: Labels | Iterable[str] | str,
        labels: Any = None,
        *,
        index: Any = None,
        model: str | None = None,
        correct: bool = False,
        import_id: str | None = None,
    ) -> LabelSummary:
        """Sends true labels, each the name of a class: of predictions, by their ids.

        Pairs of id and label, a mapping, two sequences of one length (arrays too), or one id and its label; millions
        are read and sent piece by piece. A whole number is the name that its digits are: 3 is the class called 3.
        Rows stand alone: good ones are stored where others are refused.

        `index`: in place of `labels`, the places of the classes among the model's, from 0, as `Predictions.index_N`.
        `model`: needed for an id of your own that is not predicted yet. `correct`: replace a different label.
        `import_id`: a name of yours for all labels of the call, by which `/admin/labels/void` voids them.

        Raises:
            ConfigError: what is no id or no label; rows before it may have been sent.
            CallError: the service refused a label (`details` has the `problems` and the `outcomes` of the others), or
                did not answer. Sending all again is safe.

        >>> import numpy as np, trueodds
        >>> client = trueodds.Client("http://127.0.0.1:8000")
        >>> predictions = client.predict(np.zeros((2, 8, 8, 1), np.uint8))
        >>> client.feedback(predictions.ids, ["0", "8"])
        LabelSummary(stored=2, already_known=0, corrected=0, held=0)
        """
        rows, key = calls.label_rows(ids, labels, index)
        steps = calls.feedback(self._caller, rows, key=key, model=model, correct=correct, import_id=import_id)
        return self._run(steps)

    def observe(
        self,
        ids: Iterable[str],
        probabilities: npt.ArrayLike,
        *,
        model: str,
        version: str,
        **options: Unpack[ObserveOptions],
    ) -> ObservationSummary:
        """Sends answers of a model that another server serves, each with an id of yours: from then on they are watched.

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
        steps = calls.observe(self._caller, ids, probabilities, model=model, version=version, options=options)
        return self._run(steps)

    def report(self, **query: Unpack[ReportQuery]) -> Report:
        """The live calibration report: its numbers are attributes, and printed it is a few lines.

        Of the answers given from `since` until `until` (ISO 8601; UTC without an offset), of the labels that came
        `last`, of one predicted class or tag; `level` is that of the intervals.

        Raises:
            CallError: refused, or not answered.

        >>> import trueodds
        >>> report = trueodds.Client("http://127.0.0.1:8000").report(last=1000, level=0.9)
        >>> report.level, report.window.last
        (0.9, 1000)
        """
        return self._run(calls.report(self._caller, query))

    def ready(self) -> ModelVersion:
        """The version that answers calls that name none; raises CallError where the service cannot answer."""
        return self._run(calls.ready(self._caller))

    def models(self) -> list[ModelVersion]:
        """Each model that answers, with the version that does."""
        return self._run(calls.models(self._caller))

    def _run(self, steps: Steps[T]) -> T:
        answer: Answer | NoAnswer | None = None
        try:
            while True:
                step = steps.send(answer)
                if isinstance(step, Send):
                    answer = self._send(step)
                else:
                    answer = None
                    time.sleep(step.seconds)
        except StopIteration as end:
            result: T = end.value
            return result

    def _send(self, step: Send) -> Answer | NoAnswer:
        try:
            return _answer(self._http.request(**_arguments(step, self._caller.url)))
        except httpx.TransportError as error:
            return _no_answer(error)


class AsyncClient(_Arguments[httpx.AsyncClient]):
    """A service, by its URL, as `Client`; its methods are awaited.

    >>> import asyncio, trueodds
    >>> async def code_of_a_call() -> str:
    ...     async with trueodds.AsyncClient("http://127.0.0.1:9", tries=1) as client:  # where nobody listens
    ...         try:
    ...             await client.predict([[5.1, 3.5, 1.4, 0.2]])
    ...         except trueodds.client.CallError as error:
    ...             return error.code
    >>> asyncio.run(code_of_a_call())
    'no_answer'
    """

    _transport = httpx.AsyncClient

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connections."""
        await self._http.aclose()

    async def predict(
        self, inputs: Any, *, ids: Iterable[str] | None = None, rows: int = 256, **options: Unpack[PredictOptions]
    ) -> Predictions:
        """As `Client.predict`."""
        return await self._run(calls.predict(self._caller, inputs, ids=ids, rows=rows, options=options))

    async def feedback(
        self,
        ids: Labels | Iterable[str] | str,
        labels: Any = None,
        *,
        index: Any = None,
        model: str | None = None,
        correct: bool = False,
        import_id: str | None = None,
    ) -> LabelSummary:
        """As `Client.feedback`."""
        rows, key = calls.label_rows(ids, labels, index)
        steps = calls.feedback(self._caller, rows, key=key, model=model, correct=correct, import_id=import_id)
        return await self._run(steps)

    async def observe(
        self,
        ids: Iterable[str],
        probabilities: npt.ArrayLike,
        *,
        model: str,
        version: str,
        **options: Unpack[ObserveOptions],
    ) -> ObservationSummary:
        """As `Client.observe`."""
        steps = calls.observe(self._caller, ids, probabilities, model=model, version=version, options=options)
        return await self._run(steps)

    async def report(self, **query: Unpack[ReportQuery]) -> Report:
        """As `Client.report`."""
        return await self._run(calls.report(self._caller, query))

    async def ready(self) -> ModelVersion:
        """As `Client.ready`."""
        return await self._run(calls.ready(self._caller))

    async def models(self) -> list[ModelVersion]:
        """As `Client.models`."""
        return await self._run(calls.models(self._caller))

    async def _run(self, steps: Steps[T]) -> T:
        answer: Answer | NoAnswer | None = None
        try:
            while True:
                step = steps.send(answer)
                if isinstance(step, Send):
                    answer = await self._send(step)
                else:
                    answer = None
                    await asyncio.sleep(step.seconds)
        except StopIteration as end:
            result: T = end.value
            return result

    async def _send(self, step: Send) -> Answer | NoAnswer:
        try:
            return _answer(await self._http.request(**_arguments(step, self._caller.url)))
        except httpx.TransportError as error:
            return _no_answer(error)


def _arguments(step: Send, url: str) -> dict[str, Any]:
    request = step.request
    return {
        "method": request.method,
        "url": url + request.path,
        "params": dict(request.query),
        "content": request.body,
        "headers": dict(request.headers),
        "timeout": step.timeout,
    }


def _answer(response: httpx.Response) -> Answer:
    return Answer(response.status_code, response.headers, response.content)


def _no_answer(error: httpx.TransportError) -> NoAnswer:
    return NoAnswer(str(error) or type(error).__name__)
