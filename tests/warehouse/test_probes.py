"""An engine whose arithmetic, texts or days differ from those of Python is refused by name."""

from __future__ import annotations

import re
from typing import Any

import ibis
import pytest

from trueodds.errors import UserError
from trueodds.reports.warehouse.plan import Expression
from trueodds.reports.warehouse.probes import PROBES, check_arithmetic
from trueodds.reports.warehouse.table_source import TableSource


def changed(old: str, new: str, *settings: str) -> TableSource:
    """Return a table of an engine that reads `new` where DuckDB reads `old`."""
    connection = ibis.duckdb.connect()
    for setting in ("SET TimeZone = 'UTC'", *settings):
        connection.raw_sql(setting)

    def execute(expression: Expression) -> Any:
        text = ibis.to_sql(expression, dialect="duckdb")
        assert old in text
        return connection.con.sql(text.replace(old, new)).to_arrow_table()

    return TableSource("answers", ibis.table({"a": "float64"}, name="answers"), "another", execute=execute)


def test_an_engine_that_computes_as_python_passes() -> None:
    check_arithmetic(changed("SELECT", "SELECT"))


ENGINES = {
    "constants": ("AS DOUBLE)", "AS FLOAT)", ()),
    "gaps": ("'NaN'", "'0.5'", ()),
    "texts": ("'A'", "'a'", ()),
    "logarithms": ("LN(", "LOG10(", ()),
    "cells": ("FLOOR(", "CEIL(", ()),
    "days": ("SELECT", "SELECT", ("SET TimeZone = 'America/New_York'",)),
}


@pytest.mark.parametrize("name", PROBES)
def test_another_engine_is_refused(name: str) -> None:
    old, new, settings = ENGINES[name]
    with pytest.raises(UserError, match=re.escape(PROBES[name][1])):
        check_arithmetic(changed(old, new, *settings))
