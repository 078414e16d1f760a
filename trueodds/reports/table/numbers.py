"""The numbers of the classes of a table, checked column by column: what is wrong is said by the column's name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from trueodds.files import FileError
from trueodds.sums.inputs import BELOW_ZERO, MUST_SUM, ROW_SUM_TOLERANCE, Array, sums_to_one, without_noise
from trueodds.texts import listed

FIRST = 2
"""The row of the first answer, the header being row 1."""


def checked(path: Path, columns: Mapping[str, Array], scale: str) -> Array:
    """The columns of the classes side by side, finite; of probabilities in [0, 1], the rows of several with a sum of 1.

    Raises:
        FileError: naming the column and the row, and how the columns of the classes are named.
    """
    names = [*columns]
    for name, column_N in columns.items():
        sound_N = np.isfinite(column_N)
        if scale == "probabilities":
            sound_N &= (column_N >= -BELOW_ZERO) & (column_N <= 1 + ROW_SUM_TOLERANCE)
        if not sound_N.all():
            row = int(sound_N.argmin())
            said = "is empty (or NaN)" if np.isnan(column_N[row]) else f"holds {column_N[row]:g}"
            allowed = "[0, 1]" if scale == "probabilities" else "finite numbers"
            raise FileError(
                f"{path}, row {row + FIRST}: column {name!r} {said}; allowed is {allowed} in every row."
                f" {_cure([other for other in names if other != name], scale, name)}"
            )
    values_NC = np.stack([*columns.values()], axis=1)
    if scale == "probabilities":
        values_NC = without_noise(values_NC)
    if scale == "probabilities" and len(names) > 1 and len(values_NC):
        _check_sums(path, names, values_NC)
    return values_NC


def _check_sums(path: Path, names: list[str], values_NC: Array) -> None:
    wrong_N = ~sums_to_one(values_NC)
    if not wrong_N.any():
        return
    sum_N = values_NC.sum(axis=1)
    row = int(np.where(wrong_N, np.abs(sum_N - 1), 0).argmax())
    rest = (np.abs(sum_N - column_N - 1).max() <= ROW_SUM_TOLERANCE for column_N in values_NC.T)
    extra = [name for name, others_sum_to_1 in zip(names, rest, strict=True) if others_sum_to_1]
    without = f"; without {extra[0]!r} every row sums to 1" if len(extra) == 1 else ""
    others = [name for name in names if name not in extra] if without else []
    raise FileError(
        f"{path}, row {row + FIRST}: the columns {listed(names)} are taken for those of the classes, and sum to"
        f" {sum_N[row]:.6g}; every row {MUST_SUM}{without}."
        f" {_cure(others, 'probabilities', extra[0] if without else '')}"
    )


def _cure(others: list[str], scale: str, extra: str) -> str:
    example = ",".join(others) if 0 < len(others) <= 10 else "a,b,c"
    which = f"If {extra!r} is no class, name" if extra else "Name"
    logits = "; give --logits if these are logits" if scale == "probabilities" else ""
    return f"{which} the columns of the classes: --classes {example}{logits}"
