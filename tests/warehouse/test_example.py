"""examples/warehouse: the graphs of DVC make the days that are missing, and keep the others."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

from tests.conftest import ROOT, run
from tests.warehouse.engines import Postgres
from tests.warehouse.partitioned import DAY, START, make
from trueodds import cli

EXAMPLE = ROOT / "examples" / "warehouse" / "dvc.yaml"
EXAMPLE_OF_DATABASE = EXAMPLE.parent / "database" / "dvc.yaml"


@pytest.mark.full
def test_the_graph_adds_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    make(tmp_path / "all", rows=200)
    shutil.copy(EXAMPLE, tmp_path)
    run(["dvc", "init", "-q", "--no-scm"], tmp_path)
    for days in (1, 2):
        for name in ("answers", "labels"):
            (tmp_path / name).mkdir(exist_ok=True)
            for path in (tmp_path / "all" / name).iterdir():
                rows = pq.read_table(path, filters=[("time", "<", START + days * DAY)])
                if len(rows):
                    pq.write_table(rows, tmp_path / name / path.name)
        run(["dvc", "repro", "-q"], tmp_path)
        names = [path.stem for path in sorted((tmp_path / "sums").glob("*.parquet"))]
        assert names == ["2026-03-01", "2026-03-02"][:days]
        alarm = json.loads((tmp_path / "alarm.json").read_text())
        assert len(alarm["partitions"]) == days and (tmp_path / "report.html").is_file()


@pytest.mark.full
def test_the_graph_of_a_database_adds_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")])))
    database = Postgres()
    try:
        table = make(tmp_path / "all", rows=60)
        for name, pattern in {"all_answers": table.answers, "all_labels": table.labels}.items():
            rows = pq.read_table(Path(str(pattern)).parent)
            database.run(f"ALTER TABLE {database.write(rows)} RENAME TO {name}")
        text = EXAMPLE_OF_DATABASE.read_text(encoding="utf-8")
        assert "postgres://reader@127.0.0.1/logs" in text
        text = text.replace("postgres://reader@127.0.0.1/logs", database.address)
        (tmp_path / "dvc.yaml").write_text(text, encoding="utf-8")
        run(["dvc", "init", "-q", "--no-scm"], tmp_path)
        for days in (1, 2):
            for name in ("answers", "labels"):
                database.run(
                    f"DROP TABLE IF EXISTS {name}",
                    f"CREATE TABLE {name} AS SELECT * FROM all_{name} WHERE time < {START + days * DAY}",
                )
            run(["dvc", "repro", "-q", *(["sums"] if days == 1 else [])], tmp_path)
            names = [path.stem for path in sorted((tmp_path / "sums").glob("*.parquet"))]
            assert names == ["2026-03-01", "2026-03-02"][:days]
        alarm = json.loads((tmp_path / "alarm.json").read_text())
        assert len(alarm["partitions"]) == 2 and (tmp_path / "report.html").is_file()
    finally:
        database.close()


@pytest.mark.parametrize("example", [EXAMPLE, EXAMPLE_OF_DATABASE])
def test_its_commands_are_those_of_the_library(example: Path) -> None:
    stages = yaml.safe_load(example.read_text(encoding="utf-8"))["stages"]
    commands = [stage["cmd"].split()[:2] for stage in stages.values()]
    assert all(word == "trueodds" and command in cli.COMMANDS for word, command in commands)
    assert stages["sums"]["outs"] == [{"sums": {"persist": True}}]
