"""The texts of the focal paper by name: the folders that their archives unpack to, and how they are read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from pipeline.config import Data
from pipeline.data.raw import DataError, Kind, Raw
from pipeline.data.texts import newsgroups, sst


class Archive(NamedTuple):
    """folders: its names once unpacked. validation_rows: how many are held out where it brings none."""

    kind: Kind
    validation_rows: int
    folders: tuple[str, ...]
    url: str
    read: Callable[[Path, Data], Raw]


_NEWS, _TREES = "http://qwone.com/~jason/20Newsgroups", "https://nlp.stanford.edu/sentiment/trainDevTestTrees_PTB.zip"
ARCHIVES = {
    newsgroups.BY_DATE: Archive(
        "text", 900, (newsgroups.BY_DATE,), f"{_NEWS}/20news-bydate.tar.gz, unpacked in a folder of that name",
        lambda folder, params: newsgroups.read_by_date(folder, params.remove),
    ),
    newsgroups.ORIGINAL: Archive(
        "text", 900, (newsgroups.ORIGINAL,), f"{_NEWS}/20news-19997.tar.gz",
        lambda folder, params: newsgroups.read_original(folder, params.remove),
    ),
    "sst-binary": Archive("tree", 872, sst.FOLDERS, _TREES, lambda folder, _: sst.read(folder, fine=False)),
    "sst-fine": Archive("tree", 1101, sst.FOLDERS, _TREES, lambda folder, _: sst.read(folder, fine=True)),
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


def missing(name: str, places: list[Path]) -> DataError:
    """The error that an archive is not there."""
    archive = ARCHIVES[name]
    looked = ", ".join(f"{place}/{folder}/" for place in places for folder in archive.folders)
    cure = f"fetch {archive.url}, and name the folder that holds it: data.path, or TRUEODDS_DATA=<folder>"
    return DataError(f"data set {name!r} is not there: looked for {looked}; {cure}")
