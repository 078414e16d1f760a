"""Reads labelled answers and the report from a running service, over HTTP, never from its database."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from trueodds.cli import SERVICE, URL
from trueodds.errors import UserError
from trueodds.files import naming

KEY, KEY_FILE = "TRUEODDS_ADMIN_KEY", "TRUEODDS_ADMIN_KEY_FILE"
UNDECIDED = "/admin/recalibration/undecided"
"""The service's route that is told of a recalibration that ended without a decision."""
SECONDS = 60.0
"""Without a byte from the service."""
AGREE_MS = 1500
"""Clocks that differ by less are taken for one: the Date header is cut to whole seconds."""


class AnswerError(UserError, RuntimeError):
    """The service refused, did not answer, or its answer is not what it should be."""


class AwayError(AnswerError):
    """No service answers at the address."""


@dataclass(frozen=True, eq=False)
class Labelled:
    """Labelled answers of one version, in the order in which their labels arrived."""

    logits_NC: npt.NDArray[np.float32]
    labels_N: npt.NDArray[np.int64]
    created_ms_N: npt.NDArray[np.int64]
    """When each answer was given: Unix milliseconds on the service's clock."""
    ahead_ms: int = 0
    """How far the service's clock is ahead of this machine's."""
    shadow_logits_NC: npt.NDArray[np.float32] | None = None
    """Of the shadow that the query names, on the same inputs."""
    propensities_N: npt.NDArray[np.float64] | None = None
    """Chance of each answer to get its label; NaN where it is not known."""

    def __len__(self) -> int:
        return len(self.labels_N)

    def created_since(self, since_ms: int) -> Labelled:
        rows = self.created_ms_N >= since_ms
        shadow_NC = None if self.shadow_logits_NC is None else self.shadow_logits_NC[rows]
        chances_N = None if self.propensities_N is None else self.propensities_N[rows]
        logits_NC, labels_N, created_ms_N = self.logits_NC[rows], self.labels_N[rows], self.created_ms_N[rows]
        return Labelled(logits_NC, labels_N, created_ms_N, self.ahead_ms, shadow_NC, chances_N)


def admin_key(file: str | Path | None = None) -> str | None:
    """The admin key from `file`, from the file that TRUEODDS_ADMIN_KEY_FILE names, or from TRUEODDS_ADMIN_KEY.

    Raises:
        AnswerError: the file cannot be read or is empty; the variable holds what the service is told, a hash.
    """
    named = file or os.environ.get(KEY_FILE)
    if named:
        try:
            key = Path(named).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise AnswerError(f"the key file {named} cannot be read: {error}") from None
        if not key:
            raise AnswerError(f"the key file {named} is empty; it holds the key that trueodds key printed")
    else:
        key = os.environ.get(KEY, "").strip()
    if re.fullmatch("[0-9a-fA-F]{64}|@.*|.*,.*", key):
        where = named or KEY
        raise AnswerError(f"{where} holds the key's hash, for the service; here the key itself is needed: --key-file")
    return key or None


