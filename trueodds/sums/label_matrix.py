"""Checks of independent labels: a matrix of probabilities or logits, and one of labels that may be unknown."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from trueodds.errors import ConfigError
from trueodds.sums.frames import check_has_order
from trueodds.sums.inputs import BELOW_ZERO, Array, as_matrix, check_matrix, without_tensors
from trueodds.texts import short

TO_LOGITS = "pass scipy.special.logit(probabilities), here and to the calibrator"
ALLOWED = "allowed are 0, 1 and NaN (not known)"


def check_label_probabilities(
    values: npt.ArrayLike, name: str = "probabilities", cure: str = "pass scipy.special.expit(logits)"
) -> Array:
    """Check probabilities of independent labels, N x L in [0, 1], and return them as float64.

    Values outside by 1e-6 or less count as 0 or 1. Rows need not sum to 1. `cure` is the advice for logits.

    Raises:
        ValueError: The values are not a finite N x L array, or one is outside [0, 1].
    """
    p_NL = check_matrix(_as_columns(values, name), name).astype(np.float64)
    off_NL = (p_NL < -BELOW_ZERO) | (p_NL > 1 + BELOW_ZERO)
    if off_NL.any():
        row, column = np.argwhere(off_NL)[0]
        raise ValueError(
            f"{name}[{row}, {column}] is {p_NL[row, column]:.6g}; allowed is [0, 1]. If these are logits, {cure}"
        )
    return np.clip(p_NL, 0.0, 1.0)


def check_label_logits(values: npt.ArrayLike, name: str = "logits", cure: str = TO_LOGITS) -> Array:
    """Check logits of independent labels, N x L, and return them as float64.

    `cure` is the advice for probabilities.

    Raises:
        ValueError: The values are not a finite N x L array, or all lie in [0, 1] and some inside it, as probabilities
            do.
    """
    z_NL = check_matrix(_as_columns(values, name), name).astype(np.float64)
    if z_NL.size >= 20 and z_NL.min() >= 0 and z_NL.max() <= 1 and (z_NL % 1).any():
        raise ValueError(f"{name} holds numbers between 0 and 1 only, as probabilities do; {cure}")
    return z_NL


def check_label_matrix(values: npt.ArrayLike, shape: tuple[int, int], name: str = "labels") -> Array:
    """Check truths of independent labels, and return them as N x L float64: 0, 1, or NaN if not known.

    None and pandas' NA mean "not known" too.

    Raises:
        ValueError: The shape is not that of the probabilities, a value is not one of these, values are masked, or no
            truth is known.
    """
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise ValueError(
            f"{name} has {int(np.ma.getmaskarray(values).sum()):,} masked values; {ALLOWED}: pass"
            f" {name}.astype(float).filled(numpy.nan)"
        )
    _check_form(values, name)
    try:
        array = np.asarray(_as_columns(values, name) if shape[1] == 1 else without_tensors(values))
    except ValueError:
        raise ValueError(f"{name} is ragged; expected shape {shape}, one truth for each row and label") from None
    if array.shape != shape:
        raise ValueError(f"{name} has shape {array.shape}; expected {shape}, one truth for each row and label")
    if array.dtype.kind == "O":
        array = _as_floats(array, name)
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{name} has dtype {array.dtype}; {ALLOWED}: pass numbers, such as {name}.astype(float)")
    truth_NL = array.astype(np.float64)
    off_NL = ~((truth_NL == 0) | (truth_NL == 1) | np.isnan(truth_NL))
    if off_NL.any():
        row, column = np.argwhere(off_NL)[0]
        raise ValueError(f"{name}[{row}, {column}] is {truth_NL[row, column]:g}; {ALLOWED}. -1 never means unknown")
    if np.isnan(truth_NL).all():
        raise ValueError(f"{name} has no known truth; give 0 or 1 for at least one row and label")
    return truth_NL


def _check_form(values: object, name: str) -> None:
    """Refuse forms of scikit-learn that are not one array, with the call that makes it one.

    Raises:
        ValueError: The values are a list of arrays (N, 2), one for each label, or a sparse matrix.
    """
    if hasattr(values, "toarray"):
        raise ValueError(f"{name} is a sparse matrix; expected an array (rows, labels): pass {name}.toarray()")
    if isinstance(values, list) and values and all(isinstance(one, np.ndarray) and one.ndim == 2 for one in values):
        raise ValueError(
            f"{name} is a list of matrices, as scikit-learn's predict_proba returns for several labels;"
            f" expected an array (rows, labels): pass numpy.stack([one[:, 1] for one in {name}], axis=1)"
        )


def label_names(names: Sequence[object] | None, labels: int) -> tuple[str, ...]:
    """Return the names of the labels: the given ones, else their numbers.

    Raises:
        ConfigError: The number of names differs from that of the columns, a name is there twice, or they have no order.
    """
    check_has_order(names)
    texts = tuple(map(str, range(labels) if names is None else names))
    if len(texts) != labels:
        raise ConfigError(f"classes has {len(texts)} names for {labels} columns; give one name for each label")
    if len(set(texts)) < len(texts):
        twice = next(text for text in texts if texts.count(text) > 1)
        raise ConfigError(f"classes has the name {twice!r} twice; give each label a name of its own")
    return texts


def _as_columns(values: npt.ArrayLike, name: str) -> npt.ArrayLike:
    """Return N x 1 for values of one label, shape (N,). Anything else is unchanged."""
    plain = without_tensors(values)
    _check_form(plain, name)
    if np.ma.isMaskedArray(plain) and name != "labels":
        as_matrix(plain, name)
    try:
        return np.asarray(plain)[:, None] if np.ndim(plain) == 1 and np.size(plain) else plain
    except ValueError:  # lists of unequal lengths, which the checks describe
        return plain  # type: ignore[no-any-return]


def _as_floats(array: npt.NDArray[np.object_], name: str) -> Array:
    """Convert numbers, None and missing values of other libraries to floats."""
    floats = np.full(array.shape, np.nan)
    for place, value in np.ndenumerate(array):
        if value is None or type(value).__name__ in ("NAType", "NaTType"):
            continue
        if not isinstance(value, int | float | np.number | np.bool_):
            raise ValueError(f"{name}[{', '.join(map(str, place))}] is {short(value)}; {ALLOWED}")
        floats[place] = float(value)
    return floats
