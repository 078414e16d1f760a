"""The card's entry for vectors, and all forms in which a vector may be sent."""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import chain
from operator import itemgetter
from types import NoneType
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, field_validator

from trueodds.errors import nearest
from trueodds.inputs import npy, table
from trueodds.inputs.errors import InputError
from trueodds.inputs.kind import NO_LIMITS, SMALL, Format, InputKind, Inputs, Limits
from trueodds.texts import alike, line_problem, plural, short

MOST = float(np.finfo(np.float32).max)
WHOLE = 2**24
"""Largest whole number up to which float32 has them all."""
BOOLEANS = ("true", "false")
SHOWN = 8
"""Number of feature names that a message lists."""
_NUMBER: Mapping[str, Any] = {"type": ["number", "null"]}

Array = npt.NDArray[np.float64]


def whole_problem(value: Any, low: int, high: int) -> str:
    """Return what is wrong with a number where a model takes whole numbers from `low` to `high`, and what to do.

    Examples:
        >>> whole_problem(2.7, -WHOLE, WHOLE)
        '2.7; the model takes whole numbers there, and would cut the fraction off: send a whole number'
        >>> whole_problem(2.0, 0, 1)
        '2; the model takes 0 or 1 there: send 1 for true and 0 for false'
    """
    shown = f"{value:.17g}" if value == np.rint(value) else str(value)
    if (low, high) == (0, 1):
        return f"{shown}; the model takes 0 or 1 there: send 1 for true and 0 for false"
    if value != np.rint(value):
        return f"{shown}; the model takes whole numbers there, and would cut the fraction off: send a whole number"
    if high == WHOLE:
        beyond = f"beyond the {WHOLE:,} up to which float32 has all whole numbers"
        return f"{shown}, {beyond}; number the values from 0 before the model"
    return f"{shown}; the model takes whole numbers from {low:,} to {high:,} there"


