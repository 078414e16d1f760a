"""CSV that spreadsheets open: no cell is run, and every text comes back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from trueodds.files import FileError
from trueodds.inputs import columns, table
from trueodds.inputs.errors import InputError
from trueodds.inputs.table import escape, unescape


@settings(max_examples=200, derandomize=True, deadline=None, database=None)
@given(st.text(alphabet="'=+-@\t\r1.eA ", max_size=6) | st.text(max_size=8))
def test_no_cell_is_run_and_every_text_comes_back(text: str) -> None:
    cell = escape(text)
    assert unescape(cell) == text
    assert not cell.startswith(("=", "@", "\t", "\r"))
    if cell.startswith(("+", "-")):
        assert cell == text and abs(float(cell)) >= 0, "a number"


@pytest.mark.parametrize("number", ["-1", "+1", "-0.5", "-.5", "+1e-9", "-2.", "1", "0.25"])
def test_numbers_stay_as_they_are(number: str) -> None:
    assert escape(number) == number == unescape(number)


@pytest.mark.parametrize("text", ["=1+1", "-1+cmd|' /C calc'!A0", "@SUM(A1)", "+A1", "-", "-inf", "\tx", "'=x", "--1"])
def test_what_a_spreadsheet_would_run_begins_with_an_apostrophe(text: str) -> None:
    assert escape(text) == f"'{text}" and unescape(f"'{text}") == text


@pytest.mark.parametrize("mark", table.SEPARATORS)
def test_the_separator_is_that_of_the_first_lines(mark: str) -> None:
    other = "," if mark == ";" else ";"
    text = f'"a{other}b"{mark} c {mark}"two\nlines"\r1{other}5{mark}2{mark}"3 ""x"""\r\r4{mark} "5"{mark}6\r\n'
    names, rows = table.rows_of(table.lines_of(text.encode("utf-8-sig")))
    assert names == [f"a{other}b", "c", "two\nlines"]
    assert list(rows) == [(2, [f"1{other}5", "2", '3 "x"']), (4, ["4", "5", "6"])]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("a,b\n1,2\n".encode("utf-16"), "the CSV is UTF-16; save it as UTF-8"),
        ("a,b\r1,é\r".encode("latin-1"), "line 2 of the CSV is not UTF-8"),
        (b'a,b\n1,"2\n', "row 2 is not CSV"),
        (b"a,b\n\n1,2,3\n", "row 3 has 3 cells, the header 2"),
    ],
)
def test_what_is_no_csv_is_refused_by_its_line(body: bytes, words: str) -> None:
    with pytest.raises(InputError, match=words):
        list(table.rows_of(table.lines_of(body))[1])


def test_a_written_table_runs_nothing_in_a_spreadsheet(tmp_path: Path) -> None:
    """Issue: study.csv and calibrators.csv held texts such as =1+1 as they are."""
    rows: list[dict[str, Any]] = [{"name": "=1+1", "@x": -1.5}, {"name": 'two, "2"'}]
    table.write(tmp_path / "a.csv", ["name", "@x"], rows)
    assert (tmp_path / "a.csv").read_bytes() == b'name,\'@x\r\n\'=1+1,-1.5\r\n"two, ""2""",\r\n'
    found = columns.read(tmp_path / "a.csv", ["@x"], ["name"])
    assert found.texts["name"].as_list() == ["=1+1", 'two, "2"'] and found.numbers["@x"][0] == -1.5


@pytest.mark.parametrize("kind", [pyarrow.list_(pyarrow.string()), pyarrow.list_(pyarrow.string(), 2)])
def test_lists_of_parquet_are_cells_in_json(kind: Any, tmp_path: Path) -> None:
    parquet.write_table(pyarrow.table({"set": pyarrow.array([["a", "b"], None], kind)}), tmp_path / "a.parquet")
    assert columns.read(tmp_path / "a.parquet", (), ["set"]).texts["set"].as_list() == ['["a", "b"]', ""]


@pytest.mark.parametrize("cells", [[{"x": 1}], [[b"x"]]])
def test_other_nested_columns_of_parquet_are_refused(cells: list[Any], tmp_path: Path) -> None:
    parquet.write_table(pyarrow.table({"tag": cells}), tmp_path / "a.parquet")
    with pytest.raises(FileError, match=r"'tag' holds .*; allowed are texts, numbers, times, and lists of texts"):
        columns.read(tmp_path / "a.parquet", (), ["tag"])
