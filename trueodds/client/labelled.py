"""Labelled answers of a version, as the service's file labelled.npz has them."""

from __future__ import annotations

import time
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from trueodds.client.answers import CallError

NONE = ("no_labels", "unknown_model", "unknown_version")
"""Codes of the service where there is no labelled answer; a version that has not answered yet is unknown to it."""
AGREE_MS = 1500
"""Clocks that differ by less count as one: the Date header is cut to whole seconds."""


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
    """Logits of the shadow that the call names, for the same inputs."""
    propensities_N: npt.NDArray[np.float64] | None = None
    """Chance of each answer to get its label; NaN where it is not known."""

    def __len__(self) -> int:
        return len(self.labels_N)

    @classmethod
    def none(cls, *, shadow: bool) -> Labelled:
        """No labelled answer; with `shadow`, none of its logits either."""
        none_NC = np.empty((0, 0), np.float32)
        return cls(none_NC, np.empty(0, np.int64), np.empty(0, np.int64), 0, none_NC if shadow else None)

    @classmethod
    def read(cls, file: IO[bytes], headers: Mapping[str, str], last: int | None, *, shadow: bool) -> Labelled:
        """Read and check the arrays of labelled.npz, of the `last` labels at most.

        Raises:
            CallError: the file is not whole, or its arrays are not finite or do not fit together.
        """
        names = ["val_logits", "val_labels", "val_created_ms", "val_propensity", *["val_shadow_logits"] * shadow]
        try:
            with np.load(file, allow_pickle=False) as arrays:
                rows: list[Any] = [arrays[name][-last:] if last else arrays[name] for name in names]
        except (zipfile.BadZipFile, EOFError, KeyError, ValueError) as error:
            raise CallError("damaged_file", f"labelled.npz is not whole ({error}); ask again") from None
        logits_NC, labels_N, created_N, chances_N, *beside = rows
        fits = logits_NC.ndim == 2 and labels_N.shape == created_N.shape == chances_N.shape == logits_NC.shape[:1]
        fits = fits and all(
            array.shape == logits_NC.shape and np.isfinite(array).all() for array in (logits_NC, *beside)
        )
        fits = fits and bool((np.isnan(chances_N) | ((chances_N > 0) & (chances_N <= 1))).all())
        if not (fits and (labels_N >= 0).all() and (labels_N < logits_NC.shape[1]).all()):
            message = (
                f"labelled.npz holds logits {logits_NC.shape}, labels {labels_N.shape} and times {created_N.shape}:"
                " not finite, or not of the same answers and classes"
            )
            raise CallError("damaged_file", message)
        ahead = ahead_ms(headers.get("date"))
        return cls(logits_NC, labels_N, created_N, ahead, beside[0] if beside else None, chances_N)


def ahead_ms(date: str | None) -> int:
    """Milliseconds by which the service's clock is ahead, by the Date header of its answer.

    0 where there is no header, or where its rounding may be all of the difference.
    """
    try:
        theirs = int(parsedate_to_datetime(date or "").timestamp() * 1000) + 500
    except ValueError:
        return 0
    ahead = theirs - time.time_ns() // 1_000_000
    return 0 if abs(ahead) < AGREE_MS else ahead
