"""What lies in the MODELS directory: which models and versions, and which of them is meant for what."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from trueodds.bundle.bundle import CALIBRATOR, CARD, DEFAULT, MODEL, NAME, SHADOW, BundleError
from trueodds.bundle.model_folder import find_default, identity

Key = tuple[str, str]
"""Model, version."""
Signature = tuple[tuple[int, int, int] | None, ...]
"""Of a bundle's files: another one means that somebody has changed them."""


@dataclass(frozen=True)
class Published:
    """One model's folder. A default or shadow that names no folder is None, and `problems` says so."""

    versions: frozenset[str]
    default: str | None = None
    shadow: str | None = None


@dataclass(frozen=True)
class Catalogue:
    """The MODELS directory at one moment."""

    default: Key | None = None
    models: dict[str, Published] = field(default_factory=dict)
    folder: str | None = None
    """Its id (`trueodds.bundle.model_folder.identity`)."""
    problems: tuple[str, ...] = ()
    """What is named and not there; the first says why there is no default, if there is none."""

    def __contains__(self, key: Key) -> bool:
        return key[0] in self.models and key[1] in self.models[key[0]].versions


def scan(models: Path) -> Catalogue:
    """Read the folder: a directory listing per model and a few small files, .1 ms for ten versions.

    Raises:
        OSError: a folder that is there and cannot be read.
    """
    problems: list[str] = []
    default: Key | None = None
    try:
        folder = find_default(models)
        default = folder.parent.name, folder.name
    except BundleError as error:
        problems.append(str(error))
    found = {name: _published(models / name, default, problems) for name in _folders(models)}
    return Catalogue(default, found, identity(models), tuple(problems))


def signature(folder: Path) -> Signature:
    """Changes when one of a bundle's files does."""
    return tuple(_stamp(folder / name) for name in (MODEL, CALIBRATOR, CARD))


def _published(folder: Path, default: Key | None, problems: list[str]) -> Published:
    versions = frozenset(_folders(folder))
    named = {role: _named(folder / role, versions, problems) for role in (DEFAULT, SHADOW)}
    if named[DEFAULT] is None and default and default[0] == folder.name:
        named[DEFAULT] = default[1]
    return Published(versions, named[DEFAULT], named[SHADOW])


def _named(file: Path, versions: frozenset[str], problems: list[str]) -> str | None:
    try:
        version = file.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        problems.append(f"{file} cannot be read ({error}); publish again")
        return None
    if version not in versions:
        problems.append(f"{file} names {version[:100]!r}, which is not a folder in {file.parent}")
        return None
    return version


def _folders(folder: Path) -> list[str]:
    """Names of models or versions; what is being written aside begins with a dot, and is none."""
    try:
        with os.scandir(folder) as entries:
            return sorted(e.name for e in entries if re.fullmatch(NAME, e.name) and e.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
