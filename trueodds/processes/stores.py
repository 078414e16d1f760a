"""Stores and archives of a service, as a report reads them: the form of a copy, and the names in an archive."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote, unquote

from trueodds.errors import MissingExtraError, UserError

LATE_LABELS = "labels-"
"""Beginning of the names of an archive's files of labels, in the folder of their model."""
NUMBERS = ("confidence", "propensity")
"""Columns of numbers in an archive's files that are not the probability of a class."""


class StoreUnreadableError(UserError, OSError):
    """A store cannot be read. The message gives the reason and the cure."""


def folder_of(name: str) -> str:
    """Return the folder of a model or version: its name, with other characters than letters and digits as %XX.

    Examples:
        >>> folder_of("mail~shadow"), folder_of("../a b")
        ('mail~shadow', '%2E.%2Fa%20b')
    """
    quoted = quote(name, safe="")
    return f"%2E{quoted[1:]}" if quoted.startswith(".") else quoted


def name_of(folder: str) -> str:
    """Return the model or version of a folder.

    Examples:
        >>> name_of(folder_of("../a b"))
        '../a b'
    """
    return unquote(folder)


@dataclass(frozen=True)
class StoredVersion:
    """A version whose answers a store has, or has archived."""

    version: str
    classes: tuple[str, ...]
    has_columns: bool
    """Whether its files have a column for each class."""
    answers: int
    """Number of copied answers."""
    archive_files: dict[str, int]
    """Number of answers by name of each file that the store has written to its archive."""


@dataclass(frozen=True)
class StoreCopy:
    """The answers of a model, copied from one snapshot of a store.

    An answer that the store has archived, and has not removed yet, is not copied. One whose file is not verified yet
    is copied, and may be in the archive as well.
    """

    name: str
    """Address of the store without a password."""
    versions: tuple[StoredVersion, ...]
    answers: tuple[Path, ...]
    """Parquet files with the columns of the archive that reports need."""
    labels: Path | None
    """Parquet file of the labels that wait for an answer: id, label, is_index, time. None: there are none."""


class StoreReader(Protocol):
    """Reads a store, and writes nothing to it."""

    def versions(self, address: str) -> list[tuple[str, str]]:
        """Return model and version of all versions of a store.

        Raises:
            StoreUnreadableError: The store cannot be read.
        """

    def copy(self, address: str, model: str, version: str | None, folder: Path) -> StoreCopy:
        """Copy a model's answers, or those of one version, to a folder.

        Raises:
            StoreUnreadableError: The store cannot be read.
        """


def store_reader() -> StoreReader:
    """Return the reader of stores: `STORE_READER` of a package that registers commands. The library does not know it.

    Raises:
        MissingExtraError: There is none, or one of its packages is not installed.
    """
    for entry in metadata.entry_points(group="trueodds.commands"):
        place = getattr(importlib.import_module(entry.module), "STORE_READER", "")
        if place:
            module, _, name = place.partition(":")
            try:
                reader: Any = getattr(importlib.import_module(module), name)
            except ModuleNotFoundError as error:
                raise MissingExtraError("--store", (error.name or "").partition(".")[0], "serve") from None
            found: StoreReader = reader()
            return found
    raise MissingExtraError("--store", "service", "serve")
