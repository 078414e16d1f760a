"""The label queue by the client and by `trueodds label`, against a real service."""

from __future__ import annotations

import csv
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from trueodds import cli
from trueodds.client import CallError, Client

NAMES = ["ham", "spam"]


def observe(client: Client, model: str, count: int = 40) -> None:
    p_N = np.random.default_rng(3).random(count)
    ids = [f"{model}-{k}" for k in range(count)]
    client.observe(ids, np.stack([p_N, 1 - p_N], axis=1), model=model, version="1", classes=NAMES)


def run(url: str, *words: object) -> int:
    return cli.main("trueodds", cli.COMMANDS, ["label", *map(str, words), "--url", url])


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def write(path: Path, rows: list[dict[str, str]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def test_draw_lease_and_label(client: Client, url: str) -> None:
    observe(client, "queue-a")
    whose: dict[str, Any] = {"who": "Ada", "model": "queue-a"}
    drawn = client.draw_label_queue(40, **whose, goal="plain", floor=1.0)
    assert drawn["answers"] == drawn["sample_size"] == 40 and drawn["smallest_propensity"] == 1
    queue = client.lease_answers(**whose, count=3, show="prediction")
    ids = [one["id"] for one in queue["answers"]]
    assert len(ids) == 3 and queue["state"]["waiting"] == 40 and queue["answers"][0]["predicted"] in NAMES
    stored = client.label_answers({ids[0]: "ham", ids[1]: "spam", ids[2]: None}, **whose)
    assert (stored["stored"], stored["skips"]) == (2, 1)
    with pytest.raises(CallError) as error:
        client.label_answers({ids[0]: "spam"}, **whose)
    assert error.value.code == "conflicting_label"
    assert 'add "correct": true to replace it in POST /feedback. Nothing was stored' in str(error.value)
    twice = [{"id": leased["id"], "label": name} for leased in queue["answers"][2:] for name in ("ham", "spam")]
    refused = httpx.post(f"{url}/label-queue/answers", json={**whose, "answers": twice}).json()["error"]["message"]
    assert "send one label per id" in refused and "/feedback" not in refused
    listed = client.closed_answers(10, model="queue-a")
    assert {(one["id"], one["who"], one["is_skip"]) for one in listed} == {
        (id_, "Ada", id_ == ids[2]) for id_ in ids[:3]
    }
    assert all(abs((datetime.now(UTC) - datetime.fromisoformat(one["at"])).total_seconds()) < 300 for one in listed)
    report = client.report(model="queue-a")
    assert report.labelling.queue is not None and report.labelling.queue.skips == 1
    client.feedback({ids[2]: "spam"}, model="queue-a")
    newest = client.closed_answers(1, model="queue-a")[0]
    assert (newest["id"], newest["who"], newest["is_skip"], newest["skipped_by"]) == (ids[2], None, False, "Ada")
    assert newest["import_id"] and newest["at"] > newest["skipped_at"]
    with pytest.raises(CallError, match="closures"):
        client.closed_answers(1001, model="queue-a")
    assert "closures" not in httpx.get(f"{url}/label-queue", params={"model": "queue-a"}).json()


def test_the_command(client: Client, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    observe(client, "queue-b")
    whose, file = ("--who", "Ada", "--model", "queue-b"), tmp_path / "to_label.csv"
    assert run(url, "export", "--out", file, *whose) == 1 and not file.exists()
    assert "0 answers wait for labels; draw some: trueodds label draw" in capsys.readouterr().err
    assert run(url, "draw", "--budget", 40, "--goal", "plain", *whose) == 0
    assert "40 of 40 answers of queue-b/1 are in the label queue, drawn with propensities from 1 to 1" in (
        capsys.readouterr().out
    )
    assert run(url, "export", "--count", 10, "--out", file, *whose) == 0
    assert "10 of 40 waiting answers. The classes are ham, spam." in capsys.readouterr().out
    rows = rows_of(file)
    assert list(rows[0]) == ["id", "time", "tag", "predicted", "confidence", "propensity", "label", "skip"]
    for row in rows[:7]:
        row["label"] = "ham"
    rows[7]["skip"] = "true"
    write(file, rows)
    assert run(url, "import", file, *whose) == 0
    assert "7 labels stored, 0 known already, 1 skipped, 2 rows without a label." in capsys.readouterr().out
    assert run(url, "import", file, *whose) == 0
    assert "0 labels stored, 7 known already, 1 skipped, 2 rows without a label." in capsys.readouterr().out
    rows[8]["label"] = rows[9]["label"] = "maybe"  # the ninth and tenth row of the file, the eighth and ninth label
    write(file, rows)
    assert run(url, "import", file, *whose) == 1
    problem = "unknown class 'maybe'; allowed are 'ham', 'spam'"
    problems = f"{rows[8]['id']}: {problem}; {rows[9]['id']}: {problem}. Nothing of this call was stored"
    assert problems in capsys.readouterr().err
    assert run(url, "draw", "--budget", 5, *whose) == 1
    assert "has no answer without a label" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([{"id": "a"}], "has no column 'label'"),
        ([{"id": "a", "label": "ham", "skip": "perhaps"}], "row 2: skip is 'perhaps'; allowed are true, false"),
        ([{"id": "a", "label": "ham", "skip": "yes"}], "row 2: 'a' has the label 'ham' and is skipped; remove one"),
        ([{"id": "a", "label": "ham"}, {"id": "a", "label": "ham"}], "row 3: the id 'a' comes twice; keep one row"),
    ],
)
def test_bad_files(
    rows: list[dict[str, str]], said: str, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "bad.csv", rows)
    assert run(url, "import", tmp_path / "bad.csv", "--who", "Ada", "--model", "queue-c") == 1
    assert said in capsys.readouterr().err
