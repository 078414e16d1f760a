"""Labels in doubt over HTTP and on the command line: what the report says of them, and how they are settled."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.__main__ import main
from service.app import create_app
from service.settings import Settings
from tests.service.app_client import Client
from tests.service.store import older

SETTLE = "/admin/labels/settle"
SIGNED = {"who": "Ada", "why": "asked who sent them"}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store.sqlite"
    older.load_sqlite(path)
    return path


def client_of(store: Path) -> Client:
    return Client(create_app(Settings(store=str(store), models=str(store.parent / "none"))))


def test_a_report_says_how_many_labels_wait_and_what_to_do(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--store", str(store)]) == 1
    assert f"then run: trueodds store upgrade --store {store}" in capsys.readouterr().err
    assert main(["store", "upgrade", "--store", str(store)]) == 0
    out = capsys.readouterr().out
    assert f"The store before the upgrade is kept as {store}.schema-6" in out
    assert "9 labels of stars/v1 are doubtful" in out and "pets" not in out
    assert main(["store", "upgrade", "--store", str(store)]) == 0
    assert "Nothing was changed" in capsys.readouterr().out
    with client_of(store) as client:
        query = {"model": "stars", "version": "v1"}
        report = client.get("/calibration-report", params=query).json()
        assert report["labelled"] == 0
        assert any(n.startswith("9 labels of this version are in no number here") for n in report["cautions"])
        page = client.get("/calibration-report", params={**query, "format": "html"}).text
        assert "9 labels of this version are in no number here" in page
        planned = client.post(SETTLE, json={"decision": "as_names", "dry_run": True, **SIGNED}).json()
        settled = client.post(SETTLE, json={"decision": "as_names", "model": "stars", **SIGNED})
        assert settled.status_code == 200 and settled.json()["versions"] == planned["versions"]
        assert settled.json()["versions"][0] == {
            "model": "stars",
            "version": "v1",
            "confirmed": 8,
            "voided": 0,
            "waiting": 1,
        }
        report = client.get("/calibration-report", params=query).json()
        assert report["labelled"] == 8
        (note,) = [n for n in report["cautions"] if "in no number here" in n]
        assert note.startswith("1 label of") and "Ada settled 8 labels that had been doubtful" in note
    assert main(["store", "settle", "void", "--who", "Ada", "--why", "unknown", "--store", str(store)]) == 0
    assert "stars/v1: Settled: 1 label voided." in capsys.readouterr().out


def test_what_cannot_be_settled_is_refused(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["store", "upgrade", "--store", str(store)]) == 0
    with client_of(store) as client:
        for body, words in (
            ({"decision": "perhaps", **SIGNED}, "decision"),
            ({"decision": "void"}, "who"),
            ({"decision": "void", **SIGNED, "import_id": "two words"}, "import_id is 'two words'"),
            ({"decision": "void", **SIGNED, "since": 20, "until": 10}, "is not before until"),
        ):
            assert words in client.refusal(SETTLE, body)
        assert client.post(SETTLE, json={"decision": "void", **SIGNED, "model": "none"}).status_code == 404
    capsys.readouterr()
    assert main(["store", "upgrade", "--store", str(store.parent / "none")]) == 1
    assert "does not exist" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["store", "settle", "perhaps", "--who", "Ada", "--why", "x"])
