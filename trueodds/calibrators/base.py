"""Base class of every calibrator: a frozen object whose fields are the fitted numbers, callable on logits."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from trueodds.calibrators.checks import OptionCheck, check_number
from trueodds.errors import UserError
from trueodds.files import write_json
from trueodds.processes import extensions
from trueodds.sums.frames import check_columns, check_index
from trueodds.sums.group_names import GroupNames, check_groups, check_length
from trueodds.sums.inputs import TELLING_ROWS, Array, check_labels, check_logits, check_no_mask, without_tensors
from trueodds.sums.losses import nll_of

Logits = npt.NDArray[np.floating[Any]]
Labels = npt.NDArray[np.intp]

BLOCK = 1 << 15
"""Values per block of rows.

256 KB of float64 stay in the second-level cache. New memory for whole N x C temporaries costs 20 ns per value in page
faults, but a block costs .7 ns for the same exp.
"""
SEPARATED = 0.1
"""NLL in nats, summed over all rows of a fit, below which the fit has no doubt left about any row."""


class FitError(UserError, ValueError):
    """Error if the rows do not determine this calibrator. The message states what to do.

    Examples:
        >>> try:
        ...     calibrators.fit([[2, 0], [0, 2]] * 100, [0, 0] * 100, "vector")
        ... except calibrators.FitError:
        ...     print("class 1 has no rows")
        class 1 has no rows
    """


class LogAffine(NamedTuple):
    """Parameters of p = softmax(W ln q + b) with q = (1 - u) softmax(z / T) + u / C."""

    temperature: float
    """T > 0."""
    uniform: float
    """Share u of the uniform distribution, above 0."""
    weight_CC: Array
    bias_C: Array


@dataclass(frozen=True, eq=False)
class Calibrator(ABC):
    """Base class of calibrators, which map logits_NC to probabilities_NC in float64, whatever the input's dtype.

    A probability is 0 only if float64 has no smaller number (a logit more than 745 below the top one, after scaling).
    `trueodds.metrics.nll` counts such a true class as 2.2e-308. Histogram-like calibrators mix in a share of the
    uncalibrated softmax, which their docstrings state. So they return 0 no more often than the softmax does.

    To write a calibrator, subclass this class as a frozen dataclass. Define `name`, `fit`, `keeps_argmax` and `_apply`.
    `trueodds.fit` and `select` take the class. A distribution that registers it in the entry-point group
    `trueodds.calibrators` adds its name to those of `trueodds.calibrators.names()`.

    Examples:
        >>> logits, labels = [[2, 0], [0, 2]] * 100, [0, 1, 0, 0, 0, 1, 1, 1] * 25
        >>> isinstance(calibrators.fit(logits, labels, "temperature"), calibrators.Calibrator)
        True
    """

    name: ClassVar[str]
    is_regularised: ClassVar[bool] = False
    """Whether it has no parameter, or a prior regularises all. A fit on a few wrong rows then does little harm."""
    checks: ClassVar[Mapping[str, OptionCheck]] = {}
    """Check of the value of each option of `fit`, by the option's name."""
    readers: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Options that only some objectives use, each with these objectives."""
    joins_select: ClassVar[bool] = False
    """Whether `select` tries it by default if another distribution registers it. Built-in classes do not use this."""
    uses_groups: ClassVar[bool] = False
    """Whether `fit` takes the rows' groups as its third argument, and `_apply_groups` reads them."""

    warnings: tuple[str, ...] = field(default=(), kw_only=True)
    """Problems of the fit, one sentence each: a parameter at a bound, lower accuracy, a higher NLL."""

    fitted_classes: int | None = field(default=None, kw_only=True, compare=False)
    """Number of classes of the fit, which every `fit` records; None: unknown."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if isinstance(own := vars(cls).get("fit"), classmethod):
            cls.fit = classmethod(_recording_classes(own.__func__))  # type: ignore[method-assign, assignment]

    def __post_init__(self) -> None:
        object.__setattr__(self, "warnings", tuple(self.warnings))
        if self.fitted_classes is not None:
            check_number("fitted_classes", self.fitted_classes, 1, 10**9, whole=True)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and all(
            _same(getattr(self, f.name), getattr(other, f.name)) for f in fields(self) if f.compare
        )

    def __hash__(self) -> int:
        return hash((self.name, self.warnings))

    @property
    @abstractmethod
    def keeps_argmax(self) -> bool:
        """Whether the predicted class can never change, except that logits closer than 1e-16 may become a tie."""

    @property
    def parameters(self) -> int:
        """Number of fitted numbers."""
        return sum(np.size(value) for f in fields(self) if isinstance(value := getattr(self, f.name), np.ndarray))

    @property
    def free_parameters(self) -> int:
        """Number of `parameters` that only the rows determine, without a prior, a penalty or pooling of rows."""
        return 0 if self.is_regularised else self.parameters

    @property
    def at_bound(self) -> bool:
        """Whether a parameter is at the end of its range because the rows of the fit have no optimum inside.

        By default every one of `_fit_warnings` is about such a parameter.
        """
        return bool(self._fit_warnings())

    @classmethod
    @abstractmethod
    def fit(cls, logits_NC: Logits, labels_N: Labels) -> Self:
        """Fit on validation rows that are finite and checked, in the given dtype.

        Users call `trueodds.calibrators.fit`, which checks the rows. Options are keyword-only arguments of the
        subclass.

        Args:
            logits_NC: Logits, shape (N, C).
            labels_N: True classes, shape (N,).

        Returns:
            The fitted calibrator.

        Raises:
            FitError: The rows do not determine this calibrator.
            ValueError: An option has a value that is not allowed.
        """

    @classmethod
    def check_values(cls, **values: object) -> None:
        """Check values of options of `fit`. A value of an option without a check is left to the fit.

        Raises:
            ValueError: A value is not allowed. The message lists the allowed ones.
        """
        for option, value in values.items():
            if (check := cls.checks.get(option)) is not None:
                check(option, value)

    def __call__(self, logits_NC: npt.ArrayLike, *, groups: Iterable[Any] | None = None) -> Array:
        """Compute calibrated probabilities.

        Args:
            logits_NC: Logits, shape (N, C).
            groups: Group of each row, such as its tag, shape (N,); None for a row without one. Only a calibrator with
                `known_groups` reads it. Without groups such a calibrator treats every row as one of no known group.

        Returns:
            Probabilities, shape (N, C), in float64.

        Raises:
            ValueError: The logits are not a finite N x C array, have another number of classes than the fit, or are
                probabilities (if there are ten different rows or more). Or the groups do not fit the rows.
        """
        logits = check_logits(logits_NC, rows=TELLING_ROWS)
        if self.classes not in (None, logits.shape[1]):
            raise ValueError(f"logits has shape {logits.shape}; this calibrator was fitted on {self.classes} classes")
        if groups is not None:
            check_length(groups, len(logits))
            check_index(logits=logits_NC, groups=groups)
            if self.known_groups:
                return self._by_group(logits, check_groups(groups, len(logits)))
        if logits.size <= 8 * BLOCK:
            return self._apply(logits.astype(np.float64, copy=False))
        probabilities_NC = np.empty(logits.shape)
        for block in row_blocks(len(logits), max(logits.shape[1] // 8, 1)):
            probabilities_NC[block] = self._apply(logits[block].astype(np.float64, copy=False))
        return probabilities_NC

    def _by_group(self, logits_NC: Logits, groups_N: GroupNames) -> Array:
        """Compute the probabilities of checked logits, block by block, with the rows' groups."""
        probabilities_NC = np.empty(logits_NC.shape)
        for block in row_blocks(*logits_NC.shape):
            rows_NC = logits_NC[block].astype(np.float64, copy=False)
            probabilities_NC[block] = self._apply_groups(rows_NC, groups_N[block])
        return probabilities_NC

    def predict_proba(self, logits_NC: npt.ArrayLike, *, groups: Iterable[Any] | None = None) -> Array:
        """Compute calibrated probabilities, as calling the calibrator does. The name is scikit-learn's.

        Args:
            logits_NC: Logits, shape (N, C). For probabilities of a model, pass `trueodds.logits_of(probabilities)`.
            groups: Group of each row, as calling the calibrator has it.

        Returns:
            Probabilities, shape (N, C), in float64.

        Raises:
            ValueError: Calling the calibrator would raise it too.
        """
        return self(logits_NC, groups=groups)

    @property
    def known_groups(self) -> tuple[str, ...]:
        """Names of the groups with parameters of their own. Empty: the groups of the rows change nothing."""
        return ()

    def groups_of(self, groups: Iterable[str | None]) -> list[str | None]:
        """Return the group whose parameters each row gets. None: those of all rows, because its group is not known."""
        known = {*self.known_groups}
        return [name if name in known else None for name in groups]

    def save(self, path: str | Path) -> None:
        """Write the calibrator to a JSON file, which `trueodds.load` reads.

        Args:
            path: Path of the file. An existing file is replaced.

        Raises:
            OSError: The file cannot be written. An existing file is then unchanged.
        """
        write_json(Path(path), self.to_json())

    @abstractmethod
    def _apply(self, logits_NC: Array) -> Array:
        """Compute the probabilities of finite float64 logits."""

    def _apply_groups(self, logits_NC: Array, groups_N: GroupNames) -> Array:
        """Compute the probabilities of rows with groups. Called only if there are `known_groups`."""
        return self._apply(logits_NC)

    @property
    def classes(self) -> int | None:
        """Number of classes of the fit. None: unknown, so logits of any number of classes are accepted."""
        return self.fitted_classes

    def affine(self, classes: int) -> tuple[Array, Array] | None:
        """Return (W_CC, b_C) with p = softmax(W z + b), or None if the calibrator is not of this form.

        Args:
            classes: Number of classes C.
        """
        return None

    def log_affine(self) -> LogAffine | None:
        """Return the map of log-probabilities that the calibrator is, or None if it is not of this form."""
        return None

    def to_json(self) -> dict[str, Any]:
        """Return `{"calibrator": name, ...fitted numbers}`, which `trueodds.calibrators.from_json` restores exactly.

        If another distribution registers the calibrator, the key `distribution` holds its name and version.
        """
        values = {f.name: _plain(getattr(self, f.name)) for f in fields(self)}
        if self.fitted_classes is None:
            del values["fitted_classes"]
        whose = extensions.origin("calibrators", self.name, type(self))
        return {"calibrator": self.name} | ({} if whose is None else {"distribution": whose.requirement}) | values

    def _fit_warnings(self) -> list[str]:
        """Return `warnings` about the fitted numbers themselves, such as a parameter at a bound or a falling curve."""
        return []

    def _row_warnings(self, logits_NC: Logits, labels_N: Labels) -> tuple[str, ...]:
        """Return `warnings` about the rows of the fit."""
        return row_warnings(self, logits_NC, labels_N)


