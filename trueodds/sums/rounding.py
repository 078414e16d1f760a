"""Probabilities that were rounded before they came here: the step, what shows it, and how a rounded row is read.

A value in steps of s is known to half a step: p lies in [r - s/2, r + s/2]. A 0 means "below half a step".
`as_distributions` is the only definition of the reading. `Resolution` holds the step and where it comes from.

A whole table shows its step if its rows do not sum to 1 (`inferred`). A single row often shows none. A service keeps
one `Resolution` per version and decides once. Either the caller gives it, or the first call whose rows show a step
fixes it: `resolution_of(rows, given)` returns it, and `Resolution.to_json` stores it. Every later row, and every row
that was stored before the step was known, is then read with `logits_of(rows, resolution=...)`. A version whose rows
show no step stays exact. A finer step that a later call shows, or a value between the steps, contradicts the stored
one: `check_steps` refuses such rows and says so.
"""

from __future__ import annotations

import contextlib
import warnings
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from trueodds.errors import ConfigError
from trueodds.sums.inputs import (
    Array,
    as_matrix,
    both_classes,
    check_matrix,
    check_probabilities,
    is_number,
    sums_to_one,
    without_noise,
)
from trueodds.sums.steps import COARSEST_WITH_NLL, inferred_step, on_steps
from trueodds.texts import short

Source: TypeAlias = Literal["given", "inferred"]
_Float = TypeVar("_Float", bound=np.floating)
WIDEST = 0.5
"""Largest step."""
LEAST_REST = 0.25
"""Least probability of all zeros of a row together, in steps.

The values sum to 1, but each is known to half a step only. One value of 1.00 lies between 1 - s/2 and 1, on average at
1 - s/4.
"""
_WORN = 0.01
"""Distance, in steps, of the least reading of a value above 0 from half a step."""


class RoundingWarning(UserWarning):
    """Warning that probabilities were read as rounded although nobody said so."""


@dataclass(frozen=True)
class Resolution:
    """Step of rounded probabilities, or exact, and whether the user gave it or the rows showed it.

    Examples:
        >>> from trueodds.sums.rounding import Resolution
        >>> Resolution(0.01).half
        0.005
        >>> Resolution.of("exact").is_exact
        True
    """

    step: float | None
    """Distance of neighbouring values, such as 0.01. None: exact."""
    source: Source = "given"

    def __post_init__(self) -> None:
        if self.step is not None and not (is_number(self.step) and 0 < self.step <= WIDEST):
            raise ConfigError(
                f"resolution is {short(self.step)}; allowed are a step above 0 and up to {WIDEST}, such as 0.01, and"
                " 'exact'"
            )
        if self.source not in ("given", "inferred"):
            raise ConfigError(f"source of a resolution is {short(self.source)}; allowed are 'given' and 'inferred'")

    @classmethod
    def of(cls, value: Any) -> Self:
        """Return the resolution that a user gave: a step, its text, or "exact".

        Args:
            value: A number such as 0.01, the text of one, or "exact".

        Raises:
            ConfigError: The value is something else.
        """
        if value == "exact":
            return cls(None)
        step: Any = value
        if isinstance(value, str):
            with contextlib.suppress(ValueError):
                step = float(value)
        return cls(float(step) if is_number(step) else step)

    @property
    def is_exact(self) -> bool:
        """Whether the probabilities are read as they are."""
        return self.step is None

    @property
    def half(self) -> float:
        """Half a step: the largest distance of a value from the probability that was rounded. 0 if exact."""
        return (self.step or 0.0) / 2

    @property
    def has_nll(self) -> bool:
        """Whether the step is fine enough for an NLL (`COARSEST_WITH_NLL`)."""
        return self.step is None or self.step <= COARSEST_WITH_NLL

    def confidence(self, confidence_N: Array) -> Array:
        """Return confidences as calibration is measured by: 1 becomes 1 - s/4, 0 becomes s/4, others are unchanged.

        A rounded 1 lies between 1 - s/2 and 1. Read as certain, a single wrong answer would be impossible, and every
        test would reject.

        Args:
            confidence_N: Confidences, or p(positive), in [0, 1].
        """
        if self.step is None:
            return confidence_N
        least = LEAST_REST * self.step
        return np.clip(confidence_N, least, 1 - least)

    @property
    def words(self) -> str:
        """Sentence on how the values are read. Empty if they are exact because nothing shows a step."""
        if self.step is None:
            return ""
        how = "as given" if self.source == "given" else "as row sums other than 1 show"
        return f"probabilities are read as rounded to steps of {self.step:g}, {how}: 0 means below {self.half:g}"

    def to_json(self) -> dict[str, Any]:
        """Return `{"step": ..., "source": ...}`, which `from_json` restores exactly."""
        return {"step": self.step, "source": self.source}

    @classmethod
    def from_json(cls, tree: dict[str, Any]) -> Self:
        """Restore what `to_json` wrote.

        Raises:
            ConfigError: The tree holds something else.
        """
        if not isinstance(tree, dict) or tree.keys() != {"step", "source"}:
            raise ConfigError(f"a resolution is {short(tree)}; expected an object with step and source")
        return cls(tree["step"], tree["source"])


