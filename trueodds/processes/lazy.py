"""Imports that cost less: names of a package at their first use, and a garbage collector that seldom visits them."""

from __future__ import annotations

import atexit
import gc
import sys
from collections.abc import Callable, Mapping
from importlib import import_module

OLDEST = 1000
"""Collections of the middle generation before the garbage collector visits the oldest objects."""


def at_first_use(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """Return the `__getattr__` of a package.

    No name may be that of a module in the package's folder: an import of that module would hide it.

    Args:
        package: Name of the package.
        homes: Module -> names that the package takes from it, with spaces between them. Modules of the package that are
            names themselves have the package as their home.
    """
    modules = {name: module for module, names in homes.items() for name in names.split()}

    def attribute(name: str) -> object:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = modules[name]
        value = import_module(f"{package}.{name}") if home == package else getattr(import_module(home), name)
        setattr(sys.modules[package], name, value)
        return value

    return attribute


def spare_old_objects() -> None:
    """Make this program's garbage collector visit old objects seldom, and not once more at the end.

    Imports make up to a million objects that stay. By default all of them are visited whenever they have grown by a
    quarter, and again when the process ends: about a fifth of a command's processor time. Young garbage is collected as
    before, and cycles that grew old stay longer. A program calls this once it starts; a library leaves the choice to
    its program.
    """
    gc.set_threshold(*gc.get_threshold()[:2], OLDEST)
    atexit.unregister(gc.freeze)
    atexit.register(gc.freeze)
