"""A table of answers whose sums by day are made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import made_once
from tests.warehouse.partitioned import described, made, make
from trueodds.reports.warehouse.partitions import PartitionedTable


@pytest.fixture(scope="session")
def daily(tmp_path_factory: pytest.TempPathFactory) -> tuple[PartitionedTable, list[Path]]:
    """A table, and the files of its four days."""
    with made_once(tmp_path_factory, "daily") as (folder, is_empty):
        table = make(folder) if is_empty else described(folder)
        return table, made(table, folder / "sums")
