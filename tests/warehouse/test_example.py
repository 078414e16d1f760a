"""examples/warehouse: the graph of DVC makes the days that are missing, and keeps the others."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

from tests.conftest import ROOT, run
from tests.warehouse.partitioned import DAY, START, make
from trueodds import cli

EXAMPLE = ROOT / "examples" / "warehouse" / "dvc.yaml"


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


def test_its_commands_are_those_of_the_library() -> None:
    stages = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))["stages"]
    commands = [stage["cmd"].split()[:2] for stage in stages.values()]
    assert all(word == "trueodds" and command in cli.COMMANDS for word, command in commands)
    assert stages["sums"]["outs"] == [{"sums": {"persist": True}}]
