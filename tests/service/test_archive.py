"""The archive of a running service: its settings, metrics, and what it says while it fails."""

from __future__ import annotations

import time
from importlib.util import find_spec
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from pipeline.cli import doctor
from service.app import create_app
from service.settings import Settings
from tests.service.app_client import Client
from tests.service.hooks import until
from tests.service.test_process import server
from tests.service.tiny_bundle import CLASSES, write_bundle
from trueodds.bundle import open_models
from trueodds.client import Client as Calls

OLD = time.time() - 20 * 86_400


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"archive": "old"}, r"retention_days is not set.*set --retention-days \(TRUEODDS_RETENTION_DAYS\) too"),
        ({"archive": "http://a/b", "retention_days": 9}, r"allowed are s3://bucket/prefix, gs://bucket/prefix and the"),
        ({"archive": "memory://a", "retention_days": 9}, r"allowed are s3://bucket/prefix"),
        ({"archive": "s3:///", "retention_days": 9}, r"allowed are s3://bucket/prefix"),
        ({"archive": "S3://bucket/a", "retention_days": 9}, r"allowed are s3://bucket/prefix"),
    ],
)
def test_an_archive_that_cannot_be(values: dict[str, str], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Settings.model_validate(values)


@pytest.mark.skipif(find_spec("gcsfs") is not None, reason="gcsfs is installed")
def test_a_bucket_of_google_needs_gcsfs() -> None:
    with pytest.raises(ValidationError, match=r"gs://a/b needs the package gcsfs.*pip install gcsfs"):
        Settings.model_validate({"archive": "gs://a/b", "retention_days": 9})


def test_an_archive_needs_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.settings.find_spec", lambda name: None)
    with pytest.raises(ValidationError, match=r"needs pyarrow.*pip install 'trueodds\[serve,table\]'"):
        Settings.model_validate({"archive": "old", "retention_days": 9})
    assert not Settings.model_validate({"retention_days": 9}).archives
    assert not Settings.model_validate({"archive": "off"}).archives


def test_a_service_archives_and_says_so(models: Path, tmp_path: Path) -> None:
    folder = tmp_path / "archive"
    folder.write_text("in the way")
    store = tmp_path / "store.sqlite"
    settings = Settings(models=models, store=store, threads=1, retention_days=9, archive=str(folder))
    rows = [{"id": f"a-{k}", "probabilities": [0.7, 0.1, 0.1, 0.1], "time": OLD + k} for k in range(5)]
    with Client(create_app(settings.model_copy(update={"archive": "", "retention_days": None}))) as client:
        whose = {"model": "other", "version": "1", "classes": list(CLASSES)}
        assert client.post("/observe", json={**whose, "observations": rows}).status_code == 200
        client.label([{"id": "a-0", "index": 0, "model": "other"}])
        until(lambda: "trueodds_label_age_seconds{" in client.get("/metrics").text)
        assert "trueodds_archive" not in client.get("/metrics").text
        exported = client.get("/predictions", params={"model": "other", "format": "parquet"}).content
    with Client(create_app(settings)) as client:
        until(lambda: "trueodds_archive_failing 1.0" in client.get("/metrics").text)
        health = client.get("/health/ready").json()
        assert health["status"] == "ready" and health["problem"].startswith("the archive cannot be written, so old")
        assert str(folder) not in health["problem"], "everybody may read it"
        assert client.get("/predictions/a-1").status_code == 200
    folder.unlink()
    with Client(create_app(settings)) as client:
        until(lambda: "trueodds_archived_answers 5.0" in client.get("/metrics").text)
        until(lambda: client.get("/health/ready").json().get("problem") is None)
        text = client.get("/metrics").text
        for line in (
            "archived_files 1.0",
            "archive_waiting_answers 0.0",
            "archive_failures 1.0",
            "archive_failing 0.0",
        ):
            assert f"trueodds_{line}" in text
        assert "trueodds_archive_last_timestamp_seconds 1" in text
        gone = client.get("/predictions/a-1")
        assert gone.status_code == 404 and "or in the archive" in gone.json()["error"]["message"]
    (file,) = folder.rglob("*.parquet")
    (tmp_path / "exported.parquet").write_bytes(exported)
    kept = pq.read_table(file).select(pq.read_schema(tmp_path / "exported.parquet").names)
    assert kept.equals(pq.read_table(tmp_path / "exported.parquet"))


@pytest.mark.full
def test_doctor_sees_an_archive_that_fails(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    open_models(tmp_path / "models").publish(write_bundle(tmp_path / "bundle"))
    with server(tmp_path, "--retention-days", "9", "--archive", str(tmp_path / "file")) as (http, _):
        client = Calls(str(http.base_url).rstrip("/"))
        until(lambda: client.problem())
        found = doctor.service(client, expected=True)
        assert found.state == "wrong" and "the archive cannot be written" in found.words and found.cure
