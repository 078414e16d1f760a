"""The tables of the benchmark of sums: they are read as answers, and the engine's sums are those of Python."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.faults import postgres
from benchmarks.scaling import database_sums, table_peers, warehouse_growth, warehouse_parts, warehouse_sums
from tests.warehouse.test_equality import assert_equal
from trueodds.reports.table import reading
from trueodds.reports.table.reading import Form
from trueodds.reports.table.table_report import sums_of
from trueodds.reports.warehouse.parquet_source import open_source
from trueodds.reports.warehouse.planning import plan_of
from trueodds.reports.warehouse.summing import sums_of_source
from trueodds.sums.bins import cell_of

MAKE = warehouse_sums.MAKE


@pytest.mark.parametrize("kind", MAKE)
def test_its_tables_have_equal_sums_and_the_plain_query_reads_them(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "answers.parquet"
    MAKE[kind](path, 3_000)
    source = open_source(str(path), "duckdb")
    sums = sums_of_source(source)
    assert_equal(sums.total, sums_of(reading.read(path, Form())))
    query = warehouse_sums.PLAIN[kind].format(path)
    rows = source.table.get_backend().raw_sql(query).fetchall()
    assert sum(row[3 if kind == "classes" else 2] for row in rows) == len(sums) == 3_000


def test_too_little_disk_is_refused_before_a_table_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "result.json"
    monkeypatch.setattr("sys.argv", ["x", "--rows", str(10**12), "--folder", str(tmp_path / "new"), "--out", str(out)])
    with pytest.raises(SystemExit, match=r"need 90001\.0 GB in .*new.* GB are free; make room, give another folder"):
        warehouse_sums.main()
    assert not out.exists() and not list((tmp_path / "new").iterdir())


def test_the_disk_needed_is_that_of_all_tables_only_if_they_stay(tmp_path: Path) -> None:
    assert "need 1.3 GB" in warehouse_sums.check_disk(tmp_path, [10**8, 2 * 10**8], stay=True)
    assert "need 1.2 GB" in warehouse_sums.check_disk(tmp_path, [10**8, 2 * 10**8], stay=False)
    assert "need 0.0 GB" in warehouse_sums.check_disk(tmp_path, [], stay=True)


def test_tables_in_a_folder_are_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "result.json"
    command = ["x", "--rows", "2000", "--confidences", "--folder", str(tmp_path), "--turns", "1", "--out", str(out)]
    monkeypatch.setattr("sys.argv", command)
    monkeypatch.setattr(warehouse_sums, "_report", lambda pattern: {"clock_s": 1.0, "peak_mib": 1})
    warehouse_sums.main()
    table = tmp_path / "classes-2000.parquet"
    first = table.stat().st_mtime_ns
    warehouse_sums.main()
    assert table.stat().st_mtime_ns == first and not list(tmp_path.glob("*.part"))
    result = json.loads(out.read_text())
    assert result["cases"][0]["groups"] > 1_000 and "| 2,000 |" in warehouse_sums.markdown(result)


def test_a_result_keeps_other_tables_with_their_command(tmp_path: Path) -> None:
    def case(rows: int, groups: int) -> dict[str, object]:
        return {"table": "classes", "rows": rows, "groups": groups}

    out = tmp_path / "result.json"
    assert warehouse_sums.earlier_cases(out) == []
    out.write_text(
        json.dumps({"command": "old", "commit": "1", "cases": [case(10, 1), {**case(30, 3), "commit": "0"}]})
    )
    kept = warehouse_sums.earlier_cases(out)
    found = warehouse_sums.merged(warehouse_sums.merged(kept, case(20, 2)), case(10, 9))
    assert [(one["rows"], one["groups"], one.get("commit")) for one in found] == [
        (10, 9, None),
        (20, 2, None),
        (30, 3, "0"),
    ]
    assert kept[0]["command"] == kept[1]["command"] == "old"


def test_a_row_on_disk_takes_no_more_than_is_stated(tmp_path: Path) -> None:
    for kind, make in MAKE.items():
        make(tmp_path / f"{kind}.parquet", 20_000)
        assert (tmp_path / f"{kind}.parquet").stat().st_size <= 20_000 * warehouse_sums.ROW_BYTES[kind]


@pytest.mark.few(1)
@pytest.mark.parametrize("size", warehouse_growth.SIZES[1:], ids=str)
def test_a_table_of_each_size_has_its_columns_and_all_rows(size: warehouse_growth.Size, tmp_path: Path) -> None:
    pattern = size.make(tmp_path, 1_003)
    source = open_source(pattern, "duckdb")
    groups = list(warehouse_growth.GROUPS[: size.groups])
    assert source.header == [*size.class_names, "label", *groups, "time"]
    assert len(list(tmp_path.iterdir())) == size.files
    rows = source.table.get_backend().raw_sql(size.plain(pattern)).fetchall()
    assert sum(row[2 + size.groups] for row in rows) == len(sums_of_source(source)) == 1_003
    assert source.table.c0.nunique().execute() == 1_003, "files have random numbers of their own"


@pytest.mark.full
def test_parts_are_left_out_one_after_another(tmp_path: Path) -> None:
    path = tmp_path / "answers.parquet"
    warehouse_sums.make_classes(path, 2_000)
    source = open_source(str(path), "duckdb")
    plan = plan_of(source, Form(), trend="day")
    terms = source.run(warehouse_parts.terms_of(source, plan))
    values = {name: source.table[name].max() for name in source.header}
    columns = source.run(source.table.aggregate(**values))
    assert source.run(warehouse_parts.reading_of(source)) == columns
    highest = max(columns[f"c{k}"][0] for k in range(10))
    assert terms["confidence"] == [highest] and terms["cell"] == [cell_of(np.array([highest]))[0]]
    assert terms["class_code"] == terms["label_code"] == [9] and terms["problem"] == [0]
    assert terms["period"] == [columns["time"][0] // 86400] and terms["group_tag"] == columns["tag"]
    result = warehouse_parts.measure(path, 2_000, 1)
    assert list(result["steps"]) == list(warehouse_parts.STEPS)
    assert warehouse_parts.markdown(result).count("\n") == 1 + len(warehouse_parts.STEPS)


@pytest.mark.full
def test_pandas_finds_the_accuracy_of_the_report(tmp_path: Path) -> None:
    pytest.importorskip("pandas", reason="pandas is not installed")
    path = tmp_path / "answers.parquet"
    warehouse_sums.make_classes(path, 2_000)
    theirs, ours = (table_peers.PROGRAMS[name](str(path)) for name in ("pandas", "trueodds"))
    assert theirs["accuracy"] == pytest.approx(ours["accuracy"], abs=1e-12)


@pytest.mark.full
def test_a_database_makes_both_queries(tmp_path: Path) -> None:
    pytest.importorskip("psycopg", reason="psycopg is not installed (trueodds[engines])")
    if reason := postgres.missing():
        pytest.skip(reason)
    path = tmp_path / "answers.parquet"
    warehouse_sums.make_classes(path, 2_000)
    found = database_sums.measure("postgres", path, 2_000)
    assert found["rows"] == 2_000 and found["sums"]["processor_s"] > 0 and found["plain"]["clock_s"] > 0
    assert found["peak_mib"] > 0
    assert 0 < found["day"]["rows"] < 200 and found["day"]["sums"]["processor_s"] > 0
    text = database_sums.markdown({"cases": [found]})
    assert "| postgres | 2,000 |" in text and f"| postgres, a day | {found['day']['rows']} |" in text