def _recording_classes(fit: Callable[..., Calibrator]) -> Callable[..., Calibrator]:
    """Wrap a fit so that its calibrator records the number of classes of the rows."""

    @functools.wraps(fit)
    def fit_and_record(
        cls: type[Calibrator], logits_NC: Logits, labels_N: Labels, *groups_N: GroupNames | None, **options: Any
    ) -> Calibrator:
        return replace(fit(cls, logits_NC, labels_N, *groups_N, **options), fitted_classes=np.shape(logits_NC)[1])

    return fit_and_record


def fit_kind(
    kind: type[Calibrator],
    logits_NC: Logits,
    labels_N: Labels,
    groups_N: GroupNames | None = None,
    options: Mapping[str, Any] | None = None,
) -> Calibrator:
    """Fit a class on checked rows. Only a class that uses groups gets them."""
    given = (logits_NC, labels_N, groups_N) if kind.uses_groups else (logits_NC, labels_N)
    return kind.fit(*given, **(options or {}))


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, list):
        return len(one) == len(other) and all(map(np.array_equal, one, other))
    return bool(np.array_equal(one, other)) if isinstance(one, np.ndarray) else bool(one == other)


def _plain(value: Any) -> Any:
    """Convert arrays to nested lists. Python's float repr restores every bit."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    return [_plain(v) for v in value] if isinstance(value, (list, tuple)) else value


def frozen_array(value: npt.ArrayLike, name: str, shape: tuple[int | None, ...]) -> Array:
    """Return a finite read-only float64 array for a field. None in `shape` stands for any length.

    Raises:
        ValueError: The shape differs, or values are not numbers, masked, NaN or infinite.
    """
    check_no_mask(value, name)
    try:
        array = np.array(without_tensors(value), dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} is not an array of numbers; allowed is the output of to_json") from None
    wanted = tuple(size if size is not None else length for size, length in zip(shape, array.shape, strict=False))
    if array.ndim != len(shape) or array.shape != wanted:
        allowed = ", ".join("any" if size is None else str(size) for size in shape)
        raise ValueError(f"{name} has shape {array.shape}; allowed is ({allowed})")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} holds {array[~np.isfinite(array)][0]}; every value must be finite")
    array.flags.writeable = False
    return array


def check_fit_data(logits_NC: npt.ArrayLike, labels_N: npt.ArrayLike) -> tuple[Logits, Labels]:
    """Check logits and labels and return them, the logits in their dtype.

    Raises:
        ValueError: The logits are not finite, or a label is not one of their classes. Or a data frame has numbered
            columns or an index in another order than the labels.
    """
    check_index(logits=logits_NC, labels=labels_N)
    check_columns(logits_NC, labels_N, name="logits")
    logits = check_logits(logits_NC)
    return logits, check_labels(labels_N, *logits.shape)


def check_classes_have_rows(labels_N: Labels, classes: int, name: str, cure: str) -> None:
    """Refuse rows in which a class never occurs. The method's optimum for such a class is at infinity.

    Raises:
        FitError: A class has no rows. The message names the classes and states what to do.
    """
    if classes > 1 and (which := unseen_classes(labels_N, classes)):
        raise FitError(f"labels never hold class {which}, without which {name} cannot be fitted; {cure}")


def unseen_classes(labels_N: Labels, classes: int) -> str:
    """List the classes without a row, the first five by number; empty if there are none."""
    return class_list(np.bincount(labels_N, minlength=classes) == 0)


def class_list(which_C: npt.NDArray[np.bool_]) -> str:
    """List the numbers of the classes that are true: the first five, and how many more there are."""
    numbers = np.flatnonzero(which_C)
    return ", ".join(map(str, numbers[:5])) + (f" and {len(numbers) - 5} more" if len(numbers) > 5 else "")


def softmax_over(own_NC: Array) -> Array:
    """Compute the softmax of each row in place. New N x C memory would take most of the time."""
    own_NC -= own_NC.max(axis=1, keepdims=True)
    np.exp(own_NC, out=own_NC)
    own_NC /= own_NC.sum(axis=1, keepdims=True)
    return own_NC


def row_blocks(rows: int, classes: int) -> Iterator[slice]:
    """Yield slices of rows that fit into the cache."""
    size = max(BLOCK // classes, 1)
    return (slice(first, min(first + size, rows)) for first in range(0, rows, size))


def separates(calibrator: Calibrator, logits_NC: Logits, labels_N: Labels) -> bool:
    """Return whether the calibrator has no doubt left about any row of its fit, although the plain softmax has.

    Then its parameters separate the rows, and the likelihood has no optimum except at the bounds.
    """
    before, after = _compare(calibrator, logits_NC, labels_N)
    return bool(after[1] < SEPARATED < before[1])


def _compare(calibrator: Calibrator, logits_NC: Logits, labels_N: Labels) -> tuple[Array, Array]:
    """Return the number of right rows and the summed NLL, of the plain softmax and of the calibrator."""
    before, after = np.zeros(2), np.zeros(2)
    for block in row_blocks(*logits_NC.shape):
        z_NC, y_N = logits_NC[block].astype(np.float64), labels_N[block]
        rows = np.arange(len(y_N))
        z_NC -= z_NC.max(axis=1, keepdims=True)
        after_NC = calibrator._apply(z_NC)
        before += (z_NC.argmax(axis=1) == y_N).sum(), (np.log(np.exp(z_NC).sum(axis=1)) - z_NC[rows, y_N]).sum()
        after += (after_NC.argmax(axis=1) == y_N).sum(), nll_of(after_NC[rows, y_N]).sum()
    return before, after


def row_warnings(calibrator: Calibrator, logits_NC: Logits, labels_N: Labels) -> tuple[str, ...]:
    """Return warnings about the rows of the fit.

    They report lower accuracy or a higher NLL than the plain softmax, a fit without any doubt, and a class without
    rows.
    """
    before, after = _compare(calibrator, logits_NC, labels_N)
    was, now = before / len(labels_N), after / len(labels_N)
    notes = []
    if after[0] < before[0]:
        notes.append(f"The calibrator lowers the accuracy on the rows of its fit from {was[0]:.4f} to {now[0]:.4f}.")
    if now[1] > was[1] + 1e-9 * max(was[1], 1.0):
        notes.append(f"The calibrator raises the NLL on the rows of its fit from {was[1]:.4f} to {now[1]:.4f}.")
    if after[1] < SEPARATED < before[1]:
        notes.append(
            f"The calibrator separates the {len(labels_N):,} rows of its fit (NLL {now[1]:.1e}): its probabilities for"
            " other rows will be over-confident. Use 'temperature' or 'structured_vector', or more rows."
        )
    if calibrator.classes is not None and (which := unseen_classes(labels_N, calibrator.classes)):
        notes.append(f"The rows of the fit never hold class {which}: the fit holds no information about it.")
    return tuple(notes)
