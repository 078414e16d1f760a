"""The commands that installed packages register in the entry-point group `trueodds.commands`."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from trueodds.cli import Command
from trueodds.errors import UserError

GROUP = "trueodds.commands"
HOME = Path(__file__).resolve().parents[2]
"""Folder that contains `pipeline` and `service` beside `trueodds`: a checkout, or site-packages."""


class NameClashError(UserError, ImportError):
    """Error if Python finds another package under the name of one of TrueOdds's packages.

    The message names it and states what to do.
    """


def registered_commands() -> tuple[dict[str, Command], list[str]]:
    """Return the commands that installed packages register, and a message for each package that cannot be loaded."""
    commands: dict[str, Command] = {}
    clashes = []
    for entry in metadata.entry_points(group=GROUP):
        try:
            commands |= _table(entry)
        except NameClashError as error:
            clashes.append(f"error: {error}")
    return commands, clashes


def _table(entry: metadata.EntryPoint) -> Mapping[str, Command]:
    """Return the commands of one package."""
    name = entry.module.partition(".")[0]
    own, spec = HOME / name, importlib.util.find_spec(name)
    folders = [Path(folder).resolve() for folder in (spec and spec.submodule_search_locations) or ()]
    if spec and own.is_dir() and own not in folders:
        raise NameClashError(_clash(name, own, Path(spec.origin) if spec.origin else folders[0]))
    try:
        table: Mapping[str, Command] = entry.load()
    except (ModuleNotFoundError, AttributeError):
        if not own.is_dir():
            raise
        # The other package was installed into the same folder, over TrueOdds's files.
        raise NameClashError(_clash(name, own, own / "__init__.py")) from None
    return table


def _clash(name: str, own: Path, other: Path) -> str:
    owners = [owner for owner in metadata.packages_distributions().get(name, ()) if owner != "trueodds"]
    whose = f" of {' and '.join(owners)}" if owners else ""
    return (
        f"the commands of {own} are not available: `import {name}` takes {other}{whose}. Give TrueOdds an environment"
        " of its own (python -m venv .venv, and install its checkout or wheel there), or take that package's folder off"
        " Python's path (PYTHONPATH; with python -m, the current folder)"
    )
