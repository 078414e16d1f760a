"""CSV that spreadsheets open: no cell is run, and every text comes back."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trueodds.inputs.table import escaped, unescaped


@settings(max_examples=200, derandomize=True, deadline=None, database=None)
@given(st.text(alphabet="'=+-@\t\r1.eA ", max_size=6) | st.text(max_size=8))
def test_no_cell_is_run_and_every_text_comes_back(text: str) -> None:
    cell = escaped(text)
    assert unescaped(cell) == text
    assert not cell.startswith(("=", "@", "\t", "\r"))
    if cell.startswith(("+", "-")):
        assert cell == text and abs(float(cell)) >= 0, "a number"


@pytest.mark.parametrize("number", ["-1", "+1", "-0.5", "-.5", "+1e-9", "-2.", "1", "0.25"])
def test_numbers_stay_as_they_are(number: str) -> None:
    assert escaped(number) == number == unescaped(number)


@pytest.mark.parametrize("text", ["=1+1", "-1+cmd|' /C calc'!A0", "@SUM(A1)", "+A1", "-", "-inf", "\tx", "'=x", "--1"])
def test_what_a_spreadsheet_would_run_begins_with_an_apostrophe(text: str) -> None:
    assert escaped(text) == f"'{text}" and unescaped(f"'{text}") == text