Given: TypeAlias = float | Literal["exact"] | Resolution | None
"""Values of the argument `resolution`: a step, "exact", or None for a step that the rows themselves show."""
EXACT = Resolution(None, "inferred")
"""Probabilities that show no step."""


def resolution_of(probabilities_NC: npt.NDArray[np.floating], setting: Given = None) -> Resolution:
    """Return the resolution of rows: what the user gave, or else what the rows show.

    Args:
        probabilities_NC: Probabilities, shape (N, C).
        setting: A step, "exact", a `Resolution`, or None.

    Returns:
        The resolution. `EXACT` if nothing was given and the rows show no step.

    Raises:
        ConfigError: `setting` is something else.

    Examples:
        >>> import numpy as np
        >>> from trueodds.sums.rounding import resolution_of
        >>> rows = np.array([[0.33, 0.33, 0.33], [1.0, 0.0, 0.0]])
        >>> resolution_of(rows)
        Resolution(step=0.01, source='inferred')
        >>> resolution_of(rows, "exact")
        Resolution(step=None, source='given')
    """
    if setting is None:
        step = inferred_step(probabilities_NC)
        return EXACT if step is None else Resolution(step, "inferred")
    return setting if isinstance(setting, Resolution) else Resolution.of(setting)


def checked_rows(
    probabilities: npt.ArrayLike, setting: Given = None, name: str = "probabilities"
) -> tuple[npt.NDArray[np.floating], Resolution]:
    """Check probabilities N x C, and return them with their resolution.

    A row's sum may differ from 1 by as much as its step explains.

    Raises:
        ConfigError: `setting` is not a resolution.
        ValueError: The rows are invalid, or a value lies between the steps that were given.
    """
    matrix_NC = without_noise(check_matrix(probabilities, name))
    resolution = resolution_of(matrix_NC, setting)
    check_steps(matrix_NC, resolution, name)
    return check_probabilities(matrix_NC, name, step=resolution.step), resolution


def with_resolution(
    probabilities: npt.ArrayLike, setting: Given = None, name: str = "probabilities"
) -> tuple[npt.NDArray[np.floating], Resolution]:
    """Return probabilities as N x C with their resolution. Only the steps are checked, not the rows.

    Raises:
        ConfigError: `setting` is not a resolution.
        ValueError: A value lies between the steps that were given, or the array is not N x C.
    """
    matrix_NC = as_matrix(probabilities, name)
    resolution = resolution_of(matrix_NC, setting)
    check_steps(matrix_NC, resolution, name)
    return matrix_NC, resolution


def check_steps(
    probabilities_NC: npt.NDArray[np.floating], resolution: Resolution, name: str = "probabilities"
) -> None:
    """Check that every value is a multiple of the step.

    Raises:
        ValueError: One is not. The message names the first.
    """
    if resolution.step is None:
        return
    off_NC = np.isfinite(probabilities_NC) & ~on_steps(probabilities_NC, resolution.step)
    if off_NC.any():
        row, column = np.argwhere(off_NC)[0]
        raise ValueError(
            f"{name}[{row}, {column}] is {probabilities_NC[row, column]:.6g}, not a multiple of the resolution"
            f" {resolution.step:g}; give the step of these values, or 'exact'"
        )


