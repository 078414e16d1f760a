"""20 Newsgroups: posts of twenty groups, split by date as in its archive, or the 19,997 posts of the original."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

import numpy as np

from pipeline.data.raw import DataError, Labels, Raw, TextRows

BY_DATE = "20news-bydate"
"""Folder with 20news-bydate-train/ and 20news-bydate-test/ of the archive 20news-bydate.tar.gz."""
ORIGINAL = "20_newsgroups"
"""Folder of 20news-19997.tar.gz with a folder for each group; it has no split."""
_QUOTE = re.compile(r"writes in|writes:|wrote:|says:|said:|^In article|^Quoted from|^\||^>")


def read_by_date(folder: Path, remove: Collection[str]) -> Raw:
    """Read 11,314 training posts and 7,532 later test posts, in the order of groups and files.

    Args:
        folder: The unpacked archive.
        remove: Parts to remove from each post (`without`).

    Raises:
        DataError: A folder is missing, one folder lacks a group, or a group has no posts.
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
    """Read all posts of all groups, in the order of groups and files, without a test split.

    Raises:
        DataError: A group has no posts.
    """
    groups = _groups(folder)
    return Raw(*_posts(folder, groups, remove), None, None, groups)


def without(post: str, remove: Collection[str]) -> str:
    """Return a post without some of its parts.

    `headers` end at the first blank line. `footers` start at the last line that is blank or of hyphens. `quotes` are
    lines that begin with > or |, and lines that name the author of a quote. They are removed in this order, as
    scikit-learn's fetch_20newsgroups does.
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
    """Return the names of the groups."""
    return tuple(sorted(path.name for path in folder.iterdir() if path.is_dir()))


def _posts(folder: Path, groups: tuple[str, ...], remove: Collection[str]) -> tuple[TextRows, Labels]:
    """Return the posts of all groups with their labels."""
    posts: list[str] = []
    labels: list[int] = []
    for label, group in enumerate(groups):
        files = sorted(path for path in (folder / group).iterdir() if path.name.isdigit())
        if not files:
            raise DataError(f"{folder / group} holds no post (a file named by a number); unpack the archive again")
        posts += [without(path.read_text(encoding="latin-1"), remove) for path in files]
        labels += [label] * len(files)
    return TextRows(posts), np.array(labels, dtype=np.int64)