class VectorInput(InputKind):
    """float32 numbers with names, N x features. Other numbers are rounded to float32, as the graph would receive them.

    Examples:
        >>> VectorInput(features=["age", "income"], missing=True).from_json([{"income": 2.5, "age": None}], Limits())
        array([[nan, 2.5]], dtype=float32)
    """

    noun: ClassVar[str] = "vector"
    task: ClassVar[str] = "tabular-classification"
    tensor: ClassVar[str] = "features"
    datatype: ClassVar[str] = "FP32"
    onnx_type: ClassVar[str] = "float"
    dtype: ClassVar[np.dtype[Any]] = np.dtype("<f4")
    formats: ClassVar[Mapping[Format, str]] = {
        "npy": "N x features in the model's order; numbers of any type, NaN where a value is missing",
        "csv": "a header with the names of the features in any order, then a row for each vector;"
        " an empty cell where a value is missing",
    }
    schemas: ClassVar[Sequence[Mapping[str, Any]]] = (
        {
            "type": "array",
            "items": _NUMBER,
            "minItems": 1,
            "description": "the features in the model's order; null where a value is missing",
        },
        {
            "type": "object",
            "additionalProperties": _NUMBER,
            "description": "the features by name, in any order; null where a value is missing. Case, blanks,"
            " underscores, points and dashes in a name may differ; the answer then lists it in `columns`",
        },
    )
    instance: ClassVar[str] = 'a list of numbers in the order of the features, or {"<feature>": number, ...}'

    kind: Literal["vector"] = "vector"
    features: list[Annotated[str, Field(min_length=1)]] = Field(min_length=1)
    """Names in the order of the graph's columns."""
    missing: bool = False
    """Whether the graph accepts NaN for a missing value."""
    whole_numbers: list[str] = Field(default_factory=list, exclude_if=operator.not_)
    """Features that take whole numbers only, and no missing values: the graph's inputs of integers and booleans."""
    ranges: dict[str, tuple[int, int]] = Field(default_factory=dict, exclude_if=operator.not_)
    """Lowest and highest value of features of whole numbers, if it is not `WHOLE`; (0, 1) for a boolean."""

    @field_validator("features")
    @classmethod
    def _names(cls, features: list[str]) -> list[str]:
        if twice := [name for name, count in Counter(features).items() if count > 1]:
            raise ValueError(f"the feature {twice[0]!r} stands twice; a value by name would be ambiguous")
        for name in features:
            if problem := line_problem(name):
                raise ValueError(f"the feature {name!r} {problem}")
            if name != name.strip():
                raise ValueError(f"the feature {name!r} begins or ends with a space; leave it out")
        return features

    @property
    def shape(self) -> tuple[int]:
        return (len(self.features),)

    @property
    def columns(self) -> list[str]:
        return self.features

    def from_json(self, instances: Sequence[Any], limits: Limits) -> Inputs:
        """Read vectors from lists in the model's order, and from objects by the names of the features."""
        self.check_count(len(instances), limits)
        size, kinds = len(self.features), set(map(type, instances))
        if kinds == {list}:
            rows = instances
        elif kinds <= {list, dict}:
            rows = [self._in_model_order(v, n) if type(v) is dict else v for n, v in enumerate(instances)]
        else:
            n = next(n for n, value in enumerate(instances) if type(value) not in (list, dict))
            wanted = "expected a list of numbers or an object with a number for each feature"
            raise InputError("invalid_instances", f"instances[{n}] is {short(instances[n])}; {wanted}")
        if set(map(len, rows)) != {size}:
            n = next(n for n, row in enumerate(rows) if len(row) != size)
            problem = f"instances[{n}] has {plural(len(rows[n]), 'value')}"
            raise InputError("wrong_shape", f"{problem}; the model takes {self._expected()}")
        flat = list(chain.from_iterable(rows)) if len(rows) > 1 else rows[0]

        def place(row: int, column: int) -> str:
            name = self.features[column]
            by_name = type(instances[row]) is dict
            return f"instances[{row}][{name!r}]" if by_name else f"instances[{row}][{column}] ({name!r})"

        return self._of_values(flat, len(rows), place)

    def other_spellings(self, instances: Sequence[Any]) -> dict[str, str]:
        renamed: dict[str, str] = {}
        for instance in instances:
            if type(instance) is dict and instance.keys() != self._names_of_features:
                renamed |= alike(self.features, list(instance))
        return renamed

    def read(self, body: bytes, form: Format, limits: Limits) -> Inputs:
        return self._csv(body, limits) if form == "csv" else self._npy(body, limits)

    def from_values(self, numbers: Sequence[Any], rows: int, name: str, limits: Limits = NO_LIMITS) -> Inputs:
        return self._of_values(numbers, rows, lambda row, column: f"the input {name!r} at {self._at(row, column)}")

    def check_rows(self, rows: npt.NDArray[Any], name: str) -> Inputs:
        return self.check_at(rows, lambda row, column: f"{name} at {self._at(row, column)}")

    def check_at(self, rows: npt.NDArray[Any], place: Callable[[int, int], str]) -> Inputs:
        """Check rows as `check_rows` does. `place` names a value for messages, by its row and column."""
        with np.errstate(over="ignore"):
            values: Inputs = rows.astype(self.dtype, copy=False)
        refused = np.isinf(values) if self.missing else ~np.isfinite(values)
        if refused.any():
            row, column = (int(i) for i in np.unravel_index(int(refused.argmax()), rows.shape))
            raise self._refusal(float(rows[row, column]), place(row, column))
        self._check_whole_numbers(rows, place)
        if self.missing and (absent := np.isnan(values)).any():  # NaN has many forms; equal inputs have equal bytes
            values = np.where(absent, self.dtype.type(np.nan), values)
        return values

    def values(self, row: npt.NDArray[Any]) -> list[Any]:
        # str gives the fewest digits of a float32: 13.2, not 13.199999809265137 like tolist().
        return [None if value != value else float(str(value)) for value in row]

    def made_up(self) -> list[Any]:
        # Values are above 0, because a graph may compute a logarithm or a root.
        noise: list[Any] = np.random.default_rng(0).uniform(0.1, 1, len(self.features)).round(2).tolist()
        whole = frozenset(self.whole_numbers)
        return [1 if name in whole else value for name, value in zip(self.features, noise, strict=True)]

    def examples(self) -> dict[str, Any]:
        if len(self.features) > SMALL:
            return {}
        values = self.made_up()
        return {"by name": dict(zip(self.features, values, strict=True)), "in order": values}

    @cached_property
    def _values_of(self) -> Callable[[dict[str, Any]], tuple[Any, ...]]:
        """Function that returns an object's values in the model's order; it raises KeyError if one is missing."""
        if len(self.features) > 1:
            return itemgetter(*self.features)
        (name,) = self.features
        return lambda instance: (instance[name],)

    @cached_property
    def _names_of_features(self) -> frozenset[str]:
        return frozenset(self.features)

    @cached_property
    def _types(self) -> frozenset[type]:
        """Types of JSON values that may be numbers of a vector."""
        return frozenset({int, float, NoneType} if self.missing else {int, float})

    def _in_model_order(self, instance: dict[str, Any], n: int) -> tuple[Any, ...]:
        try:
            if len(instance) == len(self.features):
                return self._values_of(instance)
        except KeyError:
            names = alike(self.features, list(instance))
            if all(name in names or name in instance for name in self.features):
                return tuple(instance[names.get(name, name)] for name in self.features)
        raise self._wrong_names(list(instance), f"instances[{n}]", "feature")

    def _wrong_names(self, names: list[str], place: str, noun: str) -> InputError:
        """Build the error for names that are not those of the features, each once. `noun` describes them."""
        model = f"the model takes {self._feature_list()}"
        if twice := [name for name, count in Counter(names).items() if count > 1]:
            return InputError("invalid_instances", f"{place} has the {noun} {short(twice[0])} twice; {model}")
        if unknown := [name for name in names if name not in self.features]:
            near = nearest(unknown[0], self.features)
            problem = f"{place} has the unknown {noun} {short(unknown[0])}"
            return InputError("invalid_instances", f"{problem}.{near} T{model[1:]}" if near else f"{problem}; {model}")
        absent = [name for name in self.features if name not in names]
        more = f" and {len(absent) - 1:,} more" if len(absent) > 1 else ""
        return InputError("invalid_instances", f"{place} lacks the {noun} {absent[0]!r}{more}; {model}")

    def _of_values(self, values: Sequence[Any], rows: int, place: Callable[[int, int], str]) -> Inputs:
        """Convert JSON values to rows. They are checked one by one only if one of them is wrong."""
        if set(map(type, values)) <= self._types:
            try:
                with np.errstate(over="ignore"):
                    row_values = np.array(values, self.dtype).reshape(rows, len(self.features))
            except OverflowError:  # a whole number too large for a float
                pass
            else:
                if not (np.isinf(row_values).any() if self.missing else not np.isfinite(row_values).all()):
                    if self.whole_numbers:  # as sent: float32 rounds whole numbers beyond `WHOLE`, and some fractions
                        self._check_whole_numbers(np.array(values, np.float64).reshape(rows, -1), place)
                    return row_values
        for k, value in enumerate(values):
            if self._problem(value):
                raise self._refusal(value, place(*divmod(k, len(self.features))))
        raise AssertionError("one of the values is wrong")

    @cached_property
    def _bounds(self) -> tuple[list[int], Array, Array]:
        """Columns of the features of whole numbers, with their lowest and their highest values."""
        whole = frozenset(self.whole_numbers)
        columns = [column for column, name in enumerate(self.features) if name in whole]
        ends = [self.ranges.get(self.features[column], (-WHOLE, WHOLE)) for column in columns]
        low, high = (np.array(end, np.float64) for end in zip(*ends, strict=True))
        return columns, low, high

    def _check_whole_numbers(self, values_ND: npt.NDArray[Any], place: Callable[[int, int], str]) -> None:
        """Check that the features of whole numbers hold such numbers, within their ranges."""
        if not self.whole_numbers:
            return
        columns, low, high = self._bounds
        part_NW = values_ND[:, columns].astype(np.float64)
        wrong_NW = (part_NW != np.rint(part_NW)) | (part_NW < low) | (part_NW > high)  # NaN differs from itself
        if not wrong_NW.any():
            return
        row, k = (int(i) for i in np.unravel_index(int(wrong_NW.argmax()), wrong_NW.shape))
        where, value = place(row, columns[k]), values_ND[row, columns[k]]
        if np.isnan(value):
            problem = f"{where} is missing; the model takes whole numbers there, and no missing value: send a number"
        else:
            problem = f"{where} is {whole_problem(value, int(low[k]), int(high[k]))}"
        raise InputError("invalid_instances", problem)

    def _refusal(self, value: Any, place: str) -> InputError:
        return InputError("invalid_instances", f"{place} is {self._problem(value)}")

    def _problem(self, value: Any) -> str:
        """Return what is wrong with a JSON value and what to do; empty for a valid one."""
        if value is None or value != value:
            cure = "this model takes no missing values: send a number"
            return "" if self.missing else f"{'missing' if value is None else 'NaN'}; {cure}"
        if type(value) not in (int, float):
            is_boolean = isinstance(value, bool) or (isinstance(value, str) and value.strip().lower() in BOOLEANS)
            cure = "send 1 or 0" if is_boolean else "such as 1.5"
            how = table.number_cure(value) if isinstance(value, str) else ""
            return f"{short(value)}; allowed are numbers, {cure}{how}"
        if abs(value) == math.inf:
            return f"{value}; allowed are finite numbers"
        if abs(value) > MOST:
            return f"{short(value)}, beyond float32; allowed are numbers from -3.4e38 to 3.4e38"
        return ""

    def _npy(self, body: bytes, limits: Limits) -> Inputs:
        """Read a .npy file with one or several vectors."""

        def rows_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
            if shape[-1:] != self.shape or len(shape) > 2:
                problem = f"the array has the shape {short(list(shape))}"
                raise InputError("wrong_shape", f"{problem}; the model takes N x {self._expected()}")
            count = 1 if len(shape) == 1 else shape[0]
            self.check_count(count, limits)
            return (count, *self.shape)

        of_bools = "Send true and false as 1 and 0: array.astype(numpy.float32)"
        return self.check_rows(npy.read(body, rows_shape, best="float32", of_bools=of_bools), "the array")

    def _csv(self, body: bytes, limits: Limits) -> Inputs:
        """Read a CSV whose header names the features in any order."""
        columns, every, _ = table.columns_of(body, self.features)
        if sorted(columns) != sorted(self.features):
            raise self._wrong_names(columns, "the header", "column")
        rows, count = table.take_rows(every, limits.rows)
        self.check_count(count, limits)
        cells = list(chain.from_iterable(row for _, row in rows))
        if columns != self.features:
            order = [columns.index(name) for name in self.features]
            cells = [row[k] for _, row in rows for k in order]

        def place(row: int, column: int) -> str:
            return f"row {rows[row][0]:,}, column {self.features[column]!r},"

        return self._of_values(table.numbers(cells), len(rows), place)

    def _at(self, row: int, column: int) -> str:
        return f"[{row}, {column}] ({self.features[column]!r})"

    def _expected(self) -> str:
        return f"{plural(len(self.features), 'number')}, in this order: {self._feature_list()}"

    def _feature_list(self) -> str:
        shown = ", ".join(repr(name) for name in self.features[:SHOWN])
        more = len(self.features) - SHOWN
        return f"{shown} and {more:,} more" if more > 0 else shown
