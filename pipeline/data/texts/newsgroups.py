"""20 Newsgroups: posts of twenty groups, by date as its archive has them, or the 19,997 posts of the original."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

import numpy as np

from pipeline.data.raw import DataError, Labels, Raw, TextRows

BY_DATE = "20news-bydate"
"""The folder that holds 20news-bydate-train/ and 20news-bydate-test/ of the archive 20news-bydate.tar.gz."""
ORIGINAL = "20_newsgroups"
"""The folder of 20news-19997.tar.gz, a folder for each group; no split by date."""
_QUOTE = re.compile(r"writes in|writes:|wrote:|says:|said:|^In article|^Quoted from|^\||^>")


def read_by_date(folder: Path, remove: Collection[str]) -> Raw:
    """11,314 training and 7,532 test posts, which came later than those; in the order of groups and files.

    remove: what is taken out of each post (`without`).

    Raises:
        DataError: no such folders, a group that one of them lacks, a group without posts.
    """
    splits = {split: folder / f"{BY_DATE}-{split}" for split in ("train", "test")}
    for path in splits.values():
        if not path.is_dir():
            raise DataError(
                f"{path} does not exist; unpack 20news-bydate.tar.gz (http://qwone.com/~jason/20Newsgroups) in {folder}"
            )
    groups = _groups(splits["train"])
    if (others := _groups(splits["test"])) != groups:
        odd = sorted({*groups} ^ {*others})[0]
        raise DataError(f"{folder}: only one of its two folders has the group {odd!r}; unpack the archive again")
    train, test = (_posts(path, groups, remove) for path in splits.values())
    return Raw(*train, *test, groups)


def read_original(folder: Path, remove: Collection[str]) -> Raw:
    """All posts of all groups, in the order of groups and files, without a test split. Raises DataError as above."""
    groups = _groups(folder)
    return Raw(*_posts(folder, groups, remove), None, None, groups)


def without(post: str, remove: Collection[str]) -> str:
    """A post without `headers` (up to the first blank line), `footers` (from the last line that is blank or of hyphens
    on) and `quotes` (lines that begin with > or |, and those that say who wrote what): those of them that are named.

    They are removed in this order, as scikit-learn's fetch_20newsgroups does.
    """
    if "headers" in remove:
        post = post.partition("\n\n")[2]
    if "footers" in remove:
        lines = post.strip().split("\n")
        last = next((k for k in range(len(lines) - 1, -1, -1) if not lines[k].strip().strip("-")), 0)
        post = "\n".join(lines[:last]) if last else post
    if "quotes" in remove:
        post = "\n".join(line for line in post.split("\n") if not _QUOTE.search(line))
    return post


def _groups(folder: Path) -> tuple[str, ...]:
    return tuple(sorted(path.name for path in folder.iterdir() if path.is_dir()))


def _posts(folder: Path, groups: tuple[str, ...], remove: Collection[str]) -> tuple[TextRows, Labels]:
    posts: list[str] = []
    labels: list[int] = []
    for label, group in enumerate(groups):
        files = sorted(path for path in (folder / group).iterdir() if path.name.isdigit())
        if not files:
            raise DataError(f"{folder / group} holds no post, a file named by a number; unpack the archive again")
        posts += [without(path.read_text(encoding="latin-1"), remove) for path in files]
        labels += [label] * len(files)
    return TextRows(posts), np.array(labels, dtype=np.int64)
