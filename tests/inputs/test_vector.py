"""Vectors: every form gives back what was sent, and what is wrong is named."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from pydantic import ValidationError

from trueodds.inputs import InputError, InputTooLargeError, Limits, UnreadableError, VectorInput

NAMES = ["age", "income, net", 'the "rate"', "größe"]
KIND = VectorInput(features=NAMES)
GAPS = VectorInput(features=NAMES, missing=True)
ANY = Limits()
Rows = npt.NDArray[Any]


def npy(array: Rows) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def table(rows_NF: Rows, names: list[str] = NAMES, mark: str = ",") -> bytes:
    text = io.StringIO()
    cells = [["" if value != value else repr(value) for value in row] for row in rows_NF.tolist()]
    csv.writer(text, delimiter=mark).writerows([names, *cells])
    return text.getvalue().encode()


def flat(rows_NF: Rows) -> list[Any]:
    return [value for row in rows_NF for value in GAPS.values(row)]


def by_name(row_F: Rows) -> dict[str, Any]:
    return dict(reversed(list(zip(NAMES, GAPS.values(row_F), strict=True))))


FORMS: dict[str, Callable[[Rows], Rows]] = {
    "lists": lambda x: GAPS.from_json([GAPS.values(row) for row in x], ANY),
    "objects": lambda x: GAPS.from_json([by_name(row) for row in x], ANY),
    "a mixture": lambda x: GAPS.from_json([by_name(x[0]), *([GAPS.values(row) for row in x[1:]])], ANY),
    "npy": lambda x: GAPS.read(npy(x), "npy", ANY),
    "npy by columns": lambda x: GAPS.read(npy(np.asfortranarray(x)), "npy", ANY),
    "npy big-endian": lambda x: GAPS.read(npy(x.astype(">f4")), "npy", ANY),
    "npy float64": lambda x: GAPS.read(npy(x.astype(np.float64)), "npy", ANY),
    "csv": lambda x: GAPS.read(table(x), "csv", ANY),
    "csv in another order": lambda x: GAPS.read(table(x[:, ::-1], NAMES[::-1], ";"), "csv", ANY),
    "tensor as JSON": lambda x: GAPS.from_values(flat(x), len(x), "features"),
    "tensor": lambda x: GAPS.check_rows(x, "x"),
    "one by one": lambda x: GAPS.join([GAPS.decode(GAPS.encode(row), "x") for row in x]),
}
NUMBERS = st.floats(width=32, allow_infinity=False) | st.just(0.1)


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=30, deadline=None)
@given(x=arrays.arrays(np.float32, st.tuples(st.integers(1, 4), st.just(len(NAMES))), elements=NUMBERS.map(np.float32)))
def test_what_is_sent_is_what_the_model_gets(form: str, x: Rows) -> None:
    found = FORMS[form](x)
    assert found.dtype == np.float32 and found.shape == x.shape
    np.testing.assert_array_equal(found, x)


@pytest.mark.parametrize(
    "values", [np.array([[1, 0, 255, 3]], np.uint8), np.array([[-(2**40), 2**24 + 1, 0, 1]]), np.array([[0.1] * 4])]
)
def test_other_numbers_are_rounded_to_float32_in_every_form(values: Rows) -> None:
    expected = values.astype(np.float32)
    texts = table(values)
    forms = [KIND.from_json(values.tolist(), ANY), KIND.read(npy(values), "npy", ANY), KIND.read(texts, "csv", ANY)]
    forms += [KIND.from_values(values.ravel().tolist(), 1, "x"), KIND.read(npy(values[0]), "npy", ANY)]
    for found in forms:
        assert found.tobytes() == expected.tobytes()


def test_every_nan_is_the_same_input() -> None:
    odd = np.array([[0x7FC00001, 0, 0, 0xFFC00000]], np.uint32).view(np.float32)
    found = GAPS.check_rows(odd, "x")
    assert GAPS.encode(found[0]) == GAPS.encode(GAPS.from_json([[None, 0, 0, None]], ANY)[0])


def test_one_feature_is_a_column_like_others() -> None:
    one = VectorInput(features=["x"], missing=True)
    assert one.from_json([[1], {"x": 2}], ANY).tolist() == [[1], [2]]
    found = one.read(b"x\n1\n\n3\n", "csv", ANY)  # its second row is an empty cell
    np.testing.assert_array_equal(found, [[1], [np.nan], [3]])
    with pytest.raises(InputError, match="row 3, column 'x', is missing"):
        VectorInput(features=["x"]).read(b"x\n1\n\n3\n", "csv", ANY)


@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_csv_as_spreadsheets_write_it(mark: str) -> None:
    names = ["a", "b c"]
    kind = VectorInput(features=names, missing=True)
    text = f"\ufeffb c{mark} a \r\n1.5{mark}-2e3\r\n\r\n{mark}nan\r\n".encode()
    np.testing.assert_array_equal(kind.read(text, "csv", ANY), [[-2000, 1.5], [np.nan, np.nan]])


GOOD: list[float] = [1, 2, 3, 4]
OBJECT = dict(zip(NAMES, GOOD, strict=True))
LIMIT = Limits(rows=2)
BAD: dict[str, tuple[Callable[[], Any], str, str]] = {
    "too short": (
        lambda: KIND.from_json([GOOD, [1, 2, 3]], ANY),
        "wrong_shape",
        "instances[1] has 3 values; the model",
    ),
    "empty": (lambda: KIND.from_json([[]], ANY), "wrong_shape", "instances[0] has 0 values; the model takes 4 numbers"),
    "nothing": (lambda: KIND.from_json([], ANY), "invalid_instances", "no vector was sent; send at least one"),
    "a number": (lambda: KIND.from_json([GOOD, 3], ANY), "invalid_instances", "instances[1] is 3; expected a list of"),
    "a list in a list": (lambda: KIND.from_json([[GOOD] * 4], ANY), "invalid_instances", "allowed are numbers, such"),
    "unknown name": (
        lambda: KIND.from_json([OBJECT, OBJECT | {"agge": 1}], ANY),
        "invalid_instances",
        "instances[1] has the unknown feature 'agge'. Did you mean 'age'? The model takes 'age', 'income, net'",
    ),
    "strange name": (
        lambda: KIND.from_json([OBJECT | {"zzz": 1}], ANY),
        "invalid_instances",
        "has the unknown feature 'zzz'; the model takes 'age'",
    ),
    "missing names": (
        lambda: KIND.from_json([{"age": 1, "größe": 2}], ANY),
        "invalid_instances",
        "instances[0] lacks the feature 'income, net' and 1 more; the model takes",
    ),
    "one for another": (
        lambda: KIND.from_json([{f"{name} x": 1 for name in NAMES}], ANY),
        "invalid_instances",
        "the unknown feature 'age x'",
    ),
    "text": (
        lambda: KIND.from_json([GOOD, OBJECT | {"income, net": "7"}], ANY),
        "invalid_instances",
        "instances[1]['income, net'] is '7'; allowed are numbers, such as 1.5",
    ),
    "True in csv, as pandas writes it": (
        lambda: KIND.read(table(np.ones((1, 4))) + b"1,True,3,4\n", "csv", ANY),
        "invalid_instances",
        "row 3, column 'income, net', is 'True'; allowed are numbers, send 1 or 0",
    ),
    "true": (
        lambda: KIND.from_json([[1, True, 3, 4]], ANY),
        "invalid_instances",
        "instances[0][1] ('income, net') is True; allowed are numbers, send 1 or 0",
    ),
    "null": (
        lambda: KIND.from_json([[1, 2, 3, None]], ANY),
        "invalid_instances",
        "instances[0][3] ('größe') is missing; this model takes no missing values: send a number",
    ),
    "NaN": (
        lambda: KIND.read(npy(np.array([GOOD, [1, np.nan, 3, 4]])), "npy", ANY),
        "invalid_instances",
        "the array at [1, 1] ('income, net') is NaN; this model takes no missing values",
    ),
    "infinite": (
        lambda: GAPS.read(npy(np.array([[1, np.nan, -np.inf, 4]])), "npy", ANY),
        "invalid_instances",
        "the array at [0, 2] ('the \"rate\"') is -inf; allowed are finite numbers",
    ),
    "beyond float32 in JSON": (
        lambda: GAPS.from_json([[1, None, 1e39, 4]], ANY),
        "invalid_instances",
        "is 1e+39, beyond float32; allowed are numbers from -3.4e38 to 3.4e38",
    ),
    "beyond every float": (lambda: KIND.from_json([[10**400, 1, 1, 1]], ANY), "invalid_instances", "beyond float32"),
    "beyond float32 in npy": (
        lambda: KIND.read(npy(np.array([1, 2, -1e300, 4])), "npy", ANY),
        "invalid_instances",
        "the array at [0, 2] ('the \"rate\"') is -1e+300, beyond float32",
    ),
    "tensor": (
        lambda: KIND.from_values([*GOOD, 1, "2", 3, 4], 2, "features"),
        "invalid_instances",
        "the input 'features' at [1, 1] ('income, net') is '2'",
    ),
    "too many": (
        lambda: KIND.from_json([GOOD] * 3, LIMIT),
        "too_many_instances",
        "3 vectors in one call; the limit is 2",
    ),
    "too many in npy": (
        lambda: KIND.read(npy(np.zeros((10**6, 4)))[:200], "npy", LIMIT),
        "too_many_instances",
        "1,000,000 vectors in one call",
    ),
    "too many in csv": (
        lambda: KIND.read(table(np.ones((9, 4))), "csv", LIMIT),
        "too_many_instances",
        "9 vectors in one",
    ),
    "npy of another shape": (
        lambda: KIND.read(npy(np.zeros((2, 3))), "npy", ANY),
        "wrong_shape",
        "the array has the shape [2, 3]; the model takes N x 4 numbers, in this order: 'age'",
    ),
    "npy of texts": (
        lambda: KIND.read(npy(np.array(["a"] * 4)), "npy", ANY),
        "wrong_type",
        "allowed are numbers, best float32",
    ),
    "npy of bools": (
        lambda: KIND.read(npy(np.ones((1, 4), bool)), "npy", ANY),
        "wrong_type",
        "Send true and false as 1 and",
    ),
    "npy of objects": (lambda: KIND.read(npy(np.array([None] * 4)), "npy", ANY), "wrong_type", "the array is 'object'"),
    "no npy": (lambda: KIND.read(b"PK", "npy", ANY), "invalid_npy", "the body is not a .npy file"),
    "half an npy": (lambda: KIND.read(npy(np.ones((1, 4)))[:-1], "npy", ANY), "invalid_npy", "31 came after it"),
    "empty csv": (
        lambda: KIND.read(b"", "csv", ANY),
        "invalid_instances",
        "the header lacks the column 'age' and 3 more",
    ),
    "header only": (lambda: KIND.read(table(np.ones((0, 4))), "csv", ANY), "invalid_instances", "no vector was sent"),
    "no header": (
        lambda: KIND.read(b"1,2,3,4\n", "csv", ANY),
        "invalid_instances",
        "the header has the unknown column '1'",
    ),
    "column twice": (
        lambda: KIND.read(table(np.ones((1, 5)), [*NAMES, "age"]), "csv", ANY),
        "invalid_instances",
        "the header has the column 'age' twice",
    ),
    "another column": (
        lambda: KIND.read(table(np.ones((1, 5)), [*NAMES, "id"]), "csv", ANY),
        "invalid_instances",
        "the header has the unknown column 'id'",
    ),
    "column missing": (
        lambda: KIND.read(table(np.ones((1, 3)), NAMES[:3]), "csv", ANY),
        "invalid_instances",
        "the header lacks the column 'größe'; the model takes",
    ),
    "cell too many": (
        lambda: KIND.read(table(np.ones((2, 4))) + b"1,2,3,4,5\n", "csv", ANY),
        "wrong_shape",
        "row 4 has 5 cells, the header 4",
    ),
    "no number": (
        lambda: KIND.read(table(np.ones((2, 4))) + b'\n1,2,"3,5",4\n', "csv", ANY),
        "invalid_instances",
        "row 5, column 'the \"rate\"', is '3,5'; allowed are numbers, such as 1.5",
    ),
    "underscore": (
        lambda: KIND.read(table(np.ones((1, 4))) + b"1_000,2,3,4\n", "csv", ANY),
        "invalid_instances",
        "is '1_000'",
    ),
    "empty cell": (
        lambda: KIND.read(table(np.array([[1, np.nan, 3, 4]])), "csv", ANY),
        "invalid_instances",
        "row 2, column 'income, net', is missing; this model takes no missing values",
    ),
    "open quote": (
        lambda: KIND.read(table(np.ones((1, 4))) + b'1,"2,3,4\n', "csv", ANY),
        "invalid_csv",
        "row 3 is not CSV",
    ),
    "Latin-1": (
        lambda: KIND.read("größe\n".encode("latin-1"), "csv", ANY),
        "invalid_csv",
        "line 1 of the CSV is not UTF-8",
    ),
    "golden of another dtype": (
        lambda: KIND.encode(np.ones(4)),
        "wrong_type",
        "the vector is float64; expected float32",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_is_named(name: str) -> None:
    read, code, words = BAD[name]
    with pytest.raises(InputError) as refused:
        read()
    assert (refused.value.code, words in str(refused.value)) == (code, True), str(refused.value)
    assert isinstance(refused.value, InputTooLargeError) == (code == "too_many_instances")
    assert isinstance(refused.value, UnreadableError) == (code in ("invalid_npy", "invalid_csv"))


@pytest.mark.parametrize(
    ("features", "words"),
    [
        ([], "at least 1 item"),
        (["a", "b", "a"], "the feature 'a' stands twice"),
        (["a", ""], "at least 1 character"),
        ([" a"], "begins or ends with a space"),
        (["a\nb"], "one line"),
    ],
)
def test_cards_of_vectors_that_do_not_validate(features: list[str], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        VectorInput(features=features)


def test_a_list_of_many_features_is_not_repeated_in_full() -> None:
    wide = VectorInput(features=[f"f{n}" for n in range(1000)])
    with pytest.raises(InputError, match=r"takes 1,000 numbers, in this order: 'f0', .* and 992 more") as refused:
        wide.from_json([[1]], ANY)
    assert len(str(refused.value)) < 200
    assert len(wide.examples()["in order"]) == 1000
    assert VectorInput(features=[f"f{n}" for n in range(5000)]).examples() == {}


def test_a_whole_number_may_not_be_missing_though_others_may() -> None:
    """A graph's input of whole numbers has no NaN: the smallest number would stand for it."""
    kind = VectorInput(features=["a", "rooms"], missing=True, whole_numbers=["rooms"])
    assert np.isnan(kind.from_json([[None, 3]], ANY)[0, 0])
    reads: list[Callable[[], Any]] = [
        lambda: kind.from_json([[1, 3], [1, None]], ANY),
        lambda: kind.from_json([{"rooms": None, "a": 2}], ANY),
        lambda: kind.read(npy(np.array([[1, np.nan]])), "npy", ANY),
        lambda: kind.read(b"rooms,a\n,1\n", "csv", ANY),
        lambda: kind.from_values([1, None], 1, "features"),
    ]
    for read in reads:
        with pytest.raises(InputError, match=r"'rooms'.* is missing; the model takes whole numbers there, and no miss"):
            read()
    assert "whole_numbers" not in VectorInput(features=["a"]).model_dump()


@pytest.mark.parametrize(("value", "words"), [(2.7, "2.7; .* cut the fraction off"), (2**24 + 1, "16777217, beyond")])
def test_a_fraction_is_refused_where_the_model_takes_whole_numbers(value: float, words: str) -> None:
    """The graph would cut it off, and float32 has 2**24 for 2**24 + 1. No gaps are needed for that."""
    kind = VectorInput(features=["a", "rooms"], whole_numbers=["rooms"])
    assert kind.from_values(kind.made_up(), 1, "features")[0, 1] == 1
    reads: list[Callable[[], Any]] = [
        lambda: kind.from_json([[1, 3], [1, value]], ANY),
        lambda: kind.from_json([{"rooms": value, "a": 2}], ANY),
        lambda: kind.read(npy(np.array([[1, value]])), "npy", ANY),
        lambda: kind.read(f"rooms,a\n{value},1\n".encode(), "csv", ANY),
        lambda: kind.from_values([1, value], 1, "features"),
    ]
    for read in reads:
        with pytest.raises(InputError, match=rf"'rooms'.* is {words}"):
            read()
