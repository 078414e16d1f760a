"""The model folder as it is at one moment: which bundles lie there, and which of them is named for what.

Small files name a bundle for a role: a line with the version, in MODELS/default with the model before it.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from trueodds.bundle.bundle import BundleError
from trueodds.bundle.card import NAME

DEFAULT: Literal["default"] = "default"
SHADOW: Literal["shadow"] = "shadow"
RECALIBRATED: Literal["recalibrated"] = "recalibrated"
WAITING: Literal["waiting"] = "waiting"
IDENTITY = ".id"

Role = Literal["default", "shadow", "recalibrated", "waiting"]
"""default: it answers. shadow: a net under judgement. recalibrated: a calibrator under judgement, for the net that
answers. waiting: the net that becomes the shadow when the place is free."""
ROLES: tuple[Role, ...] = get_args(Role)
Key = tuple[str, str]
"""Model, version."""


@dataclass(frozen=True)
class PublishedModel:
    """One model's folder. A role that names no folder is None, and `Contents.problems` says so."""

    versions: frozenset[str]
    default: str | None = None
    shadow: str | None = None
    recalibrated: str | None = None
    waiting: str | None = None


@dataclass(frozen=True)
class Contents:
    """The models and versions of a model folder, and their roles."""

    default: Key | None = None
    models: dict[str, PublishedModel] = field(default_factory=dict)
    identity: str | None = None
    """Tells this model folder from others, wherever it is mounted; None before the first publication."""
    problems: tuple[str, ...] = ()
    """Models and versions that are named and not there; the first says why there is no default, if there is none."""

    def __contains__(self, key: Key) -> bool:
        return key[0] in self.models and key[1] in self.models[key[0]].versions

    @classmethod
    def read(cls, models: Path) -> Contents:
        """A directory listing per model and a few small files, .1 ms for ten versions.

        Raises:
            OSError: a folder that is there and cannot be read.
        """
        problems: list[str] = []
        default: Key | None = None
        try:
            default = default_of(models)
        except BundleError as error:
            problems.append(str(error))
        published = {name: _published(models / name, default, problems) for name in names_in(models)}
        return cls(default, published, identity_of(models), tuple(problems))


def names_in(folder: Path) -> list[str]:
    """Names of models or versions; what is being written aside begins with a dot, and is none."""
    try:
        with os.scandir(folder) as entries:
            return sorted(e.name for e in entries if re.fullmatch(NAME, e.name) and e.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def default_of(models: Path) -> Key:
    """The model and version that MODELS/default names.

    Raises:
        BundleError: there is no default, or it names a folder that is not there.
    """
    file = models / DEFAULT
    try:
        text = file.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        raise BundleError(f"no model yet: {file} does not exist. Publish one: trueodds publish") from None
    except UnicodeDecodeError:
        text = "(not text)"
    except OSError as error:
        raise BundleError(f"{file} cannot be read: {error.strerror}; publish again") from None
    # A pattern, not Path.parts: "/etc" has two parts as well, and leads out of MODELS.
    if not re.fullmatch(f"{NAME}/{NAME}", text) or not (models / text).is_dir():
        raise BundleError(f"{file} names {text!r}, which is not a folder <name>/<version> in {models}")
    name, _, version = text.partition("/")
    return name, version


def default_model_of(models: Path) -> str | None:
    """The model that MODELS/default names, whether or not the version that it names is there."""
    try:
        name, _, version = (models / DEFAULT).read_text(encoding="utf-8").strip().partition("/")
    except (OSError, UnicodeDecodeError):
        return None
    is_key = re.fullmatch(NAME, name) and re.fullmatch(NAME, version)
    return name if is_key and (models / name).is_dir() else None


def version_of(folder: Path, role: Role) -> str | None:
    """The version that has a role in a model's folder, there or not; None if none has."""
    try:
        return (folder / role).read_text(encoding="utf-8").strip()
    except (FileNotFoundError, UnicodeDecodeError):
        pass
    if role == DEFAULT:
        try:
            name, version = default_of(folder.parent)
        except BundleError:
            return None
        return version if name == folder.name else None
    return None


def identity_of(models: Path) -> str | None:
    """The identity that tells a model folder from others; None where nothing was ever published."""
    try:
        text = (models / IDENTITY).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return text if re.fullmatch("[0-9a-f]{16}", text) else None


def _published(folder: Path, default: Key | None, problems: list[str]) -> PublishedModel:
    versions = frozenset(names_in(folder))
    roles: dict[str, str | None] = {role: _present(folder / role, versions, problems) for role in ROLES}
    if roles[DEFAULT] is None and default and default[0] == folder.name:
        roles[DEFAULT] = default[1]
    return PublishedModel(versions, **roles)


def _present(file: Path, versions: frozenset[str], problems: list[str]) -> str | None:
    """The version that a role's file names, if it is there; if not, `problems` grows."""
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