class _Same(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        """None: urllib would send the key along to wherever the answer points."""


@dataclass(frozen=True)
class Client:
    """A service by its URL."""

    url: str = URL
    key: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not re.fullmatch(r"https?://[^\s/?#]+[^\s?#]*", self.url):
            raise AnswerError(f"service is {self.url!r}; allowed is a URL such as {URL}")

    def labelled(
        self,
        model: str,
        version: str,
        *,
        last: int | None = None,
        since_ms: int | None = None,
        shadow: str | None = None,
    ) -> Labelled:
        """Labelled answers of a version: the `last` labels, of answers given since then; none is no error.

        With `shadow`, a version: only those of them that it has scored as well, and its logits.

        Raises:
            AwayError: nobody answers.
            AnswerError: a wrong key, what is not the file.
        """
        query: dict[str, Any] = {"model": model, "version": version}
        if last is not None:
            query["last"] = last
        if since_ms is not None:
            query["since"] = datetime.fromtimestamp(since_ms / 1000, UTC).isoformat(timespec="milliseconds")
        if shadow is not None:
            query["shadow"] = shadow
        try:
            with self._open("/admin/labelled.npz", query) as answer, tempfile.TemporaryFile() as file:
                ahead_ms = _ahead(answer.headers.get("date"))
                with naming(Path(tempfile.gettempdir())):
                    shutil.copyfileobj(answer, file)
                file.seek(0)
                logits_NC, labels_N, created_ms_N, chances_N, *beside = _arrays(file, last, shadow is not None)
                shadow_NC = beside[0] if beside else None
                return Labelled(logits_NC, labels_N, created_ms_N, ahead_ms, shadow_NC, chances_N)
        except _NoLabels:
            none_NC = np.empty((0, 0), np.float32)
            return Labelled(none_NC, np.empty(0, np.int64), np.empty(0, np.int64), 0, none_NC if shadow else None)

    def json(self, path: str, **query: str) -> Any:
        """A JSON answer. Raises as `labelled`."""
        with self._open(path, query) as answer:
            return self._tree(path, answer)

    def post(self, path: str, tree: Any = None) -> Any:
        """A JSON answer to a POST with a JSON body, or without one. Raises as `labelled`."""
        with self._open(path, {}, "POST", tree) as answer:
            return self._tree(path, answer)

    def _tree(self, path: str, answer: HTTPResponse) -> Any:
        try:
            return json.load(answer)
        except ValueError as error:
            raise AnswerError(f"{self.url}{path} answered what is not JSON ({error}): not a TrueOdds?") from None

    @contextmanager
    def _open(self, path: str, query: dict[str, Any], method: str = "GET", tree: Any = None) -> Iterator[HTTPResponse]:
        url = f"{self.url.rstrip('/')}{path}?{urllib.parse.urlencode(query)}"
        headers = {"accept": "*/*" if path.endswith(".npz") else "application/json"}
        if self.key:
            headers["authorization"] = f"Bearer {self.key}"
        data = None
        if tree is not None:
            data, headers["content-type"] = json.dumps(tree).encode(), "application/json"
        try:
            opener = urllib.request.build_opener(_Same)
            asked = urllib.request.Request(url, data, headers, method=method)
            with opener.open(asked, timeout=SECONDS) as answer:
                yield answer
        except urllib.error.HTTPError as error:
            raise self._refused(error, path) from None
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise AwayError(f"no service answers at {self.url} ({reason}); start it, or name it: --service") from None

    def _refused(self, error: urllib.error.HTTPError, path: str) -> Exception:
        try:
            problem = json.load(error)["error"]
            code, message = problem["code"], problem["message"]
        except (ValueError, LookupError, TypeError, OSError):
            code, message = "", error.reason
        if code in ("no_labels", "unknown_model", "unknown_version"):  # a version that has not answered yet is unknown
            return _NoLabels()
        cure = ""
        if error.code in (401, 403):
            cure = f". Put the key into {KEY} or into a file: --key-file"
        return AnswerError(f"{self.url}{path} answered {error.code}: {message}{cure}")


def client_of(url: str | None = None, key_file: str | Path | None = None) -> Client:
    """A client of the URL, else of TRUEODDS_SERVICE, else of this machine's port 8000; with the admin key.

    Raises:
        AnswerError: what is no URL, or no key (see `admin_key`).
    """
    return Client(url or os.environ.get(SERVICE) or URL, admin_key(key_file))


class _NoLabels(Exception):  # noqa: N818  an answer, not an error
    pass


def _arrays(file: IO[bytes], last: int | None, beside: bool) -> list[Any]:
    """Logits, labels, times and propensities, and with `beside` the shadow's logits."""
    shadow = ("val_shadow_logits",) if beside else ()
    names = ("val_logits", "val_labels", "val_created_ms", "val_propensity", *shadow)
    try:
        with np.load(file, allow_pickle=False) as arrays:
            rows = [arrays[name][-last:] if last else arrays[name] for name in names]
    except (zipfile.BadZipFile, EOFError, KeyError, ValueError) as error:
        raise AnswerError(f"labelled.npz is not whole ({error}); ask again") from None
    logits_NC, labels_N, created_N, chances_N = rows[:4]
    fits = logits_NC.ndim == 2 and labels_N.shape == created_N.shape == chances_N.shape == logits_NC.shape[:1]
    fits = fits and all(array.shape == logits_NC.shape and np.isfinite(array).all() for array in (logits_NC, *rows[4:]))
    fits = fits and bool((np.isnan(chances_N) | ((chances_N > 0) & (chances_N <= 1))).all())
    if not (fits and (labels_N >= 0).all() and (labels_N < logits_NC.shape[1]).all()):
        raise AnswerError(
            f"labelled.npz holds logits {logits_NC.shape}, labels {labels_N.shape} and times {created_N.shape}:"
            " not finite, or not of the same answers and classes"
        )
    return rows


def _ahead(date: str | None) -> int:
    """Of the service's clock; 0 where it does not say or the difference may be the header's rounding."""
    try:
        theirs = int(parsedate_to_datetime(date or "").timestamp() * 1000) + 500
    except ValueError:
        return 0
    ahead = theirs - time.time_ns() // 1_000_000
    return 0 if abs(ahead) < AGREE_MS else ahead
