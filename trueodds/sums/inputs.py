"""Checks of the input of metrics and calibrators. Each error states what to do."""

from __future__ import annotations

from decimal import Decimal
from numbers import Real
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from trueodds.sums.frames import check_index
from trueodds.sums.steps import explained_by_rounding, inferred_step, most_rounding
from trueodds.texts import plural

Array = npt.NDArray[np.float64]
ROW_SUM_TOLERANCE = 1e-3
BELOW_ZERO = 1e-6
"""Size of a negative probability that counts as 0; arithmetic such as 1 - p leaves such values."""
_Float = TypeVar("_Float", bound=np.floating)
_DECIMALS = range(2, 7)
MOST_VOTES = 1_000_000
"""Largest number of votes for one class of one row."""
NAMED_ROWS = 10
PERCENT_CURE = ": divide percentages by 100"
GAP_CURE = "take these rows out of every argument"
TELLING_ROWS = 10
"""Number of different rows from which only probabilities all lie in [0, 1] and sum to 1.

For one row of logits with two classes and a standard deviation of 3, this happens about once in 30,000 rows.
"""


def is_number(value: object) -> bool:
    """Return whether a parameter is a real number, not a boolean, text, None or an array."""
    return isinstance(value, Real) and not isinstance(value, bool)


def is_whole(value: object) -> bool:
    """Return whether a parameter is an integer by type; 15.0 and True are not."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def check_level(level: float) -> None:
    """Check that `level` is a number in (0, 1).

    Raises:
        ValueError: It is not.
    """
    if not (is_number(level) and 0 < level < 1):
        raise ValueError(f"level is {level!r}; allowed is (0, 1), such as 0.95")


def check_alpha(alpha: float) -> None:
    """Check that `alpha` is a number in (0, 1).

    Raises:
        ValueError: It is not.
    """
    if not (is_number(alpha) and 0 < alpha < 1):
        raise ValueError(f"alpha is {alpha!r}; allowed is (0, 1), such as 0.05")


def check_no_mask(values: object, name: str) -> None:
    """Refuse masked values in an array, alone or in a list. NumPy reads the values below a mask as if they were valid.

    Raises:
        ValueError: Values are masked. The message names the argument, their number and what to do.
    """
    parts = values if isinstance(values, list | tuple) else (values,)
    if any(isinstance(part, np.ma.MaskedArray) and np.ma.is_masked(part) for part in parts):
        count = sum(int(np.ma.getmaskarray(part).sum()) for part in parts if isinstance(part, np.ma.MaskedArray))
        raise ValueError(f"{name} has {plural(count, 'masked value')}; {GAP_CURE}: numpy.ma.getmaskarray tells which")


def without_tensors(values: Any) -> Any:
    """Convert torch tensors to arrays, alone or in a list, and number types that NumPy does not know to float32.

    A tensor may require its gradient, lie on a GPU, or be of bfloat16, as arrays of JAX are too. Other values are
    unchanged.
    """
    if isinstance(values, list | tuple) and any(hasattr(value, "detach") for value in values):
        return [without_tensors(value) for value in values]
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        try:
            values = values.numpy()
        except TypeError:  # bfloat16, float8
            values = values.float().numpy()
    kind = getattr(getattr(values, "dtype", None), "name", "")
    return np.asarray(values).astype(np.float32) if str(kind).startswith(("bfloat", "float8")) else values


def _convert(values: npt.ArrayLike, name: str) -> npt.NDArray[Any]:
    """Convert values that are not masked to an array, which may have missing values."""
    check_no_mask(values, name)
    try:
        return np.asarray(without_tensors(values))
    except ValueError:
        raise ValueError(f"{name} is ragged: its rows have unequal lengths; expected numbers of one shape") from None


def as_array(values: npt.ArrayLike, name: str) -> npt.NDArray[Any]:
    """Convert values to an array with `np.asarray`, without missing values. Tensors are accepted.

    NaN in floats is left to the checks of numbers.

    Raises:
        ValueError: Lists have unequal lengths, or values are masked, None or another library's missing value (pandas'
            NA).
    """
    array = _convert(values, name)
    if array.dtype.kind == "O" and array.ndim:
        for place, value in np.ndenumerate(array):
            if _is_missing(value):
                raise ValueError(f"{name}[{', '.join(map(str, place))}] is {value!r}, a missing value; {GAP_CURE}")
    return array


def without_objects(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Convert an array of Python objects that are numbers, or lists of numbers of one length, to float64.

    pandas returns such arrays for columns of its nullable and Arrow types, and a Parquet file for a column of lists.
    Other arrays are unchanged.
    """
    if array.dtype.kind != "O" or not array.size:
        return array
    kinds = {type(value) for value in array.flat}
    if all(issubclass(kind, Real | Decimal) and not issubclass(kind, bool) for kind in kinds):
        return array.astype(np.float64)
    if array.ndim == 1 and all(issubclass(kind, list | np.ndarray) for kind in kinds):
        try:
            return without_objects(np.array([np.asarray(row) for row in array]))
        except ValueError:  # unequal lengths
            return array
    return array


