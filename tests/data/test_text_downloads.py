"""Official downloads of texts: from an archive of the same layout, with and without a network and a checksum."""

from __future__ import annotations

import hashlib
import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from pipeline import data
from pipeline.config import Data
from pipeline.data import DataError
from pipeline.data.texts import archives, downloads
from pipeline.data.texts.downloads import Download, fetch

NOWHERE = "http://127.0.0.1:9/no.zip"


def zipped(path: Path, **members: str) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in members.items():
            archive.writestr(name.replace("__", "/") + ".txt", text)
    return path


def tarred(path: Path, members: dict[str, str]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, text in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
    return path


def test_members_are_unpacked_once(tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.zip", trees__train="(1 a)", trees__dev="(0 b)", other__x="no")
    download = Download(path.as_uri(), ("trees",))
    fetch(download, tmp_path / "out", "")
    assert sorted(p.name for p in (tmp_path / "out" / "trees").iterdir()) == ["dev.txt", "train.txt"]
    assert sorted(p.name for p in (tmp_path / "out").iterdir() if p.name[0] != ".") == ["trees"]
    path.unlink()
    fetch(download, tmp_path / "out", "")


def test_a_checksum_is_held(tmp_path: Path) -> None:
    path = tarred(tmp_path / "a.tar.gz", {"./news/x/1": "post", "../evil": "no"})
    good = hashlib.sha256(path.read_bytes()).hexdigest()
    with pytest.raises(DataError, match=rf"has the SHA-256 {good}, expected is 00: damaged, or another file"):
        fetch(Download(path.as_uri(), ("news",), "00"), tmp_path / "out", "")
    fetch(Download(path.as_uri(), ("news",), good), tmp_path / "out", "")
    assert (tmp_path / "out" / "news" / "x" / "1").read_text() == "post" and not (tmp_path / "evil").exists()


def test_a_member_that_leads_out_of_its_folder_is_refused(tmp_path: Path) -> None:
    path = tarred(tmp_path / "a.tar.gz", {"news/1": "post", "news/../../../evil": "no"})
    with pytest.raises(DataError, match=r"cannot be unpacked \(news/\.\./\.\./\.\./evil leads out of its folder\)"):
        fetch(Download(path.as_uri(), ("news",)), tmp_path / "out", "")
    assert not list(tmp_path.glob("**/evil")) and not (tmp_path / "out" / "news").exists()


@pytest.mark.parametrize("content", [b"no archive", b""])
def test_what_cannot_be_unpacked(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.zip").write_bytes(content)
    with pytest.raises(DataError, match=r"cannot be unpacked \(.*\); expected is an archive with trees"):
        fetch(Download((tmp_path / "a.zip").as_uri(), ("trees",)), tmp_path / "out", "")
    path = zipped(tmp_path / "b.zip", other="x")
    with pytest.raises(DataError, match="expected is an archive with trees"):
        fetch(Download(path.as_uri(), ("trees",)), tmp_path / "out", "")
    assert not (tmp_path / "out" / "trees").exists()


def test_data_sets_are_fetched_by_name(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = "(3 (2 x) (4 good))\n(1 (2 x) (0 bad))\n" * 8
    path = zipped(workspace / "a.zip", trees__train=tree, trees__dev=tree, trees__test=tree)
    vectors = zipped(workspace / "glove.zip", **{"glove.6B.50d": "x 1 2\ngood 3 4\nbad 5 6\n"})
    archive = archives.ARCHIVES["sst-binary"]
    monkeypatch.setitem(archives.ARCHIVES, "sst-binary", archive._replace(download=Download(path.as_uri(), ("trees",))))
    wanted = Data(dataset="sst-binary", embeddings="glove.6B.50d.txt")
    offline = Download(NOWHERE, ("glove.6B.50d.txt",))
    monkeypatch.setattr(downloads, "GLOVE", {"glove.6B.50d.txt": offline})
    assert data.kind_of(wanted) == "tree" and not (workspace / "downloads").exists()
    with pytest.raises(DataError, match=r"no\.zip could not be downloaded .*; put the file into a folder and"):
        data.load(wanted)
    found = Download(vectors.as_uri(), ("glove.6B.50d.txt",))
    monkeypatch.setattr(downloads, "GLOVE", {"glove.6B.50d.txt": found})
    dataset = data.load(wanted)
    assert dataset.card["splits"] == {"train": 16, "val": 16, "test": 16}
    assert dataset.vectors is not None and dataset.vectors.shape[1] == 2
    assert (data.downloads() / "trees" / "train.txt").is_file()


def test_without_a_network_the_place_is_named(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = archives.ARCHIVES["20news-bydate"]
    offline = Download(NOWHERE, ("20news-bydate-train", "20news-bydate-test"))
    monkeypatch.setitem(archives.ARCHIVES, "20news-bydate", archive._replace(download=offline))
    with pytest.raises(
        DataError,
        match=r"was not found: searched .*20news-bydate/; .*could not be downloaded .*TRUEODDS_DATA=<folder>",
    ):
        data.load(Data(dataset="20news-bydate"))
    with pytest.raises(
        DataError, match=r"'20_newsgroups' was not found: .*; download http://qwone\.com/.*20news-19997"
    ):
        data.load(Data(dataset="20_newsgroups"))
