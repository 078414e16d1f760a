"""Labelled answers of a version, read from the service's file labelled.npz."""

from __future__ import annotations

import time
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from trueodds.client.responses import CallError
from trueodds.sums.group_names import names_at
from trueodds.sums.rounding import EXACT, Resolution

NO_ROWS = ("no_labels", "unknown_model", "unknown_version")
"""Error codes of the service for a version without labelled answers.

It does not know a version that has not answered yet.
"""
AGREE_MS = 1500
"""Difference in milliseconds below which two clocks count as equal. The Date header has whole seconds."""


@dataclass(frozen=True, eq=False)
class Labelled:
    """Labelled answers of one version, in the order in which their labels arrived."""

    logits_NC: npt.NDArray[np.float32]
    """Logits of the answers."""
    labels_N: npt.NDArray[np.int64]
    """True class of each answer, as its position among the classes."""
    created_ms_N: npt.NDArray[np.int64]
    """Time of each answer in Unix milliseconds, by the service's clock."""
    ahead_ms: int = 0
    """Milliseconds by which the service's clock is ahead of this machine's."""
    shadow_logits_NC: npt.NDArray[np.float32] | None = None
    """Logits of the shadow version that the call names, for the same inputs."""
    propensities_N: npt.NDArray[np.float64] | None = None
    """Probability of each answer to get a label; NaN if it is not known."""
    resolution: Resolution = EXACT
    """Resolution of the probabilities from which the logits come. Pass it to `trueodds.fit` and `select`."""
    tags_N: npt.NDArray[np.object_] | None = None
    """Tag of each answer (str), or None. None for the whole if an older service does not send tags.

    Pass it as `groups` to `trueodds.fit` and `select`.
    """

    def __len__(self) -> int:
        return len(self.labels_N)

    @classmethod
    def none(cls, *, shadow: bool) -> Labelled:
        """Return an empty object; with `shadow`, its shadow logits are empty too."""
        none_NC = np.empty((0, 0), np.float32)
        return cls(none_NC, np.empty(0, np.int64), np.empty(0, np.int64), 0, none_NC if shadow else None)

    @classmethod
    def read(cls, file: IO[bytes], headers: Mapping[str, str], last: int | None, *, shadow: bool) -> Labelled:
        """Read and check the arrays of labelled.npz, of at most the `last` labels.

        Raises:
            CallError: The file is incomplete, or its arrays are not finite or do not fit together.
        """
        names = ["val_logits", "val_labels", "val_created_ms", "val_propensity", *["val_shadow_logits"] * shadow]
        try:
            with np.load(file, allow_pickle=False) as arrays:
                if "val_label_names" in arrays:
                    message = "the model has independent labels; read them with client.label_truths"
                    raise CallError("multi_label", message)
                rows: list[Any] = [arrays[name][-last:] if last else arrays[name] for name in names]
                step = arrays["val_resolution"].item() if "val_resolution" in arrays else None
                resolution = EXACT if step is None else Resolution(step)
                tags_N = names_at(arrays["val_tag"], arrays["val_tag_names"]) if "val_tag" in arrays else None
        except (zipfile.BadZipFile, EOFError, LookupError, ValueError) as error:
            raise CallError("damaged_file", f"labelled.npz is incomplete ({error}); call again") from None
        logits_NC, labels_N, created_N, chances_N, *beside = rows
        tags_N = tags_N[-last:] if last and tags_N is not None else tags_N
        fits = logits_NC.ndim == 2 and labels_N.shape == created_N.shape == chances_N.shape == logits_NC.shape[:1]
        fits = fits and (tags_N is None or tags_N.shape == labels_N.shape)
        fits = fits and all(
            array.shape == logits_NC.shape and np.isfinite(array).all() for array in (logits_NC, *beside)
        )
        fits = fits and bool((np.isnan(chances_N) | ((chances_N > 0) & (chances_N <= 1))).all())
        if not (fits and (labels_N >= 0).all() and (labels_N < logits_NC.shape[1]).all()):
            message = (
                f"labelled.npz holds logits {logits_NC.shape}, labels {labels_N.shape} and times {created_N.shape}:"
                " they are not finite, or their shapes do not agree"
            )
            raise CallError("damaged_file", message)
        ahead = ahead_ms(headers.get("date"))
        return cls(logits_NC, labels_N, created_N, ahead, beside[0] if beside else None, chances_N, resolution, tags_N)


def ahead_ms(date: str | None) -> int:
    """Return the milliseconds by which the service's clock is ahead, from the Date header of its answer.

    The result is 0 if there is no header, or if the header's rounding can explain the difference.
    """
    try:
        theirs = int(parsedate_to_datetime(date or "").timestamp() * 1000) + 500
    except ValueError:
        return 0
    ahead = theirs - time.time_ns() // 1_000_000
    return 0 if abs(ahead) < AGREE_MS else ahead
