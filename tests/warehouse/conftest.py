"""A table of answers whose sums by day are made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.warehouse.partitioned import made, make
from trueodds.reports.warehouse.partitions import PartitionedTable


@pytest.fixture(scope="session")
def daily(tmp_path_factory: pytest.TempPathFactory) -> tuple[PartitionedTable, list[Path]]:
    """A table, and the files of its four days."""
    folder = tmp_path_factory.mktemp("daily")
    table = make(folder)
    return table, made(table, folder / "sums")
