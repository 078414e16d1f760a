"""The texts of the focal paper by name: the folders that their archives unpack to, and how they are read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from pipeline.config import Data
from pipeline.data.raw import DataError, Kind, Raw
from pipeline.data.texts import downloads, newsgroups, sst
from pipeline.data.texts.downloads import NEWS, TREES, Download


class Archive(NamedTuple):
    """folders: its names once unpacked. validation_rows: how many are held out where it brings none.

    url: where its maker has it. download: what is fetched where no folder is there; None: nothing.
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
    """What the card says of the data set: which of several it is, and what was taken out; nothing of one's own."""
    removed = " and ".join(params.remove) or "nothing"
    if params.dataset == newsgroups.BY_DATE:
        split = "the test posts are later than the training posts"
        paper = "The focal paper splits the original 19,997 posts at random, 15,098 / 900 / 3,999."
        return [f"20 Newsgroups by date: {split}; removed from the posts: {removed}. {paper}"]
    if params.dataset == newsgroups.ORIGINAL:
        return [f"20 Newsgroups, the original posts split at random; removed from them: {removed}."]
    if params.dataset == "sst-binary":
        return ["SST: sentences whose root is not neutral; inner nodes may be, and the net answers by the other two."]
    return []


def find(name: str, places: list[Path], fetched: Path) -> Path:
    """The folder of a data set: the first of `places`, or its download below `fetched`.

    Raises:
        DataError: it is not there, and cannot be downloaded.
    """
    archive = ARCHIVES[name]
    folders = [place / folder for place in places for folder in archive.folders]
    if there := next(filter(Path.is_dir, folders), None):
        return there
    cure = f"fetch {archive.url}, and name the folder that holds it: data.path, or TRUEODDS_DATA=<folder>"
    problem = f"data set {name!r} is not there: looked for {', '.join(f'{folder}/' for folder in folders)}"
    if archive.download is None:
        raise DataError(f"{problem}; {cure}")
    members = archive.download.members
    home = fetched if members[0] in archive.folders else fetched / archive.folders[0]
    try:
        downloads.fetch(archive.download, home, cure)
    except DataError as error:
        raise DataError(f"{problem}; {error}") from None
    return home / members[0] if home is fetched else home
