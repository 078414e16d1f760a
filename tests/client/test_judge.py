"""A judge's labels by the client and by `trueodds label judge`, against a real service."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.client.test_label_queue import observe, run, write
from trueodds.client import CallError, Client, JudgeSummary


def test_the_client_and_the_command(
    client: Client, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    observe(client, "judged")
    ids = [f"judged-{k}" for k in range(40)]
    assert client.judge(ids, ["ham"] * 40) == JudgeSummary(stored=40)
    assert client.judge({ids[0]: "spam", ids[1]: "ham"}, model="judged") == JudgeSummary(already_known=1, replaced=1)
    assert client.judge(ids[0], index=0) == JudgeSummary(replaced=1)
    with pytest.raises(
        CallError, match="1 of 2 labels refused, the others taken; row 1, counted from 0: unknown class"
    ) as error:
        client.judge(ids[:2], ["spam", "eggs"])
    assert error.value.details["outcomes"] == JudgeSummary(replaced=1)
    client.feedback(ids, ["ham"] * 40)
    report = client.report(model="judged")
    assert report.judge is not None and report.judge.accuracy is not None and report.judge.judge_labels == 40
    file = tmp_path / "judged.csv"
    write(file, [{"id": ids[0], "verdict": "ham"}, {"id": ids[1], "verdict": "ham"}, {"id": ids[2], "verdict": ""}])
    assert run(url, "judge", file) == 1
    assert "has no column 'judge'; it has id, verdict. Name another with --column" in capsys.readouterr().err
    assert run(url, "judge", file, "--column", "verdict") == 0
    words = "0 labels of the judge stored, 1 replaced, 1 known already, 1 rows without a label."
    assert words in capsys.readouterr().out
