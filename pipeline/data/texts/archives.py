"""Text data sets of the focal paper by name: folders of their archives, and functions that read them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from pipeline.config import Data
from pipeline.data.raw import DataError, Kind, Raw
from pipeline.data.texts import downloads, newsgroups, sst
from pipeline.data.texts.downloads import NEWS, TREES, Download


class Archive(NamedTuple):
    """A text data set.

    Attributes:
        kind: Kind of its rows.
        validation_rows: Number of validation rows to draw if it has none.
        folders: Names of its unpacked folder.
        url: Address of its archive.
        read: Function that reads the folder.
        download: Archive to download if no folder is present; None if it cannot be downloaded.
    """

    kind: Kind
    validation_rows: int
    folders: tuple[str, ...]
    url: str
    read: Callable[[Path, Data], Raw]
    download: Download | None = None


_NEWS = "http://qwone.com/~jason/20Newsgroups"
ARCHIVES = {
    newsgroups.BY_DATE: Archive(
        "text", 900, (newsgroups.BY_DATE,), f"{_NEWS}/20news-bydate.tar.gz, unpacked in a folder of that name",
        lambda folder, params: newsgroups.read_by_date(folder, params.remove), NEWS,
    ),
    newsgroups.ORIGINAL: Archive(
        "text", 900, (newsgroups.ORIGINAL,), f"{_NEWS}/20news-19997.tar.gz",
        lambda folder, params: newsgroups.read_original(folder, params.remove),
    ),
    "sst-binary": Archive(
        "tree", 872, sst.FOLDERS, TREES.url, lambda folder, _: sst.read(folder, fine=False), TREES,
    ),
    "sst-fine": Archive(
        "tree", 1101, sst.FOLDERS, TREES.url, lambda folder, _: sst.read(folder, fine=True), TREES,
    ),
}  # fmt: skip


def notes(params: Data) -> list[str]:
    """Return notes for the card: the variant of the data set and the removed parts; empty for your own data."""
    removed = " and ".join(params.remove) or "nothing"
    if params.dataset == newsgroups.BY_DATE:
        split = "the test posts are later than the training posts"
        paper = "The focal paper splits the original 19,997 posts at random, 15,098 / 900 / 3,999."
        return [f"20 Newsgroups by date: {split}; removed from the posts: {removed}. {paper}"]
    if params.dataset == newsgroups.ORIGINAL:
        return [f"20 Newsgroups, the original posts split at random; removed from them: {removed}."]
    if params.dataset == "sst-binary":
        return ["SST: sentences whose root is not neutral. Inner nodes may be neutral; the net predicts the other two."]
    return []


def find(name: str, places: list[Path], download_folder: Path) -> Path:
    """Return the folder of a data set: the first that exists below `places`, or its download below `download_folder`.

    Raises:
        DataError: There is none, and it cannot be downloaded.
    """
    archive = ARCHIVES[name]
    folders = [place / folder for place in places for folder in archive.folders]
    if there := next(filter(Path.is_dir, folders), None):
        return there
    cure = f"download {archive.url}, and name the folder that holds it: data.path, or TRUEODDS_DATA=<folder>"
    problem = f"data set {name!r} was not found: searched {', '.join(f'{folder}/' for folder in folders)}"
    if archive.download is None:
        raise DataError(f"{problem}; {cure}")
    members = archive.download.members
    home = download_folder if members[0] in archive.folders else download_folder / archive.folders[0]
    try:
        downloads.fetch(archive.download, home, cure)
    except DataError as error:
        raise DataError(f"{problem}; {error}") from None
    return home / members[0] if home is download_folder else home
