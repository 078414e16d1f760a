"""Labelled answers of a version of independent labels, read from the service's file labelled.npz."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from trueodds.client.labelled import ahead_ms
from trueodds.client.responses import CallError
from trueodds.sums.group_names import names_at

_NAMES = ("logits", "labels", "arrived_ms", "created_ms", "propensity")


@dataclass(frozen=True, eq=False)
class LabelTruths:
    """Labelled answers of one version of a model of independent labels, in the order of each answer's first label."""

    logits_NL: npt.NDArray[np.float32]
    """Logit of each label; 0 where its truth is not known."""
    truth_NL: npt.NDArray[np.float64]
    """Truths: 1, 0, and NaN if not known."""
    arrived_ms_NL: npt.NDArray[np.int64]
    """Time at which each truth arrived in Unix milliseconds, by the service's clock; 0 where it is not known."""
    created_ms_N: npt.NDArray[np.int64]
    """Time of each answer in Unix milliseconds, by the service's clock."""
    labels: tuple[str, ...]
    """Names of the labels."""
    propensities_N: npt.NDArray[np.float64]
    """Probability of each answer to get labels; NaN if it is not known."""
    tags_N: npt.NDArray[np.object_]
    """Tag of each answer (str), or None."""
    ahead_ms: int = 0
    """Milliseconds by which the service's clock is ahead of this machine's."""

    def __len__(self) -> int:
        return len(self.truth_NL)

    @classmethod
    def none(cls) -> LabelTruths:
        """Return an empty object."""
        none_NL, none_N = np.empty((0, 0)), np.empty(0, np.int64)
        empty = none_NL.astype(np.float32), none_NL, none_NL.astype(np.int64)
        return cls(*empty, none_N, (), np.empty(0), np.empty(0, object))

    @classmethod
    def read(cls, file: IO[bytes], headers: Mapping[str, str], last: int | None) -> LabelTruths:
        """Read and check the arrays of labelled.npz, of at most the `last` answers.

        Raises:
            CallError: The file is incomplete, its arrays do not fit together, or it is one of exclusive classes.
        """
        try:
            with np.load(file, allow_pickle=False) as arrays:
                if "val_label_names" not in arrays:
                    message = "the model has exclusive classes; read its labels with client.labelled"
                    raise CallError("not_multi_label", message)
                rows: list[Any] = [arrays[f"val_{name}"][-last if last else 0 :] for name in _NAMES]
                tags_N = names_at(arrays["val_tag"][-last if last else 0 :], arrays["val_tag_names"])
                names = tuple(map(str, arrays["val_label_names"].tolist()))
        except (zipfile.BadZipFile, EOFError, LookupError, ValueError) as error:
            raise CallError("damaged_file", f"labelled.npz is incomplete ({error}); call again") from None
        logits_NL, labels_NL, arrived_NL, created_N, chances_N = rows
        fits = logits_NL.shape == labels_NL.shape == arrived_NL.shape == (len(created_N), len(names))
        fits = fits and created_N.shape == chances_N.shape == tags_N.shape
        fits = fits and bool(np.isfinite(logits_NL).all() and np.isin(labels_NL, (-1, 0, 1)).all())
        fits = fits and bool((np.isnan(chances_N) | ((chances_N > 0) & (chances_N <= 1))).all())
        if not fits or not (labels_NL != -1).any(axis=1).all():
            message = f"labelled.npz holds logits {logits_NL.shape} and labels {labels_NL.shape} of {len(names)} labels"
            raise CallError("damaged_file", f"{message}: they are not finite, or their shapes do not agree")
        truth_NL = np.where(labels_NL == -1, np.nan, labels_NL).astype(np.float64)
        return cls(logits_NL, truth_NL, arrived_NL, created_N, names, chances_N, tags_N, ahead_ms(headers.get("date")))
