"""Published records and forecasts: found, verified, downloaded, and refused with a cure."""

from __future__ import annotations

import hashlib
import lzma
from pathlib import Path

import pytest

from pipeline.published_data.collections import (
    COLLECTIONS,
    MIRROR,
    Collection,
    PublishedDataError,
    PublishedFile,
    find,
)
from pipeline.published_data.command import NAMES
from trueodds.errors import ConfigError

CONTENT = b"date,prob1\n2020-01-01,0.7\n"
FILE = PublishedFile("games.csv", "https://example.org/games.csv", hashlib.sha256(CONTENT).hexdigest())


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COLLECTIONS, "forecasts", Collection("games", "none", (FILE,)))
    monkeypatch.delenv(MIRROR, raising=False)


def never(url: str) -> bytes:
    raise AssertionError(f"{url} is downloaded")


def test_a_download_is_kept_and_verified_again(tmp_path: Path) -> None:
    asked: list[str] = []

    def get(url: str) -> bytes:
        asked.append(url)
        return CONTENT

    (path,) = find("forecasts", tmp_path / "out", get)
    assert path.read_bytes() == CONTENT and asked == [FILE.url]
    assert find("forecasts", tmp_path / "out", never) == [path]
    path.write_bytes(CONTENT[:-1])
    with pytest.raises(PublishedDataError, match=rf"{path} has the SHA-256 .* has {FILE.sha256}\. Delete it"):
        find("forecasts", tmp_path / "out", never)


@pytest.mark.parametrize("packed", [False, True])
def test_the_mirror_is_searched_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: bool) -> None:
    mirror = tmp_path / "mirror" / "forecasts"
    mirror.mkdir(parents=True)
    place = mirror / ("games.csv.xz" if packed else "games.csv")
    place.write_bytes(lzma.compress(CONTENT) if packed else CONTENT)
    monkeypatch.setenv(MIRROR, str(tmp_path / "mirror"))
    assert find("forecasts", tmp_path / "out", never) == [place]
    if packed:
        place.write_bytes(place.read_bytes()[:-9])
        with pytest.raises(PublishedDataError, match=r"is not a whole \.xz file"):
            find("forecasts", tmp_path / "out", never)


def test_another_file_at_the_address_is_refused_and_not_kept(tmp_path: Path) -> None:
    with pytest.raises(PublishedDataError, match=r"https://example.org/games.csv has the SHA-256 .* Run the command"):
        find("forecasts", tmp_path / "out", lambda _: b"404")
    assert not (tmp_path / "out").exists()


def test_without_a_network_the_message_names_the_folder(tmp_path: Path) -> None:
    def get(_: str) -> bytes:
        raise OSError("no route")

    with pytest.raises(PublishedDataError, match=r"\(no route\)\. Without a network, put games.csv or games.csv.xz"):
        find("forecasts", tmp_path / "out", get)


def test_the_command_knows_the_collections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert set(NAMES) == set(COLLECTIONS)
    for collection in COLLECTIONS.values():
        assert all(len(file.sha256) == 64 and file.url.endswith(file.name) for file in collection.files)
    with pytest.raises(ConfigError, match="unknown collection"):
        find("weights")
