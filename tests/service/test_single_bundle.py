"""`--bundle`: one bundle's folder in place of a folder of published ones, as a storage initialiser mounts it."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.__main__ import main
from service.app import create_app
from service.models import registry
from service.settings import Settings
from tests.service.app_client import Client
from tests.service.hooks import until
from tests.service.test_models import listed, refusal, served
from tests.service.tiny_bundle import write_bundle
from trueodds.bundle import CARD, Bundle


def test_its_model_is_called_as_its_card_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "LOOK_SECONDS", 0.02)
    folder = write_bundle(tmp_path / "mnt" / "models")
    bundle = Bundle.load(folder)
    key, found = (bundle.card.name, bundle.version), sorted(folder.rglob("*"))
    with Client(create_app(Settings(bundle=folder, models=tmp_path / "none", store=tmp_path / "s.sqlite"))) as client:
        assert served(client) == served(client, model=key[0]) == served(client, model=key[0], version=key[1]) == key
        assert [v["meant_as"] for v in listed(client, key[0])["versions"]] == [["default"]]
        assert client.get("/health/ready").json()["version"] == key[1]
        assert sorted(folder.rglob("*")) == found, "a folder that is mounted read-only"
        folder.rename(tmp_path / "gone")
        until(lambda: not folder.exists())
        assert served(client) == key


def test_a_folder_that_is_no_bundle_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "LOOK_SECONDS", 0.02)
    folder = tmp_path / "models"
    with Client(create_app(Settings(bundle=folder, store=tmp_path / "s.sqlite"))) as client:
        status, message = refusal(client)
        assert status == 503 and f"{folder / CARD} is missing: {folder} is not a complete bundle" in message
        write_bundle(folder)
        until(lambda: ready(client) == 200)


def ready(client: Client) -> int:
    return client.get("/health/ready").status_code


def test_one_bundle_or_many(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--bundle", str(tmp_path), "--models", str(tmp_path)]) == 2
    assert "--bundle and --models exclude each other" in capsys.readouterr().err