def _is_missing(value: object) -> bool:
    try:
        return value is None or bool(value != value)
    except (TypeError, ValueError):  # pandas' NA is neither equal nor unequal; an array has no one truth
        return not isinstance(value, np.ndarray)


def as_numbers_with_gaps(values: npt.ArrayLike, name: str, requirement: str) -> Array:
    """Convert real numbers and booleans to float64, with NaN for None, NaN and another library's missing value.

    Args:
        values: Numbers, in any shape.
        name: Name of the argument in messages.
        requirement: Allowed values, for messages.

    Raises:
        ValueError: Lists have unequal lengths, or values are masked, text or otherwise not numbers.
    """
    array = _convert(values, name)
    if array.dtype.kind == "O" and array.ndim:
        array = array.copy()
        gaps = [place for place, value in np.ndenumerate(array) if _is_missing(value)]
        for place in gaps:
            array[place] = np.nan
        if all(isinstance(value, Real | Decimal | np.bool_) for value in array.flat):
            return array.astype(np.float64)
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{name} has dtype {array.dtype}; {requirement}")
    return array.astype(np.float64, copy=False)


def as_vector(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return an array of shape (N, 1) as (N,). A data frame with one column has it, and so has a net with one output.

    Other arrays are unchanged.
    """
    return array.reshape(-1) if array.shape[1:] == (1,) else array


def as_numbers(values: npt.ArrayLike, name: str) -> npt.NDArray[Any]:
    """Convert values to an array of real numbers or booleans, in the given dtype. Empty lists are accepted.

    Raises:
        ValueError: Lists have unequal lengths, or values are masked, text, None or otherwise not numbers.
    """
    array = without_objects(as_array(values, name))
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{name} has dtype {array.dtype}; expected numbers")
    return array


def range_error(values: npt.NDArray[Any], name: str) -> ValueError:
    """Build the error for values of which some are outside [0, 1], or NaN. It names the first.

    If all may be percentages, it says so.
    """
    bad = values[~((values >= 0) & (values <= 1))]
    return ValueError(f"{name} holds {bad[0]:.6g}; allowed is [0, 1]{PERCENT_CURE * may_be_percentages(values)}")


def may_be_percentages(values: npt.NDArray[Any]) -> bool:
    """Return whether all values lie in [0, 100], and some above 2, as no probability with an error in it does."""
    return bool((values >= 0).all() and 2 < values.max() <= 100)


def check_top(
    confidence: npt.ArrayLike, correct: npt.ArrayLike
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """Check confidences in [0, 1] and correctness, and return them as float64 and boolean vectors of one length.

    Raises:
        ConfigError: Both have one pandas index in different orders.
        ValueError: Shapes differ, a confidence is outside [0, 1] or NaN, or correctness is not 0 or 1.
    """
    check_index(confidence=confidence, correct=correct)
    confidence_N, correct_N = as_numbers(confidence, "confidence"), as_numbers(correct, "correct")
    if confidence_N.ndim != 1 or correct_N.shape != confidence_N.shape:
        raise ValueError(f"confidence {confidence_N.shape} and correct {correct_N.shape} must be vectors of one length")
    confidence_N = without_noise(confidence_N.astype(np.float64, copy=False))
    inside_N = (confidence_N >= 0) & (confidence_N <= 1)
    if not inside_N.all():
        raise range_error(confidence_N, "confidence")
    sound_N = (correct_N == 0) | (correct_N == 1)
    if not sound_N.all():
        raise ValueError(f"correct holds {correct_N[~sound_N][0]}; allowed are only 0 and 1 (or False and True)")
    return confidence_N, correct_N.astype(bool)


_NAMES_CURE = "; in place of names pass [classes.index(name) for name in labels], or classes=... to trueodds.report"
_LABEL_CURES = {
    "b": "; pass labels.astype(int) if True is class 1, not if it means that a prediction is right",
    "O": _NAMES_CURE,
    "U": _NAMES_CURE,
}


def check_labels(labels: npt.ArrayLike, rows: int, classes: int, name: str = "labels") -> npt.NDArray[np.intp]:
    """Check labels, (N,) or (N, 1), and return them as an intp vector of length `rows` with values 0..classes-1.

    Whole floating-point numbers count as integers: pandas has them in a column with gaps, and after the gaps are taken
    out.

    Raises:
        ValueError: Labels have several columns or another length, are not whole numbers, are missing, or are
            outside the classes.
    """
    labels_N = as_vector(as_array(labels, name))
    if labels_N.shape != (rows,):
        cure = ""
        if labels_N.shape == (rows, classes):
            cure = f"; for one column a class pass {name}.argmax(axis=1)"
        elif labels_N.shape == (classes,):
            cure = f"; outputs of shape ({rows}, {classes}) may have rows and classes exchanged: transpose them"
        raise ValueError(f"{name} has shape {labels_N.shape}; expected ({rows},), one class index for each row{cure}")
    if labels_N.dtype.kind == "f" and np.isnan(labels_N).any():
        row = int(np.isnan(labels_N).argmax())
        raise ValueError(f"{name}[{row}] is nan, a missing label; {GAP_CURE}")
    if classes == 1 and labels_N.any():
        cure = "give a column for each class: for a logit z, 0 and z; for a probability p, 1 - p and p"
        raise ValueError(f"{name} holds {labels_N[labels_N != 0][0]}, and the outputs have one column; {cure}")
    expected = f"expected integer class indices 0..{classes - 1}"
    if labels_N.dtype.kind == "f":
        uneven_N = ~np.isfinite(labels_N) | (labels_N != np.floor(labels_N))
        if uneven_N.any():
            row = int(uneven_N.argmax())
            raise ValueError(f"{name}[{row}] is {labels_N[row]:g}; {expected}")
    elif labels_N.dtype.kind not in "iu":
        raise ValueError(f"{name} has dtype {labels_N.dtype}; {expected}{_LABEL_CURES.get(labels_N.dtype.kind, '')}")
    if rows and (labels_N.min() < 0 or labels_N.max() >= classes):
        bad = labels_N[(labels_N < 0) | (labels_N >= classes)][0]
        cure = "give each row the place of its class, and leave out rows without a label"
        raise ValueError(f"{name} holds {bad}; allowed are the class indices 0..{classes - 1}; {cure}")
    return labels_N.astype(np.intp, copy=False)


def check_counts(values: npt.ArrayLike, name: str = "counts") -> npt.NDArray[np.int64]:
    """Check votes of people, the number for each class (N x C), and return them as int64.

    Each row needs at least one vote.

    Raises:
        ValueError: The array is empty or not two-dimensional, values are not whole numbers from 0 on, or rows have no
            vote. The message lists the indices of such rows.
    """
    counts_NC = as_matrix(values, name)
    with np.errstate(invalid="ignore"):
        sound_NC = (counts_NC >= 0) & (np.floor(counts_NC) == counts_NC) & (counts_NC <= MOST_VOTES)
    if not sound_NC.all():
        row, column = np.argwhere(~sound_NC)[0]
        allowed = f"whole numbers 0..{MOST_VOTES:,}, how many people voted for each class"
        raise ValueError(f"{name}[{row}, {column}] is {counts_NC[row, column]:g}; allowed are {allowed}")
    if len(empty := np.flatnonzero(~counts_NC.any(axis=1))):
        first = ", ".join(map(str, empty[:NAMED_ROWS])) + (", ..." if len(empty) > NAMED_ROWS else "")
        cure = "every row needs a vote: take out those without"
        raise ValueError(f"{name} has {len(empty):,} of {len(counts_NC):,} rows without a vote ({first}); {cure}")
    return counts_NC.astype(np.int64)


def as_matrix(values: npt.ArrayLike, name: str) -> npt.NDArray[np.floating]:
    """Convert values to a non-empty N x C floating array, in the given dtype.

    Integers become float64. The values themselves are not checked.

    Raises:
        ValueError: The array is empty, not two-dimensional, or not numeric.
    """
    matrix_NC = without_objects(as_array(values, name))
    if matrix_NC.ndim != 2 or 0 in matrix_NC.shape:
        raise ValueError(f"{name} has shape {matrix_NC.shape}; expected (rows, classes), both at least 1")
    if matrix_NC.dtype.kind not in "fiu":
        raise ValueError(f"{name} has dtype {matrix_NC.dtype}; expected floating-point numbers")
    return matrix_NC if matrix_NC.dtype.kind == "f" else matrix_NC.astype(np.float64)


def check_matrix(values: npt.ArrayLike, name: str) -> npt.NDArray[np.floating]:
    """Convert values to `as_matrix` and check that all are finite.

    Raises:
        ValueError: `as_matrix` does not accept the values, or one is NaN or infinite.
    """
    matrix_NC = as_matrix(values, name)
    if not np.isfinite(matrix_NC).all():
        row, column = np.argwhere(~np.isfinite(matrix_NC))[0]
        raise ValueError(f"{name}[{row}, {column}] is {matrix_NC[row, column]}; every value must be finite")
    return matrix_NC


def check_probabilities(
    values: npt.ArrayLike, name: str = "probabilities", *, step: float | None = None
) -> npt.NDArray[np.floating]:
    """Check probabilities: a finite N x C array with values in [0, 1] and rows that sum to 1 (see `sums_to_one`).

    A value from -1e-6 to 0 counts as 0.

    Args:
        values: Probabilities, shape (N, C).
        name: Name of the argument in messages.
        step: Step to which the values are known to be rounded. It explains sums that differ more from 1. None: the
            step that the rows show, if a sum differs.

    Raises:
        ValueError: `check_matrix` does not accept the values, one is outside [0, 1], or a row does not sum to 1
            (perhaps they are logits).
    """
    probabilities_NC = without_noise(check_matrix(values, name))
    low, high = float(probabilities_NC.min()), float(probabilities_NC.max())
    if low < 0 or high > 1 + ROW_SUM_TOLERANCE:
        worst = low if low < 0 else high
        if are_percentages(probabilities_NC):
            raise ValueError(f"{name} holds {worst:.6g}; allowed is [0, 1]. Every row sums to 100: divide by 100")
        raise ValueError(f"{name} holds {worst:.6g}; allowed is [0, 1]. If these are logits, apply a calibrator first")
    wrong_N = ~sums_to_one(probabilities_NC, step)
    if wrong_N.any() and step is None and (step := inferred_step(probabilities_NC)) is not None:
        wrong_N = ~sums_to_one(probabilities_NC, step)
    if wrong_N.any():
        sums_N = probabilities_NC.sum(axis=1, dtype=np.float64)
        off = int(np.where(wrong_N, np.abs(sums_N - 1), 0).argmax())
        cure = ""
        if abs(sums_N[off] - 1) < _BFLOAT16 and _has_8_bits(probabilities_NC):
            cure = "; these are bfloat16: convert the logits to float32 before the softmax"
        elif sums_to_one(probabilities_NC.T, step).all():
            cure = "; every column does: transpose them"
        raise ValueError(f"{name}[{off}] sums to {sums_N[off]:.6g}; every row {MUST_SUM}{cure}")
    return probabilities_NC


_BFLOAT16 = 2.0**-7
"""Largest sum of the rounding errors of a row of bfloat16, which has 8 bits."""


def _has_8_bits(values: npt.NDArray[np.floating]) -> bool:
    """Return whether bfloat16 holds all values exactly."""
    return bool((np.frexp(values.astype(np.float64))[0] * 2**8 % 1 == 0).all())


MUST_SUM = (
    "must sum to 1 (within 1e-3, or as far as rounding to two decimals or more explains, up to 0.1; with more than 40"
    " classes up to 0.25)"
)


def without_noise(values: npt.NDArray[_Float]) -> npt.NDArray[_Float]:
    """Set negative values from -1e-6 on to 0."""
    noise = (values < 0) & (values >= -BELOW_ZERO)
    return np.where(noise, values.dtype.type(0), values) if noise.any() else values


def sums_to_one(p_NC: npt.NDArray[np.floating], step: float | None = None) -> npt.NDArray[np.bool_]:
    """Return which rows sum to 1 within 1e-3, or as far as rounding explains (`explained_by_rounding`).

    Without a step, a row with d >= 2 decimals counts as rounded to them. Its sum may then differ from 1 by
    at most 0.1, and by more if there are more than 40 classes (`most_rounding`).

    Args:
        p_NC: Probabilities, shape (N, C).
        step: Step to which the values are known to be rounded.

    Examples:
        >>> sums_to_one(np.array([[0.33, 0.33, 0.33], [0.3, 0.3, 0.3]])).tolist()
        [True, False]
        >>> sums_to_one(np.array([[0.3, 0.3, 0.3]]), step=0.1).tolist()
        [True]
    """
    excess_N = p_NC.sum(axis=1, dtype=np.float64) - 1
    sound_N: npt.NDArray[np.bool_] = np.abs(excess_N) <= ROW_SUM_TOLERANCE
    if step is not None:
        return sound_N | explained_by_rounding(p_NC, excess_N, step)
    for decimals in _DECIMALS:
        doubtful = np.flatnonzero(~sound_N & (np.abs(excess_N) <= most_rounding(p_NC.shape[1])))
        if not len(doubtful):
            break
        rows_MC = p_NC[doubtful].astype(np.float64)
        is_rounded_M = (np.abs(rows_MC - rows_MC.round(decimals)) < 1e-7).all(axis=1)  # 1e-7: also for float32
        explained_M = explained_by_rounding(rows_MC, excess_N[doubtful], 10.0**-decimals)
        sound_N[doubtful] = is_rounded_M & explained_M
    return sound_N


def check_logits(values: npt.ArrayLike, *, rows: int = 1) -> npt.NDArray[np.floating]:
    """Check logits with `check_matrix`, and refuse probabilities if there are at least `rows` different rows.

    Probabilities and percentages would be accepted as logits and give wrong numbers.

    Raises:
        ValueError: `check_matrix` does not accept the values. Or there are at least two classes, every row lies in [0,
            1] and sums to 1 within 1e-3, and not all values are 0 and 1. Or the rows are percentages.
    """
    if len(shape := np.shape(values := without_objects(as_array(values, "logits")))) == 1:
        cure = "pass trueodds.logits_of(p) if they are probabilities p of one of two classes, and 0 and z if they are"
        raise ValueError(f"logits has shape {shape}; expected (rows, classes): {cure} its log-odds z")
    logits_NC = check_matrix(values, "logits")
    if logits_NC.shape[1] < 2 or len(logits_NC) < rows:
        return logits_NC
    if are_percentages(logits_NC) and len(np.unique(logits_NC[: 100 * rows], axis=0)) >= rows:
        raise ValueError(
            "logits holds percentages: every row lies in [0, 100] and sums to 100. Pass trueodds.logits_of(percentages"
            " / 100) to the fit and to the calibrator; if they are logits, subtract 1 from all: no softmax changes"
        )
    if not (_sum_to_one(logits_NC[:TELLING_ROWS]) and _sum_to_one(logits_NC)):
        return logits_NC
    # Rows that hold only 0 and 1 may be logits or probabilities.
    if (logits_NC % 1).any() and len(np.unique(logits_NC[: 100 * rows], axis=0)) >= rows:
        raise ValueError(
            "logits holds probabilities: every row lies in [0, 1] and sums to 1. Pass trueodds.logits_of(probabilities)"
            " to the fit and to the calibrator; if they are logits, subtract 1 from all: no softmax changes"
        )
    return logits_NC


def _sum_to_one(matrix_NC: npt.NDArray[np.floating]) -> bool:
    """Return whether every row lies in [0, 1] and sums to 1."""
    if matrix_NC.min() < 0 or matrix_NC.max() > 1:
        return False
    return bool((np.abs(matrix_NC.sum(axis=1, dtype=np.float64) - 1) <= ROW_SUM_TOLERANCE).all())


def are_percentages(matrix_NC: npt.NDArray[np.floating]) -> bool:
    """Return whether every row lies in [0, 100] and sums to 100, as far as rounding to whole numbers explains.

    One column is never recognised, nor are rows that hold only 0 and 100.
    """
    if matrix_NC.shape[1] < 2 or not _sum_to_100(matrix_NC[:TELLING_ROWS]):
        return False
    return _sum_to_100(matrix_NC) and bool(((matrix_NC > 0) & (matrix_NC < 100)).any())


def _sum_to_100(matrix_NC: npt.NDArray[np.floating]) -> bool:
    if matrix_NC.min() < 0 or matrix_NC.max() > 100 * (1 + ROW_SUM_TOLERANCE):
        return False
    by_rounding = min(max(1.0, matrix_NC.shape[1] / 4), 25.0)
    return bool((np.abs(matrix_NC.sum(axis=1, dtype=np.float64) - 100) <= by_rounding).all())


def both_classes(probabilities: npt.ArrayLike) -> npt.NDArray[Any]:
    """Return N x 2 for probabilities of the positive class alone, (N,) or N x 1.

    Anything else is unchanged, as an array.

    Raises:
        ValueError: Values are not numbers, or one of a single column is outside [0, 1]. Later checks refuse NaN.
    """
    values = as_numbers(probabilities, "probabilities")
    if values.ndim == 1 or values.shape[1:] == (1,):
        if ((values < -BELOW_ZERO) | (values > 1 + BELOW_ZERO)).any():
            cure = "" if may_be_percentages(values) else ": pass 1 / (1 + exp(-z)) if these are log-odds z"
            raise ValueError(f"{range_error(values.reshape(-1), 'probabilities')}{cure}")
        return np.stack([1 - values.reshape(-1), values.reshape(-1)], axis=1)
    return values


def softmax(logits_NC: npt.ArrayLike) -> Array:
    """Compute exp(z_k) / sum_j exp(z_j) per row, shifted by the row's maximum so that nothing overflows.

    Args:
        logits_NC: Logits, shape (N, C). A logit of -inf has probability 0.

    Returns:
        Probabilities, shape (N, C), in float32 for float32 logits and in float64 otherwise.

    Raises:
        ValueError: The input is not a non-empty N x C array of numbers, or holds NaN, +inf or a row of -inf only.

    Examples:
        >>> metrics.softmax([[0.0, 0.0], [1000.0, 0.0]])
        array([[0.5, 0.5],
               [1. , 0. ]])
    """
    z_NC = as_matrix(logits_NC, "logits")
    if z_NC.dtype != np.float32:
        z_NC = z_NC.astype(np.float64, copy=False)
    top_N1 = z_NC.max(axis=1, keepdims=True)
    if not np.isfinite(top_N1).all():  # NaN carries over into the maximum, so N numbers are checked instead of N x C
        check_matrix(z_NC, "logits")
    with np.errstate(over="ignore"):  # logits more than 1.8e308 apart: -inf, of which exp is 0
        probabilities_NC: Array = np.subtract(z_NC, top_N1)
    np.exp(probabilities_NC, out=probabilities_NC)
    probabilities_NC /= probabilities_NC.sum(axis=1, keepdims=True)
    return probabilities_NC
