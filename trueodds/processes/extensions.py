"""Calibrators, methods, nets and data sets that other installed distributions register as entry points.

A distribution registers an object in its `pyproject.toml`, for example a calibrator:

    [project.entry-points."trueodds.calibrators"]
    blend = "my_package.blend:Blend"

The metadata of the installed distributions is read when a table of names is first used. An object is imported when its
own name is used.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, Literal, NamedTuple

from trueodds.errors import UserError
from trueodds.texts import short

Group = Literal["calibrators", "methods", "nets", "datasets"]
"""Kind of object; the entry-point group is `trueodds.` and this word."""
_ONE = {"calibrators": "calibrator", "methods": "method", "nets": "net", "datasets": "data set"}
NAME = r"[A-Za-z][A-Za-z0-9_]*"
"""Pattern of a registered name. Names stand in expressions such as `focal+mmce` and in lists with spaces."""
OURS = "trueodds"
_REQUIREMENT = r"[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9][A-Za-z0-9.!+_-]*"


class ExtensionError(UserError, ValueError):
    """Error if a registered object cannot be used. The message names its distribution and states what to do."""


class Distribution(NamedTuple):
    """Name and version of an installed distribution."""

    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.name} {self.version}"

    @property
    def requirement(self) -> str:
        """Requirement that installs this version, as pip takes it."""
        return f"{self.name}=={self.version}"


@dataclass(frozen=True)
class Extension:
    """A registered object, which `load` imports.

    Attributes:
        group: Kind of the object.
        name: Name under which it is registered.
        value: Module and name in the module, as `package.module:Name`.
        distribution: Distribution that registers it.
    """

    group: Group
    name: str
    value: str
    distribution: Distribution

    def __str__(self) -> str:
        return f"{_ONE[self.group]} {self.name!r} of the distribution {self.distribution}"

    @property
    def title(self) -> str:
        """Group, name, distribution and version, as a plan names the object."""
        return f"{OURS}.{self.group}: {self.name} of {self.distribution.requirement}"

    def load(self) -> Any:
        """Import the object.

        Raises:
            ExtensionError: The import fails. The message contains the reason.
        """
        try:
            return metadata.EntryPoint(self.name, self.value, f"{OURS}.{self.group}").load()
        except Exception as error:
            raise self.error(f"cannot be imported from {self.value!r}: {type(error).__name__}: {error}") from error

    def error(self, problem: str) -> ExtensionError:
        """Build the error for an object that cannot be used."""
        name = self.distribution.name
        return ExtensionError(f"the {self} {problem}; install a version that works, or: pip uninstall {name}")

    def files(self) -> list[Path]:
        """List all files of the object's top-level package, or its one module, without bytecode.

        The package is not imported.

        Raises:
            ExtensionError: There is no such package.
        """
        return [file for root in self._roots() for file in sorted(_files(root))]

    def sha256(self) -> str:
        """Return the SHA-256 of `files` and their names.

        Raises:
            ExtensionError: There is no such package.
        """
        digest = hashlib.sha256()
        for root in self._roots():
            for file in sorted(_files(root)):
                name, content = file.relative_to(root.parent).as_posix(), file.read_bytes()
                digest.update(f"{name}\0{len(content)}\0".encode() + content)
        return digest.hexdigest()

    def _roots(self) -> list[Path]:
        """Return the folders of the top-level package, or the file of the module."""
        package = self.value.partition(":")[0].partition(".")[0].strip()
        spec = importlib.util.find_spec(package)
        if spec is None:
            raise self.error(f"cannot be imported: there is no package {package!r}")
        places = spec.submodule_search_locations
        return [Path(place) for place in places] if places is not None else [Path(spec.origin or "")]


def names(group: Group, builtin: Collection[str]) -> list[str]:
    """List the registered names, in alphabetical order.

    Args:
        group: Kind of the objects.
        builtin: Names of TrueOdds itself, which nobody else may register.

    Raises:
        ExtensionError: Two distributions register one name, a name is one of `builtin`, or it has other characters than
            letters, digits and underscores.
    """
    claims = _claims(group, tuple(sys.path))
    for name in claims:
        find(group, name, builtin)
    return sorted(claims)


def listing(group: Group, builtin: Collection[str]) -> list[Extension]:
    """List the registered objects by name, without importing them.

    Raises:
        ExtensionError: As in `names`.
    """
    return [extension for name in names(group, builtin) if (extension := find(group, name, builtin)) is not None]


def lookup(group: Group, choice: Collection[str]) -> list[Extension]:
    """List the registered objects that have one of the wanted names."""
    claims = _claims(group, tuple(sys.path))
    return [extension for name in sorted(set(choice)) for extension in claims.get(name, ())]


def source(group: Group, name: str) -> str:
    """Return words that name the distribution of a registered object; "" for any other name."""
    return "".join(f"from {extension.distribution}" for extension in lookup(group, [name])[:1])


def find(group: Group, name: str, builtin: Collection[str]) -> Extension | None:
    """Return the object that is registered under a name; None if there is none.

    Args:
        group: Kind of the object.
        name: The name.
        builtin: Names of TrueOdds itself.

    Raises:
        ExtensionError: As in `names`, for this name.
    """
    claims = _claims(group, tuple(sys.path)).get(name, ())
    if not claims:
        return None
    first, *others = claims
    if name in builtin:
        raise ExtensionError(
            f"the distributions {OURS} and {first.distribution} both have the {_ONE[group]} {name!r}; a name belongs to"
            f" one of them: give the other's entry point in the group {OURS}.{group} another name, or: pip uninstall"
            f" {first.distribution.name}"
        )
    if others:
        other = others[0].distribution
        raise ExtensionError(
            f"the distributions {first.distribution} and {other} both register the {_ONE[group]} {name!r}; a name"
            f" belongs to one of them: rename one entry point, or: pip uninstall {other.name}"
        )
    if not re.fullmatch(NAME, name):
        raise first.error("has a name that is not allowed; allowed are letters, digits and underscores, a letter first")
    return first


def missing(group: Group, name: str, requirement: object) -> ExtensionError:
    """Build the error for an object whose distribution is not installed.

    Args:
        group: Kind of the object.
        name: Name of the object.
        requirement: Requirement that a file gives. Files may come from strangers, so another text is not repeated as a
            command.
    """
    what = f"{_ONE[group]} {short(name)}"
    if not isinstance(requirement, str) or not re.fullmatch(_REQUIREMENT, requirement):
        return ExtensionError(
            f"{what} is not installed, and its distribution is {short(requirement)}; allowed is NAME==VERSION"
        )
    return ExtensionError(
        f"{what} belongs to the distribution {requirement.replace('==', ' ')}, which is not installed here; install it:"
        f" pip install '{requirement}'"
    )


def origin(group: Group, name: str, value: object) -> Distribution | None:
    """Return the distribution that registers this very object under this name; None if there is none."""
    claims = _claims(group, tuple(sys.path)).get(name, ())
    return claims[0].distribution if len(claims) == 1 and claims[0].load() is value else None


def hashes(*groups: Group) -> dict[str, str]:
    """Return title -> SHA-256 for each registered object of some groups.

    A later version, another name or a changed file gives another pair.
    """
    every = (extension for group in groups for extension in lookup(group, _claims(group, tuple(sys.path))))
    return {extension.title: extension.sha256() for extension in every}


@cache
def _claims(group: Group, path: tuple[str, ...]) -> dict[str, tuple[Extension, ...]]:
    """Return each registered name with all objects that claim it, for one value of `sys.path`."""
    claims: dict[str, list[Extension]] = {}
    for entry in metadata.entry_points(group=f"{OURS}.{group}"):
        assert entry.dist is not None, "an entry point of an installed distribution"
        distribution = Distribution(entry.dist.name, entry.dist.version)
        claims.setdefault(entry.name, []).append(Extension(group, entry.name, entry.value, distribution))
    return {name: tuple(extensions) for name, extensions in claims.items()}


def _files(path: Path) -> Iterator[Path]:
    """Yield a file, or the files of a package; bytecode is left out."""
    if path.is_file():
        yield path
    for file in path.rglob("*"):
        if file.is_file() and "__pycache__" not in file.parts:
            yield file
