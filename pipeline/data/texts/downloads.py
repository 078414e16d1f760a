"""Official downloads of texts and word vectors, each unpacked once into the folder of downloads."""

from __future__ import annotations

import hashlib
import logging
import shutil
import tarfile
import tempfile
import urllib.request
import zipfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from filelock import FileLock

from pipeline.data.raw import DataError
from trueodds.files import naming
from trueodds.processes.progress import bar

log = logging.getLogger("pipeline.data")
BLOCK = 1 << 20
SECONDS = 60


class Download(NamedTuple):
    """An archive and its members to unpack.

    Attributes:
        url: Address of a .tar.gz or .zip.
        members: Files and folders to unpack.
        sha256: SHA-256 of the archive; empty if none is published. Then the content is checked when it is read.
    """

    url: str
    members: tuple[str, ...]
    sha256: str = ""


_GLOVE = "https://nlp.stanford.edu/data"
GLOVE: Mapping[str, Download] = {
    **{
        f"glove.6B.{width}d.txt": Download(f"{_GLOVE}/glove.6B.zip", (f"glove.6B.{width}d.txt",))
        for width in (50, 100, 200, 300)
    },
    "glove.840B.300d.txt": Download(f"{_GLOVE}/glove.840B.300d.zip", ("glove.840B.300d.txt",)),
}
"""File name -> download. The archives have 862 MB, and 2.2 GB for the last."""
NEWS = Download(
    "https://ndownloader.figshare.com/files/5975967",  # the copy that scikit-learn uses, with its checksum
    ("20news-bydate-train", "20news-bydate-test"),
    "8f1b2514ca22a5ade8fbb9cfa5727df95fa587f4c87b786e15c759fa66d95610",
)
TREES = Download("https://nlp.stanford.edu/sentiment/trainDevTestTrees_PTB.zip", ("trees",))


def fetch(download: Download, folder: Path, cure: str) -> None:
    """Download an archive and unpack its members into `folder`, unless all are present.

    Args:
        download: The archive.
        folder: Folder of the members.
        cure: Advice for the message if there is no network.

    Raises:
        DataError: There is no network, or the archive has a wrong checksum or lacks a member.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / f".{download.members[0]}.lock"):  # of two simultaneous runs, one downloads
        if all((folder / member).exists() for member in download.members):
            return
        with naming(folder), tempfile.TemporaryDirectory(prefix=".download-", dir=folder) as aside:
            archive = Path(aside) / "archive"
            try:
                digest = _get(download.url, archive)
            except OSError as error:
                raise DataError(f"{download.url} could not be downloaded ({error}); {cure}") from None
            if download.sha256 not in ("", digest):
                problem = f"the download from {download.url} has the SHA-256 {digest}, expected is {download.sha256}"
                raise DataError(f"{problem}: damaged, or another file. Run again")
            try:
                _unpack(archive, Path(aside), download.members)
                for member in download.members:
                    shutil.move(Path(aside) / member, folder / member)
            except (KeyError, tarfile.TarError, zipfile.BadZipFile, OSError) as error:
                expected = f"expected is an archive with {' and '.join(download.members)}"
                problem = f"the download from {download.url} cannot be unpacked ({' '.join(str(error).split())})"
                raise DataError(f"{problem}; {expected}. Run again") from None
    log.info("%s: downloaded from %s", ", ".join(download.members), download.url)


def _get(url: str, path: Path) -> str:
    """Download to a file and return its SHA-256."""
    digest = hashlib.sha256()
    with urllib.request.urlopen(url, timeout=SECONDS) as answer, path.open("wb") as file:
        size = int(answer.headers.get("content-length") or 0)
        with bar(-(-size // BLOCK), "download", "MB") as progress:
            while block := answer.read(BLOCK):
                file.write(block)
                digest.update(block)
                progress.update()
    return digest.hexdigest()


def _unpack(archive: Path, folder: Path, members: tuple[str, ...]) -> None:
    """Unpack the members of an archive into a folder."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as opened:
            for name in opened.namelist():
                if name.partition("/")[0] in members:
                    opened.extract(name, folder)  # which removes parts such as .. from names
        return
    with tarfile.open(archive) as opened:
        for one in opened:  # `extractall` needs its filter to be safe, which Python 3.11.2 (Debian 12) lacks
            parts = PurePosixPath(one.name).parts
            if parts[:1] and parts[0] in members and (file := opened.extractfile(one) if one.isfile() else None):
                if ".." in parts:
                    raise tarfile.ReadError(f"{one.name} leads out of its folder")
                path = folder.joinpath(*parts)
                path.parent.mkdir(parents=True, exist_ok=True)
                with file, path.open("wb") as target:
                    shutil.copyfileobj(file, target)