def as_distributions(probabilities_NC: npt.ArrayLike, step: float) -> Array:
    """Read rounded rows as distributions.

    A value r above 0 becomes sqrt((r - s/2) (r + s/2)), the geometric middle of the interval that rounds to it. The
    zeros of a row share what is then missing to 1, in equal parts, at most half a step each. Where less than a quarter
    of a step is missing, they share a quarter of a step, because one value of 1.00 stands for 1 - s/4 on average. What
    remains is added to the values above 0, in equal parts, within half a step of each. The row is divided by its sum at
    the end, which changes only rows that rounding does not explain.

    Args:
        probabilities_NC: Rounded probabilities, shape (N, C).
        step: The step s.

    Returns:
        Probabilities above 0, shape (N, C), in float64, whose rows sum to 1. The order of the values in a row is kept.

    Examples:
        >>> as_distributions([[1.0, 0.0], [0.99, 0.01]], 0.01).round(4)
        array([[0.9975, 0.0025],
               [0.9907, 0.0093]])
    """
    p_NC = np.asarray(probabilities_NC, np.float64)
    k_NC = np.rint(p_NC / step)
    zero_NC = k_NC <= 0
    zeros_N, others_N = zero_NC.sum(axis=1), (~zero_NC).sum(axis=1)
    middle_NC = np.where(zero_NC, 0.0, np.sqrt(np.maximum(k_NC, 1.0) ** 2 - 0.25) * step)
    sum_N = middle_NC.sum(axis=1)
    rest_N = np.minimum(np.maximum(1 - sum_N, LEAST_REST * step), zeros_N * step / 2)
    shift_N1 = ((1 - rest_N - sum_N) / np.maximum(others_N, 1))[:, None]
    moved_NC = np.clip(middle_NC + shift_N1, (k_NC - 0.5 + _WORN) * step, (k_NC + 0.5) * step)
    read_NC: Array = np.where(zero_NC, (rest_N / np.maximum(zeros_N, 1))[:, None], moved_NC)
    read_NC /= read_NC.sum(axis=1, keepdims=True)
    return read_NC


def summing_to_1(probabilities_NC: npt.NDArray[_Float], resolution: Resolution) -> npt.NDArray[_Float] | Array:
    """Return rows that metrics without a resolution accept: as they are, or as `as_distributions` reads them."""
    if resolution.step is None or sums_to_one(probabilities_NC).all():
        return probabilities_NC
    return as_distributions(probabilities_NC, resolution.step)


def logits_of(probabilities: npt.ArrayLike, *, resolution: Given = None) -> Array:
    """Compute logits z = ln p, whose softmax is p, for a calibrator of a model that returns only probabilities.

    Rounded probabilities are read by `as_distributions` first, so a 0 becomes a share of what is missing, below half a
    step. Fits need to know it too: pass the same `resolution` to `trueodds.fit`.

    A probability of exactly 0 has no logarithm. It counts as its dtype's precision (2.2e-16 in float64, 1.2e-7 in
    float32), or as the smallest other probability of its row if that is smaller. So it stays the smallest of its row.

    Args:
        probabilities: Probabilities, shape (N, C); or those of the positive class alone of a binary model, shape (N,)
            or (N, 1).
        resolution: Step of rounded probabilities, such as 0.01, or "exact". None: the step is inferred if rows do not
            sum to 1, with a `RoundingWarning`; else exact.

    Returns:
        Logits, shape (N, C), or (N, 2) for the positive class alone.

    Raises:
        ValueError: The probabilities are invalid, or not multiples of the given step.
        ConfigError: The resolution is not a step or "exact". It is a ValueError.

    Examples:
        >>> import trueodds
        >>> trueodds.logits_of([[0.75, 0.25], [1.0, 0.0]]).round(3)
        array([[ -0.288,  -1.386],
               [  0.   , -36.044]])
        >>> trueodds.logits_of([0.25]).round(3)
        array([[-0.288, -1.386]])
        >>> trueodds.logits_of([[1.0, 0.0]], resolution=0.01).round(2)
        array([[-0.  , -5.99]])
    """
    p_NC, read_as = checked_rows(both_classes(probabilities), resolution)
    if read_as.step is not None:
        if resolution is None:
            cure = f"pass resolution={read_as.step:g} here and to trueodds.fit, or 'exact'"
            warnings.warn(f"{read_as.words}; {cure}", RoundingWarning, stacklevel=2)
        return np.log(as_distributions(p_NC, read_as.step))
    precision = float(np.finfo(p_NC.dtype).eps)
    wide_NC = p_NC.astype(np.float64)
    least_N1 = np.min(wide_NC, axis=1, keepdims=True, where=wide_NC > 0, initial=precision)
    return np.log(np.where(wide_NC > 0, wide_NC, least_N1))


def ruled_out(probabilities_NC: npt.NDArray[np.floating], labels_N: npt.NDArray[np.intp]) -> int:
    """Count the rows whose true class has probability 0: the model ruled out what happened."""
    return int((probabilities_NC[np.arange(len(labels_N)), labels_N] <= 0).sum())
